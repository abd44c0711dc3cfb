//! Programs for graphics processors, run on an NVIDIA card, behind the engine's trait.
//!
//! Weights and states are on the card once, whatever the fusion level; each level has its own launches, records and arena. A
//! pass is one copy to the card (counters of joins, step state, tokens, pages), one graph, one copy back (logits and the joins' error flag).
//! A drafter's block is a program of its own beside each level's, over the same weights and states (`backend_cuda/drafts.rs`).
//! Where the card chooses tokens itself, it runs pass after pass, and the host reads what was chosen beside it (`cuda_loop.rs`).

mod drafts;
mod rounds;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use lithos_compiler::device::{DeviceOptions, KeyValues, Program, WeightPieces};
use lithos_compiler::{Fusion, MAX_DECODE_ROWS, SlotRows, StepState};
use lithos_cpu::mixers::kv::KvType;
use lithos_cuda::{
    Compiler, CudaError, Device, DeviceBuffer, Event, Kernel, Module, PASS_LIMIT, PinnedBuffer,
    ReadStream, Replay, Staged, Stream, check_room, upload,
};
use lithos_format::Checkpoint;
use lithos_graph::{Graph, StateKind};
use lithos_kernels::{Language, PAGE_TOKENS};

use crate::backend::Backend;
use crate::backend_cpu::key_value_type;
use crate::cuda_loop::{CardLoop, Reports};
use crate::cuda_plan::{self, Addresses, Inputs};
use crate::engine::MemoryUse;
use crate::error::EngineError;
use crate::options::{BackendKind, EngineOptions};
use crate::passes::{LaunchTime, PassTimes};
use crate::rounds::{Drained, LoopStart};

/// Keys of an attention range.
const RANGE_KEYS: usize = 256;

/// Threads of a worker; there is a worker for each multiprocessor.
const THREADS: u32 = Language::Cuda.most_threads();

/// Bytes of weights that a thread packs before it sends them.
const PIECE: usize = 4 << 20;

/// Threads that pack weights at most: each pins two pieces of memory.
const MOST_PACKERS: usize = 64;

/// What to do where the card has too little memory.
const ADVICE: &str = "lower --context, choose a smaller model, or --backend cpu";

/// A model on a card.
pub(crate) struct Cuda {
    // Before what they use, because fields are dropped in order.
    levels: HashMap<Fusion, Level>,
    /// The pass over a drafter's block at each of these levels, if there is a drafter.
    blocks: HashMap<Fusion, Level>,
    fusion: Fusion,
    model: OnCard,
    graph: Graph,
    /// The graph of the drafter's block.
    block: Option<Graph>,
    options: DeviceOptions,
    pages: Vec<u32>,
    /// Position that each slot's recurrent state stands at: every pass folds what was accepted before it.
    state_positions: Vec<u32>,
    /// Tokens that each slot has taken in, accepted or not: what a failed pass is repeated from.
    histories: Vec<Vec<u32>>,
    /// Logits of the last pass, in the memory that the card copies to.
    logits: usize,
    /// What the head of the last pass read before its norm, where a drafter takes it.
    hidden: Vec<f32>,
    /// Logits of the last block, and what its head read before its norm.
    drafted: (Vec<f32>, Vec<f32>),
    /// The last pass over rows, which the head alone may follow.
    last: Option<(StepState, Vec<u32>)>,
    /// The slot that the card runs by itself.
    looped: Option<CardLoop>,
}

/// What all levels share.
struct OnCard {
    factors: HashMap<lithos_graph::ValueId, f32>,
    weights: DeviceBuffer,
    weight_bytes: usize,
    states: DeviceBuffer,
    inputs: DeviceBuffer,
    layout: Inputs,
    sent: PinnedBuffer,
    received: PinnedBuffer,
    reports: Reports,
    stream: Stream,
    compiler: Compiler,
    device: Arc<Device>,
}

/// One fusion level, ready to run.
struct Level {
    pass: Replay,
    head: Replay,
    program: Program,
    arena: DeviceBuffer,
    workers: u32,
    // What the launches read and run; kept as long.
    _records: DeviceBuffer,
    _module: Module,
}

/// Which launches of a level.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// A pass of the model.
    Pass,
    /// Its head alone.
    Head,
    /// A pass over a drafter's block.
    Block,
}

/// The card, opened once: closing the last handle would throw its context away, and a new one costs a good part of a second.
fn card() -> Result<Arc<Device>, CudaError> {
    static CARD: Mutex<Option<Arc<Device>>> = Mutex::new(None);
    let mut card = CARD.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(device) = &*card {
        return Ok(device.clone());
    }
    let device = Device::open(0)?;
    *card = Some(device.clone());
    Ok(device)
}

/// The card that would be used, in words.
///
/// # Errors
/// [`CudaError`] if there is none, no compiler for it, or not so much memory free.
pub(crate) fn find_card(bytes: u64) -> Result<String, CudaError> {
    let device = card()?;
    Compiler::open(device.driver_version())?;
    check_room(&device, &[("weights", bytes)], ADVICE)?;
    Ok(device.describe())
}

/// Bytes that are free on the card.
pub(crate) fn free_memory() -> Result<u64, CudaError> {
    Ok(card()?.memory()?.0)
}

impl Cuda {
    pub(crate) fn new(
        checkpoint: &Arc<Checkpoint>,
        graph: &Graph,
        block: Option<&Graph>,
        options: &EngineOptions,
        context: usize,
        slots: usize,
    ) -> Result<Self, EngineError> {
        let device = card()?;
        let compiler = Compiler::open(device.driver_version())?;
        let key_values = match key_value_type(graph) {
            KvType::Bf16 => KeyValues::Bf16,
            KvType::F32 => KeyValues::F32,
        };
        let device_options = DeviceOptions {
            fusion: options.fusion,
            slots,
            context,
            key_values,
            range_keys: RANGE_KEYS,
        };
        let program = Program::new(graph, device_options)?;
        let block_program = block.map(|block| program.beside(block, device_options)).transpose()?;
        // A block's places are those of the model and some more.
        let places = block_program.as_ref().map_or(&program.places, |block| &block.places);
        let programs = || [&program].into_iter().chain(&block_program);
        let arenas = programs().map(|program| program.schedule.arena as u64).sum();
        let parts = [
            ("weights", places.weights.bytes as u64),
            ("keys, values and states", places.states.bytes as u64),
            ("intermediate buffers", arenas),
        ];
        check_room(&device, &parts, ADVICE)?;
        // Before the weights are sent, which takes longer and for nothing if the kernels do not compile.
        for program in programs() {
            compile(&compiler, &device, program)?;
        }
        let weights = DeviceBuffer::filled(&device, places.weights.bytes, 0)?;
        let threads = options.threads.unwrap_or_else(|| {
            std::thread::available_parallelism().map_or(1, usize::from).min(MOST_PACKERS)
        });
        let pieces = places.weights.pieces(checkpoint, graph, PIECE)?;
        send_weights(&pieces, &weights, &device, threads)?;
        let factors = pieces.factors().clone();
        let vocabulary = program.schedule.buffer(program.schedule.logits).width;
        let layout = Inputs::new(slots * places.pages_per_slot);
        let mut cuda = Cuda {
            levels: HashMap::new(),
            blocks: HashMap::new(),
            fusion: options.fusion,
            model: OnCard {
                factors,
                weight_bytes: places.weights.bytes,
                weights,
                states: DeviceBuffer::filled(&device, places.states.bytes, 0)?,
                inputs: DeviceBuffer::filled(&device, layout.bytes, 0)?,
                sent: PinnedBuffer::new(&device, layout.bytes)?,
                received: PinnedBuffer::new(
                    &device,
                    Inputs::JOIN_BYTES + MAX_DECODE_ROWS * vocabulary * 4,
                )?,
                layout,
                reports: Reports::new(&device, slots * places.pages_per_slot)?,
                stream: Stream::new(&device)?,
                compiler,
                device,
            },
            graph: graph.clone(),
            block: block.cloned(),
            options: device_options,
            pages: vec![0; slots * places.pages_per_slot],
            state_positions: vec![0; slots],
            histories: vec![Vec::new(); slots],
            logits: 0,
            hidden: Vec::new(),
            drafted: (Vec::new(), Vec::new()),
            last: None,
            looped: None,
        };
        let level = Level::new(&cuda.model, program)?;
        cuda.levels.insert(options.fusion, level);
        if let Some(program) = block_program {
            cuda.blocks.insert(options.fusion, Level::new(&cuda.model, program)?);
        }
        Ok(cuda)
    }

    /// The chosen level, which is ready since it was chosen.
    fn level(&self) -> &Level {
        &self.levels[&self.fusion]
    }

    /// Makes a level ready, if it is not.
    fn prepare(&mut self, fusion: Fusion) -> Result<(), EngineError> {
        if !self.levels.contains_key(&fusion) {
            let options = DeviceOptions { fusion, ..self.options };
            let program = Program::new(&self.graph, options)?;
            if let Some(block) = &self.block {
                let block = program.beside(block, options)?;
                self.blocks.insert(fusion, Level::new(&self.model, block)?);
            }
            self.levels.insert(fusion, Level::new(&self.model, program)?);
        }
        Ok(())
    }

    /// Runs a pass over new rows at the chosen level; where a join fails, from the beginning at `none`, which has none.
    fn pass(&mut self, step: &StepState, tokens: &[u32]) -> Result<(), EngineError> {
        let mut step = *step;
        for slot in &mut step.slots[..step.slots_used as usize] {
            let index = slot.slot as usize;
            slot.state_position = self.state_positions[index];
            self.state_positions[index] = slot.position;
            let history = &mut self.histories[index];
            history.truncate(slot.position as usize);
            let rows = slot.first_row as usize..(slot.first_row + slot.rows) as usize;
            history.extend_from_slice(&tokens[rows]);
        }
        self.last = Some((step, tokens.to_vec()));
        self.or_without_joins(&step, tokens, Part::Pass)
    }

    /// Runs a pass; where a join fails, again without joins.
    fn or_without_joins(
        &mut self,
        step: &StepState,
        tokens: &[u32],
        part: Part,
    ) -> Result<(), EngineError> {
        match self.run(step, tokens, part) {
            Err(EngineError::Join { region, fusion }) if fusion != Fusion::None => {
                self.recover(&region)?;
                if part == Part::Head { self.run(step, tokens, part) } else { Ok(()) }
            }
            result => result,
        }
    }

    /// Repeats everything that the slots of the last pass have taken in, without joins, and stays at that level. States may
    /// hold anything after a failed pass, because rows that were accepted are folded into them on the way.
    fn recover(&mut self, region: &str) -> Result<(), EngineError> {
        self.leave_joins(region)?;
        let Some((mut last, tokens)) = self.last.clone() else { return Ok(()) };
        for entry in 0..last.slots_used as usize {
            let slot = last.slots[entry];
            last.slots[entry].state_position =
                self.repeat(slot.slot as usize, slot.position as usize)?;
        }
        self.run(&last, &tokens, Part::Pass)
    }

    /// Goes on at `none`.
    fn leave_joins(&mut self, region: &str) -> Result<(), EngineError> {
        eprintln!("warning: workers of {region} did not meet in time; going on at --fusion none");
        self.prepare(Fusion::None)?;
        self.fusion = Fusion::None;
        // Teams that were in the middle of a projection left their counters behind.
        for level in [self.level()].into_iter().chain(self.blocks.get(&self.fusion)) {
            let counters = level.program.places.states.arrivals.clone();
            self.model.states.fill_in(&self.model.stream, counters.start, counters.len(), 0)?;
        }
        Ok(())
    }

    /// Takes in the first tokens of a slot's history again, from an empty state. Returns the position that the state then stands at.
    fn repeat(&mut self, slot: usize, count: usize) -> Result<u32, EngineError> {
        self.empty_states(slot)?;
        let before = self.histories[slot][..count].to_vec();
        let mut stands = 0;
        for (chunk, ids) in before.chunks(MAX_DECODE_ROWS).enumerate() {
            let position = (chunk * MAX_DECODE_ROWS) as u32;
            let rows = SlotRows {
                slot: slot as u32,
                first_row: 0,
                rows: ids.len() as u32,
                position,
                state_position: stands,
            };
            self.run(&StepState::single(rows, 0), ids, Part::Pass)?;
            stands = position;
        }
        Ok(stands)
    }

    /// Runs the launches of a part, and fetches logits.
    fn run(&mut self, step: &StepState, tokens: &[u32], part: Part) -> Result<(), EngineError> {
        if self.looped.take().is_some() {
            // What it queued reads the memory that is written next.
            self.model.stream.wait(PASS_LIMIT)?;
        }
        let levels = if part == Part::Block { &self.blocks } else { &self.levels };
        let level = &levels[&self.fusion];
        let model = &mut self.model;
        model.layout.write(model.sent.bytes_mut(), step, tokens, &self.pages);
        model.sent.send(&model.stream, model.layout.bytes, &model.inputs, 0)?;
        let replay = if part == Part::Head { &level.head } else { &level.pass };
        replay.run(&model.stream)?;
        let schedule = &level.program.schedule;
        let logits = schedule.buffer(schedule.logits);
        let bytes = step.logit_rows as usize * logits.width * 4;
        let flag = Inputs::JOIN_BYTES;
        model.received.receive(&model.stream, 0, &model.inputs, 0, flag)?;
        if bytes > 0 {
            let (stream, arena) = (&model.stream, &level.arena);
            model.received.receive(stream, flag, arena, logits.offset, bytes)?;
        }
        model.stream.wait(PASS_LIMIT)?;
        let failed = Inputs::failed_join(model.received.bytes());
        if failed != 0 {
            let program = &level.program;
            let launches = if part == Part::Head { &program.head } else { &program.launches };
            let region = cuda_plan::place_of_join(program, launches, failed);
            return Err(EngineError::Join { region, fusion: self.fusion });
        }
        self.logits = bytes / 4;
        match part {
            Part::Pass => self.keep_hidden(step.rows as usize),
            Part::Head => Ok(()),
            Part::Block => self.keep_drafted(step.rows as usize),
        }
    }

    /// Bytes of a page over all layers.
    fn page_bytes(&self) -> u64 {
        let element = self.options.key_values.bytes();
        let bytes = |id| match self.graph.value(id).state() {
            Some(StateKind::KeyValue { heads, head_dim }) => {
                (2 * heads * PAGE_TOKENS * head_dim * element) as u64
            }
            _ => 0,
        };
        self.graph.states().map(bytes).sum()
    }

    fn empty_states(&mut self, slot: usize) -> Result<(), CudaError> {
        for (offset, slot_floats) in self.level().program.places.states.deltas.values() {
            let bytes = slot_floats * 4;
            self.model.states.fill_in(&self.model.stream, offset + slot * bytes, bytes, 0)?;
        }
        Ok(())
    }
}

impl Level {
    fn new(model: &OnCard, mut program: Program) -> Result<Self, EngineError> {
        program.set_tensor_scales(|id| model.factors.get(&id).copied().unwrap_or(1.0));
        let (device, stream) = (&model.device, &model.stream);
        let module = Module::load(device, &compile(&model.compiler, device, &program)?)?;
        let kernels: Vec<Kernel> = (0..program.kernels())
            .map(|kernel| module.kernel(&Program::kernel_name(kernel)))
            .collect::<Result<_, _>>()?;
        let launches = program.launches.iter().chain(&program.head);
        let joined: Vec<&Kernel> =
            launches.filter(|launch| launch.joins).map(|launch| &kernels[launch.kernel]).collect();
        // Every launch has the same, so that a level's kernels stage alike.
        let wanted = Language::Cuda.launch_memory() as u32;
        let shared_bytes = kernels
            .iter()
            .map(|kernel| kernel.allow_shared_memory(device, wanted))
            .try_fold(wanted, |least, bytes| Ok::<_, CudaError>(least.min(bytes?)))?;
        let most = module.most_workers(&joined, THREADS, shared_bytes)?;
        // A join counts on the same number of workers in every launch.
        let workers = device.multiprocessors().min(most);
        if workers == 0 {
            let cause = format!(
                "a worker of {THREADS} threads and {shared_bytes} bytes of shared memory does not fit a multiprocessor"
            );
            return Err(CudaError::Unsupported { card: device.name().to_owned(), cause }.into());
        }
        let arena = DeviceBuffer::filled(device, program.schedule.arena, 0xff)?;
        let records = DeviceBuffer::new(device, program.records.len() * 4)?;
        let words: Vec<u8> = program.records.iter().flat_map(|word| word.to_le_bytes()).collect();
        records.write(0, &words)?;
        let inputs = model.inputs.address();
        let addresses = Addresses {
            weights: model.weights.address(),
            arena: arena.address(),
            states: model.states.address(),
            step: inputs + Inputs::STEP as u64,
            tokens: inputs + model.layout.tokens as u64,
            pages: inputs + model.layout.pages as u64,
            records: records.address(),
            joins: inputs,
        };
        let replay = |launches| {
            let plan = cuda_plan::launches(launches, &addresses, workers, THREADS, shared_bytes);
            Replay::new(stream, kernels.clone(), plan)
        };
        let (pass, head) = (replay(&program.launches)?, replay(&program.head)?);
        Ok(Level { pass, head, program, arena, workers, _records: records, _module: module })
    }
}

fn compile(compiler: &Compiler, device: &Device, program: &Program) -> Result<Vec<u8>, CudaError> {
    let name = format!("a pass at --fusion {}", program.schedule.fusion);
    compiler.compile_for(device, THREADS, &name, &program.text(Language::Cuda))
}

fn send_weights(
    pieces: &WeightPieces<'_>,
    weights: &DeviceBuffer,
    device: &Arc<Device>,
    threads: usize,
) -> Result<(), CudaError> {
    let make = |index: usize, out: &mut [u8]| -> Result<Vec<Staged>, CudaError> {
        let packed =
            pieces.pack(index, out).map_err(|error| CudaError::Source(error.to_string()))?;
        let staged = |part: lithos_compiler::device::PackedPart| Staged {
            at: part.at,
            bytes: part.bytes,
            to: part.place,
        };
        Ok(packed.into_iter().map(staged).collect())
    };
    upload(weights, device, pieces.len(), pieces.largest(), threads, &make, &mut |_| ())
}

impl Backend for Cuda {
    fn decode(&mut self, step: &StepState, tokens: &[u32]) -> Result<(), EngineError> {
        self.pass(step, tokens)
    }

    fn prefill(&mut self, step: &StepState, tokens: &[u32]) -> Result<(), EngineError> {
        self.pass(step, tokens)
    }

    fn prefill_head(&mut self, step: &StepState) -> Result<(), EngineError> {
        self.or_without_joins(step, &[], Part::Head)
    }

    fn hidden(&self, _rows: usize) -> &[f32] {
        &self.hidden
    }

    fn draft(
        &mut self,
        step: &StepState,
        tokens: &[u32],
        hidden: &[f32],
    ) -> Result<bool, EngineError> {
        self.draft_pass(step, tokens, hidden)
    }

    fn draft_rows(&self, _rows: usize) -> (&[f32], &[f32]) {
        (&self.drafted.0, &self.drafted.1)
    }

    fn begin_loop(&mut self, start: &LoopStart<'_>) -> Result<bool, EngineError> {
        self.begin_rounds(start)?;
        Ok(true)
    }

    fn run_loop(
        &mut self,
        slot: usize,
        passes: usize,
        ahead: usize,
    ) -> Result<Drained, EngineError> {
        self.visit(slot, passes, ahead)
    }

    fn end_loop(&mut self, slot: usize) -> Result<Option<Drained>, EngineError> {
        self.end_rounds(slot)
    }

    fn logits(&self) -> &[f32] {
        &self.model.received.floats()[Inputs::JOIN_BYTES / 4..][..self.logits]
    }

    fn chunk(&self) -> usize {
        MAX_DECODE_ROWS
    }

    fn pages(&self) -> (usize, usize) {
        (self.level().program.places.pages, PAGE_TOKENS)
    }

    fn reset(&mut self, slot: usize) {
        self.state_positions[slot] = 0;
        self.histories[slot].clear();
        // A card that refuses this refuses the next pass too, which says so.
        let _ = self.empty_states(slot);
    }

    fn set_pages(&mut self, slot: usize, pages: &[u32]) {
        let per_slot = self.pages.len() / self.state_positions.len();
        self.pages[slot * per_slot..][..pages.len()].copy_from_slice(pages);
    }

    fn memory(&self) -> MemoryUse {
        MemoryUse {
            resident: (self.model.weight_bytes + self.model.states.bytes()) as u64,
            read_per_pass: cuda_plan::weigh(&self.level().program, &self.graph, 1)
                .iter()
                .map(|launch| launch.weight_bytes)
                .sum(),
            per_page: self.page_bytes(),
            page_tokens: PAGE_TOKENS,
        }
    }

    fn kind(&self) -> BackendKind {
        BackendKind::Cuda
    }

    fn describe(&self) -> String {
        let level = self.level();
        let (card, workers) = (self.model.device.describe(), level.workers);
        let graph = level
            .pass
            .refused()
            .map_or(String::new(), |why| format!(", launched one by one: {why}"));
        format!("{card}, {workers} workers of {THREADS} threads{graph}")
    }

    fn poison(&mut self) -> Result<(), EngineError> {
        for level in self.levels.values().chain(self.blocks.values()) {
            level.arena.fill(0, level.arena.bytes(), 0xff)?;
        }
        Ok(())
    }

    fn set_fusion(&mut self, fusion: Fusion) -> Result<(), EngineError> {
        self.prepare(fusion)?;
        self.fusion = fusion;
        Ok(())
    }

    fn read_stream(&mut self) -> Result<Vec<f64>, EngineError> {
        let stream = ReadStream::new(&self.model.device, &self.model.compiler)?;
        stream.measure()?;
        Ok((0..5).map(|_| stream.measure()).collect::<Result<_, _>>()?)
    }

    fn measure(
        &mut self,
        step: &StepState,
        tokens: &[u32],
        repeats: usize,
    ) -> Result<PassTimes, EngineError> {
        // Once in the ordinary way: sends the inputs, and finds failed joins.
        self.run(step, tokens, Part::Pass)?;
        let level = self.level();
        let model = &self.model;
        let events = [Event::new(&model.device)?, Event::new(&model.device)?];
        let mut times = Vec::new();
        for _ in 0..repeats {
            events[0].record(&model.stream)?;
            level.pass.run(&model.stream)?;
            events[1].record(&model.stream)?;
            model.stream.wait(PASS_LIMIT)?;
            times.push(events[1].since(&events[0])?);
        }
        let each = level.pass.time_each(&model.stream, repeats.min(5), PASS_LIMIT)?;
        // The host's share as well: copies, launch, wait.
        let mut round_trips: Vec<Duration> = Vec::new();
        for _ in 0..repeats {
            let started = Instant::now();
            self.run(step, tokens, Part::Pass)?;
            round_trips.push(started.elapsed());
        }
        let level = self.level();
        let launches = cuda_plan::weigh(&level.program, &self.graph, tokens.len())
            .into_iter()
            .zip(each)
            .map(|(weighed, time)| LaunchTime { weighed, time })
            .collect();
        let refused = level.pass.refused().map(str::to_owned);
        Ok(PassTimes { passes: times, round_trips, launches, refused })
    }
}
