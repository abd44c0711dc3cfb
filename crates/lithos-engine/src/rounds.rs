//! Rounds that a device runs by itself: it chooses tokens, takes them in, and ends at an end token or a limit. The host looks at what
//! was chosen only now and then.

use lithos_compiler::{Choice, StepState};
use lithos_model::text::TokenId;

/// Tokens that one visit to the device can bring at most.
pub const MOST_VISIT: usize = lithos_kernels::RING_TOKENS;

/// How a device chooses the tokens of a slot, and what it needs for it. Empty lists are those that `choice.adjust` does not ask for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rounds {
    /// Parameters, end tokens and the limit.
    pub choice: Choice,
    /// How often each token was there before: the upper bit for the prompt, the others count generated ones.
    pub counts: Vec<u32>,
    /// Added to the logit of each token.
    pub biases: Vec<f32>,
    /// Tokens that may be chosen, one bit each, the first in the lowest bit of the first word.
    pub mask: Vec<u32>,
    /// Write logits as well: those of the last pass can then be looked at. For checks.
    pub logits: bool,
}

/// The upper bit of a token's count: it is in the prompt.
pub const IN_PROMPT: u32 = 1 << 31;

/// What a visit brings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Visit {
    /// Tokens that were chosen since the last visit.
    pub tokens: Vec<TokenId>,
    /// Whether an end token or the limit was reached: further passes do nothing.
    pub ended: bool,
}

/// The start of a loop, as a backend takes it.
pub(crate) struct LoopStart<'a> {
    /// The first pass: rows of one slot that all want logits, and how its tokens are chosen.
    pub(crate) step: StepState,
    /// Tokens of the first pass: the last that was chosen, then drafts.
    pub(crate) tokens: &'a [u32],
    /// The slot.
    pub(crate) slot: usize,
    /// What the choice needs beside the step's state.
    pub(crate) rounds: &'a Rounds,
}

/// What a visit brings, as a backend gives it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Drained {
    /// Tokens that were chosen since the last visit.
    pub(crate) tokens: Vec<u32>,
    /// How far the slot has come.
    pub(crate) choice: Choice,
}
