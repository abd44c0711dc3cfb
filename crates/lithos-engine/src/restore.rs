//! What a slot holds at a cut, as bytes, and back: what the store of prefixes keeps.

use std::cmp::Reverse;
use std::ops::Range;

use lithos_graph::StateKind;
use lithos_model::text::TokenId;

use crate::backend::{StatePart, StateSizes};
use crate::engine::Engine;
use crate::error::EngineError;
use crate::further::Waiting;
use crate::prefix::{Cut, Part, RestorePoint, of_model};
use crate::sequence::{Sequence, Slot};
use crate::{PrefixCounts, PrefixOptions};

/// A restore point, told apart.
struct Parsed<'p> {
    /// Which pages each cut has, and their bytes.
    pieces: Vec<(Range<usize>, &'p [u8])>,
    waiting: Waiting,
    recurrent: &'p [u8],
}

impl Engine {
    /// Says how prefixes are kept. Without it they are, in memory, within a part of what was free when the model was opened.
    ///
    /// # Errors
    /// [`EngineError::NoSaving`] if they are to be kept on disk and the backend cannot save states; or if the folder cannot be made.
    pub fn keep_prefixes(&mut self, options: &PrefixOptions) -> Result<(), EngineError> {
        if let Some(memory) = options.memory {
            self.prefixes.set_budget(memory);
        }
        if let Some(disk) = &options.disk {
            if self.backend.state_sizes().is_none() {
                return Err(EngineError::NoSaving(self.backend()));
            }
            let numerics =
                format!("{} {}", self.backend.numerics(), self.prefixes.cuts().describe());
            let model = of_model(&self.checkpoint, &self.graph, &numerics);
            self.prefixes.open_disk(disk, model)?;
        }
        Ok(())
    }

    /// What became of prefixes.
    pub fn prefixes(&self) -> PrefixCounts {
        self.prefixes.counts()
    }

    /// The free slot that is best for a prompt: the one that still holds the most of its beginning, and of those the one that loses least.
    /// `None` if none is free.
    pub(crate) fn free_slot_for(&self, prompt: &[TokenId], reuse: bool) -> Option<usize> {
        let saves = self.backend.state_sizes().is_some();
        let holds = |slot: usize| match (reuse, saves) {
            (false, _) => 0,
            (true, false) => self.goes_on(slot, prompt),
            (true, true) => shared(&self.slots[slot].tokens, prompt),
        };
        let free = (0..self.slots()).filter(|slot| self.live[*slot].is_none());
        free.max_by_key(|slot| (holds(*slot), Reverse(self.slots[*slot].tokens.len())))
    }

    /// Has a slot hold the longest kept prefix of a prompt, or nothing. Returns how many tokens that is.
    pub(crate) fn begin(
        &mut self,
        slot: usize,
        prompt: &[TokenId],
        reuse: bool,
    ) -> Result<usize, EngineError> {
        if reuse && self.backend.state_sizes().is_none() {
            return Ok(self.go_on(slot, prompt));
        }
        if reuse {
            while let Some(point) = self.prefixes.lookup(prompt) {
                if Sequence::new(self, slot).restore(prompt, &point)? {
                    self.prefixes.used(&point);
                    return Ok(point.position());
                }
                self.prefixes.refuse(&point, "it does not fit the model");
            }
        }
        Sequence::new(self, slot).reset();
        Ok(0)
    }

    /// Where states cannot be saved: goes on from what the slot still holds, as far as the prompt begins with it.
    fn go_on(&mut self, slot: usize, prompt: &[TokenId]) -> usize {
        let kept = self.goes_on(slot, prompt);
        if kept == 0 {
            Sequence::new(self, slot).reset();
            return 0;
        }
        let slot = &mut self.slots[slot];
        if kept < slot.tokens.len() {
            slot.tokens.truncate(kept);
            slot.state_position = kept;
            slot.cut = slot.cut.min(kept);
            slot.waiting = Waiting::default();
        }
        kept
    }

    /// How many tokens that the slot holds a prompt can go on from.
    fn goes_on(&self, slot: usize, prompt: &[TokenId]) -> usize {
        let is_recurrent =
            |id| !matches!(self.graph.value(id).state(), Some(StateKind::KeyValue { .. }));
        let recurrent = self.graph.states().any(is_recurrent);
        let tokens = &self.slots[slot].tokens;
        // At least the last token is run again: its logits are needed.
        let kept = shared(tokens, prompt).min(prompt.len().saturating_sub(1));
        // Keys and values can be cut back to any position; a recurrent state cannot.
        if recurrent && kept < tokens.len() { 0 } else { kept }
    }
}

/// How many tokens two sequences begin with alike.
fn shared(tokens: &[TokenId], prompt: &[TokenId]) -> usize {
    tokens.iter().zip(prompt).take_while(|(a, b)| a == b).count()
}

impl Sequence<'_> {
    /// Keeps what the slot holds, if it stands at a cut of the path. `from` is the first position whose keys and values may have been written
    /// since the cut before. Returns whether it stands at one.
    pub(crate) fn keep(&mut self, path: &[Cut], from: usize) -> Result<bool, EngineError> {
        let Engine { backend, slots, prefixes, .. } = &mut *self.engine;
        let slot = &slots[self.slot];
        let position = slot.tokens.len();
        let at_cut = path.binary_search_by_key(&position, |cut| cut.end).ok();
        let (Some(index), Some(sizes)) = (at_cut, backend.state_sizes()) else { return Ok(false) };
        if slot.canonical != position {
            return Ok(false);
        }
        let (_, page_tokens) = backend.pages();
        let pages = from / page_tokens..position.div_ceil(page_tokens);
        let large = sizes.recurrent > pages.len() * sizes.page;
        if prefixes.wants(path, index, Part::Keys, large) {
            let mut bytes = (pages.start as u64).to_le_bytes().to_vec();
            bytes.reserve_exact(pages.len() * sizes.page);
            backend.save(StatePart::Pages(&slot.pages[pages]), &mut bytes)?;
            prefixes.insert(path, index, Part::Keys, bytes);
        }
        if prefixes.wants(path, index, Part::State, large) {
            let mut bytes = Vec::with_capacity(sizes.recurrent + 64);
            slot.waiting.save(&mut bytes);
            backend.save(StatePart::Slot(self.slot), &mut bytes)?;
            prefixes.insert(path, index, Part::State, bytes);
        }
        Ok(true)
    }

    /// The first position whose keys and values are not all written: those of the tokens to come, or of a multi-token prediction layer that
    /// is some tokens behind.
    pub(crate) fn unwritten(&self) -> usize {
        let slot = &self.engine.slots[self.slot];
        slot.waiting.position().unwrap_or(slot.tokens.len()).min(slot.tokens.len())
    }
}

impl Sequence<'_> {
    /// Has the slot hold a kept prefix of a prompt; `false`, with an empty slot, if its bytes are not those of such a prefix.
    fn restore(&mut self, prompt: &[TokenId], point: &RestorePoint) -> Result<bool, EngineError> {
        let Some(sizes) = self.engine.backend.state_sizes() else { return Ok(false) };
        let (_, page_tokens) = self.engine.backend.pages();
        let position = point.position();
        let Some(Parsed { pieces, waiting, recurrent }) = self.parse(point, sizes, page_tokens)
        else {
            self.reset();
            return Ok(false);
        };
        // Pages that the slot still has as they were need not be written again.
        let slot = &mut self.engine.slots[self.slot];
        let kept = shared(&slot.tokens, prompt).min(slot.canonical);
        // A multi-token prediction layer is less than a page behind.
        let kept = (kept / page_tokens).saturating_sub(1);
        let mut pages = std::mem::take(&mut slot.pages);
        if !self.engine.pages.grow(&mut pages, position) {
            self.engine.slots[self.slot].pages = pages;
            self.reset();
            let (context, most) = (self.engine.context(), self.engine.most_context());
            return Err(EngineError::ContextTooLong { prompt: position, context, most });
        }
        self.engine.slots[self.slot] = Slot {
            tokens: prompt[..position].to_vec(),
            state_position: position,
            pages,
            cut: position,
            waiting,
            ..Slot::default()
        };
        let pages = &self.engine.slots[self.slot].pages;
        self.engine.backend.reset(self.slot);
        self.engine.backend.set_pages(self.slot, pages);
        for (index, (range, bytes)) in pieces.iter().enumerate() {
            // The pages that a later cut has, too, are those of the later one.
            let next = pieces.get(index + 1).map_or(range.end, |(next, _)| next.start);
            let (first, end) = (range.start.max(kept), range.end.min(next));
            if first < end {
                let bytes = &bytes[(first - range.start) * sizes.page..];
                let bytes = &bytes[..(end - first) * sizes.page];
                self.engine.backend.restore(StatePart::Pages(&pages[first..end]), bytes)?;
            }
        }
        self.engine.backend.restore(StatePart::Slot(self.slot), recurrent)?;
        self.engine.slots[self.slot].canonical = position;
        Ok(true)
    }

    /// Which pages each of a point's cuts has, what waits for the drafter, and the recurrent state.
    fn parse<'p>(
        &self,
        point: &'p RestorePoint,
        sizes: StateSizes,
        page_tokens: usize,
    ) -> Option<Parsed<'p>> {
        let mut pieces = Vec::with_capacity(point.cuts.len());
        let mut covered = 0;
        for (cut, bytes) in point.cuts.iter().zip(&point.keys) {
            let (first, pages) = bytes.split_first_chunk::<8>()?;
            let first = usize::try_from(u64::from_le_bytes(*first)).ok()?;
            let end = cut.end.div_ceil(page_tokens);
            let count = end.checked_sub(first)?;
            if first > covered || pages.len() != count.checked_mul(sizes.page)? {
                return None;
            }
            covered = end;
            pieces.push((first..end, pages));
        }
        let width = self.engine.further.as_ref().map_or(0, |norms| norms.target.width());
        let (waiting, recurrent) = Waiting::load(&point.state, width)?;
        let vocabulary = self.engine.vocabulary();
        let fits = recurrent.len() == sizes.recurrent && waiting.fits(point.position(), vocabulary);
        fits.then_some(Parsed { pieces, waiting, recurrent })
    }
}
