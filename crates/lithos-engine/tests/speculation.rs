//! Drafts change how many passes a text takes, and never the text.

mod support;

use lithos_engine::{
    Cancel, Completion, Draft, DraftLength, Drafter, Engine, EngineError, Event, FinishReason,
    Fusion, MOST_DRAFTS, Outcome, Proposal, Request, Sampling, Sequence, TokenId,
};
use lithos_model::text::{SpecialTokens, TemplateOptions};
use support::{cpu, repository};

fn open() -> Engine {
    Engine::open(&repository().join("models/lithos-mini"), cpu(Fusion::Step)).expect("opens")
}

fn complete(engine: &mut Engine, request: &Request) -> Completion {
    engine.generate(request, &mut |_| ()).expect("generates")
}

fn tokens(engine: &Engine, text: &str) -> Vec<TokenId> {
    let tokenizer = engine.text().expect("has text").tokenizer();
    tokenizer.encode(text, SpecialTokens::AsText).expect("encodes")
}

/// A conversation that asks for its own words, so that copies are found.
fn prompt(engine: &Engine) -> Vec<TokenId> {
    let question =
        "Repeat this: The quick brown fox jumps over the lazy dog, and the dog sleeps on.";
    let messages = serde_json::json!([{"role": "user", "content": question}]);
    let text = engine.text().expect("has text");
    text.encode_chat(&messages, None, &TemplateOptions::default()).expect("encodes")
}

fn settings() -> Vec<Sampling> {
    let warm = Sampling { temperature: 0.9, seed: Some(5), ..Sampling::greedy() };
    vec![
        Sampling::greedy(),
        Sampling { repetition_penalty: 1.3, frequency_penalty: 0.2, ..Sampling::greedy() },
        Sampling { logit_bias: vec![(TokenId(700), 3.0)], presence_penalty: 0.5, ..warm.clone() },
        Sampling { top_k: 8, top_p: 0.9, min_p: 0.02, ..warm },
    ]
}

/// Proposes what it was told to: the text that will follow, with every draft from the `wrong`-th on changed.
struct Scripted {
    text: Vec<TokenId>,
    at: usize,
    prompt: usize,
    /// How many drafts of a round are right; drawn anew each round if `None`.
    right: Option<usize>,
    state: u64,
}

impl Scripted {
    fn new(prompt: usize, text: &[TokenId], right: Option<usize>) -> Box<Self> {
        Box::new(Scripted { text: text.to_vec(), at: 0, prompt, right, state: 7 })
    }
}

impl Drafter for Scripted {
    fn source(&self) -> &'static str {
        "scripted"
    }

    fn begin(&mut self, tokens: &[TokenId]) {
        assert_eq!(tokens.len(), self.prompt, "a generation begins with its prompt");
        self.at = 0;
    }

    fn take_in(&mut self, tokens: &[TokenId]) {
        assert_eq!(tokens, &self.text[self.at..self.at + tokens.len()], "what was chosen");
        self.at += tokens.len();
    }

    fn propose(&mut self, _: &mut Sequence<'_>, most: usize) -> Result<Proposal, EngineError> {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let right = self.right.unwrap_or((self.state >> 33) as usize % 9);
        let follows = self.text[self.at..].iter().copied().chain(std::iter::repeat(TokenId(3)));
        let tokens: Vec<TokenId> = follows
            .take(most)
            .enumerate()
            .map(|(place, token)| if place < right { token } else { TokenId(token.0 ^ 1) })
            .collect();
        Ok(Proposal { survival: vec![0.9; tokens.len()], tokens, ..Proposal::default() })
    }

    fn learn(&mut self, outcome: &Outcome) {
        assert!(outcome.accepted <= outcome.verified && outcome.verified <= MOST_DRAFTS);
    }
}

#[test]
fn the_text_is_that_without_drafts() {
    let mut engine = open();
    for sampling in settings() {
        let prompt = prompt(&engine);
        let length = prompt.len();
        let request =
            Request { sampling, max_tokens: Some(41), ignore_end: true, ..Request::new(prompt) };
        engine.set_draft(Draft::None, DraftLength::Auto);
        let plain = complete(&mut engine, &request);
        assert!(plain.speculation.is_none());
        let check = |engine: &mut Engine, drafts: &str| {
            let drafted = complete(engine, &request);
            assert_eq!(drafted.tokens, plain.tokens, "{drafts}, {request:?}");
            assert_eq!(drafted.text, plain.text);
            assert_eq!(drafted.finish, plain.finish);
            let report = drafted.speculation.expect("there is a drafter");
            assert_eq!(report.tokens, 40, "the first token is the prompt's");
            assert_eq!(report.tokens, report.rounds + report.accepted, "{report:?}");
            assert_eq!(report.verify_len_hist.iter().sum::<u64>(), report.rounds);
            assert_eq!(report.accepted_by_position.iter().sum::<u64>(), report.accepted);
            report
        };
        for length in [DraftLength::Fixed(3), DraftLength::Fixed(15), DraftLength::Auto] {
            engine.set_draft(Draft::Copy, length);
            check(&mut engine, &format!("copies, {length:?}"));
        }
        // Always right, always wrong, right for exactly some, and any of these.
        for right in [Some(MOST_DRAFTS), Some(0), Some(4), None] {
            let drafter = Scripted::new(length, &plain.tokens, right);
            engine.set_drafter(drafter, DraftLength::Fixed(8));
            let report = check(&mut engine, &format!("{right:?} of 8 right"));
            match right {
                Some(0) => assert_eq!((report.accepted, report.rounds), (0, 40)),
                Some(4) => assert_eq!(report.rounds, 8, "{report:?}"),
                Some(_) => assert_eq!(report.rounds, 5, "{report:?}"),
                None => assert!(report.accepted > 0),
            }
        }
    }
}

#[test]
fn limits_and_the_context_hold_within_a_pass() {
    let mut engine = open();
    // A bias makes the model say the same token again and again.
    let sampling = Sampling { logit_bias: vec![(TokenId(900), 90.0)], ..Sampling::greedy() };
    let start = tokens(&engine, "The dog ran");
    engine.set_draft(Draft::Copy, DraftLength::Fixed(15));
    for limit in 1..40 {
        let request = Request {
            sampling: sampling.clone(),
            max_tokens: Some(limit),
            ignore_end: true,
            ..Request::new(start.clone())
        };
        let completion = complete(&mut engine, &request);
        assert_eq!((completion.tokens.len(), completion.finish), (limit, FinishReason::Length));
        let report = completion.speculation;
        assert!(report.is_none_or(|report| report.rounds <= 5), "sixteen tokens a pass");
    }
    // 512 positions, of which the prompt has 500: one token more than there is room for.
    let prompt: Vec<TokenId> = start.iter().copied().cycle().take(500).collect();
    let request = Request { sampling, ignore_end: true, ..Request::new(prompt) };
    let drafted = complete(&mut engine, &request);
    engine.set_draft(Draft::None, DraftLength::Auto);
    assert_eq!(drafted.tokens, complete(&mut engine, &request).tokens);
    assert_eq!(drafted.tokens.len(), 13);
}

#[test]
fn an_end_within_a_pass_ends_the_text_there() {
    let mut engine = open();
    let request = Request { max_tokens: Some(200), ..Request::new(prompt(&engine)) };
    let plain = complete(&mut engine, &request);
    assert_eq!(plain.finish, FinishReason::Stop, "{}", plain.text);
    let longer = [&plain.tokens[..], &[TokenId(11); 20]].concat();
    let stop = plain.text.split_whitespace().nth(3).expect("four words").to_owned();
    for stop in [Vec::new(), vec![stop]] {
        let request = Request { stop, ..request.clone() };
        engine.set_draft(Draft::None, DraftLength::Auto);
        let plain = complete(&mut engine, &request);
        let drafter = Scripted::new(request.prompt.len(), &longer, Some(MOST_DRAFTS));
        engine.set_drafter(drafter, DraftLength::Fixed(15));
        let drafted = complete(&mut engine, &request);
        assert_eq!((drafted.tokens, drafted.text), (plain.tokens, plain.text));
        assert_eq!(drafted.finish, FinishReason::Stop);
    }
}

#[test]
fn a_prompt_that_goes_on_from_a_kept_prefix_gives_the_same_text() {
    let mut engine = open();
    let question = prompt(&engine);
    let long: Vec<TokenId> = question.iter().copied().cycle().take(320).collect();
    let first =
        Request { max_tokens: Some(30), ignore_end: true, reuse: true, ..Request::new(long) };
    engine.set_draft(Draft::Copy, DraftLength::Fixed(6));
    let answer = complete(&mut engine, &first).tokens;
    let mut again = [&first.prompt[..], &answer].concat();
    again.extend(tokens(&engine, " And then"));
    let second = Request { prompt: again, ..first };
    let reused = complete(&mut engine, &second);
    assert!(reused.reused_tokens >= 256, "{}", reused.reused_tokens);
    engine.set_draft(Draft::None, DraftLength::Auto);
    let afresh = complete(&mut engine, &Request { reuse: false, ..second });
    assert_eq!(reused.tokens, afresh.tokens);
}

#[test]
fn a_cancelled_generation_leaves_the_engine_as_good_as_new() {
    let mut engine = open();
    let request =
        Request { max_tokens: Some(50), ignore_end: true, ..Request::new(prompt(&engine)) };
    let whole = complete(&mut engine, &request).tokens;
    engine.set_draft(Draft::Copy, DraftLength::Fixed(8));
    let (cancel, mut pieces) = (request.cancel.clone(), 0);
    let completion = engine
        .generate(&request, &mut |event| {
            pieces += usize::from(matches!(event, Event::Text(_)));
            if pieces == 5 {
                cancel.cancel();
            }
        })
        .expect("generates");
    assert_eq!(completion.finish, FinishReason::Cancelled);
    assert!(whole.starts_with(&completion.tokens) && completion.tokens.len() < 50);
    let again = Request { cancel: Cancel::default(), ..request };
    assert_eq!(complete(&mut engine, &again).tokens, whole);
}
