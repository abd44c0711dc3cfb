//! Generations side by side: each has a slot, their tokens share decode passes, and the chunks of prompts are taken in between those.
//!
//! A step takes in one chunk of one prompt, where one waits, and runs one decode pass over all generations that have their first token. So no
//! stream waits for longer than a chunk. What a generation chooses does not depend on what shares its passes: a row's sums are the same in
//! any company, and a prompt's chunks lie where they would alone.

use std::time::Instant;

use lithos_constraint::Constraint;

use crate::drafters::Proposals;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::generation::{Generation, GenerationId, OnEvent, Stage};
use crate::output::Output;
use crate::request::{Completion, Event, FinishReason, Request};
use crate::sampling::Sampler;
use crate::sequence::Sequence;

/// Passes that a device runs by itself between two looks of the host: enough that looking costs little, few enough that text flows.
const PASSES_PER_VISIT: usize = 8;

/// A generation that has ended, and what it came to.
pub type Ended = (GenerationId, Result<Completion, EngineError>);

impl Engine {
    /// Generations that can run side by side.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Slots that no generation holds.
    pub fn free_slots(&self) -> usize {
        self.live.iter().filter(|generation| generation.is_none()).count()
    }

    /// Serves a request by itself. Text is handed out as it becomes certain.
    ///
    /// # Errors
    /// [`EngineError`]; [`EngineError::is_bad_request`] says whose fault it is. A prompt that does not fit is refused before
    /// any work. [`EngineError::Busy`] if other generations hold slots.
    pub fn generate(
        &mut self,
        request: &Request,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<Completion, EngineError> {
        if self.free_slots() < self.slots() {
            return Err(EngineError::Busy { slots: self.slots() });
        }
        self.admit(request.clone())?;
        loop {
            // There is no other generation.
            if let Some((_, completion)) = self.step(&mut |_, event| on_event(event)).pop() {
                return completion;
            }
        }
    }

    /// Gives a request a slot. Its work is done by [`Engine::step`].
    ///
    /// # Errors
    /// [`EngineError::Busy`] if no slot is free; else as [`Engine::generate`].
    pub fn admit(&mut self, request: Request) -> Result<GenerationId, EngineError> {
        let output = Output::new(self.text()?, &request);
        let limit = self.check(&request)?;
        self.know_pass_costs()?;
        let Some(slot) = self.free_slot_for(&request.prompt, request.reuse) else {
            return Err(EngineError::Busy { slots: self.slots() });
        };
        let reused = self.begin(slot, &request.prompt, request.reuse)?;
        let prompt = &request.prompt[reused..];
        if let Err(error) = Sequence::new(self, slot).make_room(prompt) {
            Sequence::new(self, slot).reset();
            return Err(error);
        }
        let path = if request.reuse { self.prefixes.path(&request.prompt) } else { Vec::new() };
        let unwritten = Sequence::new(self, slot).unwritten();
        let walk = request.constraint.as_ref().map(Constraint::begin);
        let sampler = Sampler::new(request.sampling.clone(), &request.prompt).constrained(walk);
        self.admitted += 1;
        let id = GenerationId(self.admitted);
        self.live[slot] = Some(Generation {
            id,
            limit,
            sampler,
            output,
            stage: Stage::Prefill { done: reused, turn: self.turn },
            reused,
            path,
            unwritten,
            started: Instant::now(),
            prefill: None,
            host_chooses: false,
            request,
        });
        Ok(id)
    }

    /// A chunk of one prompt and a decode pass, as far as there is work of either kind. Returns the generations that have ended.
    pub fn step(&mut self, on_event: &mut OnEvent<'_>) -> Vec<Ended> {
        self.turn += 1;
        let mut ended = self.end_cancelled(on_event);
        if let Some(slot) = self.next_prompt() {
            ended.extend(self.prompt_step(slot, on_event));
        }
        let decoding: Vec<usize> =
            (0..self.slots.len()).filter(|slot| self.decodes(*slot)).collect();
        match decoding[..] {
            [] => {}
            [slot] if self.free_slots() + 1 == self.slots() => {
                ended.extend(self.alone_step(slot, on_event));
            }
            _ => {
                for slot in &decoding {
                    ended.extend(self.leave_device(*slot, on_event));
                }
                let decoding: Vec<usize> =
                    decoding.into_iter().filter(|slot| self.decodes(*slot)).collect();
                if !decoding.is_empty() {
                    ended.extend(self.shared_pass(&decoding, on_event));
                }
            }
        }
        ended
    }

    /// Forgets all generations and what their slots have taken in, after a failure that left them in an unknown state.
    pub fn abandon(&mut self) {
        for slot in 0..self.slots.len() {
            self.live[slot] = None;
            Sequence::new(self, slot).reset();
        }
    }

    fn decodes(&self, slot: usize) -> bool {
        let stage = self.live[slot].as_ref().map(|generation| generation.stage);
        matches!(stage, Some(Stage::Decode { .. } | Stage::Device))
    }

    /// Checks a request before any work; returns how many tokens may be generated.
    fn check(&self, request: &Request) -> Result<usize, EngineError> {
        request.sampling.validate().map_err(EngineError::Sampling)?;
        let (prompt, vocabulary) = (request.prompt.len(), self.vocabulary());
        if prompt == 0 {
            return Err(EngineError::EmptyPrompt);
        }
        if let Some(token) = request.prompt.iter().find(|token| token.index() >= vocabulary) {
            return Err(EngineError::TokenOutsideVocabulary { token: token.0, vocabulary });
        }
        if prompt >= self.context() {
            let (context, most) = (self.context(), self.most_context());
            return Err(EngineError::ContextTooLong { prompt, context, most });
        }
        // The last token is never taken in, so one more than the room left can be generated.
        let room = self.context() - prompt + 1;
        Ok(request.max_tokens.map_or(room, |most| most.min(room)))
    }

    /// Ends what was cancelled while its prompt was taken in.
    fn end_cancelled(&mut self, on_event: &mut OnEvent<'_>) -> Vec<Ended> {
        let mut ended = Vec::new();
        for slot in 0..self.slots.len() {
            let cancelled = |generation: &Generation| {
                matches!(generation.stage, Stage::Prefill { .. })
                    && generation.request.cancel.is_cancelled()
            };
            if self.live[slot].as_ref().is_some_and(cancelled) {
                ended.extend(self.end(slot, FinishReason::Cancelled, on_event));
            }
        }
        ended
    }

    /// The prompt whose turn it is: the one that has waited longest.
    fn next_prompt(&self) -> Option<usize> {
        let waiting = self.live.iter().enumerate().filter_map(|(slot, generation)| {
            let generation = generation.as_ref()?;
            match generation.stage {
                Stage::Prefill { turn, .. } => Some((turn, generation.id, slot)),
                _ => None,
            }
        });
        waiting.min().map(|(.., slot)| slot)
    }

    /// Takes in a chunk of a prompt, and chooses the first token if it was the last.
    fn prompt_step(&mut self, slot: usize, on_event: &mut OnEvent<'_>) -> Option<Ended> {
        let mut generation = self.live[slot].take()?;
        match self.take_in_chunk(slot, &mut generation, on_event) {
            Ok(finish) => {
                self.live[slot] = Some(generation);
                self.end(slot, finish?, on_event)
            }
            Err(error) => Some(self.fail(slot, generation.id, error)),
        }
    }

    fn take_in_chunk(
        &mut self,
        slot: usize,
        generation: &mut Generation,
        on_event: &mut OnEvent<'_>,
    ) -> Result<Option<FinishReason>, EngineError> {
        let Stage::Prefill { done, .. } = generation.stage else { return Ok(None) };
        let total = generation.request.prompt.len();
        if done == generation.reused {
            // Nothing can refuse the request any more: whoever waits may know that it has begun.
            on_event(generation.id, Event::Prefill { done, total });
        }
        let began = Instant::now();
        let mut sequence = Sequence::new(self, slot);
        let chunk = sequence.next_chunk(&generation.request.prompt[done..]);
        sequence.prefill_chunk(&generation.request.prompt[done..done + chunk])?;
        let done = done + chunk;
        let mut first = None;
        let limit = generation.limit;
        if done == total && limit > 0 {
            let mut choose = |_: usize, logits: &[f32]| {
                first = Some(generation.choose(logits, None, on_event));
            };
            sequence.visit_rows(0, chunk, chunk - 1, &mut choose)?;
        }
        if sequence.keep(&generation.path, generation.unwritten)? {
            generation.unwritten = sequence.unwritten();
        }
        self.trace.since("prefill", began, chunk);
        on_event(generation.id, Event::Prefill { done, total });
        if done < total {
            generation.stage = Stage::Prefill { done, turn: self.turn };
            return Ok(None);
        }
        generation.prefill = Some(generation.started.elapsed());
        let Some((anchor, finish)) = first.transpose()? else {
            return Ok(Some(FinishReason::Length));
        };
        generation.stage = Stage::Decode { anchor };
        if let Some(speculator) = &mut self.speculators[slot] {
            let draws = match self.options.proposals {
                Proposals::Likeliest => None,
                Proposals::Drawn => generation.sampler.draws(),
            };
            speculator.begin(&generation.request.prompt, anchor, draws);
        }
        Ok(finish)
    }

    /// A pass, or several that the device runs by itself, of the only generation there is.
    fn alone_step(&mut self, slot: usize, on_event: &mut OnEvent<'_>) -> Vec<Ended> {
        match self.enter_device(slot) {
            Ok(true) => self.visit_device(slot, true, on_event).into_iter().collect(),
            Ok(false) => self.shared_pass(&[slot], on_event),
            Err(error) => self.fail_live(slot, error).into_iter().collect(),
        }
    }

    /// Has the device choose a generation's tokens, where it can; returns whether it does.
    fn enter_device(&mut self, slot: usize) -> Result<bool, EngineError> {
        if self.speculators[slot].is_some() {
            return Ok(false);
        }
        let vocabulary = self.vocabulary();
        let Some(generation) = &mut self.live[slot] else { return Ok(false) };
        let anchor = match generation.stage {
            Stage::Device => return Ok(true),
            Stage::Decode { anchor } if !generation.host_chooses => anchor,
            _ => return Ok(false),
        };
        let left = generation.left();
        let rounds = generation.sampler.rounds(vocabulary, generation.output.ends(), left);
        let begun = match rounds {
            Some(rounds) => Sequence::new(self, slot).begin_rounds(&[anchor], &rounds)?,
            None => false,
        };
        if let Some(generation) = &mut self.live[slot] {
            generation.host_chooses = !begun;
            if begun {
                generation.stage = Stage::Device;
            }
        }
        Ok(begun)
    }

    /// Has the host choose a generation's tokens from here on.
    fn leave_device(&mut self, slot: usize, on_event: &mut OnEvent<'_>) -> Option<Ended> {
        if self.live[slot].as_ref()?.stage != Stage::Device {
            return None;
        }
        self.visit_device(slot, false, on_event)
    }

    /// Takes in what the device has chosen. It stays with the device, or not.
    fn visit_device(
        &mut self,
        slot: usize,
        stay: bool,
        on_event: &mut OnEvent<'_>,
    ) -> Option<Ended> {
        let began = Instant::now();
        let left = self.live[slot].as_ref()?.left();
        let passes = PASSES_PER_VISIT.min(left);
        // Where it stays, it goes on while the host looks at what it chose.
        let ahead = if stay { PASSES_PER_VISIT.min(left - passes) } else { 0 };
        let mut sequence = Sequence::new(self, slot);
        let visited = sequence.rounds(passes, ahead).and_then(|mut visit| {
            if !stay {
                visit.tokens.extend(sequence.end_rounds()?);
            }
            Ok(visit)
        });
        let visit = match visited {
            Ok(visit) => visit,
            Err(error) => return self.fail_live(slot, error),
        };
        let mut generation = self.live[slot].take()?;
        let mut finish = None;
        for token in &visit.tokens {
            finish = generation.take_in(*token, on_event);
            if finish.is_some() {
                break;
            }
        }
        self.trace.since("device", began, visit.tokens.len());
        if finish.is_none() && visit.ended {
            // The limit and the end tokens are the same on both sides, so this is never reached before them.
            finish = Some(FinishReason::Length);
        }
        if !stay && let Some(anchor) = visit.tokens.last() {
            generation.stage = Stage::Decode { anchor: *anchor };
        }
        self.live[slot] = Some(generation);
        self.end(slot, finish?, on_event)
    }

    /// Ends a generation.
    pub(crate) fn end(
        &mut self,
        slot: usize,
        finish: FinishReason,
        on_event: &mut OnEvent<'_>,
    ) -> Option<Ended> {
        let generation = self.live[slot].take()?;
        if generation.stage == Stage::Device
            && let Err(error) = Sequence::new(self, slot).end_rounds()
        {
            return Some(self.fail(slot, generation.id, error));
        }
        let drafted = generation.prefill.is_some() && !generation.output.tokens.is_empty();
        let report = self.speculators[slot].as_ref().filter(|_| drafted);
        let speculation = report.map(|speculator| speculator.report().clone());
        Some((generation.id, Ok(generation.complete(finish, speculation, on_event))))
    }

    /// Ends a generation whose pass failed. What its slot holds is unknown, so it is emptied.
    fn fail(&mut self, slot: usize, id: GenerationId, error: EngineError) -> Ended {
        Sequence::new(self, slot).reset();
        (id, Err(error))
    }

    /// As [`Engine::fail`], of a generation that holds its slot.
    pub(crate) fn fail_live(&mut self, slot: usize, error: EngineError) -> Option<Ended> {
        let generation = self.live[slot].take()?;
        Some(self.fail(slot, generation.id, error))
    }
}
