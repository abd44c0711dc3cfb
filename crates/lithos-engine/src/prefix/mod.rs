//! Prefixes whose states are kept: in memory, and on disk if a folder is named.
//!
//! Prompts are cut (`cuts.rs`); the cuts of all prompts are a trie, whose nodes are named by a digest of the model and of all tokens before
//! them. A node has two parts: keys and values of the tokens since its parent, in pages, and the recurrent state, whole. A prompt goes on
//! from its deepest node whose state is there, and all of whose ancestors' keys are.
//!
//! The store knows nothing of slots or passes: parts are bytes, and only the engine knows what they mean (`restore.rs`).

mod cuts;
mod digest;
mod disk;
mod file;
mod memory;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use lithos_model::text::TokenId;

use crate::error::EngineError;
pub(crate) use cuts::{Cut, Cuts};
pub(crate) use digest::{Digest, of_model};
use disk::Disk;
use memory::Memory;

/// How prefixes are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrefixOptions {
    /// Bytes of memory for them; `None` for a part of what is free, 0 for none.
    pub memory: Option<u64>,
    /// Where they are kept on disk, too.
    pub disk: Option<PrefixDisk>,
}

/// Where prefixes are kept on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrefixDisk {
    /// The folder, for any number of models.
    pub folder: PathBuf,
    /// Bytes that all its files may have together.
    pub quota: u64,
}

/// What became of prefixes since the engine was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrefixCounts {
    /// Prompts that were looked up.
    pub lookups: u64,
    /// Of those, prompts that went on from a kept prefix.
    pub hits: u64,
    /// Of those, prompts whose prefix came from disk, at least in part.
    pub disk_hits: u64,
    /// Tokens that were not computed again.
    pub tokens_saved: u64,
    /// Bytes in memory.
    pub memory_bytes: u64,
    /// Bytes that they may have.
    pub memory_budget: u64,
    /// Parts that memory let go of.
    pub memory_evictions: u64,
    /// Bytes on disk, of all models in the folder.
    pub disk_bytes: u64,
    /// Files that went to make room.
    pub disk_evictions: u64,
    /// Files that were corrupt, cut short or of something else.
    pub rejected_files: u64,
}

/// Which part of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Part {
    /// Keys and values of the tokens since the parent.
    Keys,
    /// What a slot has beside them.
    State,
}

/// A part of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Name {
    pub(crate) digest: Digest,
    /// Tokens before the node's cut.
    pub(crate) end: usize,
    pub(crate) part: Part,
}

impl Cut {
    fn name(&self, part: Part) -> Name {
        Name { digest: self.digest, end: self.end, part }
    }
}

/// A kept prefix of a prompt.
#[derive(Clone, Debug)]
pub(crate) struct RestorePoint {
    /// The cuts up to it, in order.
    pub(crate) cuts: Vec<Cut>,
    /// Keys and values of each.
    pub(crate) keys: Vec<Arc<[u8]>>,
    /// The state at the last.
    pub(crate) state: Arc<[u8]>,
    /// Whether any of it came from disk.
    from_disk: bool,
}

impl RestorePoint {
    /// Tokens of the prefix.
    pub(crate) fn position(&self) -> usize {
        self.cuts.last().map_or(0, |cut| cut.end)
    }
}

/// All prefixes of a model.
pub(crate) struct PrefixStore {
    cuts: Cuts,
    model: Digest,
    memory: Memory,
    disk: Option<Disk>,
    counts: PrefixCounts,
}

impl PrefixStore {
    /// With so many bytes of memory, and nothing on disk.
    pub(crate) fn new(cuts: Cuts, budget: u64) -> Self {
        let (model, memory) = (Digest::of(b""), Memory::new(budget));
        PrefixStore { cuts, model, memory, disk: None, counts: PrefixCounts::default() }
    }

    /// Changes the bytes of memory.
    pub(crate) fn set_budget(&mut self, budget: u64) {
        self.memory.set_budget(budget);
    }

    /// Keeps them on disk, too, as those of this model. What was in memory is let go of.
    ///
    /// # Errors
    /// [`EngineError::PrefixFolder`] if there can be no such folder.
    pub(crate) fn open_disk(
        &mut self,
        options: &PrefixDisk,
        model: Digest,
    ) -> Result<(), EngineError> {
        self.memory.clear();
        self.model = model;
        let opened = Disk::open(&options.folder, model, options.quota);
        let refused = |source| EngineError::PrefixFolder { path: options.folder.clone(), source };
        self.disk = Some(opened.map_err(refused)?);
        Ok(())
    }

    /// The rule of cuts.
    pub(crate) fn cuts(&self) -> &Cuts {
        &self.cuts
    }

    /// All cuts of a prompt at which states can be kept.
    pub(crate) fn path(&self, prompt: &[TokenId]) -> Vec<Cut> {
        match self.memory.budget() == 0 && self.disk.is_none() {
            true => Vec::new(),
            false => self.cuts.of(self.model, prompt),
        }
    }

    /// The longest kept prefix of a prompt that leaves at least one token to compute: its logits are needed.
    pub(crate) fn lookup(&mut self, prompt: &[TokenId]) -> Option<RestorePoint> {
        self.counts.lookups += 1;
        let before_last = &prompt[..prompt.len().saturating_sub(1)];
        let path = self.path(before_last);
        loop {
            let reached = path.iter().take_while(|cut| self.holds(&cut.name(Part::Keys))).count();
            let deepest =
                path[..reached].iter().rposition(|cut| self.holds(&cut.name(Part::State)))?;
            // A file that turns out to be of no use is no longer held, so this ends.
            if let Some(point) = self.load(&path[..=deepest]) {
                return Some(point);
            }
        }
    }

    /// A prompt went on from this.
    pub(crate) fn used(&mut self, point: &RestorePoint) {
        self.counts.hits += 1;
        self.counts.disk_hits += u64::from(point.from_disk);
        self.counts.tokens_saved += point.position() as u64;
    }

    /// A prefix turned out to be of no use: it is not given out again.
    pub(crate) fn refuse(&mut self, point: &RestorePoint, cause: &str) {
        self.memory.clear();
        if let Some(disk) = &mut self.disk {
            let keys = point.cuts.iter().map(|cut| cut.name(Part::Keys));
            let state = point.cuts.last().map(|cut| cut.name(Part::State));
            keys.chain(state).for_each(|name| disk.refuse(&name, cause));
        }
    }

    /// Whether a part at the end of the path's cuts is not kept and shall be. `large` says whether the state takes more bytes than the keys.
    pub(crate) fn wants(&self, path: &[Cut], index: usize, part: Part, large: bool) -> bool {
        let cut = &path[index];
        let kept = || self.cuts.keeps_large_states(cut.end, index + 1 == path.len());
        !self.holds(&cut.name(part)) && (part == Part::Keys || !large || kept())
    }

    /// Keeps a part of one of the path's cuts.
    pub(crate) fn insert(&mut self, path: &[Cut], index: usize, part: Part, bytes: Vec<u8>) {
        self.put(path, index, part, &bytes.into(), true);
    }

    /// Lets go of what is in memory: it no longer is what would be computed.
    pub(crate) fn forget(&mut self) {
        self.memory.clear();
    }

    /// What is counted.
    pub(crate) fn counts(&self) -> PrefixCounts {
        let disk = self.disk.as_ref().map(Disk::counts);
        let load = |value: &std::sync::atomic::AtomicU64| value.load(Ordering::Relaxed);
        PrefixCounts {
            memory_bytes: self.memory.used(),
            memory_budget: self.memory.budget(),
            memory_evictions: self.memory.evicted(),
            disk_bytes: disk.map_or(0, |counts| load(&counts.used)),
            disk_evictions: disk.map_or(0, |counts| load(&counts.evicted)),
            rejected_files: disk.map_or(0, |counts| load(&counts.rejected)),
            ..self.counts
        }
    }

    fn holds(&self, name: &Name) -> bool {
        self.memory.holds(name) || self.disk.as_ref().is_some_and(|disk| disk.holds(name))
    }

    /// All parts that are needed to go on from the last cut; `None` if one is not there after all.
    fn load(&mut self, path: &[Cut]) -> Option<RestorePoint> {
        let last = path.len().checked_sub(1)?;
        let mut from_disk = false;
        let state = self.get(path, last, Part::State, &mut from_disk)?;
        let keys = (0..path.len()).map(|index| self.get(path, index, Part::Keys, &mut from_disk));
        let keys = keys.collect::<Option<_>>()?;
        Some(RestorePoint { cuts: path.to_vec(), keys, state, from_disk })
    }

    fn get(
        &mut self,
        path: &[Cut],
        index: usize,
        part: Part,
        from_disk: &mut bool,
    ) -> Option<Arc<[u8]>> {
        let name = path[index].name(part);
        if let Some(bytes) = self.memory.get(&name) {
            return Some(bytes);
        }
        let bytes = self.disk.as_mut()?.read(&name)?;
        *from_disk = true;
        self.put(path, index, part, &bytes, false);
        Some(bytes)
    }

    fn put(&mut self, path: &[Cut], index: usize, part: Part, bytes: &Arc<[u8]>, is_new: bool) {
        let cut = &path[index];
        // Without a state, work begins again at the one before.
        let state_before = || {
            let before = path[..index].iter().rev();
            let mut states = before.filter(|cut| self.holds(&cut.name(Part::State)));
            states.next().map_or(0, |cut| cut.end)
        };
        let saves = match part {
            Part::Keys => cut.end - cut.start,
            Part::State => cut.end - state_before(),
        };
        let name = cut.name(part);
        if let Some(disk) = self.disk.as_mut().filter(|_| is_new) {
            disk.write(name, bytes);
            if index + 1 == path.len() && part == Part::State {
                // What a prompt stands on is as new as the prompt.
                for cut in path {
                    disk.touch(&cut.name(Part::State));
                    disk.touch(&cut.name(Part::Keys));
                }
            }
        }
        let before: Vec<Digest> = path[..index].iter().map(|cut| cut.digest).collect();
        self.memory.insert(name, &before, cut.parent, saves, Arc::clone(bytes));
    }
}
