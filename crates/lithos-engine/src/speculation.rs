//! Rounds with drafts: a pass over the token that was chosen last and drafts of those that follow; then tokens are chosen row by row, as
//! without drafts, for as long as the drafts are what is chosen.
//!
//! A row's logits have the same bits whatever rows share its pass, and a draw is a function of seed, position and logits. So the text is
//! that of rounds without drafts, token for token, greedy or drawn, with penalties and bias, whatever is drafted (for proposals that are
//! points this is the rejection rule of Leviathan, Kalman and Matias 2023). Where drafts were drawn, and the text is, too, that rule decides
//! (`sampling/rejection.rs`): the text is another one then, of the same distribution.

#[cfg(test)]
mod distribution;

use std::time::{Duration, Instant};

use lithos_model::dspark::DraftHead;
use lithos_model::text::TokenId;
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use crate::drafters::{
    Copying, Distribution, Draft, DraftLength, Drafter, Draws, Dspark, MOST_DRAFTS, Mixed, Mtp,
    Outcome, Proposal, Proposals,
};
use crate::engine::Engine;
use crate::error::EngineError;
use crate::options::BackendKind;
use crate::output::Output;
use crate::pass_costs::PassCosts;
use crate::request::{Event, FinishReason, Request};
use crate::sampling::Sampler;
use crate::sequence::Sequence;
use crate::trace::Span;
use crate::verify_length::VerifyLength;

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

/// What `speculation` holds in reports, without times.
impl Serialize for Speculation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Speculation", 7)?;
        fields.serialize_field("source", self.source)?;
        fields.serialize_field("rounds", &self.rounds)?;
        fields.serialize_field("tokens_per_round", &self.tokens_per_round())?;
        fields.serialize_field("proposed", &self.proposed)?;
        fields.serialize_field("accepted", &self.accepted)?;
        fields.serialize_field("accepted_by_position", &self.accepted_by_position)?;
        fields.serialize_field("verify_len_hist", &self.verify_len_hist)?;
        fields.end()
    }
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

/// The drafters that were trained for the model and are there.
#[derive(Clone, Copy)]
pub(crate) struct Trained<'e> {
    pub(crate) dspark: Option<&'e DraftHead>,
    pub(crate) mtp: bool,
}

/// Chooses a row's token from its logits, given the draft there if it was drawn and what from; and says whether the generation ends with it.
type Choose<'c> = dyn FnMut(&[f32], Option<(TokenId, &Distribution)>) -> (TokenId, bool) + 'c;

/// Chooses tokens row by row, for as long as they are the drafts of a proposal, of which as many were verified as there are rows after the
/// first.
fn choose_rows(
    logits: &[f32],
    vocabulary: usize,
    proposal: &Proposal,
    choose: &mut Choose<'_>,
) -> Vec<TokenId> {
    let rows = logits.len() / vocabulary;
    let drafts = &proposal.tokens[..rows.saturating_sub(1)];
    let mut chosen = Vec::with_capacity(rows);
    for (row, logits) in logits.chunks(vocabulary).enumerate() {
        let draft = drafts.get(row);
        let drawn = draft.copied().zip(proposal.drawn_from.get(row));
        let (token, ended) = choose(logits, drawn);
        chosen.push(token);
        if ended || draft != Some(&token) {
            break;
        }
    }
    chosen
}

/// A drafter, and how many of its drafts are verified.
pub(crate) struct Speculator {
    drafter: Box<dyn Drafter>,
    length: VerifyLength,
    /// What became of the drafts of this generation.
    report: Speculation,
}

impl Speculator {
    pub(crate) fn report(&self) -> &Speculation {
        &self.report
    }

    /// Whether it asks what passes take.
    pub(crate) fn weighs_costs(&self) -> bool {
        self.length.weighs_costs()
    }

    /// What passes take, as it was measured.
    pub(crate) fn set_costs(&mut self, costs: PassCosts) {
        self.length.set_costs(costs);
    }

    /// What was asked for, as far as the backend has a use for it and the model has a drafter.
    pub(crate) fn new(
        draft: Draft,
        length: DraftLength,
        backend: BackendKind,
        trained: Trained<'_>,
    ) -> Option<Self> {
        let pays = matches!(backend, BackendKind::Cpu | BackendKind::Cuda);
        let dspark = || {
            let drafter = trained.dspark.map(|head| Dspark::new(head.clone()));
            drafter.map(|drafter| Box::new(drafter) as Box<dyn Drafter>)
        };
        let mtp = || trained.mtp.then(|| Box::new(Mtp::new(length)) as Box<dyn Drafter>);
        let mixed = |drafter: Box<dyn Drafter>, source| Box::new(Mixed::new(drafter, source));
        let drafter: Box<dyn Drafter> = match draft {
            Draft::None => return None,
            Draft::Auto if !pays => return None,
            Draft::Auto => match (dspark(), mtp()) {
                (Some(drafter), _) => mixed(drafter, "copy, dspark"),
                (None, Some(drafter)) => mixed(drafter, "copy, mtp"),
                (None, None) => Box::new(Copying::default()),
            },
            Draft::Dspark => dspark()?,
            Draft::Mtp => mtp()?,
            Draft::Copy => Box::new(Copying::default()),
        };
        Some(Speculator::with(drafter, length))
    }

    pub(crate) fn with(drafter: Box<dyn Drafter>, length: DraftLength) -> Self {
        let report = Speculation { source: drafter.source(), ..Speculation::default() };
        Speculator { drafter, length: VerifyLength::new(length), report }
    }

    /// A generation begins, whose first token was chosen.
    fn begin(&mut self, prompt: &[TokenId], first: TokenId, draws: Option<Draws>) {
        self.drafter.draw(draws);
        self.report = Speculation { source: self.drafter.source(), ..Speculation::default() };
        self.drafter.begin(prompt);
        self.drafter.take_in(&[first]);
    }

    /// A pass over the last token and at most so many drafts. Returns the last token chosen.
    fn round(
        &mut self,
        sequence: &mut Sequence<'_>,
        anchor: TokenId,
        most: usize,
        choose: &mut Choose<'_>,
    ) -> Result<TokenId, EngineError> {
        let began = Instant::now();
        let proposal = self.drafter.propose(sequence, MOST_DRAFTS.min(most))?;
        let verified = self.length.choose(&proposal, began.elapsed());
        let drafts = &proposal.tokens[..verified];
        let rows = [&[anchor], drafts].concat();
        let vocabulary = sequence.vocabulary();
        let drafted = Instant::now();
        let logits = sequence.decode(&rows)?;
        let verified_at = Instant::now();
        self.length.observe(rows.len(), verified_at - drafted);
        let chosen = choose_rows(&logits[..rows.len() * vocabulary], vocabulary, &proposal, choose);
        sequence.accept(chosen.len());
        let accepted = chosen.iter().zip(drafts).take_while(|(a, b)| a == b).count();
        self.report.count(verified, accepted, chosen.len());
        let seconds = (verified_at - began).as_secs_f64();
        let one_row = self.length.one_row();
        self.drafter.learn(&Outcome { verified, accepted, seconds, one_row });
        self.drafter.take_in(&chosen);
        let times = &mut self.report.times;
        times.draft += drafted - began;
        times.verify += verified_at - drafted;
        let chose = Instant::now();
        times.accept += chose - verified_at;
        for (name, start, end, tokens) in [
            ("draft", began, drafted, proposal.tokens.len()),
            ("verify", drafted, verified_at, rows.len()),
            ("accept", verified_at, chose, chosen.len()),
        ] {
            sequence.engine.trace.add(Span { name, start, took: end - start, tokens });
        }
        Ok(chosen.last().copied().unwrap_or(anchor))
    }
}

impl Engine {
    /// Chooses where the drafts of later generations come from. What was learned of passes is forgotten.
    pub fn set_draft(&mut self, draft: Draft, length: DraftLength) {
        let trained = Trained { dspark: self.draft_head.as_ref(), mtp: self.further.is_some() };
        self.speculator = Speculator::new(draft, length, self.backend(), trained);
    }

    /// Chooses what trained drafters propose in later generations.
    pub fn set_proposals(&mut self, proposals: Proposals) {
        self.options.proposals = proposals;
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
        let draws = match self.options().proposals {
            Proposals::Likeliest => None,
            Proposals::Drawn => sampler.draws(),
        };
        speculator.begin(&request.prompt, first, draws);
        let mut finish = None;
        let mut failed = None;
        while finish.is_none() && failed.is_none() {
            let mut sequence = self.sequence();
            // The last token of all is not taken in.
            let left = limit - output.tokens.len() - 1;
            let room = context.saturating_sub(sequence.tokens().len() + 1);
            let mut choose = |logits: &[f32], drawn: Option<(TokenId, &Distribution)>| {
                let token = match drawn {
                    Some((draft, from)) => sampler.choose(logits, draft, from),
                    None => sampler.sample(logits),
                };
                finish = output.take(token, limit, request, on_event);
                (token, finish.is_some())
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
