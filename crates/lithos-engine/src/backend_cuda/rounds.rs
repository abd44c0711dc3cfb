//! Rounds that the card runs by itself.

use lithos_compiler::{Fusion, StepState};
use lithos_cuda::PASS_LIMIT;
use lithos_kernels::RING_TOKENS;

use super::{Cuda, OnCard};
use crate::cuda_loop::{CardLoop, CardPlaces, Ended};
use crate::cuda_plan::{self, Inputs};
use crate::error::EngineError;
use crate::options::BackendKind;
use crate::rounds::{Drained, LoopStart, Rounds};

impl Cuda {
    /// Begins a loop of passes that choose their tokens themselves.
    pub(super) fn begin_rounds(&mut self, start: &LoopStart<'_>) -> Result<(), EngineError> {
        let LoopStart { mut step, tokens, slot, rounds } = *start;
        if self.looped.take().is_some() {
            self.model.stream.wait(PASS_LIMIT)?;
        }
        for rows in &mut step.slots[..step.slots_used as usize] {
            let index = rows.slot as usize;
            rows.state_position = self.state_positions[index];
            self.histories[index].truncate(rows.position as usize);
        }
        self.last = None;
        self.send_loop(slot, &step, tokens, rounds)?;
        self.looped = Some(CardLoop::new(start));
        Ok(())
    }

    /// Queues `passes` of the loop, and `ahead` more behind them, and waits for those that were queued first.
    pub(super) fn visit(
        &mut self,
        slot: usize,
        passes: usize,
        ahead: usize,
    ) -> Result<Drained, EngineError> {
        let Some(mut looped) = self.looped.take().filter(|looped| looped.slot == slot) else {
            return Err(EngineError::NoLoop(BackendKind::Cuda));
        };
        let ahead = if looped.wants_logits() { 0 } else { ahead };
        // After a failed join nothing is queued, and nothing was chosen.
        let drained = loop {
            if looped.passes_queued() == 0 {
                self.queue_batch(&mut looped, passes)?;
            }
            let more = (passes + ahead).saturating_sub(looped.passes_queued());
            if more > 0 && looped.has_room() {
                self.queue_batch(&mut looped, more)?;
            }
            match self.drain(&mut looped)? {
                Some(drained) if drained.tokens.is_empty() && drained.choice.left > 0 => {}
                Some(drained) => break drained,
                None => {}
            }
        };
        self.looped = Some(looped);
        Ok(drained)
    }

    /// Waits for all passes of the loop and ends it.
    pub(super) fn end_rounds(&mut self, slot: usize) -> Result<Option<Drained>, EngineError> {
        let Some(mut looped) = self.looped.take().filter(|looped| looped.slot == slot) else {
            return Ok(None);
        };
        let mut all: Option<Drained> = None;
        while let Some(drained) = self.drain(&mut looped)? {
            let mut tokens = all.map_or(Vec::new(), |all| all.tokens);
            tokens.extend(&drained.tokens);
            all = Some(Drained { tokens, choice: drained.choice });
        }
        Ok(all)
    }

    /// Gives the card the first pass of a loop and what it chooses by.
    fn send_loop(
        &mut self,
        slot: usize,
        step: &StepState,
        tokens: &[u32],
        rounds: &Rounds,
    ) -> Result<(), EngineError> {
        let choices = self.level().program.places.states.choices;
        let (vocabulary, mask_words) = (choices.vocabulary, choices.mask_words());
        let biases: Vec<u32> = rounds.biases.iter().map(|bias| bias.to_bits()).collect();
        for (place, words, most) in [
            (choices.counts, &rounds.counts, vocabulary),
            (choices.biases, &biases, vocabulary),
            (choices.masks, &rounds.mask, mask_words),
        ] {
            let words = &words[..words.len().min(most)];
            if !words.is_empty() {
                let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
                self.model.states.write(place + slot * most * 4, &bytes)?;
            }
        }
        let model = &mut self.model;
        model.layout.write(model.sent.bytes_mut(), step, tokens, &self.pages);
        model.sent.send(&model.stream, model.layout.bytes, &model.inputs, 0)?;
        Ok(())
    }

    /// Queues a batch of a loop's passes.
    fn queue_batch(&mut self, looped: &mut CardLoop, passes: usize) -> Result<(), EngineError> {
        let level = &self.levels[&self.fusion];
        let OnCard { inputs, layout, states, stream, reports, received, .. } = &mut self.model;
        let choices = level.program.places.states.choices;
        let ring = choices.ring + looped.slot * RING_TOKENS * 4;
        let places = CardPlaces { inputs, layout: *layout, states, ring };
        let schedule = &level.program.schedule;
        let logits = schedule.buffer(schedule.logits);
        let rows = if looped.wants_logits() { looped.last_rows(passes) } else { 0 };
        looped.queue(reports, stream, &places, &self.pages, passes, || {
            for _ in 0..passes {
                level.pass.run(stream)?;
            }
            if rows > 0 {
                let (at, bytes) = (Inputs::JOIN_BYTES, rows * logits.width * 4);
                received.receive(stream, at, &level.arena, logits.offset, bytes)?;
            }
            Ok(())
        })?;
        self.logits = rows * logits.width;
        Ok(())
    }

    /// Waits for the batch of a loop that was queued first. Where a join failed, the loop goes on without joins from where the host saw
    /// it last, and nothing was chosen.
    fn drain(&mut self, looped: &mut CardLoop) -> Result<Option<Drained>, EngineError> {
        let drained = match looped.wait(&self.model.reports)? {
            None => return Ok(None),
            Some(Ended::Chose(drained)) => drained,
            Some(Ended::FailedJoin(number)) => {
                let program = &self.level().program;
                let joins = cuda_plan::joins(program, &program.launches).max(1) as u32;
                let number = (number - 1) % joins + 1;
                let region = cuda_plan::place_of_join(program, &program.launches, number);
                if self.fusion == Fusion::None {
                    return Err(EngineError::Join { region, fusion: self.fusion });
                }
                self.model.stream.wait(PASS_LIMIT)?;
                self.leave_joins(&region)?;
                let (slot, count) = (looped.slot, self.histories[looped.slot].len());
                let stands = self.repeat(slot, count)?;
                self.state_positions[slot] = stands;
                let (step, token, rounds) = looped.resumed(count as u32, stands);
                self.send_loop(slot, &step, &[token], &rounds)?;
                return Ok(Some(Drained { tokens: Vec::new(), choice: rounds.choice }));
            }
        };
        if !drained.tokens.is_empty() {
            self.state_positions[looped.slot] = drained.choice.state_position;
            self.histories[looped.slot].extend(looped.note(&drained.tokens));
        }
        Ok(Some(drained))
    }
}
