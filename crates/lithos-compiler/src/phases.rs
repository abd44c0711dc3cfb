//! Phases: groups that may run at once.

use std::ops::Range;

use lithos_graph::Part;

use crate::task::TaskGroup;

/// Cuts groups, in order, into phases. A group that conflicts with one of the open phase closes it: between phases all
/// workers join, within a phase they do not. The head begins a phase of its own, since it also runs by itself.
pub(crate) fn phases(groups: &[TaskGroup]) -> Vec<Range<usize>> {
    let mut phases = Vec::new();
    let mut start = 0;
    for index in 0..groups.len() {
        let is_head = |index: usize| groups[index].scope.part == Part::Head;
        let head = index > start && is_head(index) && !is_head(index - 1);
        if head || groups[start..index].iter().any(|open| open.conflicts(&groups[index])) {
            phases.push(start..index);
            start = index;
        }
    }
    if start < groups.len() {
        phases.push(start..groups.len());
    }
    phases
}
