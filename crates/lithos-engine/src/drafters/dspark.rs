//! DSpark drafts (arXiv 2607.05147): a block of tokens from one small pass, corrected from left to right by the Markov head.

use lithos_model::dspark::DraftHead;
use lithos_model::text::TokenId;

use super::{Drafter, Outcome, Proposal};
use crate::error::EngineError;
use crate::sequence::Sequence;

/// Tokens of each row, the most likely before the Markov head, among which it decides.
const CANDIDATES: usize = 64;

/// How much of what rounds took is kept when another is seen.
const MEMORY: f64 = 0.9;

/// Rounds with drafts after which it is asked whether they pay.
const TRIAL: u32 = 8;

/// Rounds without drafts where they do not, at first and at most.
const SHORTEST_REST: u32 = 64;
const LONGEST_REST: u32 = 512;

/// A drafter that was trained with its target.
pub struct Dspark {
    head: DraftHead,
    anchor: TokenId,
    candidates: Vec<(f32, u32)>,
    /// Whether the last round had drafts of this.
    drafted: bool,
    /// Rounds with drafts since the last rest; tokens of recent ones, and what they took.
    rounds: u32,
    tokens: f64,
    seconds: f64,
    /// Rounds that are still to pass without drafts, because they do not pay; and how many next time.
    resting: u32,
    rest: u32,
}

impl Dspark {
    /// Drafts by these heads.
    pub fn new(head: DraftHead) -> Self {
        Dspark {
            head,
            anchor: TokenId(0),
            candidates: Vec::new(),
            drafted: false,
            rounds: 0,
            tokens: 0.0,
            seconds: 0.0,
            resting: 0,
            rest: SHORTEST_REST,
        }
    }

    /// The largest sum of logit and Markov bias after the token with this vector.
    fn choose(&mut self, logits: &[f32], vector: &[f32]) -> u32 {
        self.candidates.clear();
        self.candidates.extend(logits.iter().copied().zip(0u32..));
        if logits.len() > CANDIDATES {
            let order = |a: &(f32, u32), b: &(f32, u32)| b.0.total_cmp(&a.0);
            self.candidates.select_nth_unstable_by(CANDIDATES - 1, order);
            self.candidates.truncate(CANDIDATES);
        }
        let sums = self
            .candidates
            .iter()
            .map(|(logit, token)| (logit + self.head.markov_bias(vector, *token), *token));
        sums.max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1))).map_or(0, |(_, token)| token)
    }
}

impl Drafter for Dspark {
    fn source(&self) -> &'static str {
        "dspark"
    }

    fn begin(&mut self, tokens: &[TokenId]) {
        self.take_in(tokens);
    }

    fn take_in(&mut self, tokens: &[TokenId]) {
        self.anchor = tokens.last().copied().unwrap_or(self.anchor);
    }

    fn propose(
        &mut self,
        sequence: &mut Sequence<'_>,
        most: usize,
    ) -> Result<Proposal, EngineError> {
        let (block, width) = (self.head.block, self.head.hidden());
        self.drafted = false;
        // A block is drafted as a whole, also where less of it is wanted.
        if most == 0 || sequence.room() < block {
            return Ok(Proposal::default());
        }
        if self.resting > 0 {
            self.resting -= 1;
            return Ok(Proposal::default());
        }
        self.drafted = true;
        let mut rows = vec![TokenId(self.head.mask); block];
        rows[0] = self.anchor;
        let vocabulary = sequence.vocabulary();
        let (logits, hidden) = sequence.draft(&rows)?;
        let (mut before, mut survival) = (self.anchor.0, 1.0);
        let mut proposal = Proposal::default();
        let rows = logits.chunks(vocabulary).zip(hidden.chunks(width));
        for (place, (logits, row)) in rows.take(most).enumerate() {
            let vector = self.head.markov_vector(before).to_vec();
            survival *= f64::from(self.head.confidence(place, row, &vector));
            before = self.choose(logits, &vector);
            proposal.tokens.push(TokenId(before));
            proposal.survival.push(survival);
        }
        Ok(proposal)
    }

    fn learn(&mut self, outcome: &Outcome) {
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
