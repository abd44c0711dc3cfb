//! Rounds that a card runs by itself: passes are queued one after the other, and after some of them a copy of what they chose, which the
//! host reads while the card goes on.

use std::collections::VecDeque;
use std::sync::Arc;

use lithos_compiler::{Choice, OUTPUT_CHOICES, OUTPUT_LOGITS, SlotRows, StepState};
use lithos_cuda::{CudaError, Device, DeviceBuffer, Event, PASS_LIMIT, PinnedBuffer, Stream};
use lithos_kernels::RING_TOKENS;

use crate::cuda_plan::Inputs;
use crate::error::EngineError;
use crate::rounds::{Drained, LoopStart, Rounds};

/// Batches that may be queued at once: one that the host waits for, and one that the card goes on with.
const MOST_BATCHES: usize = 2;

/// Bytes of a slot's ring.
const RING_BYTES: usize = RING_TOKENS * 4;

/// Where a batch leaves what it did.
pub(crate) struct Reports {
    each: [Report; MOST_BATCHES],
    next: usize,
}

struct Report {
    /// Key/value pages of the batch, which the card copies when it comes to it.
    pages: PinnedBuffer,
    /// Counters of joins, the step's state, the slot's ring.
    received: PinnedBuffer,
    done: Event,
}

/// The loop of one slot.
pub(crate) struct CardLoop {
    pub(crate) slot: usize,
    rounds: Rounds,
    /// The token that the next pass takes in, as far as the host knows.
    anchor: u32,
    /// Tokens that were chosen since the loop was begun.
    chosen: Vec<u32>,
    /// Tokens of the ring that the host has seen since the card was last given the slot's state.
    seen: u32,
    /// Rows of the pass that is queued next.
    rows: usize,
    /// Batches in the order in which they run: passes, and where their report goes.
    queued: VecDeque<(usize, usize)>,
}

/// What a batch did.
pub(crate) enum Ended {
    /// It chose these tokens.
    Chose(Drained),
    /// Workers did not meet at this join, counted from 1 since the batch began: what it chose means nothing.
    FailedJoin(u32),
}

/// Where on a card a batch finds what it copies.
pub(crate) struct CardPlaces<'a> {
    pub(crate) inputs: &'a DeviceBuffer,
    pub(crate) layout: Inputs,
    pub(crate) states: &'a DeviceBuffer,
    /// Where the slot's ring begins in the states.
    pub(crate) ring: usize,
}

impl Reports {
    pub(crate) fn new(device: &Arc<Device>, pages: usize) -> Result<Self, CudaError> {
        let report = || {
            let bytes = Inputs::JOIN_BYTES + size_of::<StepState>() + RING_BYTES;
            Ok::<_, CudaError>(Report {
                pages: PinnedBuffer::new(device, pages * 4)?,
                received: PinnedBuffer::new(device, bytes)?,
                done: Event::new(device)?,
            })
        };
        Ok(Reports { each: [report()?, report()?], next: 0 })
    }

    /// Puts a batch into the stream: the pages, what `passes` puts there, and copies of what came of it. Its report may not be awaited
    /// by another batch. Returns its index.
    fn queue(
        &mut self,
        stream: &Stream,
        places: &CardPlaces<'_>,
        pages: &[u32],
        passes: impl FnOnce() -> Result<(), CudaError>,
    ) -> Result<usize, CudaError> {
        let index = self.next;
        self.next = (index + 1) % MOST_BATCHES;
        let report = &mut self.each[index];
        for (out, page) in report.pages.bytes_mut().as_chunks_mut().0.iter_mut().zip(pages) {
            *out = page.to_le_bytes();
        }
        report.pages.send(stream, pages.len() * 4, places.inputs, places.layout.pages)?;
        // Counters only grow within a batch, which is far too short to run them over.
        places.inputs.fill_in(stream, 0, Inputs::JOIN_BYTES, 0)?;
        passes()?;
        let (joins, step) = (Inputs::JOIN_BYTES, size_of::<StepState>());
        report.received.receive(stream, 0, places.inputs, 0, joins)?;
        report.received.receive(stream, joins, places.inputs, Inputs::STEP, step)?;
        report.received.receive(stream, joins + step, places.states, places.ring, RING_BYTES)?;
        report.done.record(stream)?;
        Ok(index)
    }
}

impl CardLoop {
    pub(crate) fn new(start: &LoopStart<'_>) -> Self {
        CardLoop {
            slot: start.slot,
            rounds: start.rounds.clone(),
            anchor: start.tokens.first().copied().unwrap_or_default(),
            chosen: Vec::new(),
            seen: 0,
            rows: start.tokens.len(),
            queued: VecDeque::new(),
        }
    }

    /// Whether logits are wanted of every visit's last pass.
    pub(crate) fn wants_logits(&self) -> bool {
        self.rounds.logits
    }

    /// Passes that are queued.
    pub(crate) fn passes_queued(&self) -> usize {
        self.queued.iter().map(|(passes, _)| passes).sum()
    }

    /// Whether another batch may be queued.
    pub(crate) fn has_room(&self) -> bool {
        self.queued.len() < MOST_BATCHES
    }

    /// Rows of the last of so many passes, if they are queued now.
    pub(crate) fn last_rows(&self, passes: usize) -> usize {
        if passes == 1 { self.rows } else { 1 }
    }

    /// Queues a batch of passes.
    pub(crate) fn queue(
        &mut self,
        reports: &mut Reports,
        stream: &Stream,
        places: &CardPlaces<'_>,
        pages: &[u32],
        count: usize,
        passes: impl FnOnce() -> Result<(), CudaError>,
    ) -> Result<(), CudaError> {
        let report = reports.queue(stream, places, pages, passes)?;
        self.rows = 1;
        self.queued.push_back((count, report));
        Ok(())
    }

    /// Waits for the batch that was queued first; `None` if there is none.
    pub(crate) fn wait(&mut self, reports: &Reports) -> Result<Option<Ended>, EngineError> {
        let Some((_, report)) = self.queued.pop_front() else { return Ok(None) };
        let report = &reports.each[report];
        report.done.wait(PASS_LIMIT)?;
        let bytes = report.received.bytes();
        let failed = Inputs::failed_join(bytes);
        if failed != 0 {
            self.queued.clear();
            return Ok(Some(Ended::FailedJoin(failed)));
        }
        let (step, ring) = bytes[Inputs::JOIN_BYTES..].split_at(size_of::<StepState>());
        let step = StepState::from_bytes(step).expect("so many bytes were cut off");
        let choice = step.choices[self.slot];
        let ring = ring.as_chunks::<4>().0;
        let tokens: Vec<u32> = (self.seen..choice.written)
            .map(|index| u32::from_le_bytes(ring[index as usize % RING_TOKENS]))
            .collect();
        self.seen = choice.written;
        Ok(Some(Ended::Chose(Drained { tokens, choice })))
    }

    /// Notes tokens that were chosen. Returns those that were taken in: the one chosen before them, and all but the last.
    pub(crate) fn note(&mut self, tokens: &[u32]) -> Vec<u32> {
        let Some((last, others)) = tokens.split_last() else { return Vec::new() };
        let taken = std::iter::once(self.anchor).chain(others.iter().copied()).collect();
        self.anchor = *last;
        self.chosen.extend_from_slice(tokens);
        taken
    }

    /// The loop from here on, as one that begins: its first pass, whose token is the second part, and how it chooses. The slot has taken
    /// in `position` tokens, and its state stands at `state_position`.
    pub(crate) fn resumed(
        &mut self,
        position: u32,
        state_position: u32,
    ) -> (StepState, u32, Rounds) {
        let rounds = resumed_rounds(&self.rounds, &self.chosen);
        let slot = self.slot as u32;
        let rows = SlotRows { slot, first_row: 0, rows: 1, position, state_position };
        let mut step = StepState::single(rows, 1);
        step.outputs = OUTPUT_CHOICES | if rounds.logits { OUTPUT_LOGITS } else { 0 };
        step.choices[self.slot] = rounds.choice;
        self.seen = 0;
        self.rows = 1;
        (step, self.anchor, rounds)
    }
}

/// Rounds after some tokens were chosen: they count, and fewer are left.
fn resumed_rounds(rounds: &Rounds, chosen: &[u32]) -> Rounds {
    let mut rounds = rounds.clone();
    for token in chosen {
        if let Some(count) = rounds.counts.get_mut(*token as usize) {
            *count += 1;
        }
    }
    let Choice { left, .. } = rounds.choice;
    if left != u32::MAX {
        rounds.choice.left = left.saturating_sub(chosen.len() as u32);
    }
    rounds
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rounds::IN_PROMPT;

    #[test]
    fn what_was_chosen_counts_when_a_loop_goes_on() {
        let choice = Choice { left: 5, ..Choice::default() };
        let counts = vec![0, IN_PROMPT, IN_PROMPT | 2, 0];
        let rounds = Rounds { choice, counts, ..Rounds::default() };
        let found = resumed_rounds(&rounds, &[2, 3, 3]);
        assert_eq!(found.counts, [0, IN_PROMPT, IN_PROMPT | 3, 2]);
        assert_eq!(found.choice.left, 2);
        let endless = Rounds::default();
        assert_eq!(resumed_rounds(&endless, &[1]).choice.left, u32::MAX);
    }

    #[test]
    fn a_loop_takes_in_all_but_what_it_chose_last() {
        let rounds = Rounds::default();
        let rows = SlotRows { slot: 0, first_row: 0, rows: 2, position: 7, state_position: 7 };
        let start = LoopStart {
            step: StepState::single(rows, 2),
            tokens: &[4, 9],
            slot: 0,
            rounds: &rounds,
        };
        let mut looped = CardLoop::new(&start);
        assert!(looped.note(&[]).is_empty());
        assert_eq!(looped.note(&[9, 3]), [4, 9]);
        assert_eq!(looped.note(&[8]), [3]);
        let (step, anchor, _) = looped.resumed(10, 9);
        assert_eq!((anchor, step.slots[0].position, step.slots[0].state_position), (8, 10, 9));
        assert_eq!((step.rows, step.logit_rows, step.outputs), (1, 1, OUTPUT_CHOICES));
    }
}
