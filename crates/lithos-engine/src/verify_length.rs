//! How many drafts a pass verifies: as many as make the most tokens per time, or by a plainer rule.
//!
//! With survival a_1..a_L (the probability that draft i and all before it are accepted) a pass of 1 + L rows is expected to make
//! 1 + a_1 + ... + a_L tokens; divided by what drafting took and such a pass takes, that is tokens per second (DSpark, arXiv 2607.05147,
//! section 3.3).

use std::time::Duration;

use crate::drafters::{DraftLength, MOST_DRAFTS, Proposal};
use crate::pass_costs::PassCosts;

/// How much of the pace is kept when a pass is seen.
const MEMORY: f64 = 0.95;

/// A rule, and what passes take.
#[derive(Clone, Debug)]
pub(crate) struct VerifyLength {
    rule: DraftLength,
    costs: PassCosts,
    /// What passes take now, as a multiple of what they took when they were measured: contexts grow, and machines have other work.
    pace: f64,
}

impl VerifyLength {
    /// By this rule.
    pub(crate) fn new(rule: DraftLength) -> Self {
        VerifyLength { rule, costs: PassCosts::default(), pace: 1.0 }
    }

    /// Whether the rule asks what passes take.
    pub(crate) fn weighs_costs(&self) -> bool {
        self.rule == DraftLength::Auto
    }

    /// What passes take, as it was measured.
    pub(crate) fn set_costs(&mut self, costs: PassCosts) {
        (self.costs, self.pace) = (costs, 1.0);
    }

    /// A pass of so many rows took so long.
    pub(crate) fn observe(&mut self, rows: usize, took: Duration) {
        let took = took.as_secs_f64();
        match self.costs.measured(rows) {
            Some(measured) => {
                self.pace = MEMORY * self.pace + (1.0 - MEMORY) * took / measured;
            }
            None => self.costs.set(rows, took / self.pace),
        }
    }

    /// Seconds that a pass without drafts takes for each of so many generations, once they are known, and where drafts are to pay.
    pub(crate) fn without_drafts(&self, generations: usize) -> Option<f64> {
        let seconds = self.seconds(generations).filter(|_| self.weighs_costs());
        seconds.map(|seconds| seconds / generations as f64)
    }

    /// Seconds of a pass of so many rows, once they are known.
    pub(crate) fn seconds(&self, rows: usize) -> Option<f64> {
        self.costs.seconds(rows).map(|seconds| seconds * self.pace)
    }

    /// How many of a proposal's tokens to verify, which took so long to draft.
    pub(crate) fn choose(&self, proposal: &Proposal, drafting: Duration) -> usize {
        let most = proposal.tokens.len().min(MOST_DRAFTS);
        match self.rule {
            DraftLength::Fixed(length) => length.min(most),
            DraftLength::Threshold(least) => {
                proposal.confidences().take(most).take_while(|sure| *sure >= least).count()
            }
            DraftLength::Auto => self.most_per_second(proposal, most, drafting.as_secs_f64()),
        }
    }

    fn most_per_second(&self, proposal: &Proposal, most: usize, drafting: f64) -> usize {
        // Where nothing was measured, the first pass of all says what one row takes.
        let Some(one) = self.seconds(1) else { return 0 };
        let (mut best, mut most_per_second, mut tokens) = (0, 1.0 / (drafting + one), 1.0);
        for (count, survival) in (1..=most).zip(&proposal.survival) {
            tokens += survival;
            let seconds = self.seconds(1 + count).unwrap_or(f64::INFINITY);
            let per_second = tokens / (drafting + seconds);
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

    const NO_TIME: Duration = Duration::ZERO;

    fn proposal(survival: &[f64]) -> Proposal {
        let tokens = (0..survival.len() as u32).map(TokenId).collect();
        Proposal { tokens, survival: survival.to_vec(), ..Proposal::default() }
    }

    fn seen(passes: &[(usize, u64)]) -> VerifyLength {
        let mut length = VerifyLength::new(DraftLength::Auto);
        for (rows, micros) in passes {
            length.observe(*rows, Duration::from_micros(*micros));
        }
        length
    }

    #[test]
    fn nothing_is_verified_before_it_is_known_what_a_pass_takes() {
        assert_eq!(seen(&[]).choose(&proposal(&[1.0; 8]), NO_TIME), 0);
        assert_eq!(seen(&[]).without_drafts(1), None);
    }

    #[test]
    fn likely_drafts_are_verified_and_unlikely_ones_are_not() {
        let length = seen(&[(1, 1000), (16, 1900)]);
        assert_eq!(length.choose(&proposal(&[0.99; 8]), NO_TIME), 8);
        assert_eq!(length.choose(&proposal(&[0.02; 8]), NO_TIME), 0);
        let falling: Vec<f64> = (1..12).map(|count| 0.6f64.powi(count)).collect();
        // (1 + 0.6 + 0.36 + 0.216 + 0.1296) / 1.24 ms is the most: another draft adds 0.078 tokens and 0.06 ms.
        assert_eq!(length.choose(&proposal(&falling), NO_TIME), 4);
        assert_eq!(length.choose(&proposal(&[]), NO_TIME), 0);
    }

    #[test]
    fn where_drafting_took_long_a_round_should_make_more() {
        let length = seen(&[(1, 1000), (16, 1900)]);
        let falling: Vec<f64> = (1..12).map(|count| 0.6f64.powi(count)).collect();
        let longer = length.choose(&proposal(&falling), Duration::from_millis(3));
        assert!(longer > 4, "{longer}");
    }

    #[test]
    fn where_every_row_costs_a_pass_only_certain_drafts_are_worth_it() {
        let length = seen(&[(1, 1000), (3, 3000), (9, 9000)]);
        assert_eq!(length.choose(&proposal(&[0.9, 0.8, 0.7]), NO_TIME), 0);
    }

    #[test]
    fn passes_that_take_longer_than_measured_change_the_pace_and_not_the_ratios() {
        let mut length = seen(&[(1, 1000), (16, 1900)]);
        for _ in 0..200 {
            length.observe(1, Duration::from_micros(4000));
        }
        let one = length.without_drafts(1).expect("known");
        assert!((one - 0.004).abs() < 1e-5, "{one}");
        let sixteen = length.seconds(16).expect("known");
        assert!((sixteen / one - 1.9).abs() < 1e-9, "{sixteen}");
    }

    #[test]
    fn a_drawn_draft_is_verified_or_not_whatever_follows_it() {
        let length = seen(&[(1, 1000), (16, 1900)]);
        let mut proposal = proposal(&[0.01, 0.01, 0.01, 0.99, 0.99, 0.99, 0.99]);
        proposal.survival[3..].fill(2.0);
        assert!(length.choose(&proposal, NO_TIME) > 3);
        proposal.drawn_from = vec![Default::default(); 7];
        assert_eq!(length.choose(&proposal, NO_TIME), 0);
    }

    #[test]
    fn a_fixed_length_is_kept_where_there_are_as_many() {
        let length = |length| VerifyLength::new(DraftLength::Fixed(length));
        assert_eq!(length(5).choose(&proposal(&[0.01; 8]), NO_TIME), 5);
        assert_eq!(length(5).choose(&proposal(&[0.01; 3]), NO_TIME), 3);
        assert_eq!(length(40).choose(&proposal(&[0.5; 40]), NO_TIME), MOST_DRAFTS);
        assert_eq!(length(5).without_drafts(1), None);
    }

    #[test]
    fn a_threshold_ends_before_the_first_draft_that_is_less_sure() {
        let length = |least| VerifyLength::new(DraftLength::Threshold(least));
        // Each is 0.9, 0.8, 0.5 and 0.9 sure, if those before it are accepted.
        let drafts = proposal(&[0.9, 0.72, 0.36, 0.324]);
        assert_eq!(length(0.6).choose(&drafts, NO_TIME), 2);
        assert_eq!(length(0.45).choose(&drafts, NO_TIME), 4);
        assert_eq!(length(0.95).choose(&drafts, NO_TIME), 0);
        assert_eq!(length(0.1).choose(&proposal(&[0.0, 0.0]), NO_TIME), 0);
    }
}
