//! Turns with tools through the template of the model that is built in, against what Python's jinja2 renders from it.

use std::path::Path;

use lithos_model::text::{ChatTemplate, TemplateOptions, TemplateTokens};
use serde_json::{Value, json};

fn template() -> ChatTemplate {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/lithos-mini/chat_template.jinja");
    ChatTemplate::new(&std::fs::read_to_string(path).unwrap(), TemplateTokens::default()).unwrap()
}

fn conversation() -> (Value, Value) {
    let tools = json!([{"type": "function", "function": {
        "name": "get_weather",
        "description": "The weather at a place, in °C & \"wind\"",
        "parameters": {
            "type": "object",
            "properties": {"place": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["place"]
        }
    }}]);
    let call = |id: &str, name: &str, arguments: Value| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
    let messages = json!([
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Oslo and Rome?"},
        {"role": "assistant", "content": "I look.", "tool_calls": [
            call("c1", "get_weather", json!({"place": "Oslo", "days": 3})),
            call("c2", "get_weather", json!({"place": "<Rome>", "days": null, "more": {"a": [1, "b"]}}))
        ]},
        {"role": "tool", "tool_call_id": "c1", "content": "4 °C"},
        {"role": "tool", "tool_call_id": "c2", "content": "18 °C"},
        {"role": "assistant", "content": "", "tool_calls": [call("c3", "now", json!({}))]},
        {"role": "tool", "tool_call_id": "c3", "content": "noon"}
    ]);
    (messages, tools)
}

#[test]
fn calls_and_results_are_rendered_as_in_python() {
    let (messages, tools) = conversation();
    let options = TemplateOptions { add_generation_prompt: true, ..TemplateOptions::default() };
    let rendered = template().render(&messages, Some(&tools), &options).unwrap();
    let wanted = r#"<|im_start|>system
Be brief.

You can call these functions:
<tools>
{"type": "function", "function": {"name": "get_weather", "description": "The weather at a place, in °C & \"wind\"", "parameters": {"type": "object", "properties": {"place": {"type": "string"}, "days": {"type": "integer"}}, "required": ["place"]}}}
</tools>
A call looks like this:
<tool_call>
<function=NAME>
<parameter=KEY>
VALUE
</parameter>
</function>
</tool_call><|im_end|>
<|im_start|>user
Oslo and Rome?<|im_end|>
<|im_start|>assistant
I look.

<tool_call>
<function=get_weather>
<parameter=place>
Oslo
</parameter>
<parameter=days>
3
</parameter>
</function>
</tool_call>
<tool_call>
<function=get_weather>
<parameter=place>
<Rome>
</parameter>
<parameter=days>
null
</parameter>
<parameter=more>
{"a": [1, "b"]}
</parameter>
</function>
</tool_call><|im_end|>
<|im_start|>user
<tool_response>
4 °C
</tool_response>
<tool_response>
18 °C
</tool_response><|im_end|>
<|im_start|>assistant
<tool_call>
<function=now>
</function>
</tool_call><|im_end|>
<|im_start|>user
<tool_response>
noon
</tool_response><|im_end|>
<|im_start|>assistant
"#;
    assert_eq!(rendered, wanted);
}

#[test]
fn a_template_says_whether_it_takes_tools() {
    assert!(template().takes_tools());
    let plain = "{% for message in messages %}{{ message.content }}{% endfor %}";
    assert!(!ChatTemplate::new(plain, TemplateTokens::default()).unwrap().takes_tools());
}
