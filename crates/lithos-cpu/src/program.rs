//! A schedule bound to weights: what runs one kind of pass.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use lithos_compiler::layout::AlignedBytes;
use lithos_compiler::{
    BufferId, BufferRows, MAX_DECODE_ROWS, Place, PreparedId, Schedule, StepState,
};
use lithos_graph::Graph;

use crate::ahead::Ahead;
use crate::linear::{Operand, OperandKind};
use crate::mixers::rotary::{RotaryRows, RotaryTable};
use crate::pass::{ArenaPointer, Pass, WorkerMemory};
use crate::queue::Queue;
use crate::simd::Isa;
use crate::states::States;
use crate::tasks::{Binder, PreparedForms, Tasks};
use crate::weights::Weights;
use crate::workers::{Joiner, LaunchError, LaunchFailed, Workers};

/// How many phases ahead a waiting worker looks for memory to ask for: a merge of attention's ranges reads none.
const PHASES_AHEAD: usize = 2;

/// A schedule with its task bodies, arena and operands.
pub struct Program {
    schedule: Schedule,
    tasks: Vec<Box<dyn Tasks>>,
    rotaries: Vec<RotaryTable>,
    angles: Vec<RotaryRows>,
    prepared: Vec<Operand>,
    arena: AlignedBytes,
    /// Of this phase and the next in turn.
    queues: [Queue; 2],
    passes: u64,
}

/// What a pass runs with, apart from the program itself.
pub(crate) struct Machine<'m> {
    pub(crate) isa: Isa,
    pub(crate) workers: &'m mut Workers,
    pub(crate) memories: &'m [Mutex<WorkerMemory>],
    pub(crate) states: &'m States,
}

impl Program {
    /// Binds a schedule.
    pub(crate) fn new(
        graph: &Graph,
        schedule: Schedule,
        weights: &Arc<Weights>,
        range_keys: usize,
        workers: usize,
    ) -> Self {
        let (forms, prepared) = place_operands(&schedule, weights);
        let mut binder = Binder {
            graph,
            schedule: &schedule,
            weights,
            rotaries: Vec::new(),
            prepared: forms,
            range_keys,
        };
        let tasks = schedule.groups.iter().map(|group| binder.bind(group)).collect();
        let rotaries: Vec<RotaryTable> = binder
            .rotaries
            .iter()
            .map(|rotary| RotaryTable::from_frequencies(&rotary.frequencies(), rotary.magnitude()))
            .collect();
        Program {
            angles: rotaries.iter().map(|_| RotaryRows::new()).collect(),
            rotaries,
            tasks,
            prepared,
            arena: AlignedBytes::zeroed(schedule.arena),
            queues: [Queue::new(workers), Queue::new(workers)],
            schedule,
            passes: 0,
        }
    }

    /// The schedule that it runs.
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// Bytes of intermediate buffers and operands.
    pub fn resident_bytes(&self) -> u64 {
        (self.arena.len() + self.prepared.iter().map(Operand::bytes).sum::<usize>()) as u64
    }

    /// Logits of the last pass, `[rows, vocabulary]` for the rows that asked for them.
    pub fn logits(&self, rows: usize) -> &[f32] {
        self.rows_of(self.schedule.logits, rows)
    }

    /// What the head of the last pass read, before its norm, `[rows, width]`: the pass's first rows. It is there until the next pass, since
    /// the head is the last that reads it.
    pub fn head_input(&self, rows: usize) -> &[f32] {
        self.schedule.head_input().map_or(&[], |buffer| self.rows_of(buffer, rows))
    }

    fn rows_of(&self, id: BufferId, rows: usize) -> &[f32] {
        let buffer = self.schedule.buffer(id);
        let most = match buffer.rows {
            BufferRows::Pass => self.schedule.pass.max_rows(),
            BufferRows::Logit => MAX_DECODE_ROWS,
        };
        let bytes = &self.arena[buffer.offset..][..rows.min(most) * buffer.width * 4];
        // SAFETY: the arena is aligned to 64 bytes and any bits are an f32.
        unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len() / 4) }
    }

    /// Gives the next pass its rows of the input that it has beside the tokens, if it has one.
    pub(crate) fn set_input(&mut self, rows: &[f32]) {
        let Some(input) = self.schedule.inputs.first() else { return };
        let buffer = self.schedule.buffer(*input);
        let room = self.schedule.pass.max_rows() * buffer.width * size_of::<f32>();
        let place = self.arena[buffer.offset..][..room].as_chunks_mut::<4>().0;
        for (bytes, value) in place.iter_mut().zip(rows) {
            *bytes = value.to_ne_bytes();
        }
    }

    /// Runs a whole pass.
    pub(crate) fn run(
        &mut self,
        machine: Machine<'_>,
        step: &StepState,
        tokens: &[u32],
    ) -> Result<(), LaunchError> {
        let launches: Vec<Range<usize>> =
            self.schedule.regions.iter().map(|region| region.phases.clone()).collect();
        self.launch(machine, step, tokens, &launches)
    }

    /// Runs only the head, for other rows of the last pass.
    pub(crate) fn run_head(
        &mut self,
        machine: Machine<'_>,
        step: &StepState,
    ) -> Result<(), LaunchError> {
        let head = self.schedule.head..self.schedule.phases.len();
        self.launch(machine, step, &[], &[head])
    }

    fn launch(
        &mut self,
        machine: Machine<'_>,
        step: &StepState,
        tokens: &[u32],
        launches: &[Range<usize>],
    ) -> Result<(), LaunchError> {
        self.passes += 1;
        let positions =
            || step.active().iter().flat_map(|slot| slot.position..slot.position + slot.rows);
        for (table, angles) in self.rotaries.iter().zip(&mut self.angles) {
            angles.set(table, positions());
        }
        let pass = Pass {
            step,
            tokens,
            isa: machine.isa,
            workers: machine.workers.count(),
            states: machine.states,
            angles: &self.angles,
            prepared: &self.prepared,
            buffers: &self.schedule.buffers,
            arena: ArenaPointer(self.arena.as_mut_ptr()),
            number: self.passes,
        };
        let runner = Runner {
            tasks: &self.tasks,
            phases: &self.schedule.phases,
            queues: &self.queues,
            pass,
        };
        for phases in launches {
            (0..machine.workers.count()).for_each(|worker| self.queues[0].refill(worker));
            machine.workers.launch(|worker, joiner| {
                // A lock that a panicking task has poisoned guards working memory only, which every task rewrites.
                let memory = machine.memories[worker].lock();
                let mut memory = memory.unwrap_or_else(PoisonError::into_inner);
                runner.run(phases.clone(), worker, &mut memory, joiner)
            })?;
        }
        Ok(())
    }
}

/// What workers share during a launch.
struct Runner<'r> {
    tasks: &'r [Box<dyn Tasks>],
    phases: &'r [Range<usize>],
    queues: &'r [Queue; 2],
    pass: Pass<'r>,
}

impl Runner<'_> {
    /// Runs phases, with a join of all workers between them.
    fn run(
        &self,
        phases: Range<usize>,
        worker: usize,
        memory: &mut WorkerMemory,
        joiner: &Joiner<'_>,
    ) -> Result<(), LaunchFailed> {
        let last = phases.end - 1;
        for (index, phase) in phases.enumerate() {
            let [queue, next] = [index % 2, (index + 1) % 2].map(|turn| &self.queues[turn]);
            // All workers have left the phase before, whose queue this was, and none begins the next one before the join.
            next.refill(worker);
            self.run_phase(phase, queue, worker, memory);
            if phase != last {
                let mut ahead = self.ahead(phase + 1..last + 1, next, worker);
                joiner.join_while(|| ahead.request(self.pass.isa))?;
                ahead.begin(self.pass.isa);
            }
        }
        Ok(())
    }

    /// Runs tasks of the phase until none is left.
    fn run_phase(&self, phase: usize, queue: &Queue, worker: usize, memory: &mut WorkerMemory) {
        memory.phase = phase;
        let groups = &self.tasks[self.phases[phase].clone()];
        let tasks = self.count(groups);
        // A worker mostly stays in one group.
        let (mut group, mut of_group) = self.group(groups, 0);
        while let Some(task) = queue.take(worker, tasks) {
            if !of_group.contains(&task) {
                (group, of_group) = self.group(groups, task);
            }
            // SAFETY: the queue gives every index of the phase to one worker, and the launch follows the schedule.
            unsafe { group.run(&self.pass, task - of_group.start, memory) };
        }
    }

    /// Tasks of all groups.
    fn count(&self, groups: &[Box<dyn Tasks>]) -> usize {
        groups.iter().map(|group| group.count(&self.pass)).sum()
    }

    /// The group that a task of a phase belongs to, and its tasks.
    fn group<'g>(
        &self,
        groups: &'g [Box<dyn Tasks>],
        task: usize,
    ) -> (&'g dyn Tasks, Range<usize>) {
        let mut start = 0;
        for group in groups {
            let end = start + group.count(&self.pass);
            if task < end {
                return (&**group, start..end);
            }
            start = end;
        }
        (&*groups[0], 0..0)
    }

    /// What the worker reads first in the first of these phases in which it reads something that can be asked for now.
    fn ahead(&self, phases: Range<usize>, queue: &Queue, worker: usize) -> Ahead {
        for phase in phases.take(PHASES_AHEAD) {
            let groups = &self.tasks[self.phases[phase].clone()];
            let part = queue.part(worker, self.count(groups));
            if part.is_empty() {
                continue;
            }
            let (group, tasks) = self.group(groups, part.start);
            let ahead = group.ahead(&self.pass, part.start - tasks.start);
            if !ahead.is_empty() {
                return ahead;
            }
        }
        Ahead::nothing()
    }
}

/// Gives every prepared operand a place for each form that its readers need. Operands that are never alive at once share one.
fn place_operands(schedule: &Schedule, weights: &Weights) -> (Vec<PreparedForms>, Vec<Operand>) {
    let lifetimes = prepared_lifetimes(schedule);
    // (kind, last phase in use, columns) of each place.
    let mut places: Vec<(OperandKind, usize, usize)> = Vec::new();
    let mut forms = Vec::new();
    for (index, prepared) in schedule.prepared.iter().enumerate() {
        let columns = schedule.buffer(prepared.buffer).width;
        let (first, last) = lifetimes[&PreparedId(index as u32)];
        let mut form = PreparedForms::default();
        let kind_of = |id: &lithos_graph::ValueId| OperandKind::of(weights.matrix(*id).layout());
        for kind in [OperandKind::Fixed16, OperandKind::Float] {
            if !prepared.readers.iter().any(|id| kind_of(id) == kind) {
                continue;
            }
            let free = places.iter().position(|(of, until, _)| *of == kind && *until < first);
            let place = free.unwrap_or_else(|| {
                places.push((kind, 0, 0));
                places.len() - 1
            });
            places[place] = (kind, last, places[place].2.max(columns));
            match kind {
                OperandKind::Fixed16 => form.fixed16 = Some(place),
                OperandKind::Float => form.float = Some(place),
            }
        }
        forms.push(form);
    }
    let rows = schedule.pass.max_rows();
    let operands = places.iter().map(|(_, _, columns)| Operand::new(rows, *columns)).collect();
    (forms, operands)
}

/// First and last phase that touches each prepared operand.
fn prepared_lifetimes(schedule: &Schedule) -> HashMap<PreparedId, (usize, usize)> {
    let mut lifetimes: HashMap<PreparedId, (usize, usize)> = HashMap::new();
    for (phase, groups) in schedule.phases.iter().enumerate() {
        for group in &schedule.groups[groups.clone()] {
            for access in group.reads.iter().chain(&group.writes) {
                if let Place::Prepared(id) = access.place {
                    lifetimes.entry(id).or_insert((phase, phase)).1 = phase;
                }
            }
        }
    }
    lifetimes
}
