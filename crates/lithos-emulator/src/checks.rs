//! The checked build announces every access; here it is looked at before it is made.

use crate::clocks::{Clocks, LaneId, Space};
use crate::error::{AccessKind, AccessPlace, EmulatorError, Place};
use crate::memory::Bits;
use crate::shadow::Shadow;
use std::ops::Range;

/// A range of addresses that lanes may use.
pub(crate) struct Region {
    /// The buffer's or variable's name.
    pub(crate) name: String,
    /// The whole of it.
    pub(crate) addresses: Range<usize>,
    /// The bound parts, as offsets.
    pub(crate) bound: Vec<Range<usize>>,
    pub(crate) read_only: bool,
    pub(crate) space: Space,
    /// The threadgroup that a threadgroup variable belongs to, by slot.
    pub(crate) slot: Option<usize>,
    /// Which bytes were written, where that is tracked.
    pub(crate) written: Option<Bits>,
    /// None for memory that nobody can write.
    pub(crate) shadow: Option<Shadow>,
}

/// An access that was announced.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Access {
    pub(crate) address: usize,
    pub(crate) size: usize,
    pub(crate) kind: AccessKind,
    /// Demanded by the type.
    pub(crate) alignment: usize,
}

/// What went wrong; the line is added by whoever knows the code's address.
pub(crate) enum Fault {
    OutOfBounds { memory: String, offset: i64, length: u64, hint: &'static str },
    ReadOnly { memory: String, offset: i64 },
    Misaligned { memory: String, offset: i64 },
    Unwritten { memory: String, offset: i64, first: i64 },
    Race { memory: String, offset: i64, earlier: (u32, u32, Option<u32>), kind: AccessKind },
}

/// Everything that a checked run keeps.
pub(crate) struct Checks {
    /// In the order of their addresses.
    regions: Vec<Region>,
    /// The regions of the last two accesses, the more recent first.
    recent: [usize; 2],
    pub(crate) clocks: Clocks,
    /// Memory that is the emulator's own: stacks, and the library's constants.
    own: [Range<usize>; 2],
    pub(crate) accesses: u64,
}

impl Checks {
    pub(crate) fn new(mut regions: Vec<Region>, clocks: Clocks, own: [Range<usize>; 2]) -> Self {
        regions.sort_by_key(|region| region.addresses.start);
        Self { regions, recent: [0, 0], clocks, own, accesses: 0 }
    }

    /// Hands back which bytes were written, by the address of the region.
    pub(crate) fn into_written(self) -> impl Iterator<Item = (usize, Bits)> {
        self.regions
            .into_iter()
            .filter(|region| region.slot.is_none())
            .filter_map(|region| Some((region.addresses.start, region.written?)))
    }

    /// A new threadgroup takes over a slot: its variables are unwritten.
    pub(crate) fn renew(&mut self, slot: usize) {
        for region in self.regions.iter_mut().filter(|region| region.slot == Some(slot)) {
            let length = region.addresses.len();
            region.written = Some(Bits::empty(length));
            region.shadow = Some(Shadow::new(length));
        }
    }

    fn find(&mut self, address: usize) -> Option<usize> {
        for recent in self.recent {
            if self.regions.get(recent).is_some_and(|r| r.addresses.contains(&address)) {
                return Some(recent);
            }
        }
        let after = self.regions.partition_point(|region| region.addresses.start <= address);
        let found =
            after.checked_sub(1).filter(|&i| self.regions[i].addresses.contains(&address))?;
        self.recent = [found, self.recent[0]];
        Some(found)
    }

    /// Looks at a plain access.
    pub(crate) fn access(&mut self, lane: LaneId, slot: usize, access: Access) -> Option<Fault> {
        self.accesses += 1;
        if self.own.iter().any(|own| own.contains(&access.address)) {
            return None;
        }
        let Some(found) = self.find(access.address) else { return Some(self.lost(access)) };
        let region = &mut self.regions[found];
        let offset = access.address - region.addresses.start;
        let range = offset..offset + access.size;
        if let Some(fault) = region.bounds(slot, &range, access) {
            return Some(fault);
        }
        let memory = || region.name.clone();
        let offset = offset as i64;
        if !access.address.is_multiple_of(access.alignment) {
            return Some(Fault::Misaligned { memory: memory(), offset });
        }
        if let Some(shadow) = &mut region.shadow {
            let conflict =
                shadow.access(&self.clocks, lane, region.space, access.kind, range.clone());
            if let Some(conflict) = conflict {
                let earlier = self.clocks.who(conflict.earlier);
                return Some(Fault::Race {
                    memory: memory(),
                    offset,
                    earlier,
                    kind: conflict.kind,
                });
            }
        }
        region.touch(&range, access.kind)
    }

    /// Looks at an access to an atomic variable, which no other access to one races with.
    pub(crate) fn atomic(&mut self, slot: usize, access: Access, reads: bool) -> Option<Fault> {
        let Some(found) = self.find(access.address) else { return Some(self.lost(access)) };
        let region = &mut self.regions[found];
        let offset = access.address - region.addresses.start;
        let range = offset..offset + access.size;
        if let Some(fault) = region.bounds(slot, &range, access) {
            return Some(fault);
        }
        if !access.address.is_multiple_of(access.alignment) {
            return Some(Fault::Misaligned { memory: region.name.clone(), offset: offset as i64 });
        }
        let read = if reads { region.touch(&range, AccessKind::Read) } else { None };
        read.or_else(|| region.touch(&range, access.kind))
    }

    /// The name and offset of an address, for messages.
    pub(crate) fn describe(&mut self, address: usize) -> String {
        match self.find(address) {
            Some(found) => {
                let region = &self.regions[found];
                format!("`{}` byte {}", region.name, address - region.addresses.start)
            }
            None => format!("address {address:#x}"),
        }
    }

    /// An address in no memory that is bound: the nearest is named.
    fn lost(&self, access: Access) -> Fault {
        let distance = |region: &&Region| {
            let Range { start, end } = region.addresses;
            if access.address < start { start - access.address } else { access.address - end }
        };
        let hint = "; nothing is bound at the address, this is the nearest memory";
        match self.regions.iter().min_by_key(distance) {
            Some(region) => Fault::OutOfBounds {
                memory: region.name.clone(),
                offset: access.address as i64 - region.addresses.start as i64,
                length: region.addresses.len() as u64,
                hint: if distance(&region) < 4096 { "" } else { hint },
            },
            None => Fault::OutOfBounds {
                memory: "no memory".into(),
                offset: access.address as i64,
                length: 0,
                hint: "; nothing is bound",
            },
        }
    }
}

impl Region {
    fn bounds(&self, slot: usize, range: &Range<usize>, access: Access) -> Option<Fault> {
        let offset = range.start as i64;
        let foreign = self.slot.is_some_and(|own| own != slot);
        let inside = self.bound.iter().any(|b| b.start <= range.start && range.end <= b.end);
        if foreign || !inside {
            let whole = self.bound.iter().map(|bound| bound.end).max().unwrap_or(0);
            return Some(Fault::OutOfBounds {
                memory: self.name.clone(),
                offset,
                length: whole as u64,
                hint: if foreign { "; it belongs to another threadgroup" } else { "" },
            });
        }
        if self.read_only && access.kind == AccessKind::Write {
            return Some(Fault::ReadOnly { memory: self.name.clone(), offset });
        }
        None
    }

    /// Notes a write; a fault for a read of what nobody wrote.
    fn touch(&mut self, range: &Range<usize>, kind: AccessKind) -> Option<Fault> {
        let written = self.written.as_mut()?;
        match kind {
            AccessKind::Write => {
                written.insert(range.start, range.len());
                None
            }
            AccessKind::Read => {
                let first = written.first_missing(range.start, range.len())?;
                Some(Fault::Unwritten {
                    memory: self.name.clone(),
                    offset: range.start as i64,
                    first: first as i64,
                })
            }
        }
    }
}

impl Fault {
    /// The error of this fault, with who and where.
    pub(crate) fn at(self, place: Place, access: Access) -> EmulatorError {
        let kernel = place.kernel.clone();
        let named = |memory: String, offset: i64| {
            let (kind, size) = (access.kind, access.size as u64);
            Box::new(AccessPlace { place, kind, memory, offset, size })
        };
        match self {
            Self::OutOfBounds { memory, offset, length, hint } => {
                EmulatorError::OutOfBounds { access: named(memory, offset), length, hint }
            }
            Self::ReadOnly { memory, offset } => {
                EmulatorError::ReadOnly { access: named(memory, offset) }
            }
            Self::Misaligned { memory, offset } => EmulatorError::Misaligned {
                access: named(memory, offset),
                alignment: access.alignment as u64,
            },
            Self::Unwritten { memory, offset, first } => {
                EmulatorError::Unwritten { access: named(memory, offset), first }
            }
            Self::Race { memory, offset, earlier: (threadgroup, simdgroup, lane), kind } => {
                EmulatorError::Race {
                    access: named(memory, offset),
                    earlier: Box::new(Place {
                        kernel,
                        threadgroup,
                        simdgroup,
                        lane,
                        line: None,
                        called_from: Vec::new(),
                    }),
                    earlier_kind: kind,
                }
            }
        }
    }
}
