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
