//! What slots keep between passes: key/value pages, convolution histories, delta-rule states and their logs.

use std::collections::HashMap;

use lithos_compiler::layout::AlignedBytes;
use lithos_graph::{Graph, StateKind, ValueId};

use crate::linear::large_page_region;
use crate::mixers::convolution::HISTORY_ROWS;
use crate::mixers::gdn::{GdnLog, GdnShape};
use crate::mixers::kv::{KvError, KvGeometry, KvPool, KvType};
use crate::mixers::{Rows, RowsMut};

/// States of all slots of one model.
///
/// Memory is asked for at once but only becomes resident where it is written.
pub struct States {
    slots: usize,
    pages: usize,
    /// Each layer's shape and where its part of a page starts.
    key_values: HashMap<ValueId, (KvGeometry, usize)>,
    /// Key/value pages. A page has the positions of all layers, so that what a sequence has written lies close together
    /// and fills large pages of the operating system: a pass reads all of it, and would pay for a page walk every 4 KiB.
    pool: Memory,
    page_bytes: usize,
    histories: HashMap<ValueId, (usize, Memory)>,
    deltas: HashMap<ValueId, (GdnShape, Memory)>,
    page_tables: Vec<Vec<u32>>,
}

/// Memory that tasks share. Which task may touch which part is the schedule's business.
struct Memory {
    start: *mut u8,
    bytes: AlignedBytes,
}

// SAFETY: the pointer is to memory that this owns; tasks reach disjoint parts of it, see `States`.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    fn zeroed(bytes: usize) -> Self {
        let mut bytes = AlignedBytes::zeroed(bytes);
        Memory { start: bytes.as_mut_ptr(), bytes }
    }

    /// As [`Memory::zeroed`], in large pages where the operating system has them.
    fn in_large_pages(bytes: usize) -> Self {
        let mut bytes = large_page_region(bytes).take(bytes);
        Memory { start: bytes.as_mut_ptr(), bytes }
    }

    fn floats(&self, first: usize) -> *mut f32 {
        debug_assert!(first * size_of::<f32>() <= self.bytes.len());
        self.start.cast::<f32>().wrapping_add(first)
    }
}

impl States {
    /// States for `slots` sequences that share `pages` pages of key/value memory in every layer.
    ///
    /// # Errors
    /// [`KvError`] for a head size that the backend cannot run.
    pub fn new(
        graph: &Graph,
        slots: usize,
        pages: usize,
        element: KvType,
    ) -> Result<Self, KvError> {
        let mut states = States {
            slots,
            pages,
            key_values: HashMap::new(),
            pool: Memory::zeroed(0),
            page_bytes: 0,
            histories: HashMap::new(),
            deltas: HashMap::new(),
            page_tables: vec![Vec::new(); slots],
        };
        for id in graph.states() {
            match *graph.value(id).state().expect("listed as a state") {
                StateKind::KeyValue { heads, head_dim } => {
                    let geometry = KvGeometry { kv_heads: heads, head_dim, element };
                    states.key_values.insert(id, (geometry, states.page_bytes));
                    states.page_bytes +=
                        geometry.page_bytes().next_multiple_of(AlignedBytes::ALIGNMENT);
                }
                StateKind::ConvolutionHistory { channels, .. } => {
                    let memory = Memory::zeroed(slots * HISTORY_ROWS * channels * 4);
                    states.histories.insert(id, (channels, memory));
                }
                StateKind::DeltaRule { heads, key_dim, value_dim } => {
                    let key_heads = key_heads_of(graph, id).unwrap_or(heads);
                    let shape = GdnShape { key_heads, value_heads: heads, key_dim, value_dim };
                    let memory = Memory::zeroed(slots * delta_floats(shape) * 4);
                    states.deltas.insert(id, (shape, memory));
                }
            }
        }
        states.pool = Memory::in_large_pages(pages * states.page_bytes);
        for id in states.key_values.keys() {
            // SAFETY: nothing uses the memory yet; the handle only checks the geometry.
            unsafe { states.checked_pool(*id)? };
        }
        Ok(states)
    }

    /// Slots.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Key/value pages of each layer.
    pub fn pages(&self) -> usize {
        self.pages
    }

    /// Bytes of one page over all layers.
    pub fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// Bytes of a slot's recurrent states, logs and histories.
    pub fn slot_bytes(&self) -> usize {
        let histories = self.histories.values().map(|(channels, _)| HISTORY_ROWS * channels * 4);
        let deltas = self.deltas.values().map(|(shape, _)| delta_floats(*shape) * 4);
        histories.sum::<usize>() + deltas.sum::<usize>()
    }

    /// Sets the pages that hold a slot's positions, in order.
    pub fn set_pages(&mut self, slot: usize, pages: &[u32]) {
        self.page_tables[slot].clear();
        self.page_tables[slot].extend_from_slice(pages);
    }

    /// Empties a slot: position zero, recurrent states zero.
    pub fn reset(&mut self, slot: usize) {
        self.page_tables[slot].clear();
        for (shape, memory) in self.deltas.values_mut() {
            let floats = state_floats(*shape);
            let first = slot * delta_floats(*shape);
            // SAFETY: the slot's state lies inside the memory, and `self` is borrowed uniquely.
            unsafe { std::slice::from_raw_parts_mut(memory.floats(first), floats) }.fill(0.0);
        }
    }

    /// Bytes of a slot's recurrent states and histories, as [`States::save_recurrent`] writes them.
    pub fn recurrent_bytes(&self) -> usize {
        self.recurrent(0).map(|(_, floats)| floats * size_of::<f32>()).sum()
    }

    /// Appends a page of keys and values, of all layers.
    pub fn save_page(&self, page: u32, out: &mut Vec<u8>) {
        // SAFETY: the page lies inside the memory, and `self` is borrowed, so no pass runs.
        out.extend_from_slice(unsafe {
            std::slice::from_raw_parts(self.page_start(page), self.page_bytes)
        });
    }

    /// Writes a page that [`States::save_page`] has read.
    ///
    /// # Panics
    /// If it has another size.
    pub fn load_page(&mut self, page: u32, bytes: &[u8]) {
        // SAFETY: as above, and `self` is borrowed uniquely.
        unsafe { std::slice::from_raw_parts_mut(self.page_start(page), self.page_bytes) }
            .copy_from_slice(bytes);
    }

    fn page_start(&self, page: u32) -> *mut u8 {
        assert!((page as usize) < self.pages, "page {page} of {}", self.pages);
        self.pool.start.wrapping_add(page as usize * self.page_bytes)
    }

    /// Appends a slot's recurrent states and histories. Rows that are only in a log are not among them: a prefill pass leaves none.
    pub fn save_recurrent(&self, slot: usize, out: &mut Vec<u8>) {
        for (start, floats) in self.recurrent(slot) {
            // SAFETY: the slot's part lies inside the memory, and `self` is borrowed, so no pass runs.
            let values = unsafe { std::slice::from_raw_parts(start, floats) };
            out.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        }
    }

    /// Writes what [`States::save_recurrent`] has read.
    ///
    /// # Panics
    /// If it has another size than [`States::recurrent_bytes`].
    pub fn load_recurrent(&mut self, slot: usize, bytes: &[u8]) {
        assert_eq!(bytes.len(), self.recurrent_bytes(), "the states of one slot");
        let mut rest = bytes.as_chunks::<4>().0;
        for (start, floats) in self.recurrent(slot) {
            let (part, after) = rest.split_at(floats);
            rest = after;
            // SAFETY: as above, and `self` is borrowed uniquely.
            let values = unsafe { std::slice::from_raw_parts_mut(start, floats) };
            for (value, bytes) in values.iter_mut().zip(part) {
                *value = f32::from_le_bytes(*bytes);
            }
        }
    }

    /// Where a slot's histories and delta-rule states are, without logs, and their floats; in the order of the graph's values.
    fn recurrent(&self, slot: usize) -> impl Iterator<Item = (*mut f32, usize)> {
        let histories = self.histories.iter().map(move |(id, (channels, memory))| {
            let floats = HISTORY_ROWS * channels;
            (*id, memory.floats(slot * floats), floats)
        });
        let deltas = self.deltas.iter().map(move |(id, (shape, memory))| {
            (*id, memory.floats(slot * delta_floats(*shape)), state_floats(*shape))
        });
        let mut parts: Vec<_> = histories.chain(deltas).collect();
        parts.sort_by_key(|(id, ..)| *id);
        parts.into_iter().map(|(_, start, floats)| (start, floats))
    }

    /// Pages of a slot.
    pub(crate) fn page_table(&self, slot: u32) -> &[u32] {
        &self.page_tables[slot as usize]
    }

    /// A handle on a layer's pages.
    ///
    /// # Safety
    /// As [`KvPool::from_raw_parts`]: no task writes a position of a head that another uses.
    pub(crate) unsafe fn pool(&self, id: ValueId) -> KvPool<'_> {
        // SAFETY: the caller's promise is the same.
        unsafe { self.checked_pool(id) }
            .expect("the geometry was checked when the states were made")
    }

    /// # Safety
    /// As [`States::pool`].
    unsafe fn checked_pool(&self, id: ValueId) -> Result<KvPool<'_>, KvError> {
        let (geometry, offset) = self.key_values[&id];
        let start = self.pool.start.wrapping_add(offset);
        // SAFETY: the memory holds `pages` pages of all layers and lives as long as `self`; the caller answers for races.
        unsafe { KvPool::from_raw_parts(start, self.pages, self.page_bytes, geometry) }
    }

    /// Channels `first..first + width` of a slot's history.
    ///
    /// # Safety
    /// No other task uses these channels of the slot.
    pub(crate) unsafe fn history(
        &self,
        id: ValueId,
        slot: u32,
        first: usize,
        width: usize,
    ) -> RowsMut<'_> {
        let (channels, memory) = &self.histories[&id];
        let start = memory.floats(slot as usize * HISTORY_ROWS * channels + first);
        // SAFETY: inside the slot's part; the caller answers for the channels.
        unsafe { RowsMut::from_raw_parts(start, HISTORY_ROWS, width, *channels) }
    }

    /// As [`States::history`], to read.
    ///
    /// # Safety
    /// No task writes the rows that are read.
    pub(crate) unsafe fn history_rows(
        &self,
        id: ValueId,
        slot: u32,
        first: usize,
        width: usize,
    ) -> Rows<'_> {
        let (channels, memory) = &self.histories[&id];
        let start = memory.floats(slot as usize * HISTORY_ROWS * channels + first);
        // SAFETY: inside the slot's part; the caller answers for writers.
        unsafe { Rows::from_raw_parts(start, HISTORY_ROWS, width, *channels) }
    }

    /// Columns `first..first + width` of one head's state in a slot, and the slot's log.
    ///
    /// # Safety
    /// No other task uses these columns of the head, and tasks share the log as [`GdnLog::from_raw_parts`] asks.
    pub(crate) unsafe fn delta(
        &self,
        id: ValueId,
        slot: u32,
        head: usize,
        first: usize,
        width: usize,
    ) -> (RowsMut<'_>, GdnLog<'_>) {
        let (shape, memory) = &self.deltas[&id];
        let base = slot as usize * delta_floats(*shape);
        let start = memory.floats(base + head * shape.key_dim * shape.value_dim + first);
        let log = memory.floats(base + state_floats(*shape));
        // SAFETY: both lie inside the slot's part of the memory; the caller answers for races.
        unsafe {
            (
                RowsMut::from_raw_parts(start, shape.key_dim, width, shape.value_dim),
                GdnLog::from_raw_parts(log, *shape),
            )
        }
    }
}

fn state_floats(shape: GdnShape) -> usize {
    (shape.value_heads * shape.key_dim * shape.value_dim).next_multiple_of(16)
}

fn delta_floats(shape: GdnShape) -> usize {
    state_floats(shape) + GdnLog::floats(shape).next_multiple_of(16)
}

/// Key heads of the operation that updates a delta-rule state.
fn key_heads_of(graph: &Graph, state: ValueId) -> Option<usize> {
    graph.ops.iter().find(|op| op.updates.contains(&state)).and_then(|op| match op.kind {
        lithos_graph::OpKind::GatedDelta { key_heads, .. } => Some(key_heads),
        _ => None,
    })
}
