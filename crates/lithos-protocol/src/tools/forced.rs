//! Grammars of calls, in Lark's notation as llguidance reads it: what an answer is held to where a call is forced, or where it is either
//! calls or JSON.
//!
//! A call has the form that the model was taught. In Qwen's XML texts are verbatim, and tags of calls cannot stand in them: so what
//! [`ToolParser`](super::ToolParser) reads is what the grammar let through. A function whose parameters that form cannot hold to their schema
//! (one that is a text or a number, say) is called in the JSON of Hermes, which the parser takes as well.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::definitions::is_required;
use super::offer::{Calls, ToolChoice};
use super::schema::{Schema, Types};

/// The form in which a model was taught to call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallSyntax {
    /// `<function=NAME>` with a tag for each parameter, as Qwen3-Coder and Qwen3.5.
    QwenXml,
    /// `{"name": NAME, "arguments": ...}`, as Hermes and Qwen3.
    HermesJson,
}

impl CallSyntax {
    /// The one that a chat template shows to its model.
    pub fn of_template(template: &str) -> Self {
        if template.contains("<function=") { CallSyntax::QwenXml } else { CallSyntax::HermesJson }
    }
}

/// Calls in one answer at most, so that a weak model comes to an end.
const MOST_CALLS: usize = 8;

/// White space between the tokens of JSON: enough to indent, too little to go on with blanks for ever.
const WHITE_SPACE: &str = r"[\x20\x0A][\x20]{0,16}";

/// A text in a parameter: without the tags of calls, and with the line that ends it.
const TEXT_END: &str =
    r#"~/(?s:.*)<(\/?parameter|\/?function|\/?tool_call)(?s:.*)/) "\n</parameter>\n""#;

/// Keywords that say nothing about a value.
const NOTES: [&str; 9] = [
    "title",
    "description",
    "default",
    "examples",
    "format",
    "$comment",
    "deprecated",
    "readOnly",
    "writeOnly",
];

/// The grammar of an answer that is calls, as the choice says; or, with `json`, either calls or JSON of that schema.
pub(crate) fn grammar(calls: &Calls, json: Option<&Value>, syntax: CallSyntax) -> String {
    let chosen = |name: &str| match &calls.choice {
        ToolChoice::Named(chosen) => chosen == name,
        _ => true,
    };
    let functions: Vec<_> = calls
        .tools
        .iter()
        .flat_map(|tools| tools.iter())
        .filter(|(name, _)| chosen(name))
        .collect();
    let mut rules = String::new();
    for (index, (name, parameters)) in functions.iter().enumerate() {
        let xml =
            (syntax == CallSyntax::QwenXml).then(|| qwen_xml(index, name, parameters)).flatten();
        rules.push_str(&xml.unwrap_or_else(|| hermes_json(index, name, parameters)));
    }
    let one = calls.one_only || matches!(calls.choice, ToolChoice::Named(_));
    let more = if one { String::new() } else { format!(" (\"\\n\" call){{0,{}}}", MOST_CALLS - 1) };
    let names: Vec<String> = (0..functions.len()).map(|index| format!("f{index}")).collect();
    let start = match json {
        Some(schema) => {
            format!("start: answer | calls\nanswer: %json {}\n", bounded(schema.clone()))
        }
        None => "start: calls\n".to_owned(),
    };
    format!("{start}calls: call{more}\ncall: {}\n{rules}", names.join(" | "))
}

/// A text as Lark writes it.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// A schema with bounded white space, whatever it says of it itself.
fn bounded(mut schema: Value) -> Value {
    if let Value::Object(keys) = &mut schema {
        keys.insert("x-guidance".into(), json!({"whitespace_pattern": WHITE_SPACE}));
    }
    schema
}

fn hermes_json(index: usize, name: &str, parameters: &Value) -> String {
    let mut schema = parameters.as_object().cloned().unwrap_or_default();
    schema.entry("type").or_insert("object".into());
    if ["properties", "patternProperties", "anyOf", "oneOf", "allOf", "$ref"]
        .iter()
        .all(|key| !schema.contains_key(*key))
    {
        schema.entry("properties").or_insert(json!({}));
    }
    if schema.contains_key("properties")
        && !schema.contains_key("patternProperties")
        && schema.get("additionalProperties").is_none_or(|more| more == true)
    {
        // What is not described is not called for.
        schema.insert("additionalProperties".into(), false.into());
    }
    let head = quoted(&format!("<tool_call>\n{{\"name\": {}, \"arguments\": ", quoted(name)));
    let schema = bounded(Value::Object(schema));
    format!(
        "f{index}: {head} f{index}_arguments \"}}\\n</tool_call>\"\nf{index}_arguments: %json {schema}\n"
    )
}

/// What is written between the tags of a parameter.
enum Written {
    /// A terminal: a text, verbatim, up to and with the closing tag.
    Text(String),
    /// One of these texts.
    Words(Vec<String>),
    /// JSON of this schema.
    Json(Value),
}

/// A function in Qwen's XML; `None` if that form cannot hold it to its schema.
fn qwen_xml(index: usize, name: &str, parameters: &Value) -> Option<String> {
    const KNOWN: [&str; 9] = [
        "type",
        "properties",
        "required",
        "additionalProperties",
        "$defs",
        "definitions",
        "$schema",
        "$id",
        "strict",
    ];
    let nothing = Map::new();
    let schema = match parameters {
        Value::Object(schema) => schema,
        _ => &nothing,
    };
    if schema.keys().any(|key| !KNOWN.contains(&key.as_str()) && !NOTES.contains(&key.as_str())) {
        return None;
    }
    let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&nothing);
    let unnamed = schema.get("required").and_then(Value::as_array).into_iter().flatten();
    let unnamed = unnamed.filter_map(Value::as_str).filter(|name| !properties.contains_key(*name));
    let anything = Value::Bool(true);
    let all = properties.iter().map(|(key, schema)| (key.as_str(), schema));
    let (mut sequence, mut rules) = (String::new(), String::new());
    for (at, (key, value)) in all.chain(unnamed.map(|key| (key, &anything))).enumerate() {
        if key.is_empty()
            || key.len() > 200
            || key.trim() != key
            || key.contains(['<', '>', '\n', '"', '\''])
        {
            return None;
        }
        let rule = format!("f{index}_p{at}");
        let open = quoted(&format!("<parameter={key}>\n"));
        let close = "\"\\n</parameter>\\n\"";
        // Infallible: it is a String.
        let _ = match written(value, parameters)? {
            Written::Text(terminal) => {
                writeln!(rules, "{rule}: {open} F{index}_P{at}\nF{index}_P{at}: {terminal}")
            }
            Written::Words(words) => {
                let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
                writeln!(rules, "{rule}: {open} ({}) {close}", words.join(" | "))
            }
            Written::Json(schema) => {
                writeln!(rules, "{rule}: {open} {rule}_value {close}\n{rule}_value: %json {schema}")
            }
        };
        let optional = if is_required(parameters, key) { "" } else { "?" };
        let _ = write!(sequence, " {rule}{optional}");
    }
    let head = quoted(&format!("<tool_call>\n<function={name}>\n"));
    Some(format!("f{index}: {head}{sequence} \"</function>\\n</tool_call>\"\n{rules}"))
}

fn written(schema: &Value, root: &Value) -> Option<Written> {
    let nothing = Map::new();
    let node = match schema {
        Value::Bool(true) => &nothing,
        node => node.as_object()?,
    };
    let types = Schema::root(root).inner(schema).types();
    let only = |known: &[&str]| {
        node.keys().all(|key| known.contains(&key.as_str()) || NOTES.contains(&key.as_str()))
    };
    if only(&[]) || (types == Types::STRING && only(&["type", "minLength", "maxLength", "pattern"]))
    {
        return Some(Written::Text(text_terminal(node)));
    }
    if types == Types::STRING && only(&["type", "enum", "const"]) {
        let words = node.get("const").map(|word| vec![word.clone()]);
        let words = words.or_else(|| node.get("enum")?.as_array().cloned())?;
        let words: Option<Vec<String>> =
            words.iter().map(|word| word.as_str().map(str::to_owned)).collect();
        return words
            .filter(|words| words.iter().all(|word| !word.contains(['<', '\n', '\r'])))
            .map(Written::Words);
    }
    if types.contain(Types::STRING) {
        return is_text_or_null(node).then(|| Written::Text(text_terminal(&nothing)));
    }
    if !has_near_references(schema) {
        return None;
    }
    let mut schema = node.clone();
    for definitions in ["$defs", "definitions"] {
        if let Some(all) = root.get(definitions) {
            schema.entry(definitions).or_insert(all.clone());
        }
    }
    Some(Written::Json(bounded(Value::Object(schema))))
}

/// The terminal of a text within its bounds.
fn text_terminal(node: &Map<String, Value>) -> String {
    let bound = |name: &str| node.get(name).and_then(Value::as_u64);
    let count = match (bound("minLength"), bound("maxLength")) {
        (None, None) => "*".to_owned(),
        (least, None) => format!("{{{},}}", least.unwrap_or(0)),
        (least, Some(most)) => format!("{{{},{most}}}", least.unwrap_or(0)),
    };
    let pattern = node
        .get("pattern")
        .and_then(Value::as_str)
        .map(|pattern| format!("/{}/ & ", whole(pattern)));
    format!("(/(?s:.){count}/ & {}{TEXT_END}", pattern.unwrap_or_default())
}

/// A pattern, which may match anywhere, as one for the whole text. Anchors elsewhere than at its ends are left to be refused.
fn whole(pattern: &str) -> String {
    let (begin, rest) = match pattern.strip_prefix('^') {
        Some(rest) => ("", rest),
        None => ("(?s:.*)", pattern),
    };
    let (end, rest) = match rest.strip_suffix('$').filter(|rest| !rest.ends_with('\\')) {
        Some(rest) => ("", rest),
        None => ("(?s:.*)", rest),
    };
    let mut out = String::new();
    let mut characters = rest.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => out.extend([Some('\\'), characters.next()].into_iter().flatten()),
            '/' => out.push_str("\\/"),
            '\n' => out.push_str("\\n"),
            _ => out.push(character),
        }
    }
    format!("{begin}(?:{out}){end}")
}

/// Whether a schema is any text or null: then whatever is written is allowed.
fn is_text_or_null(node: &Map<String, Value>) -> bool {
    let plain = |node: &Map<String, Value>, names: Value| {
        node.get("type") == Some(&names)
            && node.keys().all(|key| key == "type" || NOTES.contains(&key.as_str()))
    };
    let is =
        |value: &Value, name: &str| value.as_object().is_some_and(|node| plain(node, name.into()));
    if plain(node, json!(["string", "null"])) || plain(node, json!(["null", "string"])) {
        return true;
    }
    match node.get("anyOf").and_then(Value::as_array).map(Vec::as_slice) {
        Some([a, b]) => {
            node.keys().all(|key| key == "anyOf" || NOTES.contains(&key.as_str()))
                && ((is(a, "string") && is(b, "null")) || (is(a, "null") && is(b, "string")))
        }
        _ => false,
    }
}

/// Whether what a schema refers to lies in the definitions, which go with it.
fn has_near_references(schema: &Value) -> bool {
    match schema {
        Value::Object(node) => node.iter().all(|(key, value)| match (key.as_str(), value) {
            ("$ref", Value::String(target)) => {
                target.starts_with("#/$defs/") || target.starts_with("#/definitions/")
            }
            (_, value) => has_near_references(value),
        }),
        Value::Array(items) => items.iter().all(has_near_references),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::Tools;

    fn calls(choice: ToolChoice, one_only: bool) -> Calls {
        let tool = |name: &str, parameters: Value| json!({"function": {"name": name, "parameters": parameters}});
        let path = json!({"type": "object", "properties": {
            "path": {"type": "string"}, "mode": {"enum": ["r", "w"]}, "line": {"$ref": "#/$defs/n"}
        }, "required": ["path"], "$defs": {"n": {"type": "integer"}}});
        let either =
            json!({"type": "object", "properties": {"value": {"type": ["string", "integer"]}}});
        let tools = Tools::of_list(&json!([tool("open", path), tool("set", either)]));
        Calls { tools: Some(tools), choice, one_only }
    }

    #[test]
    fn a_call_has_the_form_of_its_syntax() {
        let named = calls(ToolChoice::Named("open".into()), false);
        let wanted = r##"start: calls
calls: call
call: f0
f0: "<tool_call>\n<function=open>\n" f0_p0 f0_p1? f0_p2? "</function>\n</tool_call>"
f0_p0: "<parameter=path>\n" F0_P0
F0_P0: (/(?s:.)*/ & ~/(?s:.*)<(\/?parameter|\/?function|\/?tool_call)(?s:.*)/) "\n</parameter>\n"
f0_p1: "<parameter=mode>\n" ("r" | "w") "\n</parameter>\n"
f0_p2: "<parameter=line>\n" f0_p2_value "\n</parameter>\n"
f0_p2_value: %json {"$ref":"#/$defs/n","$defs":{"n":{"type":"integer"}},"x-guidance":{"whitespace_pattern":"[\\x20\\x0A][\\x20]{0,16}"}}
"##;
        assert_eq!(grammar(&named, None, CallSyntax::QwenXml), wanted);
        let json = grammar(&named, None, CallSyntax::HermesJson);
        assert!(json.contains(r#"f0: "<tool_call>\n{\"name\": \"open\", \"arguments\": " f0_arguments "}\n</tool_call>""#), "{json}");
    }

    #[test]
    fn choices_limit_what_may_come() {
        let any = grammar(&calls(ToolChoice::Required, false), None, CallSyntax::QwenXml);
        assert!(any.contains("calls: call (\"\\n\" call){0,7}\ncall: f0 | f1\n"), "{any}");
        // What cannot be told apart without quotes is called in JSON.
        assert!(any.contains("{\\\"name\\\": \\\"set\\\""), "{any}");
        let one = grammar(&calls(ToolChoice::Required, true), None, CallSyntax::QwenXml);
        assert!(one.contains("calls: call\n"), "{one}");
        let schema = json!({"type": "object", "x-guidance": {"lenient": true}});
        let either = grammar(&calls(ToolChoice::Auto, false), Some(&schema), CallSyntax::QwenXml);
        assert!(
            either.starts_with("start: answer | calls\nanswer: %json {")
                && !either.contains("lenient"),
            "{either}"
        );
    }

    #[test]
    fn patterns_are_of_the_whole_text() {
        assert_eq!(whole("^a/b$"), "(?:a\\/b)");
        assert_eq!(whole("a|b"), "(?s:.*)(?:a|b)(?s:.*)");
        assert_eq!(whole("^\\/x\\$"), "(?:\\/x\\$)(?s:.*)");
    }
}
