//! One file per command.

pub mod bench;
pub mod chat;
pub mod completions;
pub mod generate;
pub mod score;
pub mod serve;
