//! Runs Metal kernels without Apple's chip: the text is compiled with clang as it is, behind a header of our own that
//! stands in for `metal_stdlib`, and every lane of every simdgroup runs as a fiber.
//!
//! ```no_run
//! use lithos_emulator::{Emulator, Launch, Memory};
//!
//! let library = Emulator::new()?.compile(
//!     "#include <metal_stdlib>\nusing namespace metal;\n\
//!      kernel void twice(device float* x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] *= 2; }",
//! )?;
//! let mut memory = Memory::new();
//! let x = memory.add_bytes("x", &1.5_f32.to_le_bytes().repeat(256))?;
//! library.run(&Launch::new("twice", 8, 32).bind(0, x), &mut memory)?;
//! assert_eq!(memory.floats(x), Some(&[3.0_f32; 256][..]));
//! # Ok::<(), lithos_emulator::EmulatorError>(())
//! ```
//!
//! # How it works
//!
//! *One text.* `Emulator` writes the header beside the text, runs clang and keeps the library in a cache under a hash of the
//! text, the header, the flags, the compiler and the processor. Only one thing in the text is replaced: the declaration
//! of a threadgroup variable becomes a reference into the memory of the running threadgroup. Lines stay.
//!
//! *One thread.* Lanes run one at a time. The lanes of a simdgroup hand over to each other where they meet (a reduction, a
//! shuffle, a matrix, a barrier); simdgroups hand over where they wait and at every atomic access, to one that is drawn from
//! the seed. The same seed gives the same run. Simdgroups that only look at an atomic variable are drawn rarely, and
//! when nobody gets any further for `Launch::wait_turns` turns, the run ends and says who waits where.
//!
//! *Two builds.* The fast one is optimised and checks only what costs nothing. The checked one announces every access (clang's
//! kernel address sanitizer, with our own functions behind its calls), and for each one looks at bounds, alignment, whether
//! the memory may be written, whether it was written before it is read, and whether an earlier access to the same bytes is
//! ordered (vector clocks; see `clocks.rs`).
//!
//! # What it shows
//!
//! In both builds: results in the arithmetic of the language (`float` exact and never contracted, `half` and `bfloat` rounded after
//! each operation), lanes of a simdgroup at different operations, barriers that not all reach, values taken from lanes
//! that do not exist, waits without end, threadgroup memory above 32 KB, more than 30 bindings, parameters without a binding.
//! In the checked build also: accesses outside of what is bound, writes through pointers to constants, misaligned vectors,
//! reads of unwritten memory, and races, including barriers that order other memory than meant and atomics without
//! fences. The rules for fences are those of the language (3.2): a relaxed atomic alone orders nothing.
//! [`Emulator::check_address_spaces`] finds pointers that are passed to another address space.
//!
//! A message names the line; one about an access does so where `llvm-symbolizer` or `addr2line` is there.
//!
//! # What it cannot show
//!
//! - *The real compiler.* clang takes C++20 where Metal has C++14 with restrictions, and finds no register spills. A missing
//!   address space in a declaration is taken for `thread`, and a C-style cast from one to another passes.
//! - *The memory model as hardware has it.* Races are found by the rules, on the paths that a run takes; memory itself behaves as if
//!   every access were at once visible. Loads and stores that spin without atomics are not turned into turns: such a loop hangs.
//! - *Simdgroups as hardware runs them.* Reductions, shuffles and votes are taken to order memory within the simdgroup, loads and
//!   stores of matrices are not. Sums are folded as a tree, which Metal does not promise.
//! - *Who is resident.* A launch says how many threadgroups run together (4096 threads by default). A device may hold fewer.
//! - *Divergence inside one line.* Two calls of an operation on one line, or in one helper, look the same.
//! - *Fast math.* `exp` and its like are those of the C library, also in `fast::`.
//! - *Speed.* Nothing about time is shown.
//! - *Textures, function constants, kernels that are templates, tensors* are not there, nor threadgroup variables in macros.

mod checks;
mod clocks;
mod compile;
mod error;
mod launch;
mod machine;
mod memory;
mod run;
mod schedule;
mod shadow;
mod source;
mod symbolize;

pub use compile::{Emulator, Library};
pub use error::{AccessKind, AccessPlace, EmulatorError, Place};
pub use launch::{BINDINGS, Binding, Launch, Report, THREADGROUP_MEMORY, THREADS};
pub use memory::{BufferId, Memory, SharedBytes};
pub use source::{Kernel, Parameter, ParameterSource};
