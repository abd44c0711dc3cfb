//! Which drafts of several generations share a pass: those that make the most tokens per time together.
//!
//! With the survival of each draft (`verify_length.rs`), the next row is worth most where the next draft is likeliest. So rows are dealt one
//! by one, each to the generation with the likeliest next draft, and as many are kept as give the most expected tokens per second.

use lithos_compiler::MAX_DECODE_ROWS;

use crate::drafters::{DraftLength, Proposal};
use crate::verify_length::PassCosts;

/// How many drafts of each proposal have a row in a pass that has a row of each generation besides.
pub(crate) fn deal(costs: &PassCosts, length: DraftLength, proposals: &[&Proposal]) -> Vec<usize> {
    match (proposals, length) {
        ([], _) => Vec::new(),
        ([proposal], _) => vec![costs.choose(proposal, length)],
        (_, DraftLength::Auto) => likeliest_first(costs, proposals),
        _ => {
            let wanted: Vec<usize> =
                proposals.iter().map(|proposal| costs.choose(proposal, length)).collect();
            by_turns(&wanted)
        }
    }
}

fn likeliest_first(costs: &PassCosts, proposals: &[&Proposal]) -> Vec<usize> {
    let generations = proposals.len();
    let mut dealt = vec![0; generations];
    let mut best = dealt.clone();
    let Some(seconds) = costs.seconds(generations) else { return best };
    let mut tokens = generations as f64;
    let mut most_per_second = tokens / seconds;
    let drawn = proposals.iter().any(|proposal| !proposal.drawn_from.is_empty());
    for rows in generations + 1..=MAX_DECODE_ROWS {
        let next = |dealt: &[usize], index: usize| {
            let place = dealt[index];
            proposals[index]
                .survival
                .get(place)
                .copied()
                .filter(|_| place < proposals[index].tokens.len())
        };
        let likeliest = (0..generations)
            .filter_map(|index| Some((next(&dealt, index)?, index)))
            // Of equal ones the first.
            .max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
        let Some((survival, index)) = likeliest else { break };
        dealt[index] += 1;
        tokens += survival;
        let per_second = costs.seconds(rows).map_or(0.0, |seconds| tokens / seconds);
        if per_second > most_per_second {
            most_per_second = per_second;
            best.clone_from(&dealt);
        } else if drawn {
            // As for one proposal: which drafts were drawn must not decide whether earlier ones are verified.
            break;
        }
    }
    best
}

/// As many as are wanted, or one after the other until the pass is full.
fn by_turns(wanted: &[usize]) -> Vec<usize> {
    let mut left = MAX_DECODE_ROWS.saturating_sub(wanted.len());
    let mut dealt = vec![0; wanted.len()];
    while left > 0 {
        let before = left;
        for (dealt, wanted) in dealt.iter_mut().zip(wanted) {
            if *dealt < *wanted && left > 0 {
                *dealt += 1;
                left -= 1;
            }
        }
        if left == before {
            break;
        }
    }
    dealt
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
    fn rows_go_to_the_likeliest_drafts() {
        let costs = costs(&[(1, 1000)]);
        let sure = proposal(&[0.99; 8]);
        let unsure = proposal(&[0.9, 0.01, 0.01]);
        let dealt = deal(&costs, DraftLength::Auto, &[&unsure, &sure, &proposal(&[])]);
        assert_eq!(dealt, [1, 8, 0]);
    }

    #[test]
    fn a_pass_is_never_overfull() {
        let costs = costs(&[(1, 1000)]);
        let sure = proposal(&[1.0; 15]);
        for count in 1..=MAX_DECODE_ROWS {
            let proposals = vec![&sure; count];
            for length in [DraftLength::Auto, DraftLength::Fixed(15), DraftLength::Fixed(3)] {
                let dealt = deal(&costs, length, &proposals);
                let rows = count + dealt.iter().sum::<usize>();
                assert!(rows <= MAX_DECODE_ROWS, "{rows} rows of {count} generations");
                let wanted = if length == DraftLength::Fixed(3) { 4 * count } else { usize::MAX };
                assert_eq!(rows, MAX_DECODE_ROWS.min(wanted).min(16 * count), "{length:?}");
            }
        }
    }

    #[test]
    fn where_rows_cost_as_much_as_passes_none_is_dealt() {
        let passes: Vec<(usize, u64)> =
            (0..60).flat_map(|_| [(1, 1000), (3, 3000), (9, 9000)]).collect();
        let half = proposal(&[0.5, 0.4]);
        assert_eq!(deal(&costs(&passes), DraftLength::Auto, &[&half, &half]), [0, 0]);
    }

    #[test]
    fn a_fixed_number_is_shared_by_turns() {
        assert_eq!(by_turns(&[15, 2, 15, 15]), [4, 2, 3, 3]);
        assert_eq!(by_turns(&[3, 0, 1]), [3, 0, 1]);
    }
}
