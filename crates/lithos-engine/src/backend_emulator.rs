//! Programs for graphics processors, run by the emulator of Metal, behind the engine's trait.

use std::sync::Arc;

use lithos_compiler::device::{DeviceOptions, KeyValues, Launch, Program};
use lithos_compiler::{BufferId as CompilerBufferId, MAX_DECODE_ROWS, OUTPUT_LOGITS, StepState};
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

/// A model's program and that of a drafter's block if there is one, their buffers, and what the slots' states stand at.
pub(crate) struct Emulated {
    target: Compiled,
    block: Option<Compiled>,
    memory: Memory,
    buffers: Buffers,
    pages: Vec<u32>,
    /// Position that each slot's recurrent state stands at: every pass folds what was accepted before it.
    state_positions: Vec<u32>,
    /// Tokens of each slot's ring that the host has seen.
    drained: Vec<u32>,
    logits: Vec<f32>,
    /// What the head of the last pass read before its norm.
    hidden: Vec<f32>,
    /// Logits of the last block, and what its head read before its norm.
    drafted: (Vec<f32>, Vec<f32>),
    passes: u64,
    checks: bool,
}

/// A program that can run, with what it shares with no other.
struct Compiled {
    library: Library,
    program: Program,
    arena: BufferId,
    records: BufferId,
}

/// The buffers that all programs share.
struct Buffers {
    weights: BufferId,
    states: BufferId,
    step: BufferId,
    tokens: BufferId,
    pages: BufferId,
    joins: BufferId,
}

impl Compiled {
    fn new(
        program: Program,
        emulator: &Emulator,
        memory: &mut Memory,
    ) -> Result<Self, EngineError> {
        Ok(Compiled {
            library: emulator.compile(&program.text(Language::Metal))?,
            arena: memory.add_unwritten("arena", program.schedule.arena)?,
            records: memory.add_bytes("records", &bytes_of(&program.records))?,
            program,
        })
    }

    /// The buffers in the order of their bindings, and where each begins for a launch.
    fn bindings(&self, shared: &Buffers, launch: &Launch) -> [(BufferId, usize); 8] {
        [
            (shared.weights, 0),
            (self.arena, 0),
            (shared.states, 0),
            (shared.step, 0),
            (shared.tokens, 0),
            (shared.pages, 0),
            (self.records, launch.records * 4),
            (shared.joins, 0),
        ]
    }

    fn replay(
        &self,
        launches: &[Launch],
        shared: &Buffers,
        memory: &mut Memory,
        passes: &mut u64,
        checked: bool,
    ) -> Result<(), EngineError> {
        for launch in launches {
            *passes += 1;
            let kernel = Program::kernel_name(launch.kernel);
            let bindings = self.bindings(shared, launch).into_iter().zip(0..);
            let bindings = bindings.map(|((buffer, offset), index)| Binding {
                index,
                buffer,
                offset,
                length: None,
            });
            let launch = lithos_emulator::Launch {
                bindings: bindings.collect(),
                resident_threadgroups: Some(WORKERS),
                // Another order of simdgroups in every launch: what depends on one shows.
                seed: *passes,
                checked,
                ..lithos_emulator::Launch::new(&kernel, WORKERS, THREADS)
            };
            self.library.run(&launch, memory)?;
        }
        Ok(())
    }

    /// The first rows of a buffer of the arena.
    fn rows_of(&self, buffer: CompilerBufferId, rows: usize, memory: &Memory) -> Vec<f32> {
        let buffer = self.program.schedule.buffer(buffer);
        let bytes = &memory.bytes(self.arena)[buffer.offset..];
        let floats = bytes.as_chunks::<4>().0[..rows * buffer.width].iter();
        floats.map(|bytes| f32::from_le_bytes(*bytes)).collect()
    }

    fn logits(&self, rows: usize, memory: &Memory) -> Vec<f32> {
        self.rows_of(self.program.schedule.logits, rows, memory)
    }

    /// What the head read before its norm.
    fn head_input(&self, rows: usize, memory: &Memory) -> Vec<f32> {
        let input = self.program.schedule.head_input();
        input.map_or_else(Vec::new, |buffer| self.rows_of(buffer, rows, memory))
    }
}

impl Emulated {
    pub(crate) fn new(
        checkpoint: &Arc<Checkpoint>,
        graph: &Graph,
        block: Option<&Graph>,
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
        let emulator = Emulator::new()?;
        let mut program = Program::new(graph, device)?;
        let mut block = block.map(|block| program.beside(block, device)).transpose()?;
        // A block's places are those of the model and some more.
        let places = block.as_ref().map_or(&program.places, |block| &block.places).clone();
        let mut weights = vec![0; places.weights.bytes];
        let factors = places.weights.load(checkpoint, graph, &mut weights)?;
        for program in [&mut program].into_iter().chain(&mut block) {
            program.set_tensor_scales(|id| factors.get(&id).copied().unwrap_or(1.0));
        }
        let mut memory = Memory::new();
        let pages = vec![0; slots * places.pages_per_slot];
        let buffers = Buffers {
            weights: memory.add_bytes("weights", &weights)?,
            states: memory.add_zeroed("states", places.states.bytes.max(16))?,
            step: memory.add_zeroed("step", size_of::<StepState>())?,
            tokens: memory.add_zeroed("tokens", MAX_DECODE_ROWS * 4)?,
            pages: memory.add_zeroed("pages", pages.len() * 4)?,
            joins: memory.add_zeroed("joins", 8)?,
        };
        let target = Compiled::new(program, &emulator, &mut memory)?;
        let block = block.map(|block| Compiled::new(block, &emulator, &mut memory)).transpose()?;
        Ok(Emulated {
            target,
            block,
            memory,
            buffers,
            pages,
            state_positions: vec![0; slots],
            drained: vec![0; slots],
            logits: Vec::new(),
            hidden: Vec::new(),
            drafted: (Vec::new(), Vec::new()),
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
        self.put(self.buffers.step, 0, &bytes_of(&step.words()));
        self.replay(false)?;
        self.fetch_logits(step.logit_rows as usize);
        // Only a drafter asks for them.
        if self.block.is_some() {
            self.hidden = self.target.head_input(step.rows as usize, &self.memory);
        }
        Ok(())
    }

    /// Runs the model's launches, or those of its head.
    fn replay(&mut self, head: bool) -> Result<(), EngineError> {
        let Emulated { target, memory, buffers, passes, checks, .. } = self;
        let launches = if head { &target.program.head } else { &target.program.launches };
        target.replay(launches, buffers, memory, passes, *checks)
    }

    fn fetch_logits(&mut self, rows: usize) {
        self.logits = self.target.logits(rows, &self.memory);
    }

    /// Floats of a row that the head reads.
    fn hidden_width(&self) -> usize {
        let schedule = &self.target.program.schedule;
        schedule.head_input().map_or(0, |buffer| schedule.buffer(buffer).width)
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
        self.put(self.buffers.step, 0, &bytes_of(&step.words()));
        self.replay(true)?;
        self.fetch_logits(step.logit_rows as usize);
        Ok(())
    }

    fn hidden(&self, rows: usize) -> &[f32] {
        let width = self.hidden_width();
        &self.hidden[..(rows * width).min(self.hidden.len())]
    }

    fn draft(
        &mut self,
        step: &StepState,
        tokens: &[u32],
        hidden: &[f32],
    ) -> Result<bool, EngineError> {
        let Some(block) = self.block.take() else { return Ok(false) };
        let schedule = &block.program.schedule;
        if let Some(input) = schedule.inputs.first() {
            let rows: Vec<u8> = hidden.iter().flat_map(|value| value.to_le_bytes()).collect();
            self.put(block.arena, schedule.buffer(*input).offset, &rows);
        }
        self.put(self.buffers.tokens, 0, &bytes_of(tokens));
        self.put(self.buffers.pages, 0, &bytes_of(&self.pages));
        self.put(self.buffers.step, 0, &bytes_of(&step.words()));
        let (buffers, memory) = (&self.buffers, &mut self.memory);
        let launches = &block.program.launches;
        let ran = block.replay(launches, buffers, memory, &mut self.passes, self.checks);
        let (rows, logit_rows) = (step.rows as usize, step.logit_rows as usize);
        self.drafted = (block.logits(logit_rows, memory), block.head_input(rows, memory));
        self.block = Some(block);
        ran.map(|()| true)
    }

    fn draft_rows(&self, _rows: usize) -> (&[f32], &[f32]) {
        (&self.drafted.0, &self.drafted.1)
    }

    fn begin_loop(&mut self, start: &LoopStart<'_>) -> Result<bool, EngineError> {
        let LoopStart { mut step, tokens, slot, rounds } = *start;
        for rows in &mut step.slots[..step.slots_used as usize] {
            rows.state_position = self.state_positions[rows.slot as usize];
        }
        let places = self.target.program.places.states.choices;
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
            self.replay(false)?;
            if before.outputs & OUTPUT_LOGITS != 0 {
                self.fetch_logits(before.logit_rows as usize);
            }
        }
        let choice = self.step().choices[slot];
        let ring = self.target.program.places.states.choices.ring + slot * RING_TOKENS * 4;
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
        (self.target.program.places.pages, PAGE_TOKENS)
    }

    fn reset(&mut self, slot: usize) {
        self.state_positions[slot] = 0;
        let places: Vec<_> = self.target.program.places.states.deltas.values().copied().collect();
        for (offset, slot_floats) in places {
            let bytes = slot_floats * 4;
            self.put(self.buffers.states, offset + slot * bytes, &vec![0; bytes]);
        }
    }

    fn set_pages(&mut self, slot: usize, pages: &[u32]) {
        let per_slot = self.target.program.places.pages_per_slot;
        self.pages[slot * per_slot..][..pages.len()].copy_from_slice(pages);
    }

    fn memory(&self) -> MemoryUse {
        let places = &self.target.program.places;
        let all = self.block.as_ref().map_or(places, |block| &block.program.places);
        MemoryUse {
            resident: (all.weights.bytes + all.states.bytes) as u64,
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
