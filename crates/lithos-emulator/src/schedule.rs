//! Runs a launch: which simdgroup goes on, who waits, and when a wait is given up.
//!
//! All lanes run on one thread of the system, one at a time. Where a simdgroup waits, meets others or looks at an
//! atomic variable, the next one is drawn at random from the seed. So a run can be repeated exactly, and different seeds
//! try different orders.

use crate::checks::{Access, Checks};
use crate::clocks::LaneId;
use crate::error::{AccessKind, EmulatorError, Place};
use crate::launch::{Launch, Report};
use crate::machine::{
    FINISH, Grid, Group, Lane, Runtime, SIMDGROUP, SIMDGROUP_BARRIER, Simdgroup, Stacks, State,
    THREADGROUP_BARRIER, operation, switch_stack,
};
use crate::symbolize::lines_of;
use std::ffi::c_void;
use std::path::PathBuf;

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

/// The functions that lanes call.
pub(crate) const RUNTIME: Runtime = Runtime {
    switch_stack,
    complete,
    barrier,
    finish,
    divergent,
    absent_lane,
    atomic,
    changed,
    fence,
    access,
};

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

/// The run that a lane belongs to.
///
/// # Safety
///
/// `lane` must be a lane of a run.
unsafe fn run_of(lane: *mut Lane) -> *mut Run {
    // SAFETY: the chain is set up by `Run::new`.
    unsafe { (*(*(*(*lane).simdgroup).group).grid).run.cast() }
}

/// Gives the turn to another simdgroup, or keeps it.
///
/// # Safety
///
/// `lane` must be the running lane.
unsafe fn hand_over(lane: *mut Lane) {
    // SAFETY: the run and its simdgroups outlive their lanes; no reference is held across the switch.
    unsafe {
        let run = run_of(lane);
        (*(*lane).simdgroup).current = lane;
        let Some(next) = (*run).next() else {
            let waiting = (*run).waits();
            fail(run, EmulatorError::WaitTimedOut { turns: 0, waiting });
        };
        let next = (*next).current;
        if next != lane {
            switch_stack(&raw mut (*lane).stack, (*next).stack);
        }
    }
}

/// Ends the run with an error; the lanes are left where they are.
///
/// # Safety
///
/// Must be called by a lane of `run`.
unsafe fn fail(run: *mut Run, error: EmulatorError) -> ! {
    // SAFETY: `home` was set by the switch that brought us here.
    unsafe {
        (*run).error = Some(error);
        let mut abandoned = std::ptr::null_mut();
        switch_stack(&raw mut abandoned, (*run).home);
    }
    std::process::abort()
}

/// # Safety
///
/// Called by the running lane when its simdgroup has met; checked builds only.
unsafe extern "C" fn complete(lane: *mut Lane, kind: u32, flags: u32) {
    // SAFETY: as for `hand_over`.
    unsafe {
        let run = run_of(lane);
        (*run).fruitless = 0;
        if kind == FINISH || kind == THREADGROUP_BARRIER {
            return;
        }
        let orders = match kind {
            SIMDGROUP_BARRIER => flags,
            // Matrix operations are no barriers; what exchanges values is taken as one.
            kind if operation(kind).starts_with("simdgroup") => 0,
            _ => 3,
        };
        let id = id_of(lane);
        if let Some(checks) = &mut (*run).checks {
            checks.clocks.simdgroup_met(id, orders);
        }
        (*run).set((*lane).simdgroup, State::Active);
        if (*run).random.below(4) == 0 {
            hand_over(lane);
        }
    }
}

/// # Safety
///
/// Called by the running lane when its simdgroup is at a barrier of the threadgroup.
unsafe extern "C" fn barrier(lane: *mut Lane, flags: u32, line: u32) {
    // SAFETY: as for `hand_over`.
    unsafe {
        let run = run_of(lane);
        (*run).fruitless = 0;
        let own = (*lane).simdgroup;
        let slot = &mut (&mut (*run).slots)[(*own).slot];
        for other in &slot.simdgroups {
            let at = match other.state {
                State::Finished => "the end of the kernel".to_owned(),
                State::AtBarrier(at) if at != line => format!("threadgroup_barrier of line {at}"),
                _ => continue,
            };
            let place = (*run).place(&*lane, Some(line));
            let operation = "threadgroup_barrier".into();
            fail(
                run,
                EmulatorError::BarrierNotReached { place: Box::new(place), operation, other: at },
            );
        }
        slot.arrived += 1;
        if slot.arrived < slot.group.simdgroups {
            (*run).set(own, State::AtBarrier(line));
            hand_over(lane);
            return;
        }
        slot.arrived = 0;
        (*run).report.barriers += 1;
        for i in 0..slot.simdgroups.len() {
            let simdgroup = &raw mut slot.simdgroups[i];
            (*run).set(simdgroup, State::Active);
        }
        if let Some(checks) = &mut (*run).checks {
            checks.clocks.threadgroup_met((*own).threadgroup, flags);
            hand_over(lane);
        }
    }
}

/// # Safety
///
/// Called by the running lane when all lanes of its simdgroup have returned.
unsafe extern "C" fn finish(lane: *mut Lane) {
    // SAFETY: as for `hand_over`; the lane is never resumed.
    unsafe {
        let run = run_of(lane);
        (*run).fruitless = 0;
        let own = (*lane).simdgroup;
        (*run).set(own, State::Finished);
        let slot = &mut (&mut (*run).slots)[(*own).slot];
        slot.finished += 1;
        if slot.finished == slot.group.simdgroups {
            (*run).ended = Some((*own).slot);
            let mut abandoned = std::ptr::null_mut();
            switch_stack(&raw mut abandoned, (*run).home);
        }
        for other in &slot.simdgroups {
            let State::AtBarrier(line) = other.state else { continue };
            let place = (*run).place(&*lane, None);
            let operation = operation(FINISH).to_owned();
            let other = format!("threadgroup_barrier of line {line}");
            fail(
                run,
                EmulatorError::BarrierNotReached { place: Box::new(place), operation, other },
            );
        }
        hand_over(lane);
    }
}

/// # Safety
///
/// Called by the running lane where it meets lanes that are elsewhere.
unsafe extern "C" fn divergent(lane: *mut Lane, kind: u32, line: u32) {
    // SAFETY: as for `hand_over`.
    unsafe {
        let run = run_of(lane);
        let exchange = &(*(*lane).simdgroup).exchange[(*lane).parity as usize ^ 1];
        let place = (*run).place(&*lane, (line > 0).then_some(line));
        let (operation, other) = (operation(kind), operation(exchange.kind));
        let kinds = [kind, exchange.kind];
        let error = if kinds.contains(&THREADGROUP_BARRIER)
            && (kinds.contains(&FINISH) || kind == exchange.kind)
        {
            let other = if exchange.line > 0 {
                format!("{other} of line {}", exchange.line)
            } else {
                other.to_owned()
            };
            EmulatorError::BarrierNotReached {
                place: Box::new(place),
                operation: operation.to_owned(),
                other,
            }
        } else {
            EmulatorError::Divergent {
                place: Box::new(place),
                operation,
                other,
                other_line: exchange.line,
            }
        };
        fail(run, error)
    }
}

/// # Safety
///
/// Called by the running lane where it wants a value of a lane that does not exist.
unsafe extern "C" fn absent_lane(lane: *mut Lane, source_lane: u32, line: u32) {
    // SAFETY: as for `hand_over`.
    unsafe {
        let run = run_of(lane);
        let place = (*run).place(&*lane, Some(line));
        let width = (*(*lane).simdgroup).width;
        fail(run, EmulatorError::AbsentLane { place: Box::new(place), source_lane, width })
    }
}

/// Kinds of atomic accesses, as the header numbers them.
const ATOMIC_LOAD: u32 = 2;
const ATOMIC_STORE: u32 = 3;

/// # Safety
///
/// Called by the running lane before it accesses an atomic variable.
unsafe extern "C" fn atomic(
    lane: *mut Lane,
    address: usize,
    size: u32,
    access: u32,
    order: u32,
    line: u32,
) {
    // SAFETY: as for `hand_over`.
    unsafe {
        let run = run_of(lane);
        let own = (*lane).simdgroup;
        let kind = if access == ATOMIC_LOAD { AccessKind::Read } else { AccessKind::Write };
        let size = size as usize;
        let looked = Access { address, size, kind, alignment: size };
        if let Some(checks) = &mut (*run).checks
            && let Some(fault) = checks.atomic((*own).slot, looked, access != ATOMIC_STORE)
        {
            let place = (*run).place(&*lane, Some(line));
            fail(run, fault.at(place, looked));
        }
        (*own).waits = (address, line);
        (*run).set(own, State::Spinning);
        if (*run).active.is_empty() {
            (*run).fruitless += 1;
            if (*run).fruitless > (*run).wait_turns {
                (*own).current = lane;
                let (turns, waiting) = ((*run).fruitless, (*run).waits());
                fail(run, EmulatorError::WaitTimedOut { turns, waiting });
            }
        }
        hand_over(lane);
        let id = id_of(lane);
        if let Some(checks) = &mut (*run).checks {
            if access != ATOMIC_STORE {
                checks.clocks.atomic_read(id, address, order);
            }
            if access != ATOMIC_LOAD {
                checks.clocks.atomic_write(id, address, order, access != ATOMIC_STORE);
            }
        }
    }
}

/// # Safety
///
/// Called by the running lane when it has given an atomic variable another value.
unsafe extern "C" fn changed(lane: *mut Lane) {
    // SAFETY: as for `hand_over`.
    unsafe {
        let run = run_of(lane);
        (*run).fruitless = 0;
        (*run).set((*lane).simdgroup, State::Active);
    }
}

/// # Safety
///
/// Called by the running lane at a fence.
unsafe extern "C" fn fence(lane: *mut Lane, flags: u32, order: u32, scope: u32) {
    // SAFETY: as for `hand_over`.
    unsafe {
        let id = id_of(lane);
        if let Some(checks) = &mut (*run_of(lane)).checks {
            checks.clocks.fence(id, flags, order, scope);
        }
    }
}

/// # Safety
///
/// Called by the running lane before a plain access; checked builds only.
unsafe extern "C" fn access(lane: *mut Lane, address: usize, size: usize, how: u32, from: usize) {
    // SAFETY: as for `hand_over`.
    unsafe {
        let run = run_of(lane);
        let Some(checks) = &mut (*run).checks else { return };
        let access = Access {
            address,
            size,
            kind: if how & 1 == 0 { AccessKind::Read } else { AccessKind::Write },
            alignment: if how & 0x100 == 0 { 1 } else { size },
        };
        if size == 0 {
            return;
        }
        if let Some(fault) = checks.access(id_of(lane), (*(*lane).simdgroup).slot, access) {
            (*run).fault_from = Some(from);
            let place = (*run).place(&*lane, None);
            fail(run, fault.at(place, access));
        }
    }
}

/// # Safety
///
/// `lane` must be a lane of a run.
unsafe fn id_of(lane: *mut Lane) -> LaneId {
    // SAFETY: as the caller promises.
    unsafe {
        let simdgroup = &*(*lane).simdgroup;
        LaneId {
            threadgroup: simdgroup.threadgroup,
            simdgroup: simdgroup.index,
            lane: (*lane).index,
        }
    }
}
