//! Forms that were made to take time, memory or the stack: each is compiled or refused soon.

use std::time::{Duration, Instant};

use lithos_constraint::Form;
use serde_json::{Map, Value, json};

/// What a check may take; on an idle machine the slowest takes a tenth of it.
const SOON: Duration = Duration::from_secs(20);

fn nested(depth: usize) -> Value {
    (0..depth).fold(
        json!({"type": "null"}),
        |inner, _| json!({"type": "object", "properties": {"a": inner}}),
    )
}

fn chain(length: usize) -> Value {
    let mut definitions: Map<String, Value> = (0..length)
        .map(|at| (format!("d{at}"), json!({"$ref": format!("#/$defs/d{}", at + 1)})))
        .collect();
    definitions.insert(format!("d{length}"), json!({"type": "null"}));
    json!({"$ref": "#/$defs/d0", "$defs": definitions})
}

fn many(count: usize) -> Value {
    let properties: Map<String, Value> = (0..count)
        .map(|at| (format!("p{at}"), json!({"type": "string", "pattern": format!("x{at}+")})))
        .collect();
    json!({"type": "object", "properties": properties})
}

#[test]
fn hostile_forms_are_compiled_or_refused_soon() {
    let words: Vec<String> = (0..14_000).map(|at| format!("word {at}")).collect();
    let alternatives: Vec<Value> = (0..2000)
        .map(|at| json!({"type": "object", "properties": {"k": {"const": at}}, "required": ["k"]}))
        .collect();
    let rules: String = (0..12_000).map(|at| format!("r{at}: r{}\n", at + 1)).collect();
    for (name, form) in [
        ("a deep schema", Form::JsonSchema(nested(110))),
        ("a long chain of references", Form::JsonSchema(chain(8_000))),
        (
            "a circle",
            Form::JsonSchema(json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}})),
        ),
        ("many properties", Form::JsonSchema(many(3_000))),
        ("many words", Form::JsonSchema(json!({"enum": words}))),
        ("many alternatives", Form::JsonSchema(json!({"oneOf": alternatives.clone()}))),
        (
            "alternatives of alternatives",
            Form::JsonSchema(
                json!({"allOf": vec![json!({"anyOf": alternatives[..20].to_vec()}); 20]}),
            ),
        ),
        ("a long list", Form::JsonSchema(json!({"type": "array", "minItems": 1_000_000_000}))),
        ("a long text", Form::JsonSchema(json!({"type": "string", "minLength": 1_000_000_000}))),
        (
            "a large pattern",
            Form::JsonSchema(json!({"type": "string", "pattern": "((a{1,1000}){1,1000}){1,1000}"})),
        ),
        (
            "a deep pattern",
            Form::JsonSchema(
                json!({"type": "string", "pattern": "(".repeat(50_000) + &")".repeat(50_000)}),
            ),
        ),
        ("a large expression", Form::Regex("((a{1,1000}){1,1000}){1,1000}".into())),
        ("a deep expression", Form::Regex("(".repeat(50_000) + &")".repeat(50_000))),
        ("an exponential expression", Form::Regex("(a|b)*a(a|b){200}".into())),
        (
            "a deep grammar",
            Form::Lark(
                "start: ".to_owned() + &"(".repeat(100_000) + "\"a\"" + &")".repeat(100_000),
            ),
        ),
        ("a chain of rules", Form::Lark(format!("start: r0\n{rules}r12000: \"a\"\n"))),
        ("a rule of itself", Form::Lark("start: start".into())),
        ("a rule that repeats", Form::Lark("start: ((\"a\"{1,1000}){1,1000}){1,1000}".into())),
    ] {
        let began = Instant::now();
        let checked = form.check();
        let took = began.elapsed();
        let told = checked.err().map(|error| error.to_string()).unwrap_or_default();
        println!("{name}: {took:?} {:.100}", told);
        assert!(told.len() < 1000 && told.lines().count() <= 1, "{name}: {told}");
        assert!(took < SOON, "{name} took {took:?}");
    }
}
