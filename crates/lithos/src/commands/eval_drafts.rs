//! What `lithos eval` says of a model's own drafter: tokens of a round, and how far drafts are accepted.

use lithos_engine::{DraftLength, Engine, MOST_DRAFTS, Request, Sampling, Speculation};
use serde_json::{Value, json};

use crate::table::align;
use crate::{output, prompts};

/// What became of all drafts, by kind of prompt.
pub struct Drafts {
    tokens: usize,
    kinds: Vec<(&'static str, Speculation)>,
}

/// A drafter's drafts are all verified, so that they are measured, not the machine: as many a round as it makes.
pub const LENGTH: DraftLength = DraftLength::Fixed(MOST_DRAFTS);

/// Answers the prompts of `bench/prompts` greedily, with at most `tokens` tokens each. The engine must be open with a drafter and
/// [`LENGTH`].
///
/// # Errors
/// One line with the cause, if a prompt cannot be written or answered.
pub fn measure(engine: &mut Engine, tokens: usize) -> anyhow::Result<Drafts> {
    let questions = prompts::questions(engine.text()?)?;
    let count = questions.iter().map(|questions| questions.prompts.len()).sum();
    let progress = output::bar("answering", count, "prompts");
    let mut kinds = Vec::new();
    for prompts::Questions { kind, prompts } in questions {
        let mut speculation = Speculation::default();
        for prompt in prompts {
            let request = Request {
                max_tokens: Some(tokens),
                sampling: Sampling::greedy(),
                ..Request::new(prompt)
            };
            let completion = engine.generate(&request, &mut |_| ())?;
            speculation.add(&completion.speculation.unwrap_or_default());
            progress.inc(1);
        }
        kinds.push((kind, speculation));
    }
    progress.finish_and_clear();
    Ok(Drafts { tokens, kinds })
}

impl Drafts {
    /// The mean of the kinds' tokens a round, each kind counting alike.
    fn mean_of_kinds(&self) -> f64 {
        let sum: f64 = self.kinds.iter().map(|(_, drafts)| drafts.tokens_per_round()).sum();
        sum / self.kinds.len().max(1) as f64
    }

    fn all(&self) -> Speculation {
        let mut all = Speculation::default();
        self.kinds.iter().for_each(|(_, drafts)| all.add(drafts));
        all
    }

    /// The share of rounds that accepted the first draft, the second, and so on.
    fn shares(drafts: &Speculation) -> Vec<f64> {
        let rounds = drafts.rounds.max(1) as f64;
        drafts.accepted_by_position.iter().map(|accepted| *accepted as f64 / rounds).collect()
    }

    /// A table.
    pub fn table(&self) -> String {
        let all = self.all();
        let places = Drafts::shares(&all).len();
        let heading = |place: usize| format!("draft {place}");
        let mut rows = vec![["drafts", "tokens a round"].map(str::to_owned).to_vec()];
        rows[0].extend((1..=places).map(heading));
        for (name, drafts) in self.kinds.iter().map(|(name, it)| (*name, it)).chain([("all", &all)])
        {
            let mut shares = Drafts::shares(drafts);
            shares.resize(places, 0.0);
            let figures = [name.to_owned(), format!("{:.2}", drafts.tokens_per_round())];
            let shares = shares.into_iter().map(|share| format!("{share:.2}"));
            rows.push(figures.into_iter().chain(shares).collect());
        }
        format!(
            "greedy answers to the same prompts, of at most {} tokens, with all drafts of {} verified; the share of rounds that accept each\n\n{}\nmean of the kinds: {:.2} tokens a round\n",
            self.tokens,
            all.source,
            align(&rows, 1),
            self.mean_of_kinds()
        )
    }

    /// An object.
    pub fn json(&self) -> Value {
        let figures = |drafts: &Speculation| {
            let mut value = json!(drafts);
            value["acceptance_by_position"] = json!(Drafts::shares(drafts));
            value
        };
        let kind = |(name, drafts): &(&str, Speculation)| {
            let mut value = figures(drafts);
            value["name"] = json!(name);
            value
        };
        json!({
            "answer_tokens": self.tokens,
            "kinds": self.kinds.iter().map(kind).collect::<Vec<_>>(),
            "all": figures(&self.all()),
            "mean_of_kinds": self.mean_of_kinds(),
        })
    }
}
