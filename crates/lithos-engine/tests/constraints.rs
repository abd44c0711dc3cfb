//! Answers that follow a form: the same with drafts and without, valid, and ended where the form is complete.

mod support;

use lithos_engine::{
    Completion, Draft, DraftLength, Engine, EngineError, FinishReason, Form, Fusion, Request,
    Sampling,
};
use lithos_model::text::TemplateOptions;
use serde_json::{Value, json};
use support::{cpu, repository};

fn open() -> Engine {
    Engine::open(&repository().join("models/lithos-mini"), cpu(Fusion::Step)).expect("opens")
}

fn request(engine: &Engine, sampling: &Sampling, form: &Form) -> Request {
    let messages =
        json!([{"role": "user", "content": "Tell me of a person, a person and a person."}]);
    let text = engine.text().expect("has text");
    let prompt = text.encode_chat(&messages, None, &TemplateOptions::default()).expect("encodes");
    Request {
        sampling: sampling.clone(),
        max_tokens: Some(300),
        constraint: Some(engine.constraint(form).expect("compiles")),
        ..Request::new(prompt)
    }
}

fn complete(engine: &mut Engine, request: &Request) -> Completion {
    engine.generate(request, &mut |_| ()).expect("generates")
}

fn settings() -> [Sampling; 3] {
    let warm = Sampling { temperature: 1.0, seed: Some(5), ..Sampling::greedy() };
    let narrow = Sampling { top_k: 20, top_p: 0.9, repetition_penalty: 1.1, ..warm.clone() };
    [Sampling::greedy(), warm, narrow]
}

/// Answers without drafts and with copies; asserts that they are the same, and returns the text of one that came to its end.
fn answer(engine: &mut Engine, sampling: &Sampling, form: &Form) -> String {
    let request = request(engine, sampling, form);
    engine.set_draft(Draft::None, DraftLength::Auto);
    let plain = complete(engine, &request);
    engine.set_draft(Draft::Copy, DraftLength::Auto);
    let drafted = complete(engine, &request);
    assert_eq!(drafted.tokens, plain.tokens, "{form:?}, {sampling:?}");
    assert_eq!(drafted.text, plain.text);
    assert_eq!(plain.finish, FinishReason::Stop, "{form:?}, {sampling:?}: {:?}", plain.text);
    assert_eq!(drafted.finish, plain.finish);
    plain.text
}

fn json_answer(engine: &mut Engine, sampling: &Sampling, schema: Value) -> Value {
    let text = answer(engine, sampling, &Form::JsonSchema(schema));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn answers_are_valid_against_their_schema() {
    let mut engine = open();
    for sampling in settings() {
        let person = json!({
            "type": "object",
            "properties": {
                "name": {"type": "string", "maxLength": 20},
                "age": {"type": "integer", "minimum": 0, "maximum": 130},
                "colour": {"enum": ["red", "green", "blue"]},
                "likes": {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 3}
            },
            "required": ["name", "age", "colour", "likes"],
            "additionalProperties": false
        });
        let found = json_answer(&mut engine, &sampling, person);
        let keys: Vec<&str> =
            found.as_object().expect("an object").keys().map(String::as_str).collect();
        assert_eq!(keys, ["name", "age", "colour", "likes"]);
        assert!(found["name"].as_str().expect("a text").chars().count() <= 20, "{found}");
        assert!(found["age"].as_u64().expect("a number") <= 130, "{found}");
        assert!(["red", "green", "blue"].contains(&found["colour"].as_str().expect("a text")));
        let likes = found["likes"].as_array().expect("a list");
        assert!((2..=3).contains(&likes.len()) && likes.iter().all(Value::is_boolean), "{found}");

        let nested = json!({
            "$defs": {"point": {
                "type": "object",
                "properties": {"x": {"type": "integer", "minimum": 0, "maximum": 99}, "y": {"const": 7}},
                "required": ["x", "y"],
                "additionalProperties": false
            }},
            "type": "array",
            "items": {"$ref": "#/$defs/point"},
            "minItems": 2,
            "maxItems": 2
        });
        let found = json_answer(&mut engine, &sampling, nested);
        let points = found.as_array().expect("a list");
        assert_eq!(points.len(), 2);
        for point in points {
            assert!(point["x"].as_u64().expect("a number") <= 99 && point["y"] == 7, "{found}");
        }
    }
}

#[test]
fn expressions_and_grammars_are_followed() {
    let mut engine = open();
    for sampling in settings() {
        let date = Form::Regex("[0-9]{4}-[01][0-9]".into());
        let text = answer(&mut engine, &sampling, &date);
        assert!(text.len() == 7 && text.as_bytes()[4] == b'-', "{text}");
        let sum = Form::Lark("start: NUMBER \" + \" NUMBER\nNUMBER: /[1-9][0-9]/\n".into());
        let text = answer(&mut engine, &sampling, &sum);
        let (left, right) = text.split_once(" + ").expect("a sum");
        assert!(left.len() == 2 && right.len() == 2, "{text}");
    }
}

#[test]
fn a_complete_form_ends_the_answer_before_the_limit() {
    let mut engine = open();
    let form = Form::Regex("yes".into());
    let first = request(&engine, &Sampling::greedy(), &form);
    let whole = complete(&mut engine, &first);
    assert_eq!((whole.text.as_str(), whole.finish), ("yes", FinishReason::Stop));
    // With just enough tokens it is complete too, and with one fewer it is cut off.
    let exact = Request { max_tokens: Some(whole.tokens.len()), ..first.clone() };
    assert_eq!(complete(&mut engine, &exact).finish, FinishReason::Stop);
    let long = request(&engine, &Sampling::greedy(), &Form::Regex("[a-z]{200}".into()));
    let cut = complete(&mut engine, &Request { max_tokens: Some(3), ..long });
    assert_eq!((cut.finish, cut.tokens.len()), (FinishReason::Length, 3));
}

#[test]
fn forms_that_cannot_be_compiled_are_refused_in_one_line() {
    let engine = open();
    for form in [
        Form::Regex("(".into()),
        Form::Lark("start: missing".into()),
        Form::JsonSchema(json!({"type": "colour"})),
        Form::JsonSchema(json!({"$ref": "https://example.com/schema"})),
    ] {
        let error = engine.constraint(&form).expect_err("cannot be compiled");
        assert!(matches!(error, EngineError::Constraint(_)) && error.is_bad_request());
        let line = error.to_string();
        assert!(line.contains(form.kind()) && line.lines().count() == 1, "{line}");
    }
}
