//! One request on its slot, from its admission to its end.

use std::time::{Duration, Instant};

use lithos_constraint::ConstraintError;
use lithos_model::text::TokenId;

use crate::drafters::Distribution;
use crate::output::Output;
use crate::prefix::Cut;
use crate::request::{Completion, Event, FinishReason, Request, Timings};
use crate::sampling::Sampler;
use crate::speculation::Speculation;

/// Names a generation, from when it was admitted until it has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GenerationId(pub u64);

/// A request that holds a slot.
pub(crate) struct Generation {
    pub(crate) id: GenerationId,
    pub(crate) request: Request,
    /// Tokens that may be generated.
    pub(crate) limit: usize,
    pub(crate) sampler: Sampler,
    pub(crate) output: Output,
    pub(crate) stage: Stage,
    /// Prompt tokens that were not taken in again.
    pub(crate) reused: usize,
    /// Where prefixes of the prompt may be kept; empty where they are not to be.
    pub(crate) path: Vec<Cut>,
    /// The first position whose keys and values may have been written since the cut before.
    pub(crate) unwritten: usize,
    pub(crate) started: Instant,
    /// From the start to the first token, once there is one.
    pub(crate) prefill: Option<Duration>,
    /// Whether it is known that the host has to choose its tokens.
    pub(crate) host_chooses: bool,
}

/// How far a generation has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The prompt is being taken in.
    Prefill {
        /// Tokens of it that are.
        done: usize,
        /// The engine's step in which it was its turn last, or it was admitted.
        turn: u64,
    },
    /// Tokens are chosen by the host, one pass after another.
    Decode {
        /// The one that was chosen last: it is not taken in yet.
        anchor: TokenId,
    },
    /// The device chooses tokens by itself.
    Device,
}

/// Where a generation's events go.
pub(crate) type OnEvent<'e> = dyn FnMut(GenerationId, Event<'_>) + 'e;

impl Generation {
    /// Chooses a token from its logits, given the draft there if it was drawn and what from. Returns it, and why the generation ends with
    /// it, if it does.
    ///
    /// # Errors
    /// [`ConstraintError`] if the form of the answer allows no token.
    pub(crate) fn choose(
        &mut self,
        logits: &[f32],
        drawn: Option<(TokenId, &Distribution)>,
        on_event: &mut OnEvent<'_>,
    ) -> Result<(TokenId, Option<FinishReason>), ConstraintError> {
        let token = match drawn {
            Some((draft, from)) => self.sampler.choose(logits, draft, from)?,
            None => self.sampler.sample(logits)?,
        };
        Ok((token, self.take(token, on_event)))
    }

    /// Takes in a token that the device has chosen.
    pub(crate) fn take_in(
        &mut self,
        token: TokenId,
        on_event: &mut OnEvent<'_>,
    ) -> Option<FinishReason> {
        self.sampler.take_in(token);
        self.take(token, on_event)
    }

    fn take(&mut self, token: TokenId, on_event: &mut OnEvent<'_>) -> Option<FinishReason> {
        let (id, complete) = (self.id, self.sampler.is_complete());
        let mut on_event = |event: Event<'_>| on_event(id, event);
        self.output.take(token, complete, self.limit, &self.request, &mut on_event)
    }

    /// Tokens that may follow the one that was chosen last and still be of use.
    pub(crate) fn left(&self) -> usize {
        self.limit.saturating_sub(self.output.tokens.len())
    }

    /// What it came to.
    pub(crate) fn complete(
        mut self,
        finish: FinishReason,
        speculation: Option<Speculation>,
        on_event: &mut OnEvent<'_>,
    ) -> Completion {
        let id = self.id;
        self.output.flush(&mut |event| on_event(id, event));
        let whole = self.started.elapsed();
        let prefill = self.prefill.unwrap_or(whole);
        let (tokens, text) = self.output.into_parts();
        Completion {
            tokens,
            text,
            finish,
            prompt_tokens: self.request.prompt.len(),
            reused_tokens: self.reused,
            timings: Timings { prefill, decode: whole.saturating_sub(prefill) },
            speculation,
        }
    }
}
