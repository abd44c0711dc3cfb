//! One file per command.

pub mod bench;
pub mod bench_passes;
pub mod bench_speculation;
pub mod chat;
pub mod completions;
pub mod eval;
pub mod explain;
pub mod generate;
pub mod models;
pub mod score;
pub mod serve;
