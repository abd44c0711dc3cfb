//! Chat templates against what Python's jinja2 renders from them (`tests/data/text/render_templates.py`).

use std::path::{Path, PathBuf};

use lithos_model::text::{ChatTemplate, TemplateError, TemplateOptions, TemplateTokens};
use serde_json::Value;

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/text")
}

fn template(name: &str) -> ChatTemplate {
    let path = data().join("templates").join(name).with_extension("jinja");
    let tokens = TemplateTokens {
        bos: Some("<|begin_of_text|>".to_owned()),
        eos: Some("<|im_end|>".to_owned()),
        ..TemplateTokens::default()
    };
    ChatTemplate::new(&std::fs::read_to_string(path).unwrap(), tokens).unwrap()
}

fn options(json: &Value) -> TemplateOptions {
    TemplateOptions {
        add_generation_prompt: json["add_generation_prompt"].as_bool().unwrap(),
        enable_thinking: json["enable_thinking"].as_bool(),
        extra: json["extra"].as_object().cloned().unwrap_or_default(),
        now: None,
    }
}

#[test]
fn templates_render_as_in_python() {
    let json = std::fs::read(data().join("template_goldens.json")).unwrap();
    let goldens: Value = serde_json::from_slice(&json).unwrap();
    let cases = goldens["rendered"].as_array().unwrap();
    assert!(cases.len() > 90);
    let mut wrong = Vec::new();
    for case in cases {
        let conversation = &goldens["conversations"][case["conversation"].as_str().unwrap()];
        let options = options(&goldens["options"][case["options"].as_u64().unwrap() as usize]);
        let tools = conversation.get("tools");
        let template = template(case["template"].as_str().unwrap());
        let rendered = template.render(&conversation["messages"], tools, &options);
        let equal = match (&rendered, case) {
            (Ok(text), case) => case["text"] == *text,
            (Err(TemplateError::Refused { reason }), case) => case["refused"] == *reason,
            (Err(_), case) => case["failed"].is_string(),
        };
        if !equal {
            wrong.push(format!("{case:#}\n{rendered:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {} differ:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

fn render_source(source: &str, options: &TemplateOptions) -> Result<String, TemplateError> {
    let template = ChatTemplate::new(source, TemplateTokens::default()).unwrap();
    template.render(&Value::Array(Vec::new()), None, options)
}

#[test]
fn a_template_can_ask_for_the_date() {
    let now = Some(std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_709_510_400));
    let options = TemplateOptions { now, ..TemplateOptions::default() };
    let source = "{{ strftime_now('%d %b %Y') }}{% if strftime_now is defined %}!{% endif %}";
    assert_eq!(render_source(source, &options).unwrap(), "04 Mar 2024!");
}

#[test]
fn a_template_that_never_ends_is_an_error() {
    let source = "{% macro again() %}{% for a in range(9999) %}{{ again() }}{% endfor %}{% endmacro %}{{ again() }}";
    assert!(matches!(
        render_source(source, &TemplateOptions::default()),
        Err(TemplateError::Failed { .. })
    ));
    let loops = "{% for a in range(90000) %}{% for b in range(90000) %}{% endfor %}{% endfor %}";
    assert!(matches!(
        render_source(loops, &TemplateOptions::default()),
        Err(TemplateError::Failed { .. })
    ));
}

#[test]
fn errors_are_one_line_and_name_the_place() {
    let refused = render_source("{{ raise_exception('no\nway') }}", &TemplateOptions::default());
    assert_eq!(
        refused.unwrap_err().to_string(),
        "the chat template refuses this conversation: no way"
    );
    let failed = render_source("a\n{{ messages[0].role.x }}", &TemplateOptions::default());
    let message = failed.unwrap_err().to_string();
    assert!(message.contains("chat_template:2") && message.lines().count() == 1, "{message}");
    let invalid = ChatTemplate::new("{% for %}", TemplateTokens::default()).unwrap_err();
    assert_eq!(invalid.to_string().lines().count(), 1);
}
