//! What lanes call while they run: the other side of the header's `Runtime`.
//!
//! Each of these runs on the stack of the lane that calls it. Nothing that would have to be dropped is held where a
//! lane may be left for good.

use super::Run;
use crate::checks::Access;
use crate::clocks::LaneId;
use crate::error::{AccessKind, EmulatorError};
use crate::machine::{
    FINISH, Lane, Runtime, SIMDGROUP_BARRIER, State, THREADGROUP_BARRIER, operation, switch_stack,
};

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
