//! Runs Metal kernels without Apple's chip: the text is compiled with clang as it is, behind a header of our own that
//! stands in for `metal_stdlib`, and every lane of every simdgroup runs as a fiber.
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
