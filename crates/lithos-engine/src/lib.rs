//! Slots, rounds, sampling and limits: from a prompt to tokens.
//!
//! An [`Engine`] holds one model on one backend. [`Engine::generate`] serves a request; [`Engine::sequence`] gives the passes
//! themselves (prefill, decode of several rows, acceptance of some of them), which is what scoring and tests use.

mod backend;
mod backend_cpu;
#[cfg(feature = "cuda")]
mod backend_cuda;
mod backend_emulator;
mod backend_interpreter;
#[cfg(feature = "cuda")]
mod cuda_loop;
#[cfg(feature = "cuda")]
mod cuda_plan;
mod drafters;
mod engine;
mod error;
mod further;
mod memory;
mod noise;
mod options;
mod pages;
mod passes;
mod prefix;
mod request;
mod restore;
mod rounds;
mod sampling;
mod sequence;
mod speculation;
mod stop;
mod trace;
mod verify_length;

pub use drafters::{
    Distribution, Draft, DraftLength, Drafter, Draws, Dspark, MOST_DRAFTS, Mtp, Outcome, Proposal,
    Proposals,
};
pub use engine::{Engine, MemoryUse, choose_backend};
pub use error::EngineError;
pub use further::Further;
pub use lithos_compiler::{
    ADJUST_BIAS, ADJUST_COUNTS, ADJUST_MASK, Choice, Fusion, MAX_DECODE_ROWS, MAX_ENDS,
};
pub use lithos_cpu::simd::Isa;
pub use lithos_model::text::TokenId;
pub use options::{BackendKind, EngineOptions};
pub use passes::{LaunchTime, PassTimes, WeighedLaunch};
pub use prefix::{PrefixCounts, PrefixDisk, PrefixOptions};
pub use request::{Cancel, Completion, Event, FinishReason, Request, Timings};
pub use rounds::{IN_PROMPT, MOST_VISIT, Rounds, Visit};
pub use sampling::{Sampler, Sampling, largest};
pub use sequence::Sequence;
pub use speculation::{RoundTimes, Speculation};
pub use stop::StopTexts;
pub use trace::Span;
