//! A program: the launches of a pass, their text, records and places.

use std::collections::HashMap;
use std::fmt::Write as _;

use lithos_graph::{Graph, OpKind, Part, StateKind, ValueId};
use lithos_kernels::{
    CUDA_OPERAND_BYTES, FINE_KEYS, LIST_ENTRIES, Language, MOST_CHOOSERS, MOST_CHOSEN,
    MOST_HEAD_WIDTH, MOST_RANGE_KEYS, PARTIAL_HEADER, library,
};
use thiserror::Error;

use super::emit::{PhaseCalls, body, projects};
use super::lanes::LaneLayoutError;
use super::places::{KeyValues, Places};
use super::records::{Recorder, Slices, lay_beside};
use crate::regions::Fusion;
use crate::schedule::{CompileError, MergeIn, Options, PassKind, Schedule};
use crate::step::{MAX_DECODE_ROWS, StepState};

/// What to build for.
#[derive(Clone, Copy, Debug)]
pub struct DeviceOptions {
    /// Where launches are cut.
    pub fusion: Fusion,
    /// Slots.
    pub slots: usize,
    /// Tokens that each slot can hold.
    pub context: usize,
    /// Element type of keys and values.
    pub key_values: KeyValues,
    /// Keys of an attention range, after the first 32 ranges of 32 keys: a multiple of 32, at most 256.
    pub range_keys: usize,
}

/// Fine ranges of attention before the first of `range_keys`: a short context has enough of them for all workers.
pub(crate) const FINE_RANGES: usize = 32;

/// Calls of a kernel at most for bodies to be copied into it.
const MOST_COPIED: usize = 16;

/// Words behind its own records that a phase asks for: `expect_records` of `worker.h`.
const EXPECTED_WORDS: usize = 96;

impl DeviceOptions {
    /// Ranges that attention to `keys` keys is cut into.
    fn ranges(&self, keys: usize) -> usize {
        let fine = keys.min(FINE_RANGES * FINE_KEYS);
        fine.div_ceil(FINE_KEYS) + (keys - fine).div_ceil(self.range_keys)
    }
}

/// Why a graph has no program.
#[derive(Debug, Error)]
pub enum DeviceError {
    /// The graph cannot be scheduled.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// A task kind that has no body.
    #[error("no task body for `{kind}` on graphics processors")]
    Unsupported {
        /// The kind.
        kind: &'static str,
    },
    /// A matrix that lanes cannot load.
    #[error("tensor `{tensor}`: {source}")]
    Layout {
        /// The matrix.
        tensor: String,
        /// Why.
        source: LaneLayoutError,
    },
    /// A head that is wider than the bodies hold in registers.
    #[error("heads of {width} elements are too wide: {kind} holds at most {most}")]
    HeadWidth {
        /// The task kind.
        kind: &'static str,
        /// Elements.
        width: usize,
        /// Elements at most.
        most: usize,
    },
    /// A head that lanes do not load in equal parts.
    #[error("heads of {width} elements: {kind} wants a multiple of {part}")]
    HeadParts {
        /// The task kind.
        kind: &'static str,
        /// Elements.
        width: usize,
        /// Elements that a lane loads at once.
        part: usize,
    },
    /// More experts than the bodies choose among.
    #[error("mixtures of {experts} experts: graphics processors choose among {most} at most")]
    Experts {
        /// Experts.
        experts: usize,
        /// Experts at most.
        most: usize,
    },
    /// More experts of a row than the bodies hold.
    #[error("{chosen} experts of a row: graphics processors hold {most} at most")]
    Chosen {
        /// Experts of a row.
        chosen: usize,
        /// Experts at most.
        most: usize,
    },
    /// Matrices of experts that do not end with a tile.
    #[error("tensor `{tensor}`: experts of {rows} rows: graphics processors want a multiple of 16")]
    ExpertRows {
        /// The matrices.
        tensor: String,
        /// Rows of each.
        rows: usize,
    },
    /// More bytes than offsets of 32 bits reach.
    #[error("{bytes} bytes of {what}: programs for graphics processors reach {most}")]
    TooLarge {
        /// Weights or states.
        what: &'static str,
        /// Bytes.
        bytes: usize,
        /// Bytes at most.
        most: usize,
    },
    /// A rotary embedding whose pairs do not lie in the same places of two lanes.
    #[error(
        "rotary embeddings of {0} elements: attention on graphics processors takes a multiple of 16"
    )]
    Rotary(usize),
    /// Ranges of attention that the bodies do not hold.
    #[error("ranges of {0} keys: attention takes a multiple of 32, at most 256")]
    RangeKeys(usize),
}

/// One launch: a kernel with its records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Index of the kernel; its name is `region_<kernel>`.
    pub kernel: usize,
    /// First word of its records.
    pub records: usize,
    /// Whether it joins all workers, which must then all run at once.
    pub joins: bool,
    /// Whether it multiplies matrices, for whose operand its workers want memory.
    pub projects: bool,
    /// Region of the schedule.
    pub region: usize,
}

/// A pass of up to [`crate::MAX_DECODE_ROWS`] rows for a graphics processor.
#[derive(Clone, Debug)]
pub struct Program {
    /// The schedule that it runs.
    pub schedule: Schedule,
    /// Where everything lies.
    pub places: Places,
    /// Launches of a pass, in order.
    pub launches: Vec<Launch>,
    /// Launches of the head alone.
    pub head: Vec<Launch>,
    /// Records of all launches, in words.
    pub records: Vec<u32>,
    kernels: Vec<String>,
    /// Words of `records` with the factor of a matrix.
    tensor_scales: Vec<(usize, ValueId)>,
}

impl Program {
    /// Builds the program of a graph.
    ///
    /// # Errors
    /// [`DeviceError`] for what has no task body.
    pub fn new(graph: &Graph, options: DeviceOptions) -> Result<Self, DeviceError> {
        Program::build(graph, options, None)
    }

    /// Builds the program of a drafter's block, whose graph shares values and states with the one that `self` was built from, by the same
    /// options. Its weights and states lie in the same buffers: those of `self`, and behind them what only the block needs.
    ///
    /// # Errors
    /// As [`Program::new`].
    pub fn beside(&self, block: &Graph, options: DeviceOptions) -> Result<Self, DeviceError> {
        Program::build(block, options, Some(&self.places))
    }

    fn build(
        graph: &Graph,
        options: DeviceOptions,
        shared: Option<&Places>,
    ) -> Result<Self, DeviceError> {
        check_heads(graph)?;
        check_mixtures(graph)?;
        if !options.range_keys.is_multiple_of(FINE_KEYS)
            || !(FINE_KEYS..=MOST_RANGE_KEYS).contains(&options.range_keys)
        {
            return Err(DeviceError::RangeKeys(options.range_keys));
        }
        let mut schedule = Schedule::compile(
            graph,
            Options {
                pass: PassKind::Decode,
                fusion: options.fusion,
                attention_ranges: options.ranges(options.context).max(1),
                partial_header: PARTIAL_HEADER,
                merge_in: MergeIn::Phase,
            },
        )?;
        let mut places = match shared {
            None => Places::new(graph, &schedule, &options)?,
            Some(shared) => shared.extended(graph, &schedule)?,
        };
        // A logit or score and a token for each.
        let lists = schedule.arena.next_multiple_of(64);
        let lists_end = lists + MAX_DECODE_ROWS * MOST_CHOOSERS * LIST_ENTRIES * 8;
        let slices = Slices::new(CUDA_OPERAND_BYTES, lists_end);
        let mut recorder = Recorder {
            graph,
            schedule: &schedule,
            options: &options,
            places: &mut places,
            slices,
            lists,
        };
        let phases: Vec<PhaseCalls> = schedule
            .phases
            .iter()
            .map(|phase| {
                recorder.slices.begin_phase();
                let groups = schedule.groups[phase.clone()].iter();
                let mut calls: PhaseCalls =
                    groups.map(|group| recorder.call(group)).collect::<Result<_, _>>()?;
                for at in 1..calls.len() {
                    let (before, call) = calls.split_at_mut(at);
                    call[0].join_to(&before[at - 1]);
                }
                lay_beside(&mut calls);
                Ok(calls)
            })
            .collect::<Result<_, DeviceError>>()?;
        schedule.arena = lists_end.max(recorder.slices.most());
        places.check_reach()?;
        let mut builder = Builder::new(&schedule, &phases);
        let launches: Vec<Launch> = (0..schedule.regions.len())
            .map(|region| builder.launch(region, schedule.regions[region].phases.clone()))
            .collect();
        let head = builder.launch(schedule.regions.len() - 1, schedule.head..schedule.phases.len());
        let Builder { kernels, mut records, tensor_scales, .. } = builder;
        // The last launch, too, asks for the records behind its own.
        records.extend([0; EXPECTED_WORDS]);
        Ok(Program {
            launches,
            head: vec![head],
            records,
            kernels,
            tensor_scales,
            places,
            schedule,
        })
    }

    /// Puts the factors of matrices into the records.
    pub fn set_tensor_scales(&mut self, scale: impl Fn(ValueId) -> f32) {
        for (word, matrix) in &self.tensor_scales {
            self.records[*word] = scale(*matrix).to_bits();
        }
    }

    /// The program's text.
    pub fn text(&self, language: Language) -> String {
        // Bodies are copied to where they are called: called, they want more registers. A kernel of many calls takes minutes so.
        let mut text = String::new();
        let calls = |kernel: &String| kernel.matches("(memory, worker, RECORD").count();
        if self.kernels.iter().any(|kernel| calls(kernel) > MOST_COPIED) {
            text += "#define MANY_CALLS\n";
        }
        text += &library(language, &StepState::c_text());
        text += "#define RECORD(Type, at) *(DEVICE const Type*)(records + (at))\n";
        for (kernel, body) in self.kernels.iter().enumerate() {
            let _ = write!(
                text,
                "\n{} {{\n    threadgroup float shared[SHARED_FLOATS];\n    \
                 Memory memory = {{weights, arena, states, step, tokens, pages, joins}};\n    \
                 admit_next();\n    \
                 Worker worker = THIS_WORKER;\n{body}}}\n",
                language.signature(&Self::kernel_name(kernel))
            );
        }
        text
    }

    /// Kernels of the text.
    pub fn kernels(&self) -> usize {
        self.kernels.len()
    }

    /// Name of a kernel in the text.
    pub fn kernel_name(kernel: usize) -> String {
        format!("region_{kernel}")
    }
}

/// Collects kernels and records.
struct Builder<'a> {
    schedule: &'a Schedule,
    phases: &'a [PhaseCalls],
    kernels: Vec<String>,
    known: HashMap<String, usize>,
    records: Vec<u32>,
    tensor_scales: Vec<(usize, ValueId)>,
}

impl<'a> Builder<'a> {
    fn new(schedule: &'a Schedule, phases: &'a [PhaseCalls]) -> Self {
        Builder {
            schedule,
            phases,
            kernels: Vec::new(),
            known: HashMap::new(),
            records: Vec::new(),
            tensor_scales: Vec::new(),
        }
    }

    fn launch(&mut self, region: usize, phases: std::ops::Range<usize>) -> Launch {
        let scopes: Vec<String> = phases.clone().map(|phase| self.scope(phase)).collect();
        let own = &self.phases[phases.clone()];
        let (text, words) = body(own, &scopes);
        let kernel = *self.known.entry(text).or_insert_with_key(|text| {
            self.kernels.push(text.clone());
            self.kernels.len() - 1
        });
        let records = self.records.len();
        self.note_tensor_scales(phases.clone());
        self.records.extend(words);
        let projects = own.iter().any(|calls| projects(calls));
        Launch { kernel, records, joins: phases.len() > 1, projects, region }
    }

    /// What part of the model a phase belongs to. Layers are not numbered, so that those of equal structure share their text.
    fn scope(&self, phase: usize) -> String {
        let group = &self.schedule.groups[self.schedule.phases[phase].start];
        match group.scope.part {
            Part::Mixer => "mixer".into(),
            part => format!("{part:?}").to_lowercase(),
        }
    }

    /// Notes which words of the records that follow hold a matrix's factor.
    fn note_tensor_scales(&mut self, phases: std::ops::Range<usize>) {
        // A record begins with its matrices; the factor is the fourth word of each.
        const FACTOR: usize = 3;
        const MATRIX_WORDS: usize = size_of::<lithos_kernels::records::MatrixRecord>() / 4;
        let mut at = self.records.len();
        for phase in phases {
            let groups = &self.schedule.groups[self.schedule.phases[phase].clone()];
            for (group, call) in groups.iter().zip(&self.phases[phase]) {
                for (index, matrix) in group.kind.matrices().into_iter().enumerate() {
                    self.tensor_scales.push((at + index * MATRIX_WORDS + FACTOR, matrix));
                }
                at += call.words.len();
            }
        }
    }
}

/// Experts of a row that the bodies can hold.
fn check_mixtures(graph: &Graph) -> Result<(), DeviceError> {
    let chosen = graph.ops.iter().filter_map(|op| match op.kind {
        OpKind::Route { chosen } => Some(chosen),
        _ => None,
    });
    match chosen.max() {
        Some(chosen) if chosen > MOST_CHOSEN => {
            Err(DeviceError::Chosen { chosen, most: MOST_CHOSEN })
        }
        _ => Ok(()),
    }
}

/// Heads that the bodies can hold.
fn check_heads(graph: &Graph) -> Result<(), DeviceError> {
    for op in &graph.ops {
        if let OpKind::Rotary { rotary, .. } = &op.kind
            && !rotary.dim.is_multiple_of(16)
        {
            return Err(DeviceError::Rotary(rotary.dim));
        }
    }
    for id in graph.states() {
        let (kind, width, most, part) = match graph.value(id).state() {
            Some(StateKind::KeyValue { head_dim, .. }) => {
                ("attention", *head_dim, MOST_HEAD_WIDTH.0, 8)
            }
            Some(StateKind::DeltaRule { key_dim, value_dim, .. }) => {
                if !value_dim.is_multiple_of(4) {
                    let (kind, width) = ("the delta rule", *value_dim);
                    return Err(DeviceError::HeadParts { kind, width, part: 4 });
                }
                ("the delta rule", *key_dim, MOST_HEAD_WIDTH.1, 4)
            }
            Some(StateKind::ConvolutionHistory { channels, .. }) => {
                ("the convolution", *channels, *channels, 4)
            }
            None => continue,
        };
        if !width.is_multiple_of(part) {
            return Err(DeviceError::HeadParts { kind, width, part });
        }
        if width > most {
            return Err(DeviceError::HeadWidth { kind, width, most });
        }
    }
    Ok(())
}
