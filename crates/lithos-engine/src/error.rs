//! What can go wrong, one line each.

use lithos_compiler::Fusion;
use lithos_compiler::device::{DeviceError, LoadError};
use lithos_cpu::{CpuError, LaunchError};
use lithos_emulator::EmulatorError;
use lithos_graph::InterpreterError;
use lithos_model::ModelError;
use lithos_model::text::TextError;
use std::path::PathBuf;

use thiserror::Error;

use crate::options::BackendKind;

/// Why a model cannot be opened or a request not be served.
#[derive(Debug, Error)]
pub enum EngineError {
    /// The model cannot be opened.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// Its tokenizer or template cannot be used.
    #[error(transparent)]
    Text(#[from] TextError),
    /// The tokenizer could not be loaded when the model was opened.
    #[error("{0}")]
    NoText(String),
    /// The backend cannot run the model.
    #[error(transparent)]
    Cpu(#[from] CpuError),
    /// A pass failed.
    #[error("a pass failed: {0}")]
    Launch(#[from] LaunchError),
    /// There is no program for graphics processors.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Weights cannot be put into such a program's order.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The emulator cannot run, or found a fault in a kernel.
    #[error(transparent)]
    Emulator(#[from] EmulatorError),
    /// There is no card, or it cannot run the model.
    #[cfg(feature = "cuda")]
    #[error(transparent)]
    Cuda(#[from] lithos_cuda::CudaError),
    /// This build has no backend for cards.
    #[error(
        "this build has no CUDA backend: build it with the feature `cuda`, or choose `--backend cpu`"
    )]
    NoCuda,
    /// Workers of a launch waited for each other in vain.
    #[error(
        "workers of {region} did not meet, at fusion level {fusion}: choose `none`, which waits for nothing"
    )]
    Join {
        /// The region, and the phases before and after the join.
        region: String,
        /// The level.
        fusion: Fusion,
    },
    /// Only cards are measured pass by pass.
    #[error("the backend {0} cannot be measured pass by pass: choose `--backend cuda`")]
    NotMeasured(BackendKind),
    /// A drafter that is not there.
    #[error("{}: the model has no drafter of its own: there is no draft/config.json beside it", .0.display())]
    NoDrafter(PathBuf),
    /// A backend that does not run drafters.
    #[error("backend {0} does not run drafters: take --draft copy, or --backend cpu")]
    NoDraftPass(BackendKind),
    /// Prefixes on disk, of a backend that cannot save states.
    #[error(
        "the backend {0} cannot save what it took in, so prefixes cannot be kept: leave out --prefix-dir"
    )]
    NoSaving(BackendKind),
    /// The folder for prefixes cannot be made or read.
    #[error("{}: prefixes cannot be kept there: {source}", path.display())]
    PrefixFolder {
        /// The folder.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// A loop that was not begun.
    #[error("the backend {0} runs no loop of passes by itself: choose tokens pass by pass")]
    NoLoop(BackendKind),
    /// The oracle refused.
    #[error(transparent)]
    Interpreter(#[from] InterpreterError),
    /// Nothing to continue.
    #[error("the prompt is empty: there is nothing to continue")]
    EmptyPrompt,
    /// The prompt leaves no room.
    #[error(
        "the prompt has {prompt} tokens, and the context holds {context}: shorten the prompt{}",
        more_context(*context, *most)
    )]
    ContextTooLong {
        /// Tokens of the prompt.
        prompt: usize,
        /// Positions of the context.
        context: usize,
        /// Positions that the model was made for.
        most: usize,
    },
    /// More context than the model has positions.
    #[error("a context of {wanted} was asked for, and the model was made for {most} positions")]
    ContextBeyondModel {
        /// Positions asked for.
        wanted: usize,
        /// Positions that the model was made for.
        most: usize,
    },
    /// More memory than the machine has.
    #[error(
        "the model needs {needed} MB ({weights} MB of weights, {context_memory} MB for a context of {context}), and this machine has {available} MB available: lower the context"
    )]
    Memory {
        /// In all.
        needed: u64,
        /// Weights.
        weights: u64,
        /// Keys, values and states.
        context_memory: u64,
        /// Positions.
        context: usize,
        /// Memory available.
        available: u64,
    },
    /// A sampling parameter out of its range.
    #[error("{0}")]
    Sampling(String),
    /// A token id past the vocabulary.
    #[error("token id {token} is outside the vocabulary of {vocabulary}")]
    TokenOutsideVocabulary {
        /// The id.
        token: u32,
        /// Tokens of the vocabulary.
        vocabulary: usize,
    },
    /// A chunk of no rows.
    #[error("a prefill chunk must have at least one row")]
    EmptyChunk,
}

/// What else can be done about a prompt that is too long.
fn more_context(context: usize, most: usize) -> String {
    if context < most {
        format!(" or raise the context, to at most {most}")
    } else {
        "; the model was made for no more".to_owned()
    }
}

impl EngineError {
    /// Whether the request was at fault, not the engine or the model.
    pub fn is_bad_request(&self) -> bool {
        matches!(
            self,
            EngineError::EmptyPrompt
                | EngineError::ContextTooLong { .. }
                | EngineError::Sampling(_)
                | EngineError::TokenOutsideVocabulary { .. }
                | EngineError::Text(TextError::Chat(_) | TextError::NoTemplate { .. })
        )
    }
}
