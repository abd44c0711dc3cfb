//! Which drafts of several generations share a pass: those that make the most tokens per time together.
//!
//! With the survival of each draft (`verify_length.rs`), the next row is worth most where the next draft is likeliest. So rows are dealt one
//! by one, each to the generation with the likeliest next draft, and as many are kept as give the most expected tokens per second.

use std::time::Duration;

use lithos_compiler::MAX_DECODE_ROWS;

use crate::drafters::Proposal;
use crate::verify_length::VerifyLength;

/// How many drafts of each proposal have a row in a pass that has a row of each generation besides. Each proposal took so long to draft.
pub(crate) fn deal(length: &VerifyLength, proposals: &[(&Proposal, Duration)]) -> Vec<usize> {
    if length.weighs_costs() && proposals.len() > 1 {
        return likeliest_first(length, proposals);
    }
    let wanted = proposals.iter().map(|(proposal, drafting)| length.choose(proposal, *drafting));
    by_turns(&wanted.collect::<Vec<usize>>())
}

fn likeliest_first(length: &VerifyLength, proposals: &[(&Proposal, Duration)]) -> Vec<usize> {
    let generations = proposals.len();
    let mut dealt = vec![0; generations];
    let mut best = dealt.clone();
    let Some(seconds) = length.seconds(generations) else { return best };
    let drafting: f64 = proposals.iter().map(|(_, drafting)| drafting.as_secs_f64()).sum();
    let mut tokens = generations as f64;
    let mut most_per_second = tokens / (drafting + seconds);
    let drawn = proposals.iter().any(|(proposal, _)| !proposal.drawn_from.is_empty());
    for rows in generations + 1..=MAX_DECODE_ROWS {
        let next = |index: usize| {
            let proposal = proposals[index].0;
            let (place, drafts) = (dealt[index], proposal.tokens.len());
            proposal.survival.get(place).copied().filter(|_| place < drafts)
        };
        let likeliest = (0..generations)
            .filter_map(|index| Some((next(index)?, index)))
            // Of equal ones the first.
            .max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
        let Some((survival, index)) = likeliest else { break };
        dealt[index] += 1;
        tokens += survival;
        let seconds = length.seconds(rows).unwrap_or(f64::INFINITY);
        let per_second = tokens / (drafting + seconds);
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
    use lithos_model::text::TokenId;

    use super::*;
    use crate::drafters::DraftLength;

    fn proposal(survival: &[f64]) -> Proposal {
        let tokens = (0..survival.len() as u32).map(TokenId).collect();
        Proposal { tokens, survival: survival.to_vec(), ..Proposal::default() }
    }

    fn seen(rule: DraftLength, passes: &[(usize, u64)]) -> VerifyLength {
        let mut length = VerifyLength::new(rule);
        for (rows, micros) in passes {
            length.observe(*rows, Duration::from_micros(*micros));
        }
        length
    }

    fn dealt(length: &VerifyLength, proposals: &[&Proposal]) -> Vec<usize> {
        let at_once = |proposal| (proposal, Duration::ZERO);
        deal(length, &proposals.iter().copied().map(at_once).collect::<Vec<_>>())
    }

    const CHEAP_ROWS: [(usize, u64); 2] = [(1, 1000), (16, 1900)];

    #[test]
    fn rows_go_to_the_likeliest_drafts() {
        let length = seen(DraftLength::Auto, &CHEAP_ROWS);
        let sure = proposal(&[0.99; 8]);
        let unsure = proposal(&[0.9, 0.01, 0.01]);
        assert_eq!(dealt(&length, &[&unsure, &sure, &proposal(&[])]), [1, 8, 0]);
    }

    #[test]
    fn a_pass_is_never_overfull() {
        let sure = proposal(&[1.0; 15]);
        for count in 1..=MAX_DECODE_ROWS {
            let proposals = vec![&sure; count];
            for rule in [DraftLength::Auto, DraftLength::Fixed(15), DraftLength::Fixed(3)] {
                let dealt = dealt(&seen(rule, &CHEAP_ROWS), &proposals);
                let wanted = if rule == DraftLength::Fixed(3) { 4 * count } else { 16 * count };
                let rows = count + dealt.iter().sum::<usize>();
                assert_eq!(rows, MAX_DECODE_ROWS.min(wanted), "{count} generations, {rule:?}");
            }
        }
    }

    #[test]
    fn where_rows_cost_as_much_as_passes_none_is_dealt() {
        let length = seen(DraftLength::Auto, &[(1, 1000), (3, 3000), (9, 9000)]);
        let half = proposal(&[0.5, 0.4]);
        assert_eq!(dealt(&length, &[&half, &half]), [0, 0]);
    }

    #[test]
    fn a_fixed_number_is_shared_by_turns() {
        assert_eq!(by_turns(&[15, 2, 15, 15]), [4, 2, 3, 3]);
        assert_eq!(by_turns(&[3, 0, 1]), [3, 0, 1]);
    }
}
