//! An independent check of a finished schedule against the effects that its groups declare.

use std::collections::HashSet;

use thiserror::Error;

use lithos_graph::Graph;

use crate::memory;
use crate::schedule::Schedule;
use crate::step::MAX_DECODE_ROWS;
use crate::task::{BufferId, BufferRows, Place};

/// A schedule that contradicts the effects of its groups.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("schedule: phase {phase}: {problem}")]
pub struct ScheduleError {
    /// The phase.
    pub phase: usize,
    /// What is wrong.
    pub problem: String,
}

impl Schedule {
    /// Checks that no phase holds conflicting groups, every buffer is written in an earlier phase than it is read, phases and
    /// regions cover everything once and in order, and no two live buffers share memory.
    ///
    /// # Errors
    /// [`ScheduleError`] for the first contradiction.
    pub fn verify(&self, graph: &Graph) -> Result<(), ScheduleError> {
        self.verify_cover()?;
        let mut written: HashSet<Place> =
            self.inputs.iter().map(|input| Place::Buffer(*input)).collect();
        for (index, phase) in self.phases.iter().enumerate() {
            let fail = |problem: String| ScheduleError { phase: index, problem };
            let groups = &self.groups[phase.clone()];
            for (position, group) in groups.iter().enumerate() {
                if let Some(other) = groups[..position].iter().find(|other| other.conflicts(group))
                {
                    let (a, b) = (other.kind.name(), group.kind.name());
                    return Err(fail(format!("`{a}` and `{b}` conflict")));
                }
                for access in &group.reads {
                    let ready = match access.place {
                        Place::State(id) => graph.value(id).state().is_some(),
                        place => written.contains(&place),
                    };
                    if !ready {
                        let kind = group.kind.name();
                        return Err(fail(format!(
                            "`{kind}` reads {:?} before it is written",
                            access.place
                        )));
                    }
                }
            }
            for group in groups {
                written.extend(group.writes.iter().map(|access| access.place));
            }
        }
        self.verify_memory()
    }

    fn verify_cover(&self) -> Result<(), ScheduleError> {
        let fail = |phase: usize, problem: &str| ScheduleError { phase, problem: problem.into() };
        let mut next = 0;
        for (index, phase) in self.phases.iter().enumerate() {
            if phase.start != next || phase.end <= phase.start {
                return Err(fail(index, "phases do not cover the groups in order"));
            }
            next = phase.end;
        }
        if next != self.groups.len() {
            return Err(fail(self.phases.len(), "phases leave groups out"));
        }
        let mut next = 0;
        for region in &self.regions {
            if region.phases.start != next || region.phases.end <= next {
                return Err(fail(next, "regions do not cover the phases in order"));
            }
            next = region.phases.end;
        }
        if next != self.phases.len() {
            return Err(fail(next, "regions leave phases out"));
        }
        Ok(())
    }

    fn verify_memory(&self) -> Result<(), ScheduleError> {
        let lifetimes = memory::lifetimes(&self.buffers, &self.inputs, &self.groups, &self.phases);
        let bytes = |index: usize| {
            let buffer = &self.buffers[index];
            let rows = match buffer.rows {
                BufferRows::Pass => self.pass.max_rows(),
                BufferRows::Logit => MAX_DECODE_ROWS,
            };
            buffer.offset..buffer.offset + buffer.width * rows * size_of::<f32>()
        };
        for (a, life) in lifetimes.iter().enumerate() {
            let Some(life) = life else { continue };
            if bytes(a).end > self.arena {
                let problem = format!("`{}` ends outside the arena", self.buffers[a].name);
                return Err(ScheduleError { phase: life.0, problem });
            }
            for (b, other) in lifetimes.iter().enumerate().skip(a + 1) {
                let Some(other) = other else { continue };
                let meet = life.0 <= other.1 && other.0 <= life.1;
                let share = bytes(a).start < bytes(b).end && bytes(b).start < bytes(a).end;
                if meet && share && !self.same_place(a, b) {
                    let names = (&self.buffers[a].name, &self.buffers[b].name);
                    let problem =
                        format!("live buffers `{}` and `{}` share memory", names.0, names.1);
                    return Err(ScheduleError { phase: life.0.max(other.0), problem });
                }
            }
        }
        Ok(())
    }

    /// Whether two buffers are meant to be one place: one continues the other in place.
    fn same_place(&self, a: usize, b: usize) -> bool {
        let root = |mut index: usize| {
            while let Some(BufferId(previous)) = self.buffers[index].in_place_of {
                index = previous as usize;
            }
            index
        };
        root(a) == root(b)
    }
}
