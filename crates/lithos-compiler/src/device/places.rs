//! Where weights, small arrays and states lie in their buffers.

use std::collections::HashMap;

use lithos_graph::{Graph, OpKind, Rotary, StateKind, ValueId, WeightForm};
use lithos_kernels::{MOST_EXPERTS, MOST_TEAMS, PAGE_TOKENS, RING_ROWS, RING_TOKENS};

use super::lanes::{LaneLayout, TILE_ROWS};
use super::program::{DeviceError, DeviceOptions};
use crate::schedule::Schedule;

/// Offsets count this many bytes.
pub(crate) const GRAIN: usize = 16;

/// Projections of a phase at most whose columns are cut into slices.
pub(crate) const MOST_SLICED: usize = 8;

/// Element type of kept keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyValues {
    /// Single precision.
    F32,
    /// bfloat16.
    Bf16,
}

impl KeyValues {
    /// Bytes of an element.
    pub fn bytes(self) -> usize {
        match self {
            KeyValues::F32 => 4,
            KeyValues::Bf16 => 2,
        }
    }
}

/// Places of matrices and small arrays, in the order in which a pass first reads them.
#[derive(Clone, Debug, Default)]
pub struct WeightPlaces {
    /// Matrices: byte offset and layout. Those of experts lie one under the other, as one matrix.
    pub matrices: HashMap<ValueId, (usize, LaneLayout)>,
    /// Factors of experts' matrices, an f32 for each: byte offset and experts.
    pub expert_factors: HashMap<ValueId, (usize, usize)>,
    /// Small arrays of f32: byte offset and elements.
    pub arrays: HashMap<ValueId, (usize, usize)>,
    /// Frequencies of rotations: byte offset and the rotation.
    pub rotaries: Vec<(usize, Rotary)>,
    /// Bytes in all.
    pub bytes: usize,
}

/// Places of states.
#[derive(Clone, Debug, Default)]
pub struct StatePlaces {
    /// Keys and values of a layer: byte offsets of both planes.
    pub key_values: HashMap<ValueId, (usize, usize)>,
    /// Convolution histories: byte offset.
    pub histories: HashMap<ValueId, usize>,
    /// Delta-rule states and logs: byte offset and floats of a slot.
    pub deltas: HashMap<ValueId, (usize, usize)>,
    /// Counters of workers that share the columns of a projection, and of those that share the head: bytes from and to. They are 0 at first, and after every launch that
    /// ends a multiple of what they count to.
    pub arrivals: std::ops::Range<usize>,
    /// What the choice of tokens needs beside the step's state.
    pub choices: ChoicePlaces,
    /// Bytes in all.
    pub bytes: usize,
}

/// Places of what the choice of tokens needs, as byte offsets. All of it is 0 at first.
#[derive(Clone, Copy, Debug, Default)]
pub struct ChoicePlaces {
    /// Counter of workers that have come to the end of the head.
    pub arrivals: usize,
    /// Rings of [`RING_TOKENS`] chosen tokens, `[slot][place]`, u32.
    pub ring: usize,
    /// How often tokens were there before, `[slot][token]`, u32: the upper bit for the prompt, the others count generated ones.
    pub counts: usize,
    /// Biases of tokens, `[slot][token]`, f32.
    pub biases: usize,
    /// Tokens that may be chosen, one bit each, `[slot][word]`, u32.
    pub masks: usize,
    /// Tokens of the vocabulary.
    pub vocabulary: usize,
}

impl ChoicePlaces {
    /// Words of a slot's mask.
    pub fn mask_words(&self) -> usize {
        self.vocabulary.div_ceil(32)
    }

    fn new(
        arrivals: usize,
        slots: usize,
        vocabulary: usize,
        mut take: impl FnMut(usize) -> usize,
    ) -> Self {
        ChoicePlaces {
            arrivals,
            ring: take(slots * RING_TOKENS * 4),
            counts: take(slots * vocabulary * 4),
            biases: take(slots * vocabulary * 4),
            masks: take(slots * vocabulary.div_ceil(32) * 4),
            vocabulary,
        }
    }
}

/// Places of everything.
#[derive(Clone, Debug)]
pub struct Places {
    /// Weights.
    pub weights: WeightPlaces,
    /// States.
    pub states: StatePlaces,
    /// Entries of a slot in the page table.
    pub pages_per_slot: usize,
    /// Pages.
    pub pages: usize,
}

impl Places {
    pub(crate) fn new(
        graph: &Graph,
        schedule: &Schedule,
        options: &DeviceOptions,
    ) -> Result<Self, DeviceError> {
        let pages_per_slot = options.context.div_ceil(PAGE_TOKENS);
        let pages = options.slots * pages_per_slot;
        Ok(Places {
            weights: WeightPlaces::default().with(graph, schedule)?,
            states: StatePlaces::new(graph, options, pages, schedule.buffer(schedule.logits).width),
            pages_per_slot,
            pages,
        })
    }

    /// The same places, and those of what the schedule of a graph that shares values and states needs beside them.
    pub(crate) fn extended(&self, graph: &Graph, schedule: &Schedule) -> Result<Self, DeviceError> {
        let mut places = self.clone();
        places.weights = places.weights.with(graph, schedule)?;
        places.states.take_counters();
        Ok(places)
    }

    /// Fails if offsets do not reach the end of a buffer.
    pub(crate) fn check_reach(&self) -> Result<(), DeviceError> {
        let most = u32::MAX as usize * GRAIN;
        for (what, bytes) in [("weights", self.weights.bytes), ("states", self.states.bytes)] {
            if bytes > most {
                return Err(DeviceError::TooLarge { what, bytes, most });
            }
        }
        Ok(())
    }
}

impl WeightPlaces {
    /// With the weights of a schedule that have no place yet.
    fn with(self, graph: &Graph, schedule: &Schedule) -> Result<Self, DeviceError> {
        let mut places = self;
        for id in schedule.groups.iter().flat_map(|group| group.kind.matrices()) {
            if places.matrices.contains_key(&id) {
                continue;
            }
            let value = graph.value(id);
            let Some(source) = value.weight() else { continue };
            let extents: Vec<usize> = value.shape.iter().map(|extent| fixed(*extent)).collect();
            let (encoding, rows, cols) = match (source.form, extents.as_slice()) {
                (WeightForm::Matrix(encoding), &[rows, cols]) => (encoding, rows, cols),
                (WeightForm::Experts(encoding), &[experts, rows, cols]) => {
                    if experts > MOST_EXPERTS {
                        return Err(DeviceError::Experts { experts, most: MOST_EXPERTS });
                    }
                    if !rows.is_multiple_of(TILE_ROWS) {
                        let tensor = source.tensor.clone();
                        return Err(DeviceError::ExpertRows { tensor, rows });
                    }
                    places.expert_factors.insert(id, (places.bytes, experts));
                    places.bytes = (places.bytes + experts * 4).next_multiple_of(GRAIN);
                    (encoding, experts * rows, cols)
                }
                _ => continue,
            };
            let layout = LaneLayout::new(rows, cols, encoding).map_err(|source_error| {
                DeviceError::Layout { tensor: source.tensor.clone(), source: source_error }
            })?;
            places.matrices.insert(id, (places.bytes, layout));
            places.bytes = (places.bytes + layout.bytes()).next_multiple_of(GRAIN);
        }
        for id in graph.weights() {
            if places.arrays.contains_key(&id) {
                continue;
            }
            let value = graph.value(id);
            if matches!(value.weight().map(|source| source.form), Some(WeightForm::Array)) {
                let elements = value.shape.iter().map(|dimension| fixed(*dimension)).product();
                places.arrays.insert(id, (places.bytes, elements));
                places.bytes = (places.bytes + elements * 4).next_multiple_of(GRAIN);
            }
        }
        Ok(places)
    }

    /// Place of a rotation's frequencies, in grains.
    pub(crate) fn rotary(&mut self, rotary: &Rotary) -> u32 {
        let found =
            self.rotaries.iter().find(|(_, known)| known == rotary).map(|(offset, _)| *offset);
        let offset = found.unwrap_or_else(|| {
            let offset = self.bytes;
            self.rotaries.push((offset, rotary.clone()));
            self.bytes = (self.bytes + rotary_bytes(rotary)).next_multiple_of(GRAIN);
            offset
        });
        grains(offset)
    }

    /// Place of the factors of experts' matrices, in grains.
    pub(crate) fn factors(&self, id: ValueId) -> u32 {
        grains(self.expert_factors[&id].0)
    }

    /// Place of a small array, in grains.
    pub(crate) fn array(&self, id: ValueId) -> u32 {
        grains(self.arrays[&id].0)
    }
}

impl StatePlaces {
    /// Takes counters behind everything else, for one program: all that count by one must count to the same number.
    fn take_counters(&mut self) {
        let counters = MOST_SLICED * MOST_TEAMS * 4;
        self.arrivals = self.bytes..self.bytes + counters + GRAIN;
        self.choices.arrivals = self.bytes + counters;
        self.bytes = self.arrivals.end.next_multiple_of(GRAIN);
    }

    fn new(graph: &Graph, options: &DeviceOptions, pages: usize, vocabulary: usize) -> Self {
        let mut places = StatePlaces::default();
        let take = |end: &mut usize, bytes: usize| {
            let offset = *end;
            *end = (offset + bytes).next_multiple_of(GRAIN);
            offset
        };
        places.take_counters();
        let arrivals = places.choices.arrivals;
        let mut take = |bytes| take(&mut places.bytes, bytes);
        places.choices = ChoicePlaces::new(arrivals, options.slots, vocabulary, &mut take);
        for id in graph.states() {
            match *graph.value(id).state().expect("listed as a state") {
                StateKind::KeyValue { heads, head_dim } => {
                    let plane = pages * heads * PAGE_TOKENS * head_dim * options.key_values.bytes();
                    let offsets = (take(plane), take(plane));
                    places.key_values.insert(id, offsets);
                }
                StateKind::ConvolutionHistory { channels, .. } => {
                    let offset = take(options.slots * RING_ROWS * channels * 4);
                    places.histories.insert(id, offset);
                }
                StateKind::DeltaRule { heads, key_dim, value_dim } => {
                    let key_heads = key_heads_of(graph, id).unwrap_or(heads);
                    let floats = heads * key_dim * value_dim
                        + RING_ROWS * (key_heads * key_dim + heads * (value_dim + 1));
                    let offset = take(options.slots * floats * 4);
                    places.deltas.insert(id, (offset, floats));
                }
            }
        }
        places
    }
}

/// Key heads of the operation that updates a delta-rule state.
fn key_heads_of(graph: &Graph, state: ValueId) -> Option<usize> {
    graph.ops.iter().find(|op| op.updates.contains(&state)).and_then(|op| match op.kind {
        OpKind::GatedDelta { key_heads, .. } => Some(key_heads),
        _ => None,
    })
}

fn fixed(dimension: lithos_graph::Dimension) -> usize {
    match dimension {
        lithos_graph::Dimension::Fixed(size) => size,
        _ => 0,
    }
}

/// Bytes of a rotation's frequencies and the factor of what turns.
pub(crate) fn rotary_bytes(rotary: &Rotary) -> usize {
    (rotary.dim / 2 + 1) * 4
}

/// A byte offset in grains.
pub(crate) fn grains(bytes: usize) -> u32 {
    debug_assert!(bytes.is_multiple_of(GRAIN), "places are multiples of a grain");
    u32::try_from(bytes / GRAIN).unwrap_or(u32::MAX)
}
