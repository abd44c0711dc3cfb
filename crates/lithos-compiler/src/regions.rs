//! Regions: which phases one launch executes. Fusion is a choice of cuts, not another code path.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use lithos_graph::Part;

use crate::schedule::Region;
use crate::task::TaskGroup;

/// How much of a pass one launch executes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fusion {
    /// Cut after every task kind: the matched control, with the same packing and the same task bodies.
    None,
    /// A layer's mixer is one launch, its feed-forward network as in `none`.
    Mixer,
    /// A layer is one launch.
    Layer,
    /// The whole pass is one launch.
    Step,
}

impl Fusion {
    /// All levels, from the least fused.
    pub const ALL: [Fusion; 4] = [Fusion::None, Fusion::Mixer, Fusion::Layer, Fusion::Step];

    /// The level's name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Fusion::None => "none",
            Fusion::Mixer => "mixer",
            Fusion::Layer => "layer",
            Fusion::Step => "step",
        }
    }
}

impl fmt::Display for Fusion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for Fusion {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Fusion::ALL
            .into_iter()
            .find(|level| level.name() == name)
            .ok_or_else(|| format!("unknown fusion level `{name}`: none, mixer, layer or step"))
    }
}

/// What a phase must share with the phase before to be in its region.
#[derive(PartialEq, Eq)]
enum Key {
    /// Always a region of its own.
    Alone(usize),
    /// One region per (layer, part).
    Part(Option<usize>, Part),
    /// One region per layer.
    Layer(usize),
    /// One region for all.
    Pass,
}

/// Groups phases into regions. Under [`Fusion::None`] a phase that holds several task kinds is first split, one launch for each
/// kind; `phases` is then what was split.
pub(crate) fn regions(
    groups: &[TaskGroup],
    phases: &mut Vec<Range<usize>>,
    fusion: Fusion,
) -> Vec<Region> {
    let unfused = |phase: &Range<usize>| match fusion {
        Fusion::None => true,
        Fusion::Mixer => groups[phase.start].scope.part != Part::Mixer,
        Fusion::Layer => groups[phase.start].scope.layer.is_none(),
        Fusion::Step => false,
    };
    *phases = phases
        .iter()
        .flat_map(|phase| if unfused(phase) { by_kind(groups, phase) } else { vec![phase.clone()] })
        .collect();
    let key = |index: usize| -> Key {
        let scope = groups[phases[index].start].scope;
        match (fusion, scope.layer) {
            (Fusion::None, _) => Key::Alone(index),
            (Fusion::Mixer, _) if scope.part == Part::Mixer => Key::Part(scope.layer, scope.part),
            (Fusion::Mixer, _) => Key::Alone(index),
            (Fusion::Layer, Some(layer)) => Key::Layer(layer),
            (Fusion::Layer, None) => Key::Alone(index),
            (Fusion::Step, _) => Key::Pass,
        }
    };
    let mut regions: Vec<Region> = Vec::new();
    for index in 0..phases.len() {
        match regions.last_mut() {
            Some(open) if key(open.phases.start) == key(index) => open.phases.end = index + 1,
            _ => regions.push(Region { phases: index..index + 1 }),
        }
    }
    regions
}

/// Splits a phase where the task kind changes.
fn by_kind(groups: &[TaskGroup], phase: &Range<usize>) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for index in phase.clone() {
        match runs.last_mut() {
            Some(run) if groups[run.start].kind.name() == groups[index].kind.name() => {
                run.end = index + 1;
            }
            _ => runs.push(index..index + 1),
        }
    }
    runs
}
