//! Whether a drafter pays: where its rounds make fewer tokens per time than passes without drafts, it rests.

use super::Outcome;

/// How much of what rounds took is kept when another is seen.
const MEMORY: f64 = 0.9;

/// Rounds with drafts after which it is asked whether they pay.
const TRIAL: u32 = 8;

/// Rounds without drafts where they do not, at first and at most.
const SHORTEST_REST: u32 = 64;
const LONGEST_REST: u32 = 512;

/// What rounds with a drafter's drafts made, and took.
#[derive(Debug)]
pub(super) struct Trial {
    /// Whether the last round had drafts.
    drafted: bool,
    /// Rounds with drafts since the last rest; tokens of recent ones, and what they took.
    rounds: u32,
    tokens: f64,
    seconds: f64,
    /// Rounds that are still to pass without drafts, because they do not pay; and how many next time.
    resting: u32,
    rest: u32,
}

impl Default for Trial {
    fn default() -> Self {
        let rest = SHORTEST_REST;
        Trial { drafted: false, rounds: 0, tokens: 0.0, seconds: 0.0, resting: 0, rest }
    }
}

impl Trial {
    /// A round begins for which there is room or not; returns whether to draft for it.
    pub(super) fn begin(&mut self, room: bool) -> bool {
        self.drafted = room && self.resting == 0;
        if room && !self.drafted {
            self.resting -= 1;
        }
        self.drafted
    }

    /// What became of the round.
    pub(super) fn learn(&mut self, outcome: &Outcome) {
        if !self.drafted {
            return;
        }
        self.rounds += 1;
        self.tokens = self.tokens * MEMORY + (1 + outcome.accepted) as f64;
        self.seconds = self.seconds * MEMORY + outcome.seconds;
        if self.rounds < TRIAL {
            return;
        }
        let pays = outcome.one_row.is_none_or(|one| self.tokens * one >= self.seconds);
        if pays {
            self.rest = SHORTEST_REST;
        } else {
            self.resting = self.rest;
            self.rest = (self.rest * 2).min(LONGEST_REST);
            (self.rounds, self.tokens, self.seconds) = (0, 0.0, 0.0);
        }
    }
}
