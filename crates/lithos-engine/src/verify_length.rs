//! How many drafts a pass verifies: as many as make the most tokens per time.
//!
//! With survival a_1..a_L (the probability that draft i and all before it are accepted) a pass of 1 + L rows is expected to make
//! 1 + a_1 + ... + a_L tokens; divided by what such a pass takes, that is tokens per second (DSpark, arXiv 2607.05147, section 3.3).
//! What passes take is learned from those that are run.

use std::time::Duration;

use crate::drafters::{DraftLength, MOST_DRAFTS, Proposal};

/// Of one row's time, what a pass of several rows takes more, and what each of its rows takes more: assumed until passes are seen.
const FIRST_GUESS: (f64, f64) = (0.15, 0.05);

/// How much of what was seen is kept when a pass is seen.
const MEMORY: f64 = 0.95;

/// How many passes the assumption is worth.
const WORTH: f64 = 0.5;

/// What passes take, by their rows: one row by itself, more rows along a line.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PassCosts {
    one: Option<f64>,
    /// Sums over passes of several rows: weight, rows, rows squared, seconds, rows times seconds.
    sums: [f64; 5],
}

impl PassCosts {
    /// A pass of so many rows took so long.
    pub(crate) fn observe(&mut self, rows: usize, took: Duration) {
        let (rows, seconds) = (rows as f64, took.as_secs_f64());
        if rows < 2.0 {
            self.one = Some(self.one.map_or(seconds, |one| one + (1.0 - MEMORY) * (seconds - one)));
            return;
        }
        let new = [1.0, rows, rows * rows, seconds, rows * seconds];
        for (sum, new) in self.sums.iter_mut().zip(new) {
            *sum = *sum * MEMORY + new;
        }
    }

    /// Seconds of a pass of one row, once one was seen.
    pub(crate) fn one_row(&self) -> Option<f64> {
        self.one
    }

    /// Seconds of a pass of so many rows; `None` before one of one row was seen.
    fn seconds(&self, rows: usize) -> Option<f64> {
        let one = self.one?;
        if rows < 2 {
            return Some(one);
        }
        let mut sums = self.sums;
        // Two passes as assumed, so that the line is always defined.
        for rows in [2.0, (MOST_DRAFTS + 1) as f64] {
            let seconds = one * (1.0 + FIRST_GUESS.0 + FIRST_GUESS.1 * rows);
            let assumed = [1.0, rows, rows * rows, seconds, rows * seconds];
            for (sum, assumed) in sums.iter_mut().zip(assumed) {
                *sum += WORTH * assumed;
            }
        }
        let [weight, rows_sum, squares, seconds_sum, products] = sums;
        let slope =
            (weight * products - rows_sum * seconds_sum) / (weight * squares - rows_sum * rows_sum);
        let start = (seconds_sum - slope * rows_sum) / weight;
        Some((start + slope * rows as f64).max(one * 0.5))
    }

    /// How many of a proposal's tokens to verify.
    pub(crate) fn choose(&self, proposal: &Proposal, length: DraftLength) -> usize {
        let most = proposal.tokens.len().min(MOST_DRAFTS);
        if let DraftLength::Fixed(length) = length {
            return length.min(most);
        }
        // The first pass of all says what one row takes.
        let Some(one) = self.seconds(1) else { return 0 };
        let (mut best, mut most_per_second, mut tokens) = (0, 1.0 / one, 1.0);
        for (count, survival) in (1..=most).zip(&proposal.survival) {
            tokens += survival;
            let per_second = self.seconds(1 + count).map_or(0.0, |seconds| tokens / seconds);
            if per_second > most_per_second {
                (best, most_per_second) = (count, per_second);
            } else if !proposal.drawn_from.is_empty() {
                // How likely later drafts are depends on which ones were drawn before them, and a draft that was drawn must not be left
                // out because of which one it is: that would change the distribution of the text.
                break;
            }
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use lithos_model::text::TokenId;

    use super::*;

    fn proposal(survival: &[f64]) -> Proposal {
        let tokens = (0..survival.len() as u32).map(TokenId).collect();
        Proposal { tokens, survival: survival.to_vec(), ..Proposal::default() }
    }

    fn costs(passes: &[(usize, u64)]) -> PassCosts {
        let mut costs = PassCosts::default();
        for (rows, micros) in passes {
            costs.observe(*rows, Duration::from_micros(*micros));
        }
        costs
    }

    #[test]
    fn nothing_is_verified_before_one_pass_was_seen() {
        assert_eq!(PassCosts::default().choose(&proposal(&[1.0; 8]), DraftLength::Auto), 0);
    }

    #[test]
    fn likely_drafts_are_verified_and_unlikely_ones_are_not() {
        let costs = costs(&[(1, 1000)]);
        assert_eq!(costs.choose(&proposal(&[0.99; 8]), DraftLength::Auto), 8);
        assert_eq!(costs.choose(&proposal(&[0.02; 8]), DraftLength::Auto), 0);
        let falling: Vec<f64> = (1..12).map(|count| 0.6f64.powi(count)).collect();
        let chosen = costs.choose(&proposal(&falling), DraftLength::Auto);
        assert!((1..8).contains(&chosen), "{chosen}");
        assert_eq!(costs.choose(&proposal(&[]), DraftLength::Auto), 0);
    }

    #[test]
    fn where_every_row_costs_a_pass_only_certain_drafts_are_worth_it() {
        let passes: Vec<(usize, u64)> =
            (0..60).flat_map(|_| [(1, 1000), (3, 3000), (9, 9000)]).collect();
        let costs = costs(&passes);
        assert_eq!(costs.choose(&proposal(&[0.9, 0.8, 0.7]), DraftLength::Auto), 0);
        let seconds = costs.seconds(6).expect("seen");
        assert!((seconds - 0.006).abs() < 0.0003, "{seconds}");
    }

    #[test]
    fn a_drawn_draft_is_verified_or_not_whatever_follows_it() {
        let costs = costs(&[(1, 1000)]);
        let mut proposal = proposal(&[0.01, 0.01, 0.01, 0.99, 0.99, 0.99, 0.99]);
        proposal.survival[3..].fill(2.0);
        assert!(costs.choose(&proposal, DraftLength::Auto) > 3);
        proposal.drawn_from = vec![Default::default(); 7];
        assert_eq!(costs.choose(&proposal, DraftLength::Auto), 0);
    }

    #[test]
    fn a_fixed_length_is_kept_where_there_are_as_many() {
        let costs = costs(&[(1, 1000)]);
        assert_eq!(costs.choose(&proposal(&[0.01; 8]), DraftLength::Fixed(5)), 5);
        assert_eq!(costs.choose(&proposal(&[0.01; 3]), DraftLength::Fixed(5)), 3);
        assert_eq!(costs.choose(&proposal(&[0.5; 40]), DraftLength::Fixed(40)), MOST_DRAFTS);
    }
}
