//! How long passes and their launches take: what measuring a card gives.

use std::time::Duration;

/// One launch and what it reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeighedLaunch {
    /// The kernel's name in the text.
    pub kernel: String,
    /// Task kinds, in order, without repeats.
    pub kinds: String,
    /// Bytes of weights that it reads.
    pub weight_bytes: u64,
}

/// A launch and its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchTime {
    /// The launch.
    pub weighed: WeighedLaunch,
    /// The shortest time of several passes.
    pub time: Duration,
}

/// Times of the same pass, again and again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassTimes {
    /// On the card, from the first launch to the end of the last.
    pub passes: Vec<Duration>,
    /// As the host sees it: inputs sent, pass run, logits there.
    pub round_trips: Vec<Duration>,
    /// Each launch of a pass. Marks between them cost a little, so they add up to more than a pass.
    pub launches: Vec<LaunchTime>,
    /// Why the launches were no graph, if they were none.
    pub refused: Option<String>,
}

impl PassTimes {
    /// Bytes of weights that a pass reads.
    pub fn weight_bytes(&self) -> u64 {
        self.launches.iter().map(|launch| launch.weighed.weight_bytes).sum()
    }
}
