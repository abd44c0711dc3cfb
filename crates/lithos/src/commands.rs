//! One file per command.

pub mod agent;
pub mod bench;
pub mod bench_passes;
pub mod bench_speculation;
pub mod chat;
pub mod completions;
pub mod env;
pub mod eval;
mod eval_drafts;
pub mod explain;
pub mod generate;
pub mod models;
pub mod run;
pub mod score;
pub mod serve;
