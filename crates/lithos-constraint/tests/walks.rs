//! Forms over the vocabulary of the built-in model: what they accept, what they refuse, and what cannot be compiled.

use std::path::PathBuf;

use lithos_constraint::{ConstraintError, Form, Grammars, Walk};
use lithos_model::text::{SpecialTokens, TokenId, Tokenizer};
use serde_json::{Value, json};

fn tokenizer() -> Tokenizer {
    let file =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../models/lithos-mini/tokenizer.json");
    Tokenizer::from_file(&file).expect("the tokenizer loads")
}

/// An id for the end of a text: any special token serves.
fn end(tokenizer: &Tokenizer) -> TokenId {
    let ids = (0..tokenizer.vocabulary_size() as u32).map(TokenId);
    ids.into_iter().find(|id| tokenizer.is_special(*id)).expect("there is a special token")
}

/// How many tokens past the vocabulary are padding.
const PADDING: usize = 40;

fn grammars(tokenizer: &Tokenizer) -> Grammars {
    let size = tokenizer.vocabulary_size() + PADDING;
    Grammars::new(tokenizer.clone(), size, vec![end(tokenizer)])
}

/// Walks through a text; `false` at the first token that is not allowed.
fn follows(walk: &mut Walk, tokenizer: &Tokenizer, text: &str) -> bool {
    let tokens = tokenizer.encode(text, SpecialTokens::AsText).expect("encodes");
    tokens.into_iter().all(|token| {
        !walk.is_complete()
            && walk.allowed().expect("goes on").contains(token)
            && walk.take(token).is_ok()
    })
}

/// Whether a text is an answer of this form.
fn accepts(grammars: &Grammars, tokenizer: &Tokenizer, form: &Form, text: &str) -> bool {
    let mut walk = grammars.compile(form).expect("compiles").begin();
    follows(&mut walk, tokenizer, text)
        && (walk.is_complete() || walk.allowed().expect("goes on").contains(end(tokenizer)))
}

#[test]
fn texts_of_the_form_are_accepted_and_others_are_not() {
    let tokenizer = tokenizer();
    let grammars = grammars(&tokenizer);
    let schema = Form::JsonSchema(json!({
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
        "required": ["name"],
        "additionalProperties": false
    }));
    let lark = Form::Lark("start: \"a\"+ \"b\"".into());
    for (form, good, bad) in [
        (&schema, r#"{"name": "Zoë \"Z\"", "age": 4}"#, r#"{"name": 4}"#),
        (&schema, r#"{"name":""}"#, r#"{"age": 4}"#),
        (&Form::JsonObject, r#"{"a": [1, {"b": null}]}"#, "[1]"),
        (&Form::Regex("[a-c]+!".into()), "abcabc!", "abd!"),
        (&lark, "aaab", "aaa"),
    ] {
        assert!(accepts(&grammars, &tokenizer, form, good), "{form:?}: {good}");
        assert!(!accepts(&grammars, &tokenizer, form, bad), "{form:?}: {bad}");
    }
}

#[test]
fn a_form_that_nothing_can_follow_is_complete() {
    let tokenizer = tokenizer();
    let constraint = grammars(&tokenizer).compile(&Form::Regex("done".into())).expect("compiles");
    let mut walk = constraint.begin();
    assert!(!walk.is_complete());
    assert!(follows(&mut walk, &tokenizer, "done") && walk.is_complete());
    // A second answer begins anew.
    assert!(!constraint.begin().is_complete());
}

#[test]
fn padding_and_special_tokens_never_match_text() {
    let tokenizer = tokenizer();
    let size = tokenizer.vocabulary_size();
    let mut walk =
        grammars(&tokenizer).compile(&Form::Regex("(?s:.*)".into())).expect("compiles").begin();
    let allowed = walk.allowed().expect("goes on");
    let mut logits = vec![0.0; size + PADDING + 100];
    allowed.forbid_others(&mut logits);
    for (id, logit) in logits.iter().enumerate() {
        let token = TokenId(id as u32);
        let text = id < size && !tokenizer.is_special(token);
        assert_eq!(allowed.contains(token), *logit == 0.0, "{id}");
        assert!(*logit != 0.0 || text || token == end(&tokenizer), "{id}");
    }
    assert!(allowed.contains(end(&tokenizer)), "the empty text is an answer");
}

#[test]
fn what_cannot_be_compiled_is_refused_in_one_line() {
    let tokenizer = tokenizer();
    let grammars = grammars(&tokenizer);
    let schemas: [Value; 5] = [
        json!("text"),
        json!({"type": "colour"}),
        json!({"type": "object", "dependentSchemas": {"a": {}}}),
        json!({"type": "object", "dependentSchemas": {"a": {}}, "x-guidance": {"lenient": true}}),
        json!({"$ref": "https://example.com/schema.json"}),
    ];
    let mut forms: Vec<Form> = schemas.into_iter().map(Form::JsonSchema).collect();
    forms.extend([
        Form::Regex("(".into()),
        Form::Lark("start: nothing".into()),
        Form::Lark(String::new()),
    ]);
    for form in forms {
        let error = grammars.compile(&form).expect_err(&format!("{form:?}"));
        let line = error.to_string();
        assert!(matches!(error, ConstraintError::Form { .. }), "{line}");
        assert!(line.contains(form.kind()) && line.lines().count() == 1, "{line}");
        assert!(!line.contains('<') || matches!(form, Form::Lark(_)), "{line}");
    }
}

#[test]
fn a_vocabulary_without_an_end_is_refused() {
    let tokenizer = tokenizer();
    let size = tokenizer.vocabulary_size();
    for ends in [vec![], vec![TokenId(size as u32)]] {
        let grammars = Grammars::new(tokenizer.clone(), size, ends);
        let refused = grammars.compile(&Form::JsonObject).expect_err("no end");
        assert!(refused.to_string().contains("ends a text"), "{refused}");
    }
}
