//! The multi-token prediction layer of a slot: its keys and values follow what the slot takes in, and it predicts from where that ends.
//!
//! The layer's input at position t is the target's row t and the token at t + 1, so a row that was taken in waits for its token. Pairs of
//! both also wait, for a pass of the layer that predicts, or until there are as many as a pass has rows.

use lithos_compiler::{MAX_DECODE_ROWS, SlotRows, StepState};
use lithos_model::text::TokenId;

use crate::error::EngineError;
use crate::sequence::Sequence;

/// Pairs of a slot that the layer has yet to take in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waiting {
    /// Position of the first.
    position: usize,
    /// Their tokens.
    tokens: Vec<TokenId>,
    /// Their rows, and the one that waits for its token, each after the target's last norm. Empty before anything was taken in.
    rows: Vec<f32>,
}

/// What a step of the layer predicts.
#[derive(Clone, Debug, PartialEq)]
pub struct Further<'s> {
    /// Logits of the token after the step's.
    pub logits: &'s [f32],
    /// The layer's own row, after its last norm, from which the next step goes on.
    pub row: Vec<f32>,
}

impl Sequence<'_> {
    /// Notes tokens that were taken in by the target's last pass, whose first rows they were, at this position.
    pub(crate) fn note_rows(&mut self, tokens: &[TokenId], position: usize) {
        let Some(norms) = &self.engine.further else { return };
        let waiting = &mut self.engine.slots[self.slot].waiting;
        let hidden = self.engine.backend.hidden(tokens.len());
        for (index, (token, row)) in
            tokens.iter().zip(hidden.chunks(norms.target.width())).enumerate()
        {
            if waiting.rows.is_empty() {
                // There is no row before it, or it is not known: the layer does without this pair.
                waiting.position = position + index;
            } else {
                waiting.tokens.push(*token);
            }
            norms.target.append(row, &mut waiting.rows);
        }
    }

    /// Has the layer take in pairs, a whole pass of them at a time.
    pub(crate) fn take_in_further(&mut self) -> Result<(), EngineError> {
        while self.engine.slots[self.slot].waiting.tokens.len() >= MAX_DECODE_ROWS {
            self.further_pass(MAX_DECODE_ROWS, 0)?;
        }
        Ok(())
    }

    /// Runs a pass over the first pairs that wait, with logits of the last ones.
    fn further_pass(&mut self, pairs: usize, logit_rows: usize) -> Result<bool, EngineError> {
        let waiting = &mut self.engine.slots[self.slot].waiting;
        let position = waiting.position;
        let tokens: Vec<TokenId> = waiting.tokens.drain(..pairs).collect();
        let width = waiting.rows.len() / (waiting.tokens.len() + pairs + 1);
        let rows: Vec<f32> = waiting.rows.drain(..pairs * width).collect();
        waiting.position += pairs;
        self.run_further(position, &tokens, &rows, logit_rows)
    }

    fn run_further(
        &mut self,
        position: usize,
        tokens: &[TokenId],
        rows: &[f32],
        logit_rows: usize,
    ) -> Result<bool, EngineError> {
        let slot = SlotRows {
            slot: self.slot as u32,
            first_row: 0,
            rows: tokens.len() as u32,
            position: position as u32,
            state_position: position as u32,
        };
        let mut step = StepState::single(slot, logit_rows);
        step.logit_first_row = (tokens.len() - logit_rows) as u32;
        let ids: Vec<u32> = tokens.iter().map(|token| token.0).collect();
        self.engine.backend.draft(&step, &ids, rows)
    }

    /// Predicts the token after `token`, which is `step` places after
    /// the one that follows what was taken in; `row` is the row of the step before, and not given at the first. `None` without a layer, or
    /// where nothing was taken in.
    ///
    /// # Errors
    /// [`EngineError`] if the context has no room or a pass failed.
    pub fn predict_further(
        &mut self,
        token: TokenId,
        row: Option<&[f32]>,
        step: usize,
    ) -> Result<Option<Further<'_>>, EngineError> {
        if self.engine.further.is_none() || self.engine.slots[self.slot].waiting.rows.is_empty() {
            return Ok(None);
        }
        self.take_in_further()?;
        self.reserve(step)?;
        let position = self.tokens().len() + step - 1;
        let pairs = match row {
            Some(row) => {
                self.run_further(position, &[token], row, 1)?;
                1
            }
            None => {
                // The anchor completes the pair of the last row, which waits again afterwards: it is taken in with what the round commits.
                let waiting = &mut self.engine.slots[self.slot].waiting;
                let pairs = waiting.tokens.len() + 1;
                let width = waiting.rows.len() / pairs;
                let last = waiting.rows[(pairs - 1) * width..].to_vec();
                waiting.tokens.push(token);
                waiting.rows.extend_from_slice(&last);
                self.further_pass(pairs, 1)?;
                self.engine.slots[self.slot].waiting.position -= 1;
                pairs
            }
        };
        let (logits, rows) = self.engine.backend.draft_rows(pairs);
        let Some(norms) = &self.engine.further else { return Ok(None) };
        let width = norms.own.width();
        let mut next = Vec::with_capacity(width);
        norms.own.append(&rows[(pairs - 1) * width..][..width], &mut next);
        Ok(Some(Further { logits: &logits[..self.engine.vocabulary()], row: next }))
    }
}

impl Waiting {
    /// Position of the first pair that waits; `None` before anything was taken in.
    pub(crate) fn position(&self) -> Option<usize> {
        (!self.rows.is_empty()).then_some(self.position)
    }

    /// Appends it as bytes: position, tokens, rows, each after its number, little-endian.
    pub(crate) fn save(&self, out: &mut Vec<u8>) {
        for number in [self.position, self.tokens.len(), self.rows.len()] {
            out.extend((number as u64).to_le_bytes());
        }
        out.extend(self.tokens.iter().flat_map(|token| token.0.to_le_bytes()));
        out.extend(self.rows.iter().flat_map(|value| value.to_le_bytes()));
    }

    /// What was saved, and the bytes after it; `None` if it is not what waits for a layer whose rows have this width (0 for no layer).
    pub(crate) fn load(bytes: &[u8], width: usize) -> Option<(Self, &[u8])> {
        let (numbers, bytes) = bytes.split_at_checked(24)?;
        let mut numbers =
            numbers.as_chunks::<8>().0.iter().map(|number| u64::from_le_bytes(*number));
        let mut number = || usize::try_from(numbers.next()?).ok();
        let (position, tokens, floats) = (number()?, number()?, number()?);
        let rows = if floats == 0 { tokens } else { tokens.checked_add(1)? };
        if rows.checked_mul(width)? != floats || (width == 0 && tokens > 0) {
            return None;
        }
        let (ids, bytes) = bytes.split_at_checked(tokens.checked_mul(4)?)?;
        let (values, bytes) = bytes.split_at_checked(floats.checked_mul(4)?)?;
        let tokens = ids.as_chunks::<4>().0.iter().map(|id| TokenId(u32::from_le_bytes(*id)));
        let rows = values.as_chunks::<4>().0.iter().map(|value| f32::from_le_bytes(*value));
        Some((Waiting { position, tokens: tokens.collect(), rows: rows.collect() }, bytes))
    }

    /// Whether it can be that of a slot that has taken in so many tokens.
    pub(crate) fn fits(&self, taken_in: usize, vocabulary: usize) -> bool {
        let known = self.tokens.iter().all(|token| token.index() < vocabulary);
        let place = self.rows.is_empty()
            || self.position.checked_add(self.tokens.len() + 1) == Some(taken_in);
        known && place
    }
}
