//! The decode pass that generations share: each brings the token that was chosen last and drafts of those that follow.

use std::time::{Duration, Instant};

use lithos_model::text::TokenId;

use crate::deal::deal;
use crate::drafters::{MOST_DRAFTS, Outcome, Proposal};
use crate::engine::Engine;
use crate::error::EngineError;
use crate::generation::{OnEvent, Stage};
use crate::scheduler::Ended;
use crate::sequence::Sequence;
use crate::speculation::choose_rows;
use crate::trace::Span;

/// What a generation brings to a pass.
struct Share {
    slot: usize,
    anchor: TokenId,
    proposal: Proposal,
    /// Drafts of the proposal that have a row.
    verified: usize,
    /// What it took to draft.
    drafted: Duration,
}

impl Share {
    fn rows(&self) -> Vec<TokenId> {
        [&[self.anchor], &self.proposal.tokens[..self.verified]].concat()
    }
}

impl Engine {
    /// Runs a pass over the next tokens of these slots, whose tokens the host chooses.
    pub(crate) fn shared_pass(
        &mut self,
        slots: &[usize],
        on_event: &mut OnEvent<'_>,
    ) -> Vec<Ended> {
        let mut ended = Vec::new();
        let mut shares = Vec::new();
        for slot in slots {
            match self.propose(*slot) {
                Ok(share) => shares.extend(share),
                Err(error) => ended.extend(self.fail_live(*slot, error)),
            }
        }
        let proposals: Vec<(&Proposal, Duration)> =
            shares.iter().map(|share| (&share.proposal, share.drafted)).collect();
        let dealt = deal(&self.verify_length, &proposals);
        for (share, verified) in shares.iter_mut().zip(dealt) {
            share.verified = verified;
        }
        let parts: Vec<(usize, Vec<TokenId>)> =
            shares.iter().map(|share| (share.slot, share.rows())).collect();
        let rows = parts.iter().map(|(_, tokens)| tokens.len()).sum();
        let began = Instant::now();
        if let Err(error) = self.decode_together(&parts) {
            ended.extend(self.fail_all(&shares, error));
            return ended;
        }
        let took = began.elapsed();
        self.verify_length.observe(rows, took);
        let drafts = self.speculators.iter().any(Option::is_some);
        let name = if drafts { "verify" } else { "pass" };
        self.trace.add(Span { name, start: began, took, tokens: rows });
        ended.extend(self.choose_tokens(&shares, rows, took, on_event));
        ended
    }

    /// What a slot brings to the next pass, before it is known how many of its drafts have a row.
    fn propose(&mut self, slot: usize) -> Result<Option<Share>, EngineError> {
        let Some(generation) = &self.live[slot] else { return Ok(None) };
        let Stage::Decode { anchor } = generation.stage else { return Ok(None) };
        let began = Instant::now();
        // The last token of all is not taken in.
        let left = generation.left().saturating_sub(1);
        let room = self.context().saturating_sub(self.slots[slot].tokens.len() + 1);
        let mut proposal = Proposal::default();
        if let Some(mut speculator) = self.speculators[slot].take() {
            let most = MOST_DRAFTS.min(left).min(room);
            let proposed = speculator.propose(&mut Sequence::new(self, slot), most);
            self.speculators[slot] = Some(speculator);
            proposal = proposed?;
            self.trace.since("draft", began, proposal.tokens.len());
        }
        Ok(Some(Share { slot, anchor, proposal, verified: 0, drafted: began.elapsed() }))
    }

    /// Chooses the tokens of a pass, and commits those rows that were right.
    fn choose_tokens(
        &mut self,
        shares: &[Share],
        rows: usize,
        took: Duration,
        on_event: &mut OnEvent<'_>,
    ) -> Vec<Ended> {
        let (began, vocabulary) = (Instant::now(), self.vocabulary());
        let mut chosen = Vec::new();
        let mut logits = self.backend.logits();
        for share in shares {
            let chose = Instant::now();
            let (own, others) = logits.split_at((1 + share.verified) * vocabulary);
            logits = others;
            let mut finish = None;
            let Some(generation) = &mut self.live[share.slot] else { continue };
            let tokens = choose_rows(own, vocabulary, &share.proposal, &mut |logits, drawn| {
                let (token, ends) = generation.choose(logits, drawn, on_event)?;
                finish = ends;
                Ok((token, ends.is_some()))
            });
            chosen.push((share, tokens, finish, chose.elapsed()));
        }
        let one_row = self.verify_length.without_drafts(shares.len());
        let mut ended = Vec::new();
        let mut count = 0;
        for (share, tokens, finish, accept) in chosen {
            let tokens = match tokens {
                Ok(tokens) => tokens,
                Err(error) => {
                    ended.extend(self.fail_live(share.slot, error.into()));
                    continue;
                }
            };
            count += tokens.len();
            Sequence::new(self, share.slot).accept(tokens.len());
            if let Some(generation) = &mut self.live[share.slot]
                && let Some(last) = tokens.last()
            {
                generation.stage = Stage::Decode { anchor: *last };
            }
            if let Some(speculator) = &mut self.speculators[share.slot] {
                let drafts = &share.proposal.tokens[..share.verified];
                let accepted = tokens.iter().zip(drafts).take_while(|(a, b)| a == b).count();
                let part = (1 + share.verified) as f64 / rows as f64;
                let outcome = Outcome {
                    verified: share.verified,
                    accepted,
                    seconds: share.drafted.as_secs_f64() + took.as_secs_f64() * part,
                    one_row,
                };
                speculator.settle(&outcome, &tokens);
                speculator.add_times(share.drafted, took, accept);
            }
            if let Some(finish) = finish {
                ended.extend(self.end(share.slot, finish, on_event));
            }
        }
        let drafts = self.speculators.iter().any(Option::is_some);
        self.trace.since(if drafts { "accept" } else { "choose" }, began, count);
        ended
    }

    /// The pass of these failed.
    fn fail_all(&mut self, shares: &[Share], error: EngineError) -> Vec<Ended> {
        let cause = error.to_string();
        let mut error = Some(error);
        let mut ended = Vec::new();
        for share in shares {
            let error = error.take().unwrap_or_else(|| EngineError::SharedPass(cause.clone()));
            ended.extend(self.fail_live(share.slot, error));
        }
        ended
    }
}
