//! `lithos bench --speculate`: answers to the prompts of `bench/prompts` with and without drafts, in alternation.

use std::path::Path;
use std::time::Duration;

use anyhow::bail;
use lithos_engine::{Completion, Draft, Engine, EngineOptions, Request, Speculation, TokenId};
use serde_json::{Value, json};

use crate::model::{self, Given};
use crate::prompts;
use crate::statistics::Spread;
use crate::table::align;
use crate::trace::TraceFile;
use crate::{memory, output};

/// What to measure.
pub struct Comparison<'a> {
    /// The model.
    pub model: Given<'a>,
    /// The directory of its drafter, if one was named.
    pub drafter: Option<&'a Path>,
    /// How it is opened.
    pub options: EngineOptions,
    /// Where to write what the engine with drafts did when.
    pub trace: Option<TraceFile>,
    /// Tokens of an answer at most.
    pub tokens: usize,
    /// How often every prompt is answered in each way.
    pub repeats: usize,
}

/// The model twice.
struct Engines {
    plain: Engine,
    drafted: Engine,
}

/// The prompts of one kind, and how they were answered.
struct Kind {
    name: &'static str,
    prompts: Vec<Vec<TokenId>>,
    /// Of each repeat.
    turns: Vec<Turn>,
    speculation: Speculation,
}

/// All prompts of a kind, answered once in each way.
#[derive(Clone, Copy, Default)]
struct Turn {
    tokens: usize,
    /// From the prompt to the last token, without drafts and with them.
    plain: Duration,
    drafted: Duration,
}

impl Turn {
    fn plain_per_second(&self) -> f64 {
        self.tokens as f64 / self.plain.as_secs_f64()
    }

    fn drafted_per_second(&self) -> f64 {
        self.tokens as f64 / self.drafted.as_secs_f64()
    }

    fn ratio(&self) -> f64 {
        self.plain.as_secs_f64() / self.drafted.as_secs_f64()
    }
}

/// Measures and returns what to print: a table, or an object of JSON.
///
/// # Errors
/// One line with the cause; among them that an answer with drafts is another one, which must never be.
pub fn run(mut comparison: Comparison<'_>, as_json: bool) -> anyhow::Result<String> {
    // Two engines: a pass of one with a drafter also keeps the drafter's context.
    let options = comparison.options;
    let plain = EngineOptions { draft: Draft::None, ..options };
    let plain = model::open(comparison.model, None, plain)?.engine;
    memory::check_more(&plain, 1, "answering with drafts, too,")?;
    let mut drafted = model::open(comparison.model, comparison.drafter, options)?.engine;
    let trace = comparison.trace.take();
    drafted.set_trace(trace.is_some());
    let comparison = &comparison;
    let mut engines = Engines { plain, drafted };
    let mut kinds = kinds(&engines.plain)?;
    let answers: usize = kinds.iter().map(|kind| kind.prompts.len()).sum();
    let progress = output::bar("answering", answers * comparison.repeats, "prompts");
    for repeat in 0..comparison.repeats {
        for kind in &mut kinds {
            let mut turn = Turn::default();
            for index in 0..kind.prompts.len() {
                let drafted_first = (repeat + index) % 2 == 1;
                let prompt = kind.prompts[index].clone();
                let report = answer(&mut engines, comparison, prompt, drafted_first, &mut turn)?;
                kind.speculation.add(&report);
                progress.inc(1);
            }
            if progress.is_hidden() {
                output::line(&format!(
                    "repeat {} of {}, {}: {:.1} tokens/s without drafts, {:.1} with",
                    repeat + 1,
                    comparison.repeats,
                    kind.name,
                    turn.plain_per_second(),
                    turn.drafted_per_second()
                ));
            }
            kind.turns.push(turn);
        }
    }
    progress.finish_and_clear();
    if let Some(trace) = trace {
        trace.write(&engines.drafted.take_trace())?;
    }
    let report = Report { engine: &engines.drafted, comparison, kinds: &kinds };
    Ok(if as_json { format!("{}\n", report.json()) } else { report.table() })
}

fn kinds(engine: &Engine) -> anyhow::Result<Vec<Kind>> {
    let kind = |prompts::Questions { kind, prompts }| Kind {
        name: kind,
        prompts,
        turns: Vec::new(),
        speculation: Speculation::default(),
    };
    Ok(prompts::questions(engine.text()?)?.into_iter().map(kind).collect())
}

/// Answers a prompt in both ways, and compares the answers.
fn answer(
    engines: &mut Engines,
    comparison: &Comparison<'_>,
    prompt: Vec<TokenId>,
    drafted_first: bool,
    turn: &mut Turn,
) -> anyhow::Result<Speculation> {
    let request = Request { max_tokens: Some(comparison.tokens), ..Request::new(prompt) };
    let [mut plain, mut drafted] = [None, None];
    for with_drafts in [drafted_first, !drafted_first] {
        let engine = if with_drafts { &mut engines.drafted } else { &mut engines.plain };
        let completion = engine.generate(&request, &mut |_| ())?;
        *if with_drafts { &mut drafted } else { &mut plain } = Some(completion);
    }
    let (Some(plain), Some(drafted)) = (plain, drafted) else { bail!("a prompt was not answered") };
    if plain.tokens != drafted.tokens {
        bail!("an answer with drafts is not the one without: this is a fault of Lithos");
    }
    let took = |completion: &Completion| completion.timings.prefill + completion.timings.decode;
    turn.tokens += plain.tokens.len();
    turn.plain += took(&plain);
    turn.drafted += took(&drafted);
    Ok(drafted.speculation.unwrap_or_default())
}

/// What is shown of the measurements.
struct Report<'a> {
    engine: &'a Engine,
    comparison: &'a Comparison<'a>,
    kinds: &'a [Kind],
}

impl Report<'_> {
    /// All kinds together, repeat by repeat, and what became of all drafts.
    fn all(&self) -> (Vec<Turn>, Speculation) {
        let mut turns = vec![Turn::default(); self.comparison.repeats];
        let mut speculation = Speculation::default();
        for kind in self.kinds {
            for (sum, turn) in turns.iter_mut().zip(&kind.turns) {
                sum.tokens += turn.tokens;
                sum.plain += turn.plain;
                sum.drafted += turn.drafted;
            }
            speculation.add(&kind.speculation);
        }
        (turns, speculation)
    }

    fn table(&self) -> String {
        let (turns, speculation) = self.all();
        let mut out = format!(
            "{}, {}\nprompts of bench/prompts, greedy answers of at most {} tokens, {} repeats; drafts: {}; the answers are the same\n\n",
            self.engine.name(),
            self.engine.describe_backend(),
            self.comparison.tokens,
            self.comparison.repeats,
            if speculation.source.is_empty() { "none" } else { speculation.source },
        );
        let header = ["prompts", "tokens/s without", "with drafts", "ratio", "tokens a round"];
        let mut rows = vec![header.map(str::to_owned).to_vec()];
        let lines = self.kinds.iter().map(|kind| (kind.name, &kind.turns, &kind.speculation));
        for (name, turns, speculation) in lines.chain([("all", &turns, &speculation)]) {
            let of = |value: fn(&Turn) -> f64| Spread::of(turns.iter().map(value));
            let shown = |spread: Option<Spread>, digits: usize| match spread {
                Some(spread) => format!("{spread:.digits$}"),
                None => "-".to_owned(),
            };
            rows.push(vec![
                name.to_owned(),
                shown(of(Turn::plain_per_second), 1),
                shown(of(Turn::drafted_per_second), 1),
                shown(of(Turn::ratio), 2),
                format!("{:.2}", speculation.tokens_per_round()),
            ]);
        }
        out += &align(&rows, 1);
        let Speculation { rounds, proposed, accepted, times, .. } = &speculation;
        let each = |time: Duration| time.as_secs_f64() * 1e6 / (*rounds).max(1) as f64;
        out += &format!(
            "\n{rounds} rounds verified {proposed} drafts and accepted {accepted}; a round took {:.0} us to draft, {:.0} us to verify, {:.0} us to choose and accept\n",
            each(times.draft),
            each(times.verify),
            each(times.accept)
        );
        out
    }

    fn json(&self) -> Value {
        let (turns, speculation) = self.all();
        let kind = |name: &str, turns: &[Turn], speculation: &Speculation| {
            let turn = |turn: &Turn| {
                json!({
                    "tokens": turn.tokens,
                    "plain_s": turn.plain.as_secs_f64(),
                    "drafted_s": turn.drafted.as_secs_f64(),
                })
            };
            json!({
                "prompts": name,
                "repeats": turns.iter().map(turn).collect::<Vec<_>>(),
                "ratio": Spread::of(turns.iter().map(Turn::ratio)).map(|spread| spread.median),
                "speculation": speculation,
            })
        };
        let kinds = self.kinds.iter().map(|it| kind(it.name, &it.turns, &it.speculation));
        json!({
            "model": self.engine.name(),
            "backend": self.engine.backend().name(),
            "processor": self.engine.describe_backend(),
            "answer_tokens": self.comparison.tokens,
            "kinds": kinds.collect::<Vec<_>>(),
            "all": kind("all", &turns, &speculation),
        })
    }
}
