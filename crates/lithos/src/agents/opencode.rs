//! OpenCode, which speaks Chat Completions.

use serde_json::{Value, json};

use super::{Agent, Session};
use crate::launch::Launch;

/// OpenCode.
pub const OPENCODE: Agent = Agent {
    name: "OpenCode",
    program: "opencode",
    install: "npm install -g opencode-ai",
    least_context: 0,
    takes_key: true,
    prepare,
};

/// The longest answer that it is told of; it keeps so much of the context free.
const MOST_OUTPUT: usize = 32_000;

/// Tools that reading, writing and running can do without.
const LEAN_WITHOUT: [&str; 5] = ["task", "todowrite", "webfetch", "skill", "question"];

fn prepare(launch: &mut Launch, session: &Session<'_>) {
    let endpoint = session.endpoint;
    let model = endpoint.model.as_str();
    let name = format!("lithos/{model}");
    let mut config = json!({
        "model": name,
        "small_model": name,
        "autoupdate": false,
        "share": "disabled",
        "provider": {"lithos": {
            "npm": "@ai-sdk/openai-compatible",
            "name": "Lithos",
            "options": {"baseURL": format!("{}/v1", endpoint.url), "apiKey": session.key},
            "models": {model: {
                "name": model,
                "tool_call": true,
                "limit": {
                    "context": endpoint.context,
                    "output": MOST_OUTPUT.min(endpoint.context / 4),
                },
            }},
        }},
    });
    if session.lean {
        let off = LEAN_WITHOUT.map(|tool| (tool.to_owned(), Value::Bool(false)));
        config["tools"] = Value::Object(off.into_iter().collect());
    }
    launch.variables = vec![
        ("OPENCODE_CONFIG_CONTENT", config.to_string()),
        ("OPENCODE_DISABLE_AUTOUPDATE", "1".into()),
        ("OPENCODE_DISABLE_MODELS_FETCH", "1".into()),
    ];
    launch.arguments.extend_from_slice(session.arguments);
}
