//! Who last read and wrote each byte of a memory.

use crate::clocks::{Clocks, LaneId, NOBODY, Space, Stamp};
use crate::error::AccessKind;
use std::collections::HashMap;

/// Bytes that are looked after together.
const PAGE: usize = 4096;
const WORD: usize = 4;
const READERS: usize = 3;

/// The last accesses to a memory.
pub(crate) struct Shadow {
    pages: Vec<Page>,
    /// Further readers of cells that more than [`READERS`] simdgroups read: by page and cell.
    more_readers: HashMap<(u32, u32), Vec<Stamp>>,
}

enum Page {
    Untouched,
    /// A cell for every word: all accesses so far were of whole words.
    Words(Box<[Cell]>),
    /// A cell for every byte.
    Bytes(Box<[Cell]>),
}

#[derive(Clone, Copy)]
struct Cell {
    writer: Stamp,
    /// Readers since the last write that no later reader knows of.
    readers: [Stamp; READERS],
    overflow: bool,
}

/// A conflicting earlier access.
pub(crate) struct Conflict {
    pub(crate) earlier: Stamp,
    pub(crate) kind: AccessKind,
}

const EMPTY: Cell = Cell { writer: NOBODY, readers: [NOBODY; READERS], overflow: false };

impl Shadow {
    pub(crate) fn new(length: usize) -> Self {
        let pages = (0..length.div_ceil(PAGE)).map(|_| Page::Untouched).collect();
        Self { pages, more_readers: HashMap::new() }
    }

    /// Records an access; an earlier one that it races with.
    pub(crate) fn access(
        &mut self,
        clocks: &Clocks,
        lane: LaneId,
        space: Space,
        kind: AccessKind,
        range: std::ops::Range<usize>,
    ) -> Option<Conflict> {
        let now = clocks.stamp(lane);
        let mut at = range.start;
        while at < range.end {
            let page = at / PAGE;
            let end = range.end.min((page + 1) * PAGE);
            let (from, to) = (at % PAGE, end - page * PAGE);
            let (first, count, cells) = self.pages[page].cells(from, to);
            let view = View { clocks, lane, space, now };
            // Bytes are numbered after words, for a page changes from one to the other.
            let bias = if cells.len() == PAGE { PAGE } else { 0 };
            for (index, cell) in (first..).zip(&mut cells[first..first + count]) {
                let key = (page as u32, (bias + index) as u32);
                let conflict = match kind {
                    AccessKind::Read => view.read(cell, key, &mut self.more_readers),
                    AccessKind::Write => view.write(cell, key, &mut self.more_readers),
                };
                if conflict.is_some() {
                    return conflict;
                }
            }
            at = end;
        }
        None
    }
}

impl Page {
    /// The cells that hold bytes `from..to`: the first, how many, and all of the page's.
    fn cells(&mut self, from: usize, to: usize) -> (usize, usize, &mut [Cell]) {
        let whole = from.is_multiple_of(WORD) && to.is_multiple_of(WORD);
        match self {
            Self::Untouched if whole => *self = Self::Words(vec![EMPTY; PAGE / WORD].into()),
            Self::Untouched => *self = Self::Bytes(vec![EMPTY; PAGE].into()),
            Self::Words(words) if !whole => {
                // A word's further readers stay with its number and are lost: three are kept.
                let bytes = words.iter().flat_map(|cell| [Cell { overflow: false, ..*cell }; WORD]);
                *self = Self::Bytes(bytes.collect());
            }
            _ => {}
        }
        match self {
            Self::Untouched => (0, 0, &mut []),
            Self::Words(words) => (from / WORD, (to - from) / WORD, words),
            Self::Bytes(bytes) => (from, to - from, bytes),
        }
    }
}

struct View<'a> {
    clocks: &'a Clocks,
    lane: LaneId,
    space: Space,
    now: Stamp,
}

type Readers = HashMap<(u32, u32), Vec<Stamp>>;

impl View<'_> {
    fn knows(&self, earlier: Stamp) -> bool {
        self.clocks.knows(self.lane, earlier, self.space)
    }

    fn write(&self, cell: &mut Cell, key: (u32, u32), more: &mut Readers) -> Option<Conflict> {
        if !self.knows(cell.writer) {
            return Some(Conflict { earlier: cell.writer, kind: AccessKind::Write });
        }
        let further = if cell.overflow { more.remove(&key) } else { None };
        let further = further.unwrap_or_default();
        let mut readers = cell.readers.iter().chain(&further);
        if let Some(&earlier) = readers.find(|reader| !self.knows(**reader)) {
            return Some(Conflict { earlier, kind: AccessKind::Read });
        }
        *cell = Cell { writer: self.now, ..EMPTY };
        None
    }

    fn read(&self, cell: &mut Cell, key: (u32, u32), more: &mut Readers) -> Option<Conflict> {
        if !self.knows(cell.writer) {
            return Some(Conflict { earlier: cell.writer, kind: AccessKind::Write });
        }
        let own = self.clocks.simdgroup_of(self.now);
        let same = |stamp: Stamp| stamp != NOBODY && self.clocks.simdgroup_of(stamp) == own;
        if let Some(reader) = cell.readers.iter_mut().find(|reader| same(**reader)) {
            *reader = self.joined(*reader);
            return None;
        }
        // Whoever knows of this read knows of those that it knows of.
        if let Some(reader) = cell.readers.iter_mut().find(|reader| self.knows(**reader)) {
            *reader = self.now;
            return None;
        }
        cell.overflow = true;
        let further = more.entry(key).or_default();
        match further.iter_mut().find(|reader| same(**reader)) {
            Some(reader) => *reader = self.joined(*reader),
            None => further.push(self.now),
        }
        None
    }

    /// One stamp for an earlier reader of this simdgroup and for this one.
    fn joined(&self, earlier: Stamp) -> Stamp {
        if self.knows(earlier) {
            self.now
        } else {
            self.clocks.several(self.lane, earlier.clock.max(self.now.clock))
        }
    }
}
