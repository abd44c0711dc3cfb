//! Brings a launch, a loaded text and the memory together.

use crate::checks::{Checks, Region};
use crate::clocks::{Clocks, Space};
use crate::compile::{Library, Symbols};
use crate::error::EmulatorError;
use crate::launch::{Launch, Report, ThreadgroupLayout};
use crate::machine::{
    Exchange, Grid, Group, Runtime, SIMDGROUP, Simdgroup, Stacks, State, VariableRecord,
};
use crate::memory::{BufferId, Memory, POISON, Pages};
use crate::schedule::{Parts, RUNTIME, Run};
use crate::shadow::Shadow;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Range;

/// Threadgroup variables that a text can hold, as in the header.
const VARIABLES: usize = 1024;
/// Untouched bytes around the memory of a threadgroup.
const GAP: usize = 4096;

thread_local! {
    /// Stacks of the last launch, for the next one.
    static STACKS: Cell<Option<Stacks>> = const { Cell::new(None) };
}

impl Library {
    /// Runs a launch to its end.
    ///
    /// # Errors
    ///
    /// Everything in [`EmulatorError`]. After an error the buffers hold what was written up to then.
    pub fn run(&self, launch: &Launch<'_>, memory: &mut Memory) -> Result<Report, EmulatorError> {
        let (_, kernel) = self.kernel(launch.kernel)?;
        launch.check(kernel, memory)?;
        let loaded = self.loaded(launch.checked)?.clone();
        let _alone = loaded.lock();
        let entry = loaded.entry(launch.kernel)?;
        let symbols = loaded.symbols()?;
        // SAFETY: the header defines the table, with this count, and nothing else runs in the text.
        let layout = unsafe {
            let count = symbols.variable_count.min(VARIABLES as u64) as usize;
            let records = std::slice::from_raw_parts(symbols.variables, count);
            ThreadgroupLayout::new(self, launch, records)?
        };
        let stride = (layout.length + GAP).next_multiple_of(GAP);
        let resident = launch.resident() as usize;
        let pages = Pages::guarded(stride * resident, "threadgroup memory")?;
        // SAFETY: the pages hold that many bytes and are ours.
        unsafe { pages.data().write_bytes(POISON, stride * resident) };
        let stacks = take_stacks(resident * launch.threads() as usize)?;
        let checks = launch.checked.then(|| {
            let mut regions = threadgroup_regions(&layout, &pages, stride, resident);
            regions.extend(buffer_regions(self, launch, memory));
            let own = [stacks.range(), image_of(&symbols)];
            Checks::new(regions, Clocks::new(launch.threads()), own)
        });
        let parts = Parts {
            library: loaded.path.clone(),
            grid: Box::new(grid(launch, memory, &layout)),
            stacks,
            entry,
            threadgroup_memory: (pages.data(), stride),
            checks,
        };
        let run = Run::new(launch, parts);
        // SAFETY: the text is locked, and `memory` is borrowed exclusively until the run has ended.
        let (result, checks, stacks) = unsafe {
            *symbols.runtime = RUNTIME;
            let ended = run.finish();
            *symbols.lane = std::ptr::null_mut();
            ended
        };
        STACKS.set(Some(stacks));
        if let Some(checks) = checks {
            return_written(checks, launch, memory);
        }
        result.map(|report| Report { threadgroup_memory: layout.used, ..report })
    }
}

fn take_stacks(count: usize) -> Result<Stacks, EmulatorError> {
    match STACKS.take() {
        Some(stacks) if stacks.count() >= count => Ok(stacks),
        _ => Stacks::new(count),
    }
}

fn grid(launch: &Launch<'_>, memory: &Memory, layout: &ThreadgroupLayout) -> Grid {
    let mut buffers = [std::ptr::null_mut(); 32];
    for binding in &launch.bindings {
        if let Some(buffer) = memory.buffer(binding.buffer) {
            buffers[binding.index as usize] = buffer.address().wrapping_add(binding.offset);
        }
    }
    Grid {
        run: std::ptr::null_mut(),
        buffers,
        threadgroup_arguments: layout.arguments,
        threadgroups: launch.threadgroups,
        threads: launch.threads_per_threadgroup,
    }
}

/// The variables of every resident threadgroup.
fn threadgroup_regions(
    layout: &ThreadgroupLayout,
    pages: &Pages,
    stride: usize,
    resident: usize,
) -> Vec<Region> {
    let mut regions = Vec::new();
    for slot in 0..resident {
        for variable in &layout.variables {
            let start = pages.data() as usize + slot * stride + variable.offset;
            let whole = 0..variable.length;
            regions.push(Region {
                name: format!("threadgroup {}", variable.name),
                addresses: start..start + variable.length,
                bound: Vec::from([whole]),
                read_only: false,
                space: Space::Threadgroup,
                slot: Some(slot),
                written: None,
                shadow: None,
            });
        }
    }
    regions
}

/// The buffers of a launch, each once, with all its bound parts.
fn buffer_regions(library: &Library, launch: &Launch<'_>, memory: &mut Memory) -> Vec<Region> {
    let mut bound: BTreeMap<usize, (BufferId, Vec<Range<usize>>, bool)> = BTreeMap::new();
    let Ok((_, kernel)) = library.kernel(launch.kernel) else { return Vec::new() };
    for binding in &launch.bindings {
        let Some(buffer) = memory.buffer(binding.buffer) else { continue };
        let end = binding.length.map_or(buffer.length, |length| binding.offset + length);
        let reads = kernel
            .buffers()
            .find(|(_, index, _)| *index == binding.index)
            .is_none_or(|(_, _, read_only)| read_only);
        let entry = bound.entry(buffer.address() as usize);
        let entry = entry.or_insert_with(|| (binding.buffer, Vec::new(), true));
        entry.1.push(binding.offset..end);
        entry.2 &= reads || buffer.is_shared();
    }
    let regions = bound.into_iter().map(|(start, (id, bound, read_only))| Region {
        name: memory.name(id).to_owned(),
        addresses: start..start + memory.length(id),
        bound,
        read_only,
        space: Space::Device,
        slot: None,
        written: memory.take_written(id),
        shadow: (!read_only).then(|| Shadow::new(memory.length(id))),
    });
    regions.collect()
}

fn return_written(checks: Checks, launch: &Launch<'_>, memory: &mut Memory) {
    for (start, written) in checks.into_written() {
        let id =
            launch.bindings.iter().map(|binding| binding.buffer).find(|id| {
                memory.buffer(*id).is_some_and(|buffer| buffer.address() as usize == start)
            });
        if let Some(id) = id {
            memory.put_written(id, Some(written));
        }
    }
}

/// The addresses of a loaded text, from its first to the end of its table, which lies behind all constants.
fn image_of(symbols: &Symbols) -> Range<usize> {
    // SAFETY: a struct of pointers, for which zeros are valid.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: the address is only looked up, and `found` is ours.
    if unsafe { libc::dladdr(symbols.lane.cast(), &raw mut found) } == 0 {
        return 0..0;
    }
    let table = symbols.variables as usize + VARIABLES * size_of::<VariableRecord>();
    let end = table.max(symbols.runtime as usize).max(symbols.lane as usize);
    found.dli_fbase as usize..end + size_of::<Runtime>()
}

impl Simdgroup {
    /// A simdgroup of a threadgroup of `threads`; its lanes are set when the threadgroup begins.
    pub(crate) fn new(slot: usize, index: u32, group: *mut Group, threads: u32) -> Self {
        Self {
            exchange: [Exchange::default(), Exchange::default()],
            group,
            width: (threads - index * SIMDGROUP).min(SIMDGROUP),
            index,
            current: std::ptr::null_mut(),
            slot,
            threadgroup: 0,
            state: State::Finished,
            position: 0,
            waits: (0, 0),
        }
    }
}
