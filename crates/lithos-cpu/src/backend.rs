//! The backend: one model on this machine's cores.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use lithos_compiler::{
    CompileError, Fusion, MAX_DECODE_ROWS, MergeIn, Options, PassKind, Schedule, StepState,
    TaskGroup,
};
use lithos_format::Checkpoint;
use lithos_graph::Graph;
use thiserror::Error;

use crate::mixers::attention::partial_width;
use crate::mixers::kv::{KvError, KvType, PAGE_TOKENS};
use crate::pass::WorkerMemory;
use crate::program::{Machine, Program};
use crate::simd::Isa;
use crate::states::States;
use crate::weights::{Weights, WeightsError};
use crate::workers::{LaunchError, Workers};

/// Keys that one attention task reads at least.
const SMALLEST_RANGE: usize = 256;

/// Ranges that a row's keys are split into at most. Fixed by the capacity, so that a row's sums do not depend on its pass.
const MOST_RANGES: usize = 32;

/// With so many workers at most each merges partial results of attention for itself: together they then merge as often.
const MOST_MERGING_WORKERS: usize = 8;

/// Bytes of intermediate buffers that a prefill chunk may need.
const CHUNK_BYTES: usize = 64 << 20;

/// Rows of a prefill chunk at most.
const LARGEST_CHUNK: usize = 512;

/// How to run a model.
#[derive(Clone, Copy, Debug)]
pub struct CpuOptions {
    /// Worker threads, the calling one included.
    pub threads: usize,
    /// Instruction set of the task bodies.
    pub isa: Isa,
    /// Where launches are cut.
    pub fusion: Fusion,
    /// Slots.
    pub slots: usize,
    /// Tokens that all slots together can hold.
    pub capacity: usize,
    /// Element type of keys and values.
    pub key_values: KvType,
    /// Rows of a prefill chunk; `None` for the largest whose buffers fit.
    pub chunk: Option<usize>,
}

/// Why a model cannot run here.
#[derive(Debug, Error)]
pub enum CpuError {
    /// The graph cannot be scheduled.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// The weights cannot be loaded.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// The key/value pages cannot be laid out.
    #[error(transparent)]
    KeyValues(#[from] KvError),
}

/// One model, its states, and the workers that run it.
pub struct CpuBackend {
    isa: Isa,
    workers: Workers,
    memories: Vec<Mutex<WorkerMemory>>,
    weights: Arc<Weights>,
    states: States,
    decode: Program,
    prefill: Program,
    /// The pass over a drafter's block.
    block: Option<Program>,
    chunk: usize,
    bytes_per_pass: u64,
    numerics: String,
}

impl CpuBackend {
    /// Compiles a graph and packs its weights; and the graph of a drafter's block, if there is one, which shares its values.
    ///
    /// # Errors
    /// [`CpuError`] names what does not fit.
    pub fn new(
        checkpoint: &Arc<Checkpoint>,
        graph: &Graph,
        block: Option<&Graph>,
        options: CpuOptions,
    ) -> Result<Self, CpuError> {
        let range_keys = options
            .capacity
            .div_ceil(MOST_RANGES)
            .max(SMALLEST_RANGE)
            .next_multiple_of(PAGE_TOKENS);
        let compile = |graph: &Graph, pass, merge_in| {
            let options = Options {
                pass,
                fusion: options.fusion,
                attention_ranges: options.capacity.div_ceil(range_keys).max(1),
                partial_header: partial_width(0),
                merge_in,
            };
            Schedule::compile(graph, options)
        };
        let merge_in =
            if options.threads <= MOST_MERGING_WORKERS { MergeIn::Readers } else { MergeIn::Phase };
        let decode = compile(graph, PassKind::Decode, merge_in)?;
        let block_pass =
            block.map(|block| compile(block, PassKind::Decode, merge_in)).transpose()?;
        let (prefill, chunk) = match options.chunk {
            Some(chunk) => (compile(graph, PassKind::Prefill { chunk }, MergeIn::Phase)?, chunk),
            None => {
                let mut chunk = LARGEST_CHUNK;
                loop {
                    let schedule = compile(graph, PassKind::Prefill { chunk }, MergeIn::Phase)?;
                    if schedule.arena <= CHUNK_BYTES || chunk <= 2 * MAX_DECODE_ROWS {
                        break (schedule, chunk);
                    }
                    chunk /= 2;
                }
            }
        };
        let pages = options.capacity.div_ceil(PAGE_TOKENS) + options.slots - 1;
        let states = States::new(graph, options.slots, pages, options.key_values)?;
        let mut workers = Workers::new(options.threads);
        let schedules = [Some(&decode), block_pass.as_ref()].into_iter().flatten();
        let multiplied: HashSet<_> = schedules.flat_map(Schedule::streamed_matrices).collect();
        let weights = Arc::new(Weights::load(checkpoint, graph, &multiplied, &mut workers)?);
        let read_by_one_row = |group: &TaskGroup| {
            let (part, whole) = group.kind.part_read(graph, 1);
            let bytes = group.kind.matrices().into_iter().map(|id| weights.packed_bytes(id));
            bytes.sum::<u64>() * part / whole
        };
        let bytes_per_pass = decode.streamed_groups().map(read_by_one_row).sum();
        let count = workers.count();
        Ok(CpuBackend {
            isa: options.isa,
            memories: (0..count).map(|_| Mutex::default()).collect(),
            workers,
            decode: Program::new(graph, decode, &weights, range_keys, count),
            prefill: Program::new(graph, prefill, &weights, range_keys, count),
            block: block
                .zip(block_pass)
                .map(|(graph, pass)| Program::new(graph, pass, &weights, range_keys, count)),
            weights,
            states,
            chunk,
            bytes_per_pass,
            numerics: format!(
                "cpu {} ranges of {range_keys} keys {:?} chunk {chunk} {}",
                options.isa.name(),
                options.key_values,
                options.fusion.name(),
            ),
        })
    }

    /// Runs a decode pass: at most [`MAX_DECODE_ROWS`] rows, of any slots.
    ///
    /// # Errors
    /// [`LaunchError`] if the workers failed.
    pub fn decode(&mut self, step: &StepState, tokens: &[u32]) -> Result<(), LaunchError> {
        let machine = Machine {
            isa: self.isa,
            workers: &mut self.workers,
            memories: &self.memories,
            states: &self.states,
        };
        self.decode.run(machine, step, tokens)
    }

    /// Runs a prefill pass: at most [`CpuBackend::chunk`] rows of one slot.
    ///
    /// # Errors
    /// As [`CpuBackend::decode`].
    pub fn prefill(&mut self, step: &StepState, tokens: &[u32]) -> Result<(), LaunchError> {
        let machine = Machine {
            isa: self.isa,
            workers: &mut self.workers,
            memories: &self.memories,
            states: &self.states,
        };
        self.prefill.run(machine, step, tokens)
    }

    /// Computes the logits of other rows of the last prefill pass.
    ///
    /// # Errors
    /// As [`CpuBackend::decode`].
    pub fn prefill_head(&mut self, step: &StepState) -> Result<(), LaunchError> {
        let machine = Machine {
            isa: self.isa,
            workers: &mut self.workers,
            memories: &self.memories,
            states: &self.states,
        };
        self.prefill.run_head(machine, step)
    }

    /// Runs a pass over a drafter's block of a slot; `false` if there is no drafter. `hidden` are the rows that a drafter takes beside the
    /// tokens, if it takes any.
    ///
    /// # Errors
    /// As [`CpuBackend::decode`].
    pub fn draft(
        &mut self,
        step: &StepState,
        tokens: &[u32],
        hidden: &[f32],
    ) -> Result<bool, LaunchError> {
        let machine = Machine {
            isa: self.isa,
            workers: &mut self.workers,
            memories: &self.memories,
            states: &self.states,
        };
        match &mut self.block {
            Some(block) => {
                block.set_input(hidden);
                block.run(machine, step, tokens).map(|()| true)
            }
            None => Ok(false),
        }
    }

    /// Logits `[rows, vocabulary]` of the last block, and what its head read, `[rows, width]`, before its norm. Empty without a drafter.
    pub fn draft_rows(&self, rows: usize) -> (&[f32], &[f32]) {
        match &self.block {
            Some(block) => (block.logits(rows), block.head_input(rows)),
            None => (&[], &[]),
        }
    }

    /// What the head of the last decode pass reads, `[rows, width]`, before its norm.
    pub fn decode_hidden(&self, rows: usize) -> &[f32] {
        self.decode.head_input(rows)
    }

    /// As [`CpuBackend::decode_hidden`], of the last prefill pass.
    pub fn prefill_hidden(&self, rows: usize) -> &[f32] {
        self.prefill.head_input(rows)
    }

    /// Logits of the last decode pass, `[rows, vocabulary]`.
    pub fn decode_logits(&self, rows: usize) -> &[f32] {
        self.decode.logits(rows)
    }

    /// Logits of the last prefill pass, `[rows, vocabulary]`.
    pub fn prefill_logits(&self, rows: usize) -> &[f32] {
        self.prefill.logits(rows)
    }

    /// Rows of a prefill chunk.
    pub fn chunk(&self) -> usize {
        self.chunk
    }

    /// States of all slots.
    pub fn states(&self) -> &States {
        &self.states
    }

    /// States of all slots, to reset them or change their pages.
    pub fn states_mut(&mut self) -> &mut States {
        &mut self.states
    }

    /// The decode program.
    pub fn decode_program(&self) -> &Program {
        &self.decode
    }

    /// What the bits of states depend on, beside the model and this program: states of another backend whose words are the same can
    /// be gone on from.
    pub fn numerics(&self) -> &str {
        &self.numerics
    }

    /// Workers.
    pub fn threads(&self) -> usize {
        self.workers.count()
    }

    /// Instruction set of the task bodies.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Bytes of weights that a decode pass of one row reads: of a mixture, those of the chosen experts.
    pub fn bytes_per_pass(&self) -> u64 {
        self.bytes_per_pass
    }

    /// Bytes of weights, buffers and states that are resident once used, without key/value pages.
    pub fn resident_bytes(&self) -> u64 {
        self.weights.resident_bytes()
            + self.decode.resident_bytes()
            + self.prefill.resident_bytes()
            + self.block.as_ref().map_or(0, Program::resident_bytes)
            + (self.states.slots() * self.states.slot_bytes()) as u64
    }
}
