//! Answers that follow a form: the same with drafts and without, valid, and ended where the form is complete.

mod support;

use lithos_engine::{
    Completion, ConstraintError, Draft, DraftLength, Engine, EngineError, EngineOptions,
    FinishReason, Form, Fusion, Proposals, Request, Sampler, Sampling,
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

/// A schema, and whether a value is valid against it.
type Case = (Value, fn(&Value) -> bool);

fn texts(value: &Value, most: usize) -> Option<&str> {
    value.as_str().filter(|text| text.chars().count() <= most)
}

fn within(value: &Value, low: f64, high: f64) -> bool {
    value.as_f64().is_some_and(|number| (low..=high).contains(&number))
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().map(|map| map.keys().map(String::as_str).collect()).unwrap_or_default()
}

fn cases() -> Vec<Case> {
    vec![
        (json!({"type": "boolean"}), Value::is_boolean),
        (json!({"type": "integer", "minimum": -5, "maximum": 130}), |v| {
            v.is_i64() && within(v, -5.0, 130.0)
        }),
        (json!({"type": "number", "exclusiveMinimum": 0, "maximum": 2.5}), |v| {
            within(v, f64::MIN_POSITIVE, 2.5)
        }),
        (json!({"enum": ["red", 3, null, {"a": [1]}]}), |v| {
            [json!("red"), json!(3), Value::Null, json!({"a": [1]})].contains(v)
        }),
        (json!({"type": "string", "maxLength": 12}), |v| texts(v, 12).is_some()),
        (json!({"type": "string", "pattern": "^[0-9]{2}-[a-z]{3}$"}), |v| {
            let bytes = v.as_str().expect("a text").as_bytes();
            bytes.len() == 6 && bytes[2] == b'-' && bytes[..2].iter().all(u8::is_ascii_digit)
        }),
        (json!({"const": "Grüße, 世界 🦀"}), |v| v == "Grüße, 世界 🦀"),
        (
            json!({"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 9}, "minItems": 2, "maxItems": 4}),
            |v| {
                let items = v.as_array().expect("a list");
                (2..=4).contains(&items.len()) && items.iter().all(|item| within(item, 0.0, 9.0))
            },
        ),
        (
            json!({"type": "object", "properties": {
                "name": {"type": "string", "maxLength": 20},
                "colour": {"enum": ["red", "green"]},
                "age": {"type": "integer", "minimum": 0, "maximum": 130}
            }, "required": ["name"], "additionalProperties": false}),
            |v| {
                texts(&v["name"], 20).is_some()
                    && keys(v).iter().all(|key| ["name", "colour", "age"].contains(key))
                    && v.get("age").is_none_or(|age| within(age, 0.0, 130.0))
                    && v.get("colour").is_none_or(|c| c == "red" || c == "green")
            },
        ),
        (
            json!({"$defs": {"point": {"type": "object", "properties": {
                "x": {"type": "integer", "minimum": 0, "maximum": 99}, "y": {"const": 7}
            }, "required": ["x", "y"], "additionalProperties": false}},
            "type": "array", "items": {"$ref": "#/$defs/point"}, "minItems": 2, "maxItems": 2}),
            |v| {
                let points = v.as_array().expect("a list");
                points.len() == 2
                    && points
                        .iter()
                        .all(|p| keys(p) == ["x", "y"] && within(&p["x"], 0.0, 99.0) && p["y"] == 7)
            },
        ),
        (
            json!({"anyOf": [{"type": "null"}, {"type": "object", "properties": {"ok": {"type": "boolean"}},
                "required": ["ok"], "additionalProperties": false}]}),
            |v| v.is_null() || (keys(v) == ["ok"] && v["ok"].is_boolean()),
        ),
        (
            json!({"$defs": {"tree": {"type": "object", "properties": {
                "leaf": {"type": "boolean"}, "left": {"anyOf": [{"$ref": "#/$defs/tree"}, {"type": "null"}]}
            }, "required": ["leaf", "left"], "additionalProperties": false}}, "$ref": "#/$defs/tree"}),
            |v| {
                let mut node = v;
                while !node.is_null() {
                    if keys(node) != ["leaf", "left"] || !node["leaf"].is_boolean() {
                        return false;
                    }
                    node = &node["left"];
                }
                true
            },
        ),
        (
            json!({"type": "object", "additionalProperties": false, "properties": {"a\"b\n": {"const": "\u{1f600}\\"}},
                "required": ["a\"b\n"]}),
            |v| keys(v) == ["a\"b\n"] && v["a\"b\n"] == "\u{1f600}\\",
        ),
    ]
}

#[test]
fn answers_are_valid_against_their_schema() {
    let mut engine = open();
    // At such a temperature all that is allowed is about as likely: a model that knows nothing.
    let blind = Sampling { temperature: 100.0, seed: Some(3), ..Sampling::greedy() };
    for (schema, valid) in cases() {
        for sampling in settings().into_iter().chain([blind.clone()]) {
            let found = json_answer(&mut engine, &sampling, schema.clone());
            assert!(valid(&found), "{schema}: {found}");
        }
    }
}

#[test]
fn drafts_that_are_drawn_are_held_to_the_form() {
    let options = EngineOptions { draft: Draft::Dspark, ..cpu(Fusion::Step) };
    let mut engine =
        Engine::open(&repository().join("models/lithos-mini"), options).expect("opens");
    engine.set_proposals(Proposals::Drawn);
    engine.set_draft(Draft::Dspark, DraftLength::Fixed(3));
    let mut complete_ones = 0;
    for (schema, valid) in cases() {
        for seed in 0..3 {
            let sampling = Sampling { temperature: 1.0, seed: Some(seed), ..Sampling::greedy() };
            let request = request(&engine, &sampling, &Form::JsonSchema(schema.clone()));
            let answer = complete(&mut engine, &request);
            // A tree may grow past the limit.
            if answer.finish == FinishReason::Length {
                continue;
            }
            complete_ones += 1;
            let found = serde_json::from_str(&answer.text).expect("JSON");
            assert!(valid(&found), "{schema}: {found}");
        }
    }
    assert!(complete_ones >= 30, "{complete_ones} of 39 came to an end");
}

#[test]
fn logits_without_a_number_are_an_error() {
    let engine = open();
    let constraint = engine.constraint(&Form::Regex("[a-z]+".into())).expect("compiles");
    for bad in [f32::NAN, f32::NEG_INFINITY] {
        for sampling in settings() {
            let mut sampler = Sampler::new(sampling, &[]).constrained(Some(constraint.begin()));
            let chosen = sampler.sample(&vec![bad; engine.vocabulary()]);
            assert_eq!(chosen, Err(ConstraintError::NoNumbers));
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
