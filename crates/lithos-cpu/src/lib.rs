//! Runs a schedule on the CPU with persistent worker threads and SIMD task bodies.

pub mod mixers;
pub mod simd;
