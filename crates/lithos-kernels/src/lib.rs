//! Task bodies for graphics processors, in one dialect that is the common subset of the Metal Shading Language and CUDA C++.
//!
//! Each header in `kernels/` holds one kind of task as arithmetic only; `prelude/` makes the dialect's words mean something in
//! each language. Parameters reach a body as a record in device memory ([`records`]), whose C text is made from the Rust
//! definition, so that both sides always agree. Nothing here knows a model: the compiler puts calls of these bodies together.

pub mod records;

use std::fmt::Write as _;

/// The language a text is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Language {
    /// Metal Shading Language, 3.2 or later.
    Metal,
    /// CUDA C++17.
    Cuda,
}

impl Language {
    /// The head of a kernel: what it receives, in the order of its bindings.
    pub fn signature(self, name: &str) -> String {
        match self {
            Language::Metal => format!(
                "kernel void {name}(device const uchar* weights [[buffer(0)]], device float* arena [[buffer(1)]],\n    \
                 device uchar* states [[buffer(2)]], device StepState* step [[buffer(3)]],\n    \
                 device uint* tokens [[buffer(4)]], device const uint* pages [[buffer(5)]],\n    \
                 device const uint* records [[buffer(6)]], device atomic_uint* joins [[buffer(7)]],\n    \
                 uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],\n    \
                 uint simdgroups [[simdgroups_per_threadgroup]], uint index [[threadgroup_position_in_grid]],\n    \
                 uint workers [[threadgroups_per_grid]])"
            ),
            Language::Cuda => format!(
                "extern \"C\" __global__ void __launch_bounds__(512, 1) {name}(const uchar* weights, float* arena, uchar* states, StepState* step,\n    \
                 uint* tokens, const uint* pages, const uint* records, uint* joins)"
            ),
        }
    }

    /// Threads of a worker at most: on CUDA kernels are made for as many, and are fastest with them.
    pub const fn most_threads(self) -> u32 {
        match self {
            Language::Metal => 128,
            Language::Cuda => 32 * MOST_SIMDGROUPS as u32,
        }
    }

    /// Bytes of dynamic shared memory that every launch should have, for the rows that projections multiply. Kernels ask how much
    /// they got; with less, rows that do not fit are staged again and again.
    pub const fn launch_memory(self) -> usize {
        match self {
            Language::Metal => 0,
            Language::Cuda => CUDA_OPERAND_BYTES,
        }
    }

    /// The prelude: what the dialect's words mean.
    fn prelude(self) -> &'static str {
        match self {
            Language::Metal => include_str!("../prelude/metal.h"),
            Language::Cuda => include_str!("../prelude/cuda.h"),
        }
    }
}

/// The headers with task bodies, in the order in which they build on each other.
const BODIES: [&str; 12] = [
    include_str!("../kernels/worker.h"),
    include_str!("../kernels/codes.h"),
    include_str!("../kernels/matrix.h"),
    include_str!("../kernels/gather.h"),
    include_str!("../kernels/operand.h"),
    include_str!("../kernels/linear.h"),
    include_str!("../kernels/attention.h"),
    include_str!("../kernels/delta.h"),
    include_str!("../kernels/rows.h"),
    include_str!("../kernels/head.h"),
    include_str!("../kernels/route.h"),
    include_str!("../kernels/experts.h"),
];

/// Simdgroups of a worker at most, so that what its task bodies share fits the memory that the prelude gives them: 16 on CUDA, where
/// kernels are made for as many.
pub const MOST_SIMDGROUPS: usize = 16;

/// Bytes of dynamic shared memory of a launch on CUDA, where projections stage the rows that they multiply. With what kernels declare it
/// is all that a block can have on Hopper.
pub const CUDA_OPERAND_BYTES: usize = 192 << 10;

/// Positions of the convolution's history and of the delta rule's log; `RING_ROWS` of `delta.h`.
pub const RING_ROWS: usize = 32;

/// Tokens of a page; `PAGE_TOKENS` of `attention.h`.
pub const PAGE_TOKENS: usize = 64;

/// Widest head of attention and of the delta rule, from `MOST_LANE_WIDTH` and `MOST_QUARTER_WIDTH` of `worker.h`.
pub const MOST_HEAD_WIDTH: (usize, usize) = (256, 128);

/// Bytes that a worker needs to stage a column of eight rows: each value as the sum of two halves, or as a float.
pub const STAGED_COLUMN_BYTES: usize = 32;

/// Teams of workers at most that share the columns of a projection; `MOST_TEAMS` of `linear.h`.
pub const MOST_TEAMS: usize = 256;

/// Workers at most that share the head; `MOST_CHOOSERS` of `head.h`.
pub const MOST_CHOOSERS: usize = 256;

/// Tokens that a worker keeps of a row at most, and most of top-k; `LIST_ENTRIES` of `head.h`.
pub const LIST_ENTRIES: usize = 64;

/// Tokens of a slot's ring; `RING_TOKENS` of `head.h`.
pub const RING_TOKENS: usize = 64;

/// Experts of a mixture at most, from `MOST_LANE_EXPERTS` of `route.h`.
pub const MOST_EXPERTS: usize = 512;

/// Experts of a row at most; `MOST_CHOSEN` of `route.h`.
pub const MOST_CHOSEN: usize = 16;

/// What a partial result of attention holds beside the weighted values, of which it uses two floats; `PARTIAL_HEADER` of `attention.h`.
pub const PARTIAL_HEADER: usize = 4;

/// Keys of the first ranges that attention is cut into; `FINE_KEYS` of `attention.h`.
pub const FINE_KEYS: usize = 32;

/// Keys of a range of attention at most; `MOST_RANGE_KEYS` of `attention.h`.
pub const MOST_RANGE_KEYS: usize = 256;

/// Everything that stands before the kernels of a text: prelude, records, task bodies. `state` is the C text of the step's state.
pub fn library(language: Language, state: &str) -> String {
    let mut text = String::new();
    let prelude = language.prelude();
    let _ = writeln!(text, "{prelude}\n{state}\n{}", records::text());
    for body in BODIES {
        let _ = writeln!(text, "{body}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number that a header defines.
    fn defined(text: &str, name: &str) -> usize {
        let line = text
            .lines()
            .find(|line| line.starts_with(&format!("#define {name} ")))
            .unwrap_or_else(|| panic!("{name} is defined"));
        line.rsplit(' ')
            .next()
            .and_then(|number| number.trim_end_matches('u').parse().ok())
            .expect("a number")
    }

    #[test]
    fn rust_and_headers_agree_on_sizes() {
        let bodies = BODIES.concat();
        assert_eq!(defined(&bodies, "RING_ROWS"), RING_ROWS);
        assert_eq!(defined(&bodies, "PAGE_TOKENS"), PAGE_TOKENS);
        assert_eq!(defined(&bodies, "MOST_TEAMS"), MOST_TEAMS);
        assert_eq!(defined(&bodies, "MOST_CHOOSERS"), MOST_CHOOSERS);
        assert_eq!(defined(&bodies, "LIST_ENTRIES"), LIST_ENTRIES);
        assert_eq!(defined(&bodies, "RING_TOKENS"), RING_TOKENS);
        assert_eq!(defined(&bodies, "PARTIAL_HEADER"), PARTIAL_HEADER);
        assert_eq!(defined(&bodies, "MOST_LANE_EXPERTS") * 32, MOST_EXPERTS);
        assert_eq!(defined(&bodies, "MOST_CHOSEN"), MOST_CHOSEN);
        assert_eq!(defined(&bodies, "FINE_KEYS"), FINE_KEYS);
        assert_eq!(defined(&bodies, "MOST_RANGE_KEYS"), MOST_RANGE_KEYS);
        assert_eq!(defined(&bodies, "BLOCK_ROWS") * 4, STAGED_COLUMN_BYTES);
        assert_eq!(defined(&bodies, "MOST_LANE_WIDTH") * 32, MOST_HEAD_WIDTH.0);
        assert_eq!(defined(&bodies, "MOST_QUARTER_WIDTH") * 4, MOST_HEAD_WIDTH.1);
    }

    #[test]
    fn what_workers_share_fits() {
        let bodies = BODIES.concat();
        let (attention_width, key_width) = MOST_HEAD_WIDTH;
        let (rows, block_rows) = (defined(&bodies, "MOST_ROWS"), defined(&bodies, "BLOCK_ROWS"));
        let step_floats = defined(&bodies, "STEP_TILES") * block_rows * 16;
        for (language, simdgroups) in [(Language::Metal, 4), (Language::Cuda, MOST_SIMDGROUPS)] {
            let shared = defined(language.prelude(), "SHARED_FLOATS");
            let requested = defined(language.prelude(), "REQUESTED_UNITS");
            let sets = defined(language.prelude(), "SUM_SETS");
            // Sums of some steps, statistics of rows; a lane's columns of a unit are 16 words at most.
            let projection = simdgroups * (sets * step_floats + 2 * block_rows);
            let operand = simdgroups * requested * 32 * 16;
            match language {
                Language::Metal => assert!(projection + operand <= shared),
                Language::Cuda => {
                    assert!(operand * 4 <= CUDA_OPERAND_BYTES);
                    // Beside the ring, a slice of a matrix has room in half precision.
                    let prelude = language.prelude();
                    let ring = defined(prelude, "RING_UNITS") * defined(prelude, "RING_SLOT_WORDS");
                    let slice = CUDA_OPERAND_BYTES / STAGED_COLUMN_BYTES * block_rows * 2;
                    assert!(simdgroups * ring * 4 + slice <= CUDA_OPERAND_BYTES);
                }
            }
            assert!(projection <= shared);
            // Lists of simdgroups that merge, and the tokens that they choose.
            assert!(simdgroups * 2 * LIST_ENTRIES + rows <= sets * simdgroups * step_floats);
            // A tile of queries and its scores; shares of a merge.
            let scores = MOST_RANGE_KEYS + 4;
            assert!(8 * (attention_width.max(MOST_RANGE_KEYS) + scores) <= shared);
            let shares = defined(&bodies, "MERGE_SHARES");
            assert!(shares * (attention_width + 1) <= shared);
            // Experts, weights and the first ones of their groups.
            assert!(3 * rows * MOST_CHOSEN <= shared);
            // Queries and keys of all rows.
            assert!(2 * rows * key_width <= shared);
            match language {
                Language::Metal => assert!(shared * 4 <= 32 << 10, "Apple's limit"),
                Language::Cuda => assert!(shared * 4 + CUDA_OPERAND_BYTES <= 227 << 10, "Hopper's"),
            }
        }
    }

    #[test]
    fn bodies_keep_to_the_dialect() {
        for body in BODIES {
            for word in ["double", "goto", "throw", "simd_", "__shfl", "threadgroup_", "device "] {
                let code = |line: &str| line.split("//").next().unwrap_or("").to_owned();
                let found = body
                    .lines()
                    .find(|line| code(line).contains(word) && !code(line).contains("simd_fence"));
                assert_eq!(found, None, "`{word}` is not a word of the dialect");
            }
        }
    }
}
