//! States in memory, within a budget, of which those stay that save the most work for each byte.
//!
//! The order is that of GreedyDual-Size-Frequency (Cherkasova 1998): a part's priority is the clock plus its uses times the tokens that it
//! saves for each byte, and the clock is set to the priority of what was let go of. So what is never used again ages, and a state that took
//! long to compute or that many branches begin with outlives one of equal size that is soon computed again.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::digest::Digest;
use super::{Name, Part};

/// Parts of kept states.
#[derive(Default)]
pub(crate) struct Memory {
    parts: HashMap<Name, Kept>,
    /// How many cuts whose keys are here follow a cut.
    children: HashMap<Digest, usize>,
    clock: f64,
    used: u64,
    budget: u64,
    evicted: u64,
}

struct Kept {
    bytes: Arc<[u8]>,
    parent: Digest,
    end: usize,
    /// Tokens that are not computed again because this is here.
    saves: usize,
    uses: f64,
    priority: f64,
}

impl Kept {
    fn use_at(&mut self, clock: f64) {
        self.uses += 1.0;
        self.priority = clock + self.uses * self.saves as f64 / self.bytes.len().max(1) as f64;
    }
}

impl Memory {
    /// None yet, and at most so many bytes.
    pub(crate) fn new(budget: u64) -> Self {
        Memory { budget, ..Memory::default() }
    }

    /// Bytes at most.
    pub(crate) fn budget(&self) -> u64 {
        self.budget
    }

    /// Changes the budget.
    pub(crate) fn set_budget(&mut self, budget: u64) {
        self.budget = budget;
        self.make_room(0, &HashSet::new());
    }

    /// Bytes in use.
    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    /// Parts that were let go of.
    pub(crate) fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Whether a part is here.
    pub(crate) fn holds(&self, name: &Name) -> bool {
        self.parts.contains_key(name)
    }

    /// A part, which counts as a use of it.
    pub(crate) fn get(&mut self, name: &Name) -> Option<Arc<[u8]>> {
        let kept = self.parts.get_mut(name)?;
        kept.use_at(self.clock);
        Some(Arc::clone(&kept.bytes))
    }

    /// Keeps a part that saves so many tokens. Others go for it, so that a new branch has a chance, but not those of the cuts in front of it:
    /// the beginning of a branch that is too long as a whole is worth more than its end.
    pub(crate) fn insert(
        &mut self,
        name: Name,
        before: &[Digest],
        parent: Digest,
        saves: usize,
        bytes: Arc<[u8]>,
    ) {
        if bytes.len() as u64 > self.budget || self.holds(&name) {
            return;
        }
        if self.used + bytes.len() as u64 > self.budget {
            let mut stay: HashSet<Digest> = before.iter().copied().collect();
            stay.insert(name.digest);
            if !self.make_room(bytes.len() as u64, &stay) {
                return;
            }
        }
        self.used += bytes.len() as u64;
        if name.part == Part::Keys {
            *self.children.entry(parent).or_default() += 1;
        }
        let end = name.end;
        let mut kept = Kept { bytes, parent, end, saves, uses: 0.0, priority: 0.0 };
        kept.use_at(self.clock);
        self.parts.insert(name, kept);
    }

    /// Lets go of everything.
    pub(crate) fn clear(&mut self) {
        *self = Memory { evicted: self.evicted, ..Memory::new(self.budget) };
    }

    /// Returns whether there is room, without letting go of what shall stay.
    fn make_room(&mut self, more: u64, stay: &HashSet<Digest>) -> bool {
        while self.used + more > self.budget {
            let Some(victim) = self.least_valuable(stay) else { return false };
            if let Some(kept) = self.remove(&victim) {
                self.clock = self.clock.max(kept.priority);
                self.evicted += 1;
            }
            // Without its keys a cut's state is of no use.
            if victim.part == Part::Keys {
                let state = Name { part: Part::State, ..victim };
                self.evicted += u64::from(self.remove(&state).is_some());
            }
        }
        true
    }

    /// Keys that others follow are not let go of: those would be of no use.
    fn least_valuable(&self, stay: &HashSet<Digest>) -> Option<Name> {
        let removable = self.parts.iter().filter(|(name, _)| {
            (name.part == Part::State || !self.children.contains_key(&name.digest))
                && !stay.contains(&name.digest)
        });
        // Of equal ones, the deepest.
        let order = |(_, a): &(&Name, &Kept), (_, b): &(&Name, &Kept)| -> Ordering {
            a.priority.total_cmp(&b.priority).then(b.end.cmp(&a.end))
        };
        removable.min_by(order).map(|(name, _)| *name)
    }

    fn remove(&mut self, name: &Name) -> Option<Kept> {
        let kept = self.parts.remove(name)?;
        self.used -= kept.bytes.len() as u64;
        if name.part == Part::Keys
            && let Some(count) = self.children.get_mut(&kept.parent)
        {
            *count -= 1;
            if *count == 0 {
                self.children.remove(&kept.parent);
            }
        }
        Some(kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(what: &str, end: usize, part: Part) -> Name {
        Name { digest: Digest::of(what.as_bytes()), end, part }
    }

    fn keep(memory: &mut Memory, what: &str, parent: &str, saves: usize, bytes: usize) {
        let name = name(what, saves, Part::Keys);
        let parent = Digest::of(parent.as_bytes());
        memory.insert(name, &[parent], parent, saves, vec![0; bytes].into());
    }

    fn held(memory: &Memory, all: &[&str]) -> Vec<bool> {
        let digests: Vec<Digest> = memory.parts.keys().map(|name| name.digest).collect();
        all.iter().map(|what| digests.contains(&Digest::of(what.as_bytes()))).collect()
    }

    #[test]
    fn what_saves_least_for_its_bytes_goes_first_and_what_is_used_stays() {
        let mut memory = Memory::new(100);
        keep(&mut memory, "dear", "model", 90, 30);
        keep(&mut memory, "cheap", "model", 30, 30);
        keep(&mut memory, "used", "model", 30, 30);
        memory.get(&name("used", 30, Part::Keys));
        keep(&mut memory, "new", "model", 60, 30);
        assert_eq!(held(&memory, &["dear", "cheap", "used", "new"]), [true, false, true, true]);
        assert_eq!((memory.used(), memory.evicted()), (90, 1));
        // What is not used again ages, however dear it was.
        for round in 0..20 {
            let what = round.to_string();
            keep(&mut memory, &what, "model", 60, 30);
            memory.get(&name(&what, 60, Part::Keys));
        }
        assert!(!held(&memory, &["dear"])[0]);
        assert!(memory.used() <= 100);
    }

    #[test]
    fn keys_that_others_follow_stay_and_states_go_with_their_keys() {
        let mut memory = Memory::new(100);
        keep(&mut memory, "trunk", "model", 10, 40);
        let state = name("trunk", 10, Part::State);
        memory.insert(state, &[], Digest::of(b"model"), 1, vec![0; 10].into());
        keep(&mut memory, "leaf", "trunk", 90, 40);
        keep(&mut memory, "other", "model", 90, 20);
        // The state saved least; after it the trunk would be next, but the leaf stands on it.
        assert!(!memory.holds(&state));
        keep(&mut memory, "another", "model", 80, 20);
        assert_eq!(
            held(&memory, &["trunk", "leaf", "other", "another"]),
            [true, false, true, true]
        );
        // Now nothing does, and what state it has goes with it.
        memory.insert(state, &[], Digest::of(b"model"), 90, vec![0; 10].into());
        keep(&mut memory, "large", "model", 10, 60);
        assert_eq!(held(&memory, &["trunk", "other", "another"]), [false, true, true]);
        assert!(!memory.holds(&state));
        memory.set_budget(0);
        assert_eq!((memory.used(), memory.parts.len(), memory.children.len()), (0, 0, 0));
    }

    #[test]
    fn what_is_larger_than_the_budget_is_not_kept() {
        let mut memory = Memory::new(10);
        keep(&mut memory, "small", "model", 1, 10);
        keep(&mut memory, "large", "model", 1000, 11);
        assert_eq!(held(&memory, &["small", "large"]), [true, false]);
        // Nor is the end of a branch, in place of its beginning.
        keep(&mut memory, "end", "small", 1000, 10);
        assert_eq!(held(&memory, &["small", "end"]), [true, false]);
    }
}
