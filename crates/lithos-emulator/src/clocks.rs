//! Which accesses are ordered: vector clocks over simdgroups and lanes.
//!
//! A lane's clock advances where its simdgroup meets, where its threadgroup meets and where it releases. An access is
//! stamped with its lane and that lane's clock. It is ordered before another lane's access where that lane *knows* of it:
//! through a barrier of the simdgroup, through a barrier of the threadgroup, or through an atomic variable that a releasing
//! lane wrote and an acquiring lane read (C++'s rules, fences included). Barriers order only the memory that their flags
//! name. Vector clocks are those of ThreadSanitizer and FastTrack (Flanagan and Freund, PLDI 2009).

use std::collections::HashMap;

/// What is known of device memory: accesses with a clock below these.
#[derive(Debug, Clone, Default)]
pub(crate) struct Knowledge {
    /// By simdgroup of the grid: accesses of all its lanes.
    simdgroups: HashMap<u32, u32>,
    /// By lane of the grid.
    lanes: HashMap<u32, u32>,
}

/// Device or threadgroup memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Space {
    Device,
    Threadgroup,
}

/// Who accessed something, and when by its own clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// A lane of the grid, or with [`SEVERAL`] a simdgroup of the grid.
    pub(crate) who: u32,
    pub(crate) clock: u32,
}

/// Marks a stamp of several lanes of one simdgroup.
pub(crate) const SEVERAL: u32 = 1 << 31;
/// Nobody.
pub(crate) const NOBODY: Stamp = Stamp { who: u32::MAX, clock: 0 };

/// A lane by its coordinates.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LaneId {
    pub(crate) threadgroup: u32,
    pub(crate) simdgroup: u32,
    pub(crate) lane: u32,
}

/// The clocks of all threadgroups that run.
pub(crate) struct Clocks {
    simdgroups_per_threadgroup: u32,
    lanes_per_threadgroup: u32,
    threadgroups: HashMap<u32, ThreadgroupClock>,
    /// What was released into each atomic variable.
    released: HashMap<usize, Knowledge>,
}

struct ThreadgroupClock {
    simdgroups: Vec<SimdgroupClock>,
    /// What the threadgroup knew of other threadgroups at its last barrier over device memory.
    remote: Knowledge,
}

struct SimdgroupClock {
    lanes: [LaneClock; 32],
    /// Its own lanes' accesses to device memory below this are ordered before all its lanes.
    device: u32,
    /// The same for threadgroup memory.
    threadgroup: u32,
    /// Its accesses to device memory below this are known to the whole threadgroup.
    device_shared: u32,
    /// The same for threadgroup memory.
    threadgroup_shared: u32,
    /// What its lanes have acquired since the last barrier of the threadgroup.
    acquired: Option<Knowledge>,
}

#[derive(Default)]
struct LaneClock {
    clock: u32,
    /// What it has acquired since its simdgroup last met.
    acquired: Option<Knowledge>,
    /// What it has read without acquiring: an acquiring fence makes it known.
    pending: Option<Knowledge>,
    /// What a releasing fence has put before its next relaxed write.
    fence: Option<Knowledge>,
}

/// Orders of atomic operations, as the header numbers them.
pub(crate) const ACQUIRE: u32 = 1;
pub(crate) const RELEASE: u32 = 2;
const DEVICE_SCOPE: u32 = 3;
const DEVICE_FLAG: u32 = 1;
const THREADGROUP_FLAG: u32 = 2;

fn acquires(order: u32) -> bool {
    order == ACQUIRE || order > RELEASE
}

fn releases(order: u32) -> bool {
    order >= RELEASE
}

impl Knowledge {
    fn merge(&mut self, other: &Self) {
        for (&who, &clock) in &other.simdgroups {
            raise(&mut self.simdgroups, who, clock);
        }
        for (&who, &clock) in &other.lanes {
            raise(&mut self.lanes, who, clock);
        }
    }

    fn has(&self, simdgroup: u32, stamp: Stamp) -> bool {
        self.simdgroups.get(&simdgroup).is_some_and(|&known| stamp.clock < known)
            || (stamp.who & SEVERAL == 0
                && self.lanes.get(&stamp.who).is_some_and(|&known| stamp.clock < known))
    }
}

fn raise(clocks: &mut HashMap<u32, u32>, who: u32, clock: u32) {
    let known = clocks.entry(who).or_insert(0);
    *known = clock.max(*known);
}

fn merge_into(known: &mut Option<Knowledge>, more: &Knowledge) {
    known.get_or_insert_with(Knowledge::default).merge(more);
}

impl Clocks {
    pub(crate) fn new(lanes_per_threadgroup: u32) -> Self {
        Self {
            simdgroups_per_threadgroup: lanes_per_threadgroup.div_ceil(32),
            lanes_per_threadgroup,
            threadgroups: HashMap::new(),
            released: HashMap::new(),
        }
    }

    /// A threadgroup begins.
    pub(crate) fn begin(&mut self, threadgroup: u32) {
        let simdgroups = (0..self.simdgroups_per_threadgroup).map(|_| SimdgroupClock::new());
        let clock =
            ThreadgroupClock { simdgroups: simdgroups.collect(), remote: Knowledge::default() };
        self.threadgroups.insert(threadgroup, clock);
    }

    /// A threadgroup has ended.
    pub(crate) fn end(&mut self, threadgroup: u32) {
        self.threadgroups.remove(&threadgroup);
    }

    fn lane_of_grid(&self, lane: LaneId) -> u32 {
        lane.threadgroup * self.lanes_per_threadgroup + lane.simdgroup * 32 + lane.lane
    }

    fn simdgroup_of_grid(&self, lane: LaneId) -> u32 {
        lane.threadgroup * self.simdgroups_per_threadgroup + lane.simdgroup
    }

    /// The coordinates of who is meant by a stamp; the lane is none where several are meant.
    pub(crate) fn who(&self, stamp: Stamp) -> (u32, u32, Option<u32>) {
        if stamp.who & SEVERAL != 0 {
            let simdgroup = stamp.who & !SEVERAL;
            let per_threadgroup = self.simdgroups_per_threadgroup;
            return (simdgroup / per_threadgroup, simdgroup % per_threadgroup, None);
        }
        let lane = stamp.who % self.lanes_per_threadgroup;
        (stamp.who / self.lanes_per_threadgroup, lane / 32, Some(lane % 32))
    }

    /// The simdgroup of the grid that a stamp belongs to.
    pub(crate) fn simdgroup_of(&self, stamp: Stamp) -> u32 {
        let (threadgroup, simdgroup, _) = self.who(stamp);
        threadgroup * self.simdgroups_per_threadgroup + simdgroup
    }

    /// The stamp of an access that the lane makes now.
    pub(crate) fn stamp(&self, lane: LaneId) -> Stamp {
        let clock = self.simdgroup(lane).map_or(0, |s| s.lanes[lane.lane as usize].clock);
        Stamp { who: self.lane_of_grid(lane), clock }
    }

    /// A stamp for several lanes of one simdgroup, of the later of two clocks.
    pub(crate) fn several(&self, lane: LaneId, clock: u32) -> Stamp {
        Stamp { who: self.simdgroup_of_grid(lane) | SEVERAL, clock }
    }

    fn simdgroup(&self, lane: LaneId) -> Option<&SimdgroupClock> {
        self.threadgroups.get(&lane.threadgroup)?.simdgroups.get(lane.simdgroup as usize)
    }

    fn simdgroup_mut(&mut self, lane: LaneId) -> Option<&mut SimdgroupClock> {
        self.threadgroups.get_mut(&lane.threadgroup)?.simdgroups.get_mut(lane.simdgroup as usize)
    }

    /// Whether an earlier access is ordered before what `lane` does now.
    pub(crate) fn knows(&self, lane: LaneId, earlier: Stamp, space: Space) -> bool {
        if earlier == NOBODY || earlier.who == self.lane_of_grid(lane) {
            return true;
        }
        let (threadgroup, simdgroup, _) = self.who(earlier);
        let Some(group) = self.threadgroups.get(&lane.threadgroup) else { return false };
        let own = &group.simdgroups[lane.simdgroup as usize];
        if threadgroup == lane.threadgroup {
            let other = &group.simdgroups[simdgroup as usize];
            let known = match (simdgroup == lane.simdgroup, space) {
                (true, Space::Device) => own.device,
                (true, Space::Threadgroup) => own.threadgroup,
                (false, Space::Device) => other.device_shared,
                (false, Space::Threadgroup) => other.threadgroup_shared,
            };
            if earlier.clock < known {
                return true;
            }
        }
        if space == Space::Threadgroup {
            return false;
        }
        let simdgroup = self.simdgroup_of(earlier);
        let has =
            |known: &Option<Knowledge>| known.as_ref().is_some_and(|k| k.has(simdgroup, earlier));
        group.remote.has(simdgroup, earlier)
            || has(&own.acquired)
            || has(&own.lanes[lane.lane as usize].acquired)
    }

    /// A simdgroup has met; memory in `flags` is ordered by it.
    pub(crate) fn simdgroup_met(&mut self, lane: LaneId, flags: u32) {
        let Some(simdgroup) = self.simdgroup_mut(lane) else { return };
        let clock = simdgroup.advance();
        if flags & THREADGROUP_FLAG != 0 {
            simdgroup.threadgroup = clock;
        }
        if flags & DEVICE_FLAG != 0 {
            simdgroup.device = clock;
            simdgroup.share_acquired();
        }
    }

    /// A threadgroup has met at a barrier; memory in `flags` is ordered by it.
    pub(crate) fn threadgroup_met(&mut self, threadgroup: u32, flags: u32) {
        let Some(group) = self.threadgroups.get_mut(&threadgroup) else { return };
        for simdgroup in &mut group.simdgroups {
            let clock = simdgroup.advance();
            if flags & THREADGROUP_FLAG != 0 {
                simdgroup.threadgroup = clock;
                simdgroup.threadgroup_shared = clock;
            }
            if flags & DEVICE_FLAG != 0 {
                simdgroup.device = clock;
                simdgroup.device_shared = clock;
                simdgroup.share_acquired();
                if let Some(acquired) = simdgroup.acquired.take() {
                    group.remote.merge(&acquired);
                }
            }
        }
    }

    /// Everything that the lane knows, itself included up to now.
    fn known(&mut self, lane: LaneId) -> Knowledge {
        let (who, first) =
            (self.lane_of_grid(lane), lane.threadgroup * self.simdgroups_per_threadgroup);
        let Some(group) = self.threadgroups.get_mut(&lane.threadgroup) else {
            return Knowledge::default();
        };
        let mut known = group.remote.clone();
        for (i, simdgroup) in (first..).zip(&group.simdgroups) {
            raise(&mut known.simdgroups, i, simdgroup.device_shared);
        }
        let own = &mut group.simdgroups[lane.simdgroup as usize];
        raise(&mut known.simdgroups, first + lane.simdgroup, own.device);
        if let Some(acquired) = &own.acquired {
            known.merge(acquired);
        }
        let own = &mut own.lanes[lane.lane as usize];
        if let Some(acquired) = &own.acquired {
            known.merge(acquired);
        }
        // What the lane does from here on is later than what it releases.
        own.clock += 1;
        raise(&mut known.lanes, who, own.clock);
        known
    }

    /// A lane has read an atomic variable.
    pub(crate) fn atomic_read(&mut self, lane: LaneId, address: usize, order: u32) {
        let Some(released) = self.released.get(&address).cloned() else { return };
        let Some(simdgroup) = self.simdgroup_mut(lane) else { return };
        let own = &mut simdgroup.lanes[lane.lane as usize];
        let known = if acquires(order) { &mut own.acquired } else { &mut own.pending };
        merge_into(known, &released);
    }

    /// A lane writes an atomic variable; `update` where it has read it in the same step.
    pub(crate) fn atomic_write(&mut self, lane: LaneId, address: usize, order: u32, update: bool) {
        let released = if releases(order) {
            Some(self.known(lane))
        } else {
            self.simdgroup(lane).and_then(|s| s.lanes[lane.lane as usize].fence.clone())
        };
        if !update {
            self.released.remove(&address);
        }
        if let Some(released) = released {
            self.released.entry(address).or_default().merge(&released);
        }
    }

    /// A lane passes a fence. One that does not cover device memory, or not the device, orders nothing between
    /// threadgroups.
    pub(crate) fn fence(&mut self, lane: LaneId, flags: u32, order: u32, scope: u32) {
        if flags & DEVICE_FLAG == 0 || scope != DEVICE_SCOPE {
            return;
        }
        if acquires(order)
            && let Some(simdgroup) = self.simdgroup_mut(lane)
        {
            let own = &mut simdgroup.lanes[lane.lane as usize];
            if let Some(pending) = own.pending.take() {
                merge_into(&mut own.acquired, &pending);
            }
        }
        if releases(order) {
            let known = self.known(lane);
            if let Some(simdgroup) = self.simdgroup_mut(lane) {
                simdgroup.lanes[lane.lane as usize].fence = Some(known);
            }
        }
    }
}

impl SimdgroupClock {
    fn new() -> Self {
        Self {
            lanes: std::array::from_fn(|_| LaneClock::default()),
            device: 0,
            threadgroup: 0,
            device_shared: 0,
            threadgroup_shared: 0,
            acquired: None,
        }
    }

    /// All lanes go on with one clock that is later than any of theirs.
    fn advance(&mut self) -> u32 {
        let clock = 1 + self.lanes.iter().map(|lane| lane.clock).max().unwrap_or(0);
        for lane in &mut self.lanes {
            lane.clock = clock;
        }
        clock
    }

    fn share_acquired(&mut self) {
        for lane in &mut self.lanes {
            if let Some(acquired) = lane.acquired.take() {
                merge_into(&mut self.acquired, &acquired);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: u32 = DEVICE_FLAG | THREADGROUP_FLAG;
    const RELAXED: u32 = 0;

    fn lane(threadgroup: u32, simdgroup: u32, lane: u32) -> LaneId {
        LaneId { threadgroup, simdgroup, lane }
    }

    fn clocks() -> Clocks {
        let mut clocks = Clocks::new(64);
        clocks.begin(0);
        clocks.begin(1);
        clocks
    }

    #[test]
    fn barriers_order_what_their_flags_name() {
        let mut clocks = clocks();
        let write = clocks.stamp(lane(0, 0, 3));
        assert!(clocks.knows(lane(0, 0, 3), write, Space::Device));
        assert!(!clocks.knows(lane(0, 0, 4), write, Space::Device));
        clocks.simdgroup_met(lane(0, 0, 0), THREADGROUP_FLAG);
        assert!(clocks.knows(lane(0, 0, 4), write, Space::Threadgroup));
        assert!(!clocks.knows(lane(0, 0, 4), write, Space::Device));
        assert!(!clocks.knows(lane(0, 1, 4), write, Space::Threadgroup));
        clocks.threadgroup_met(0, BOTH);
        assert!(clocks.knows(lane(0, 1, 4), write, Space::Threadgroup));
        assert!(clocks.knows(lane(0, 1, 4), write, Space::Device));
        assert!(!clocks.knows(lane(1, 0, 3), write, Space::Device));
        assert!(!clocks.knows(lane(0, 1, 4), clocks.stamp(lane(0, 0, 3)), Space::Device));
    }

    #[test]
    fn a_release_carries_what_barriers_made_known() {
        let mut clocks = clocks();
        let write = clocks.stamp(lane(0, 1, 9));
        clocks.threadgroup_met(0, BOTH);
        let unshared = clocks.stamp(lane(0, 1, 9));
        clocks.fence(lane(0, 0, 0), DEVICE_FLAG, RELEASE, DEVICE_SCOPE);
        clocks.atomic_write(lane(0, 0, 0), 64, RELAXED, true);
        let late = clocks.stamp(lane(0, 0, 0));
        clocks.atomic_read(lane(1, 0, 0), 64, RELAXED);
        assert!(!clocks.knows(lane(1, 0, 0), write, Space::Device), "needs a fence");
        clocks.fence(lane(1, 0, 0), DEVICE_FLAG, ACQUIRE, DEVICE_SCOPE);
        assert!(clocks.knows(lane(1, 0, 0), write, Space::Device));
        assert!(!clocks.knows(lane(1, 0, 0), unshared, Space::Device));
        assert!(!clocks.knows(lane(1, 0, 0), late, Space::Device));
        assert!(!clocks.knows(lane(1, 1, 0), write, Space::Device), "needs a barrier");
        clocks.threadgroup_met(1, BOTH);
        assert!(clocks.knows(lane(1, 1, 0), write, Space::Device));
    }

    #[test]
    fn knowledge_passes_through_a_third() {
        let mut clocks = Clocks::new(32);
        (0..3).for_each(|i| clocks.begin(i));
        let write = clocks.stamp(lane(0, 0, 5));
        clocks.atomic_write(lane(0, 0, 5), 64, RELEASE, true);
        clocks.atomic_read(lane(1, 0, 0), 64, ACQUIRE);
        clocks.atomic_write(lane(1, 0, 0), 128, RELEASE, true);
        clocks.atomic_read(lane(2, 0, 7), 128, ACQUIRE);
        assert!(clocks.knows(lane(2, 0, 7), write, Space::Device));
        assert!(!clocks.knows(lane(2, 0, 6), write, Space::Device));
    }
}
