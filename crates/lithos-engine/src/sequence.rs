//! The passes of one slot: what it has taken in, and how it takes in more.

use lithos_compiler::{MAX_DECODE_ROWS, OUTPUT_CHOICES, OUTPUT_LOGITS, SlotRows, StepState};
use lithos_model::text::TokenId;

use crate::engine::Engine;
use crate::error::EngineError;
use crate::further::Waiting;
use crate::rounds::{Drained, LoopStart, MOST_VISIT, Rounds, Visit};

/// What a slot has taken in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slot {
    /// Committed tokens.
    pub(crate) tokens: Vec<TokenId>,
    /// Position that the recurrent state stands at; up to the committed position the log has the rest.
    pub(crate) state_position: usize,
    /// Key/value pages.
    pub(crate) pages: Vec<u32>,
    /// Tokens before the last cut.
    pub(crate) cut: usize,
    /// Up to here all passes were prefill passes that the rule of cuts asks for.
    pub(crate) canonical: usize,
    /// Rows of the last decode pass that are not yet accepted or rejected.
    pub(crate) undecided: Vec<TokenId>,
    /// In a loop on the device, the token that the next pass takes in.
    pub(crate) anchor: Option<TokenId>,
    /// What its multi-token prediction layer, if the model has one, has yet to take in.
    pub(crate) waiting: Waiting,
}

/// One slot of an engine, to run passes on.
pub struct Sequence<'e> {
    pub(crate) engine: &'e mut Engine,
    pub(crate) slot: usize,
}

impl<'e> Sequence<'e> {
    pub(crate) fn new(engine: &'e mut Engine, slot: usize) -> Self {
        Sequence { engine, slot }
    }

    /// Tokens committed so far.
    pub fn tokens(&self) -> &[TokenId] {
        &self.engine.slots[self.slot].tokens
    }

    /// Tokens of the vocabulary: logits of a row.
    pub fn vocabulary(&self) -> usize {
        self.engine.vocabulary()
    }

    /// Empties the slot.
    pub fn reset(&mut self) {
        let slot = &mut self.engine.slots[self.slot];
        self.engine.pages.release(&mut slot.pages);
        *slot = Slot::default();
        self.engine.backend.reset(self.slot);
    }

    /// Takes in tokens through prefill passes, whose chunks end where `prefix/cuts.rs` says, and hands the logits of the last
    /// `logit_rows` tokens to `visit`, each with the token's index among `tokens`.
    ///
    /// # Errors
    /// [`EngineError`] if the tokens do not fit or a pass failed.
    pub fn prefill(
        &mut self,
        tokens: &[TokenId],
        logit_rows: usize,
        mut visit: impl FnMut(usize, &[f32]),
    ) -> Result<(), EngineError> {
        self.make_room(tokens)?;
        let mut taken = 0;
        while taken < tokens.len() {
            let chunk = self.next_chunk(&tokens[taken..]);
            self.prefill_chunk(&tokens[taken..taken + chunk])?;
            let first_wanted = tokens.len().saturating_sub(logit_rows).max(taken);
            self.visit_rows(taken, chunk, first_wanted - taken, &mut visit)?;
            taken += chunk;
        }
        Ok(())
    }

    /// Rows of the next prefill pass, of the tokens that are left.
    pub(crate) fn next_chunk(&self, left: &[TokenId]) -> usize {
        let slot = &self.engine.slots[self.slot];
        self.engine.prefixes.cuts().rows(slot.cut, slot.tokens.len(), left)
    }

    /// Takes in one chunk without logits. There must be room.
    pub(crate) fn prefill_chunk(&mut self, tokens: &[TokenId]) -> Result<(), EngineError> {
        let step = StepState::single(self.rows(tokens.len()), 0);
        self.engine.backend.prefill(&step, &ids(tokens))?;
        let position = self.tokens().len();
        self.note_rows(tokens, position);
        let slot = &mut self.engine.slots[self.slot];
        let end = position + tokens.len();
        let cuts = self.engine.prefixes.cuts();
        let at_cut = cuts.next(slot.cut, position, tokens) == Some(tokens.len());
        // A pass that ended because the tokens did is one that another prompt would not have.
        if slot.canonical == position && (at_cut || cuts.ends_pass(end)) {
            slot.canonical = end;
        }
        if at_cut {
            slot.cut = end;
        }
        slot.tokens.extend_from_slice(tokens);
        slot.state_position = end;
        self.take_in_further()
    }

    /// Visits logits of rows `first..count` of the chunk that was taken in last, whose first token has index `base`.
    pub(crate) fn visit_rows(
        &mut self,
        base: usize,
        count: usize,
        first: usize,
        visit: &mut impl FnMut(usize, &[f32]),
    ) -> Result<(), EngineError> {
        let vocabulary = self.engine.vocabulary();
        let mut row = first;
        while row < count {
            let rows = (count - row).min(MAX_DECODE_ROWS);
            let mut step = StepState::single(self.rows(count), rows);
            step.logit_first_row = row as u32;
            self.engine.backend.prefill_head(&step)?;
            for (index, logits) in self.engine.backend.logits().chunks(vocabulary).enumerate() {
                visit(base + row + index, logits);
            }
            row += rows;
        }
        Ok(())
    }

    /// Runs up to [`MAX_DECODE_ROWS`] tokens as one decode pass and returns their logits `[tokens, vocabulary]`. None is
    /// committed until [`Sequence::accept`].
    ///
    /// # Errors
    /// [`EngineError`] if the tokens do not fit or the pass failed.
    pub fn decode(&mut self, tokens: &[TokenId]) -> Result<&[f32], EngineError> {
        self.make_room(tokens)?;
        self.take_in_further()?;
        let tokens = &tokens[..tokens.len().min(MAX_DECODE_ROWS)];
        let step = StepState::single(self.rows(tokens.len()), tokens.len());
        self.engine.backend.decode(&step, &ids(tokens))?;
        let slot = &mut self.engine.slots[self.slot];
        slot.state_position = slot.tokens.len();
        slot.undecided = tokens.to_vec();
        Ok(self.engine.backend.logits())
    }

    /// Positions that the context has left.
    pub fn room(&self) -> usize {
        self.engine.context().saturating_sub(self.tokens().len())
    }

    /// Runs a drafter's block, the last token chosen and masks, over what was taken in. Returns logits `[tokens, vocabulary]` and the
    /// block's rows before the head's norm; nothing without a drafter.
    ///
    /// # Errors
    /// As [`Sequence::decode`].
    pub fn draft(&mut self, tokens: &[TokenId]) -> Result<(&[f32], &[f32]), EngineError> {
        self.make_room(tokens)?;
        let step = StepState::single(self.rows(tokens.len()), tokens.len());
        let there = self.engine.backend.draft(&step, &ids(tokens), &[])?;
        Ok(if there { self.engine.backend.draft_rows(tokens.len()) } else { (&[], &[]) })
    }

    /// Commits the first `count` rows of the last decode pass and forgets the others.
    pub fn accept(&mut self, count: usize) {
        let slot = &mut self.engine.slots[self.slot];
        let mut accepted = std::mem::take(&mut slot.undecided);
        accepted.truncate(count);
        let position = slot.tokens.len();
        slot.tokens.extend_from_slice(&accepted);
        self.note_rows(&accepted, position);
    }

    /// Begins rounds that the device runs by itself, with the last chosen token and drafts of those that follow it: a first pass takes
    /// them in, and chooses after each row. Drafts are accepted as far as they are what was chosen. `false` if the backend has no such
    /// loop.
    ///
    /// With penalties there must be no drafts: a row's counts would miss those before it.
    ///
    /// # Errors
    /// [`EngineError`] if the tokens do not fit.
    pub fn begin_rounds(
        &mut self,
        tokens: &[TokenId],
        rounds: &Rounds,
    ) -> Result<bool, EngineError> {
        let tokens = &tokens[..tokens.len().min(MAX_DECODE_ROWS)];
        let Some(anchor) = tokens.first() else { return Err(EngineError::EmptyPrompt) };
        self.make_room(tokens)?;
        let mut step = StepState::single(self.rows(tokens.len()), tokens.len());
        step.outputs = OUTPUT_CHOICES | if rounds.logits { OUTPUT_LOGITS } else { 0 };
        step.choices[self.slot] = rounds.choice;
        let start = LoopStart { step, tokens: &ids(tokens), slot: self.slot, rounds };
        let begun = self.engine.backend.begin_loop(&start)?;
        self.engine.slots[self.slot].anchor = begun.then_some(*anchor);
        Ok(begun)
    }

    /// Runs passes of the rounds that were begun, as many as the context and the ring of tokens have room for, and brings what they chose.
    /// All but the last token are then taken in. A device may go on with `ahead` more while the host looks at those: then the next visit
    /// brings them, and [`Sequence::end_rounds`] has to be called before anything else is done with the slot.
    ///
    /// # Errors
    /// [`EngineError`] if no rounds were begun, there is no room, or a pass failed.
    pub fn rounds(&mut self, passes: usize, ahead: usize) -> Result<Visit, EngineError> {
        let Some(anchor) = self.engine.slots[self.slot].anchor else {
            return Err(EngineError::NoLoop(self.engine.backend()));
        };
        // The first pass may have drafts.
        let most = MOST_VISIT - MAX_DECODE_ROWS;
        let room = self.room().max(1);
        let passes = passes.min(most).min(room);
        let ahead = ahead.min(most).min(room - passes);
        self.reserve((passes + ahead + MAX_DECODE_ROWS - 1).min(room))?;
        let drained = self.engine.backend.run_loop(self.slot, passes, ahead)?;
        Ok(self.take_in(anchor, drained))
    }

    /// Ends the rounds. Brings what the device has chosen ahead, which is taken in as by a visit.
    ///
    /// # Errors
    /// [`EngineError`] if a pass failed.
    pub fn end_rounds(&mut self) -> Result<Vec<TokenId>, EngineError> {
        let Some(anchor) = self.engine.slots[self.slot].anchor else { return Ok(Vec::new()) };
        let drained = self.engine.backend.end_loop(self.slot)?;
        let tokens = drained.map(|drained| self.take_in(anchor, drained).tokens);
        self.engine.slots[self.slot].anchor = None;
        Ok(tokens.unwrap_or_default())
    }

    /// Commits the token that was chosen last and all but the last of those after it.
    fn take_in(&mut self, anchor: TokenId, drained: Drained) -> Visit {
        let slot = &mut self.engine.slots[self.slot];
        let tokens: Vec<TokenId> = drained.tokens.into_iter().map(TokenId).collect();
        if let Some((last, taken)) = tokens.split_last() {
            slot.tokens.push(anchor);
            slot.tokens.extend_from_slice(taken);
            slot.anchor = Some(*last);
            slot.state_position = drained.choice.state_position as usize;
        }
        Visit { tokens, ended: drained.choice.left == 0 }
    }

    /// Logits of the last pass, where they were asked for.
    pub fn logits(&self) -> &[f32] {
        self.engine.backend.logits()
    }

    /// Checks that the tokens fit and extends the slot's pages for them.
    pub(crate) fn make_room(&mut self, tokens: &[TokenId]) -> Result<(), EngineError> {
        let vocabulary = self.engine.vocabulary();
        if let Some(token) = tokens.iter().find(|token| token.index() >= vocabulary) {
            return Err(EngineError::TokenOutsideVocabulary { token: token.0, vocabulary });
        }
        self.reserve(tokens.len())
    }

    /// Extends the slot's pages for so many more tokens.
    pub(crate) fn reserve(&mut self, count: usize) -> Result<(), EngineError> {
        let (context, most) = (self.engine.context(), self.engine.most_context());
        let slot = &mut self.engine.slots[self.slot];
        let wanted = slot.tokens.len() + count;
        if wanted > context || !self.engine.pages.grow(&mut slot.pages, wanted) {
            return Err(EngineError::ContextTooLong { prompt: wanted, context, most });
        }
        self.engine.backend.set_pages(self.slot, &slot.pages);
        Ok(())
    }

    fn rows(&self, rows: usize) -> SlotRows {
        let slot = &self.engine.slots[self.slot];
        SlotRows {
            slot: self.slot as u32,
            first_row: 0,
            rows: rows as u32,
            position: slot.tokens.len() as u32,
            state_position: slot.state_position as u32,
        }
    }
}

fn ids(tokens: &[TokenId]) -> Vec<u32> {
    tokens.iter().map(|token| token.0).collect()
}
