//! Runs a launch: which simdgroup goes on, who waits, and when a wait is given up.
//!
//! All lanes run on one thread of the system, one at a time. Where a simdgroup waits, meets others or looks at an
//! atomic variable, the next one is drawn at random from the seed. So a run can be repeated exactly, and different seeds
//! try different orders.

mod calls;

use crate::checks::Checks;
use crate::error::{EmulatorError, Place};
use crate::launch::{Launch, Report};
use crate::machine::{Grid, Group, Lane, SIMDGROUP, Simdgroup, Stacks, State, switch_stack};
use crate::symbolize::lines_of;
use std::ffi::c_void;
use std::path::PathBuf;

pub(crate) use calls::RUNTIME;

/// A launch that runs.
pub(crate) struct Run {
    kernel: String,
    library: PathBuf,
    grid: Box<Grid>,
    slots: Vec<Slot>,
    stacks: Stacks,
    entry: *const u8,
    lanes_per_threadgroup: u32,
    /// Threadgroups that have not begun, the next one last.
    waiting: Vec<u32>,
    active: Vec<*mut Simdgroup>,
    spinning: Vec<*mut Simdgroup>,
    /// Where the run's own code goes on.
    home: *mut u8,
    /// The slot whose threadgroup has just ended.
    ended: Option<usize>,
    error: Option<EmulatorError>,
    /// The code that made the access that is at fault.
    fault_from: Option<usize>,
    checks: Option<Checks>,
    random: Random,
    /// Turns since anybody got any further.
    fruitless: u64,
    wait_turns: u64,
    report: Report,
}

/// Room for a threadgroup.
struct Slot {
    group: Box<Group>,
    simdgroups: Box<[Simdgroup]>,
    lanes: Box<[Lane]>,
    /// Simdgroups that wait at the barrier.
    arrived: u32,
    finished: u32,
}

/// xorshift64* (Vigna, 2016).
struct Random(u64);

/// What a [`Run`] is made of.
pub(crate) struct Parts {
    pub(crate) library: PathBuf,
    pub(crate) grid: Box<Grid>,
    pub(crate) stacks: Stacks,
    pub(crate) entry: *const u8,
    /// The memory of the first slot, and the distance to the next.
    pub(crate) threadgroup_memory: (*mut u8, usize),
    pub(crate) checks: Option<Checks>,
}

impl Random {
    fn new(seed: u64) -> Self {
        // The step of SplitMix64, so that small seeds differ in all bits.
        let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Self((z ^ (z >> 31)).max(1))
    }

    /// From 0 to `limit` exclusive.
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
        ((high * limit as u64) >> 32) as usize
    }
}

impl Run {
    pub(crate) fn new(launch: &Launch<'_>, parts: Parts) -> Box<Self> {
        let groups = launch.groups();
        let mut random = Random::new(launch.seed);
        let mut waiting: Vec<u32> = (0..groups).rev().collect();
        for i in (1..waiting.len()).rev() {
            waiting.swap(i, random.below(i + 1));
        }
        let mut run = Box::new(Self {
            kernel: launch.kernel.to_owned(),
            library: parts.library,
            grid: parts.grid,
            slots: Vec::new(),
            stacks: parts.stacks,
            entry: parts.entry,
            lanes_per_threadgroup: launch.threads(),
            waiting,
            active: Vec::new(),
            spinning: Vec::new(),
            home: std::ptr::null_mut(),
            ended: None,
            error: None,
            fault_from: None,
            checks: parts.checks,
            random,
            fruitless: 0,
            wait_turns: launch.wait_turns,
            report: Report::default(),
        });
        let (memory, stride) = parts.threadgroup_memory;
        for slot in 0..launch.resident() as usize {
            let group = Group {
                grid: &raw const *run.grid,
                memory: memory.wrapping_add(slot * stride),
                position: [0; 3],
                simdgroups: launch.threads().div_ceil(SIMDGROUP),
            };
            run.slots.push(Slot::new(slot, group, launch.threads()));
        }
        run.grid.run = (&raw mut *run).cast::<c_void>();
        run
    }

    /// Runs to the end; what it did, the checks with all they know, and the stacks for another run.
    ///
    /// # Safety
    ///
    /// The entry and the records of `grid` must be those of a loaded text that nothing else runs in, and the buffers must
    /// not be used otherwise meanwhile.
    pub(crate) unsafe fn finish(
        self: Box<Self>,
    ) -> (Result<Report, EmulatorError>, Option<Checks>, Stacks) {
        let run = Box::into_raw(self);
        // SAFETY: `run` is used through this pointer alone, here and by the lanes, which run only inside the switch.
        let mut run = unsafe {
            (*run).grid.run = run.cast();
            for slot in 0..(*run).slots.len() {
                (*run).begin(slot);
            }
            while (*run).error.is_none() {
                let Some(next) = (*run).next() else { break };
                switch_stack(&raw mut (*run).home, (*(*next).current).stack);
                if let Some(slot) = (*run).ended.take() {
                    (*run).end(slot);
                }
            }
            Box::from_raw(run)
        };
        if let Some(checks) = &run.checks {
            run.report.accesses = checks.accesses;
        }
        let result = match run.error.take() {
            Some(mut error) => {
                if let (Some(place), Some(from)) = (error.access_place_mut(), run.fault_from) {
                    let mut lines = lines_of(&run.library, from).into_iter();
                    place.line = lines.next();
                    place.called_from = lines.collect();
                }
                Err(error)
            }
            None => Ok(run.report),
        };
        (result, run.checks.take(), run.stacks)
    }

    /// Starts the next waiting threadgroup in a slot.
    fn begin(&mut self, slot: usize) {
        let Some(threadgroup) = self.waiting.pop() else { return };
        let [width, height, _] = self.grid.threadgroups;
        let position =
            [threadgroup % width, threadgroup / width % height, threadgroup / width / height];
        if let Some(checks) = &mut self.checks {
            checks.clocks.begin(threadgroup);
            checks.renew(slot);
        }
        let lanes = self.lanes_per_threadgroup;
        let room = &mut self.slots[slot];
        room.group.position = position;
        (room.arrived, room.finished) = (0, 0);
        for simdgroup in &mut room.simdgroups {
            let width = simdgroup.width as usize;
            let first = simdgroup.index as usize * SIMDGROUP as usize;
            // Lanes take turns in a ring, by an odd step and from anywhere.
            let step = if width == SIMDGROUP as usize { 1 + 2 * self.random.below(16) } else { 1 };
            for i in 0..width {
                let next = &raw mut room.lanes[first + (i + step) % width];
                let lane = &mut room.lanes[first + i];
                lane.simdgroup = simdgroup;
                lane.next = next;
                lane.parity = 0;
                let stack = slot * lanes as usize + first + i;
                // SAFETY: the lane that used this stack before has ended.
                lane.stack = unsafe { self.stacks.prepare(stack, self.entry, lane) };
            }
            simdgroup.current = &raw mut room.lanes[first + self.random.below(width)];
            simdgroup.threadgroup = threadgroup;
            simdgroup.state = State::Active;
            simdgroup.exchange.iter_mut().for_each(|exchange| exchange.arrived = 0);
            simdgroup.position = self.active.len();
            self.active.push(simdgroup);
        }
    }

    /// A threadgroup has ended, another may take its place.
    fn end(&mut self, slot: usize) {
        if let Some(checks) = &mut self.checks {
            checks.clocks.end(self.slots[slot].simdgroups[0].threadgroup);
        }
        self.begin(slot);
    }

    /// Draws who goes on. Who can only look again at an atomic variable is drawn rarely while others can work.
    fn next(&mut self) -> Option<*mut Simdgroup> {
        let look_again =
            self.active.is_empty() || (!self.spinning.is_empty() && self.random.below(8) == 0);
        let from = if look_again { &self.spinning } else { &self.active };
        if from.is_empty() {
            return None;
        }
        let next = from[self.random.below(from.len())];
        self.report.turns += 1;
        // SAFETY: simdgroups live as long as the run.
        let (threadgroup, index) = unsafe { ((*next).threadgroup, (*next).index) };
        let number = u64::from(threadgroup) << 8 | u64::from(index);
        self.report.schedule =
            (self.report.schedule ^ number).wrapping_mul(0x0100_0000_01b3).rotate_left(7);
        Some(next)
    }

    /// Moves a simdgroup to another state and its list.
    fn set(&mut self, simdgroup: *mut Simdgroup, state: State) {
        // SAFETY: simdgroups live as long as the run, and no reference to one is held across this call.
        unsafe {
            let before = (*simdgroup).state;
            if before == state {
                return;
            }
            let place = (*simdgroup).position;
            for (of, list) in
                [(State::Active, &mut self.active), (State::Spinning, &mut self.spinning)]
            {
                if before == of {
                    list.swap_remove(place);
                    if let Some(&moved) = list.get(place) {
                        (*moved).position = place;
                    }
                }
                if state == of {
                    (*simdgroup).position = list.len();
                    list.push(simdgroup);
                }
            }
            (*simdgroup).state = state;
        }
    }

    fn place(&self, lane: &Lane, line: Option<u32>) -> Place {
        // SAFETY: a lane's simdgroup lives as long as the run.
        let simdgroup = unsafe { &*lane.simdgroup };
        Place {
            kernel: self.kernel.clone(),
            threadgroup: simdgroup.threadgroup,
            simdgroup: simdgroup.index,
            lane: Some(lane.index),
            line,
            called_from: Vec::new(),
        }
    }

    /// Who waits for what, for a message.
    fn waits(&mut self) -> String {
        let mut text = Vec::new();
        for &simdgroup in self.spinning.iter().take(4) {
            // SAFETY: simdgroups and lanes live as long as the run.
            let (lane, (address, line)) = unsafe { (&*(*simdgroup).current, (*simdgroup).waits) };
            let place = self.place(lane, Some(line));
            let variable = match &mut self.checks {
                Some(checks) => checks.describe(address),
                None => self.describe(address),
            };
            // SAFETY: the lane has just read it there.
            let value = unsafe { (address as *const u32).read_unaligned() };
            text.push(format!("{place} waits for {variable}, which is {value}"));
        }
        let more = self.spinning.len().saturating_sub(4);
        if more > 0 {
            text.push(format!("{more} more simdgroups wait"));
        }
        let not_begun = self.waiting.len();
        if not_begun > 0 {
            text.push(format!("{not_begun} threadgroups have not begun"));
        }
        text.join("; ")
    }

    /// An address by the binding before it.
    fn describe(&self, address: usize) -> String {
        let bindings = self.grid.buffers.iter().enumerate();
        let before = bindings.filter(|(_, start)| !start.is_null() && **start as usize <= address);
        match before.max_by_key(|(_, start)| **start as usize) {
            Some((index, start)) => format!("binding {index} byte {}", address - *start as usize),
            None => format!("address {address:#x}"),
        }
    }
}

impl Slot {
    fn new(slot: usize, group: Group, threads: u32) -> Self {
        let mut group = Box::new(group);
        let simdgroups = (0..group.simdgroups)
            .map(|index| Simdgroup::new(slot, index, &raw mut *group, threads))
            .collect();
        let lanes = (0..threads)
            .map(|thread_index| Lane {
                stack: std::ptr::null_mut(),
                simdgroup: std::ptr::null_mut(),
                next: std::ptr::null_mut(),
                index: thread_index % SIMDGROUP,
                parity: 0,
                thread_index,
                simdgroup_index: thread_index / SIMDGROUP,
            })
            .collect();
        Self { group, simdgroups, lanes, arrived: 0, finished: 0 }
    }
}
