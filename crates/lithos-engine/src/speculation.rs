//! Rounds with drafts: a pass over the token that was chosen last and drafts of those that follow; then tokens are chosen row by row, as
//! without drafts, for as long as the drafts are what is chosen.
//!
//! A row's logits have the same bits whatever rows share its pass, and a draw is a function of seed, position and logits. So the text is
//! that of rounds without drafts, token for token, greedy or drawn, with penalties and bias, whatever is drafted (for proposals that are
//! points this is the rejection rule of Leviathan, Kalman and Matias 2023).

use std::time::{Duration, Instant};

use lithos_model::dspark::DraftHead;
use lithos_model::text::TokenId;

use crate::drafters::{Copying, Draft, DraftLength, Drafter, Dspark, MOST_DRAFTS, Mixed, Outcome};
use crate::engine::{Engine, Output};
use crate::error::EngineError;
use crate::options::BackendKind;
use crate::request::{Event, FinishReason, Request};
use crate::sampling::Sampler;
use crate::sequence::Sequence;
use crate::verify_length::PassCosts;

/// What became of drafts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Speculation {
    /// Where they came from.
    pub source: &'static str,
    /// Passes.
    pub rounds: u64,
    /// Tokens that these passes made.
    pub tokens: u64,
    /// Drafts that were verified.
    pub proposed: u64,
    /// Of those, accepted.
    pub accepted: u64,
    /// Rounds that accepted the first draft, the second, and so on.
    pub accepted_by_position: Vec<u64>,
    /// Rounds that verified no draft, one, two, and so on.
    pub verify_len_hist: Vec<u64>,
    /// What it took.
    pub times: RoundTimes,
}

/// What the parts of all rounds took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoundTimes {
    /// To draft, and to choose how many are verified.
    pub draft: Duration,
    /// To run the passes.
    pub verify: Duration,
    /// To choose tokens and to accept.
    pub accept: Duration,
}

impl Speculation {
    /// Tokens of a round on average; 0 before any.
    pub fn tokens_per_round(&self) -> f64 {
        if self.rounds == 0 { 0.0 } else { self.tokens as f64 / self.rounds as f64 }
    }

    /// Adds what became of other drafts.
    pub fn add(&mut self, other: &Speculation) {
        self.source = other.source;
        self.rounds += other.rounds;
        self.tokens += other.tokens;
        self.proposed += other.proposed;
        self.accepted += other.accepted;
        add_each(&mut self.accepted_by_position, &other.accepted_by_position);
        add_each(&mut self.verify_len_hist, &other.verify_len_hist);
        self.times.draft += other.times.draft;
        self.times.verify += other.times.verify;
        self.times.accept += other.times.accept;
    }

    /// A round verified so many drafts, accepted some, and made so many tokens.
    fn count(&mut self, verified: usize, accepted: usize, tokens: usize) {
        self.rounds += 1;
        self.tokens += tokens as u64;
        self.proposed += verified as u64;
        self.accepted += accepted as u64;
        add_each(&mut self.accepted_by_position, &vec![1; accepted]);
        let mut length = vec![0; verified + 1];
        length[verified] = 1;
        add_each(&mut self.verify_len_hist, &length);
    }
}

fn add_each(sums: &mut Vec<u64>, more: &[u64]) {
    sums.resize(sums.len().max(more.len()), 0);
    for (sum, more) in sums.iter_mut().zip(more) {
        *sum += more;
    }
}

/// A drafter, and what was learned of passes.
pub(crate) struct Speculator {
    drafter: Box<dyn Drafter>,
    costs: PassCosts,
    length: DraftLength,
    /// What became of the drafts of this generation.
    report: Speculation,
}

impl Speculator {
    pub(crate) fn report(&self) -> &Speculation {
        &self.report
    }

    /// What was asked for, as far as the backend has a use for it and the model has a drafter.
    pub(crate) fn new(
        draft: Draft,
        length: DraftLength,
        backend: BackendKind,
        dspark: Option<&DraftHead>,
    ) -> Option<Self> {
        let pays = matches!(backend, BackendKind::Cpu | BackendKind::Cuda);
        let dspark = dspark.map(|head| Dspark::new(head.clone()));
        let drafter: Box<dyn Drafter> = match (draft, dspark) {
            (Draft::None, _) => return None,
            (Draft::Auto, _) if !pays => return None,
            (Draft::Auto, Some(dspark)) => Box::new(Mixed::new(dspark)),
            (Draft::Dspark, Some(dspark)) => Box::new(dspark),
            (Draft::Dspark, None) => return None,
            (Draft::Auto | Draft::Copy, _) => Box::new(Copying::default()),
        };
        Some(Speculator::with(drafter, length))
    }

    pub(crate) fn with(drafter: Box<dyn Drafter>, length: DraftLength) -> Self {
        let report = Speculation { source: drafter.source(), ..Speculation::default() };
        Speculator { drafter, costs: PassCosts::default(), length, report }
    }

    /// A generation begins, whose first token was chosen.
    fn begin(&mut self, prompt: &[TokenId], first: TokenId) {
        self.report = Speculation { source: self.drafter.source(), ..Speculation::default() };
        self.drafter.begin(prompt);
        self.drafter.take_in(&[first]);
    }

    /// A pass over the last token and at most so many drafts. `choose` chooses a row's token from its logits, and says whether the generation
    /// ends with it. Returns the last token chosen.
    fn round(
        &mut self,
        sequence: &mut Sequence<'_>,
        anchor: TokenId,
        most: usize,
        choose: &mut dyn FnMut(&[f32]) -> Result<(TokenId, bool), EngineError>,
    ) -> Result<TokenId, EngineError> {
        let began = Instant::now();
        let proposal = self.drafter.propose(sequence, MOST_DRAFTS.min(most))?;
        let verified = self.costs.choose(&proposal, self.length);
        let drafts = &proposal.tokens[..verified];
        let rows = [&[anchor], drafts].concat();
        let vocabulary = sequence.vocabulary();
        let drafted = Instant::now();
        let logits = sequence.decode(&rows)?;
        let verified_at = Instant::now();
        self.costs.observe(rows.len(), verified_at - drafted);
        let mut chosen = Vec::with_capacity(rows.len());
        for (row, logits) in logits.chunks(vocabulary).enumerate() {
            let (token, ended) = choose(logits)?;
            chosen.push(token);
            if ended || drafts.get(row) != Some(&token) {
                break;
            }
        }
        sequence.accept(chosen.len());
        let accepted = chosen.iter().zip(drafts).take_while(|(a, b)| a == b).count();
        self.report.count(verified, accepted, chosen.len());
        let seconds = (verified_at - began).as_secs_f64();
        // Where so many drafts were asked for, it is not asked whether they pay.
        let one_row = match self.length {
            DraftLength::Auto => self.costs.one_row(),
            DraftLength::Fixed(_) => None,
        };
        self.drafter.learn(&Outcome { verified, accepted, seconds, one_row });
        self.drafter.take_in(&chosen);
        let times = &mut self.report.times;
        times.draft += drafted - began;
        times.verify += verified_at - drafted;
        times.accept += verified_at.elapsed();
        Ok(chosen.last().copied().unwrap_or(anchor))
    }
}

impl Engine {
    /// Chooses where the drafts of later generations come from. What was learned of passes is forgotten.
    pub fn set_draft(&mut self, draft: Draft, length: DraftLength) {
        let dspark = self.draft_head.as_ref();
        self.speculator = Speculator::new(draft, length, self.backend(), dspark);
    }

    /// The heads of the model's drafter, if it has one.
    pub fn draft_head(&self) -> Option<&DraftHead> {
        self.draft_head.as_ref()
    }

    /// Has later generations drafted by this. What was learned of passes is forgotten.
    pub fn set_drafter(&mut self, drafter: Box<dyn Drafter>, length: DraftLength) {
        self.speculator = Some(Speculator::with(drafter, length));
    }

    /// One round after another, from the first token on, until something ends the generation.
    pub(crate) fn draft_rounds(
        &mut self,
        request: &Request,
        first: TokenId,
        limit: usize,
        sampler: &mut Sampler,
        output: &mut Output,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<FinishReason, EngineError> {
        let (context, mut token) = (self.context(), first);
        let Some(mut speculator) = self.speculator.take() else { return Ok(FinishReason::Length) };
        speculator.begin(&request.prompt, first);
        let mut finish = None;
        let mut failed = None;
        while finish.is_none() && failed.is_none() {
            let mut sequence = self.sequence();
            // The last token of all is not taken in.
            let left = limit - output.tokens.len() - 1;
            let room = context.saturating_sub(sequence.tokens().len() + 1);
            let mut choose = |logits: &[f32]| {
                let token = sampler.sample(logits)?;
                finish = output.take(token, sampler.is_complete(), limit, request, on_event);
                Ok((token, finish.is_some()))
            };
            match speculator.round(&mut sequence, token, left.min(room), &mut choose) {
                Ok(last) => token = last,
                Err(error) => failed = Some(error),
            }
        }
        self.speculator = Some(speculator);
        failed.map_or(Ok(finish.unwrap_or(FinishReason::Length)), Err)
    }
}
