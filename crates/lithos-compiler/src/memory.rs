//! The memory plan: every buffer gets a place in one arena, and places are shared by buffers whose lifetimes do not meet.

use std::ops::Range;

use crate::task::{Buffer, BufferId, BufferRows, Place, TaskGroup};

/// Alignment of every buffer: a cache line and the widest vector.
const ALIGNMENT: usize = 64;

/// First and last phase in which each buffer is touched; `None` for one that never is. Inputs are there from the first phase on.
pub(crate) fn lifetimes(
    buffers: &[Buffer],
    inputs: &[BufferId],
    groups: &[TaskGroup],
    phases: &[Range<usize>],
) -> Vec<Option<(usize, usize)>> {
    let mut lifetimes: Vec<Option<(usize, usize)>> = vec![None; buffers.len()];
    for input in inputs {
        lifetimes[input.index()] = Some((0, 0));
    }
    for (phase, range) in phases.iter().enumerate() {
        for group in &groups[range.clone()] {
            for access in group.reads.iter().chain(&group.writes) {
                if let Place::Buffer(id) = access.place {
                    let lifetime = lifetimes[id.index()].get_or_insert((phase, phase));
                    lifetime.1 = phase;
                }
            }
        }
    }
    lifetimes
}

/// Sets every buffer's offset and returns the arena's size in bytes.
///
/// First fit, largest first. A buffer that is updated in place shares the place of the one that it continues, over the
/// lifetime of both.
pub(crate) fn plan(
    buffers: &mut [Buffer],
    mut lifetimes: Vec<Option<(usize, usize)>>,
    rows: impl Fn(BufferRows) -> usize,
) -> usize {
    let root = |buffers: &[Buffer], mut index: usize| {
        while let Some(previous) = buffers[index].in_place_of {
            index = previous.index();
        }
        index
    };
    for index in 0..buffers.len() {
        let owner = root(buffers, index);
        if owner != index {
            lifetimes[owner] = match (lifetimes[owner], lifetimes[index]) {
                (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
                (a, b) => a.or(b),
            };
        }
    }
    let size = |buffer: &Buffer| {
        (buffer.width * rows(buffer.rows) * size_of::<f32>()).next_multiple_of(ALIGNMENT)
    };
    let mut order: Vec<usize> =
        (0..buffers.len()).filter(|index| buffers[*index].in_place_of.is_none()).collect();
    order.sort_by_key(|index| std::cmp::Reverse(size(&buffers[*index])));
    let mut placed: Vec<usize> = Vec::new();
    let mut total = 0;
    for index in order {
        let Some(lifetime) = lifetimes[index] else { continue };
        let mut busy: Vec<(usize, usize)> = placed
            .iter()
            .filter(|other| {
                lifetimes[**other].is_some_and(|o| o.0 <= lifetime.1 && lifetime.0 <= o.1)
            })
            .map(|other| (buffers[*other].offset, buffers[*other].offset + size(&buffers[*other])))
            .collect();
        busy.sort_unstable();
        let mut offset = 0;
        for (start, end) in busy {
            if offset + size(&buffers[index]) <= start {
                break;
            }
            offset = offset.max(end);
        }
        buffers[index].offset = offset;
        total = total.max(offset + size(&buffers[index]));
        placed.push(index);
    }
    for index in 0..buffers.len() {
        buffers[index].offset = buffers[root(buffers, index)].offset;
    }
    total
}
