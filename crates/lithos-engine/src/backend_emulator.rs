//! Programs for graphics processors, run by the emulator of Metal, behind the engine's trait.

use std::sync::Arc;

use lithos_compiler::device::{DeviceOptions, KeyValues, Launch, Program};
use lithos_compiler::{MAX_DECODE_ROWS, OUTPUT_LOGITS, StepState};
use lithos_cpu::mixers::kv::KvType;
use lithos_emulator::{Binding, BufferId, Emulator, Library, Memory};
use lithos_format::Checkpoint;
use lithos_graph::Graph;
use lithos_kernels::{Language, MOST_SIMDGROUPS, PAGE_TOKENS, RING_TOKENS};

use crate::backend::Backend;
use crate::backend_cpu::key_value_type;
use crate::engine::MemoryUse;
use crate::error::EngineError;
use crate::options::{BackendKind, EngineOptions};
use crate::rounds::{Drained, LoopStart};

/// Keys of an attention range.
const RANGE_KEYS: usize = 256;

/// Threadgroups of a launch, which must all run at once.
const WORKERS: u32 = 3;

/// Threads of a threadgroup: two simdgroups.
const THREADS: u32 = 64;

const _: () = assert!(THREADS as usize <= 32 * MOST_SIMDGROUPS);

/// A program, its buffers, and what the slots' states stand at.
pub(crate) struct Emulated {
    library: Library,
    program: Program,
    memory: Memory,
    buffers: Buffers,
    pages: Vec<u32>,
    /// Position that each slot's recurrent state stands at: every pass folds what was accepted before it.
    state_positions: Vec<u32>,
    /// Tokens of each slot's ring that the host has seen.
    drained: Vec<u32>,
    logits: Vec<f32>,
    passes: u64,
    checks: bool,
}

/// The buffers, in the order of their bindings.
struct Buffers {
    weights: BufferId,
    arena: BufferId,
    states: BufferId,
    step: BufferId,
    tokens: BufferId,
    pages: BufferId,
    records: BufferId,
    joins: BufferId,
}

impl Buffers {
    fn in_order(&self) -> [BufferId; 8] {
        [
            self.weights,
            self.arena,
            self.states,
            self.step,
            self.tokens,
            self.pages,
            self.records,
            self.joins,
        ]
    }
}

impl Emulated {
    pub(crate) fn new(
        checkpoint: &Arc<Checkpoint>,
        graph: &Graph,
        options: &EngineOptions,
        context: usize,
        slots: usize,
    ) -> Result<Self, EngineError> {
        let key_values = match key_value_type(graph) {
            KvType::Bf16 => KeyValues::Bf16,
            KvType::F32 => KeyValues::F32,
        };
        let device = DeviceOptions {
            fusion: options.fusion,
            slots,
            context,
            key_values,
            range_keys: RANGE_KEYS,
        };
        let mut program = Program::new(graph, device)?;
        let library = Emulator::new()?.compile(&program.text(Language::Metal))?;
        let mut weights = vec![0; program.places.weights.bytes];
        let factors = program.places.weights.load(checkpoint, graph, &mut weights)?;
        program.set_tensor_scales(|id| factors.get(&id).copied().unwrap_or(1.0));
        let mut memory = Memory::new();
        let pages = vec![0; slots * program.places.pages_per_slot];
        let buffers = Buffers {
            weights: memory.add_bytes("weights", &weights)?,
            arena: memory.add_unwritten("arena", program.schedule.arena)?,
            states: memory.add_zeroed("states", program.places.states.bytes.max(16))?,
            step: memory.add_zeroed("step", size_of::<StepState>())?,
            tokens: memory.add_zeroed("tokens", MAX_DECODE_ROWS * 4)?,
            pages: memory.add_zeroed("pages", pages.len() * 4)?,
            records: memory.add_bytes("records", &bytes_of(&program.records))?,
            joins: memory.add_zeroed("joins", 8)?,
        };
        Ok(Emulated {
            library,
            program,
            memory,
            buffers,
            pages,
            state_positions: vec![0; slots],
            drained: vec![0; slots],
            logits: Vec::new(),
            passes: 0,
            checks: options.checks,
        })
    }

    fn put(&mut self, buffer: BufferId, offset: usize, bytes: &[u8]) {
        let fits = self.memory.write(buffer, offset, bytes);
        debug_assert!(fits, "buffers hold what the program's places say");
    }

    fn pass(&mut self, step: &StepState, tokens: &[u32]) -> Result<(), EngineError> {
        let mut step = *step;
        for slot in &mut step.slots[..step.slots_used as usize] {
            let at = &mut self.state_positions[slot.slot as usize];
            slot.state_position = *at;
            *at = slot.position;
        }
        self.put(self.buffers.tokens, 0, &bytes_of(tokens));
        self.put(self.buffers.pages, 0, &bytes_of(&self.pages));
        self.launch(&step, self.program.launches.clone())
    }

    fn launch(&mut self, step: &StepState, launches: Vec<Launch>) -> Result<(), EngineError> {
        self.put(self.buffers.step, 0, &bytes_of(&step.words()));
        self.replay(launches)?;
        self.fetch_logits(step.logit_rows as usize);
        Ok(())
    }

    fn replay(&mut self, launches: Vec<Launch>) -> Result<(), EngineError> {
        for launch in launches {
            self.passes += 1;
            let kernel = Program::kernel_name(launch.kernel);
            let bindings = self.buffers.in_order().into_iter().zip(0..).map(|(buffer, index)| {
                let records = buffer == self.buffers.records;
                let offset = if records { launch.records * 4 } else { 0 };
                Binding { index, buffer, offset, length: None }
            });
            let launch = lithos_emulator::Launch {
                bindings: bindings.collect(),
                resident_threadgroups: Some(WORKERS),
                // Another order of simdgroups in every launch: what depends on one shows.
                seed: self.passes,
                checked: self.checks,
                ..lithos_emulator::Launch::new(&kernel, WORKERS, THREADS)
            };
            self.library.run(&launch, &mut self.memory)?;
        }
        Ok(())
    }

    fn fetch_logits(&mut self, rows: usize) {
        let schedule = &self.program.schedule;
        let logits = schedule.buffer(schedule.logits);
        let bytes = &self.memory.bytes(self.buffers.arena)[logits.offset..];
        let count = rows * logits.width;
        self.logits.clear();
        self.logits.extend(
            bytes.as_chunks::<4>().0[..count].iter().map(|bytes| f32::from_le_bytes(*bytes)),
        );
    }

    /// The step's state as the last pass left it.
    fn step(&self) -> StepState {
        let bytes = self.memory.bytes(self.buffers.step);
        StepState::from_bytes(bytes).expect("the buffer was made for it")
    }
}

/// Words as kernels read them.
fn bytes_of(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

impl Backend for Emulated {
    fn decode(&mut self, step: &StepState, tokens: &[u32]) -> Result<(), EngineError> {
        self.pass(step, tokens)
    }

    fn prefill(&mut self, step: &StepState, tokens: &[u32]) -> Result<(), EngineError> {
        self.pass(step, tokens)
    }

    fn prefill_head(&mut self, step: &StepState) -> Result<(), EngineError> {
        self.launch(step, self.program.head.clone())
    }

    fn begin_loop(&mut self, start: &LoopStart<'_>) -> Result<bool, EngineError> {
        let LoopStart { mut step, tokens, slot, rounds } = *start;
        for rows in &mut step.slots[..step.slots_used as usize] {
            rows.state_position = self.state_positions[rows.slot as usize];
        }
        let places = self.program.places.states.choices;
        let (vocabulary, mask_words) = (places.vocabulary, places.mask_words());
        let at = |place: usize, words: usize| place + slot * words * 4;
        let biases: Vec<u32> = rounds.biases.iter().map(|bias| bias.to_bits()).collect();
        let parts = [
            (at(places.counts, vocabulary), &rounds.counts[..rounds.counts.len().min(vocabulary)]),
            (at(places.biases, vocabulary), &biases[..biases.len().min(vocabulary)]),
            (at(places.masks, mask_words), &rounds.mask[..rounds.mask.len().min(mask_words)]),
        ];
        for (place, words) in parts {
            self.put(self.buffers.states, place, &bytes_of(words));
        }
        self.put(self.buffers.tokens, 0, &bytes_of(tokens));
        self.put(self.buffers.step, 0, &bytes_of(&step.words()));
        self.drained[slot] = 0;
        Ok(true)
    }

    fn run_loop(
        &mut self,
        slot: usize,
        passes: usize,
        _ahead: usize,
    ) -> Result<Drained, EngineError> {
        self.put(self.buffers.pages, 0, &bytes_of(&self.pages));
        for _ in 0..passes {
            let before = self.step();
            self.replay(self.program.launches.clone())?;
            if before.outputs & OUTPUT_LOGITS != 0 {
                self.fetch_logits(before.logit_rows as usize);
            }
        }
        let choice = self.step().choices[slot];
        let ring = self.program.places.states.choices.ring + slot * RING_TOKENS * 4;
        let words = self.memory.bytes(self.buffers.states)[ring..].as_chunks::<4>().0;
        let tokens = (self.drained[slot]..choice.written)
            .map(|index| u32::from_le_bytes(words[index as usize % RING_TOKENS]))
            .collect();
        if choice.written > self.drained[slot] {
            self.state_positions[slot] = choice.state_position;
        }
        self.drained[slot] = choice.written;
        Ok(Drained { tokens, choice })
    }

    fn logits(&self) -> &[f32] {
        &self.logits
    }

    fn chunk(&self) -> usize {
        MAX_DECODE_ROWS
    }

    fn pages(&self) -> (usize, usize) {
        (self.program.places.pages, PAGE_TOKENS)
    }

    fn reset(&mut self, slot: usize) {
        self.state_positions[slot] = 0;
        let places: Vec<_> = self.program.places.states.deltas.values().copied().collect();
        for (offset, slot_floats) in places {
            let bytes = slot_floats * 4;
            self.put(self.buffers.states, offset + slot * bytes, &vec![0; bytes]);
        }
    }

    fn set_pages(&mut self, slot: usize, pages: &[u32]) {
        let per_slot = self.program.places.pages_per_slot;
        self.pages[slot * per_slot..][..pages.len()].copy_from_slice(pages);
    }

    fn memory(&self) -> MemoryUse {
        let places = &self.program.places;
        MemoryUse {
            resident: (places.weights.bytes + places.states.bytes) as u64,
            read_per_pass: places.weights.bytes as u64,
            per_page: 0,
            page_tokens: PAGE_TOKENS,
        }
    }

    fn kind(&self) -> BackendKind {
        BackendKind::Emulator
    }

    fn describe(&self) -> String {
        format!("Metal text in the emulator, {WORKERS} threadgroups of {THREADS} threads")
    }
}
