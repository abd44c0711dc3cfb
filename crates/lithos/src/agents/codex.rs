//! Codex, which speaks the Responses API.

use serde_json::json;

use super::{Agent, Session};
use crate::launch::Launch;

/// Codex.
pub const CODEX: Agent = Agent {
    name: "Codex",
    program: "codex",
    install: "npm install -g @openai/codex",
    least_context: 0,
    takes_key: true,
    prepare,
};

/// The variable in which it looks for the key of the server.
const KEY: &str = "LITHOS_API_KEY";

/// Parts that bring tools with them which a small model does better without.
const LEAN: [&str; 4] = ["multi_agent", "goals", "view_image", "apps"];

fn prepare(launch: &mut Launch, session: &Session<'_>) {
    let endpoint = session.endpoint;
    launch.variables = vec![(KEY, session.key.to_owned())];
    let compact = endpoint.context / 4 * 3;
    let base = format!("{}/v1", endpoint.url);
    // Values are TOML; those of JSON are the same for texts, numbers and switches.
    let settings = [
        ("model", json!(endpoint.model)),
        ("model_provider", json!("lithos")),
        ("model_providers.lithos.name", json!("Lithos")),
        ("model_providers.lithos.base_url", json!(base)),
        ("model_providers.lithos.wire_api", json!("responses")),
        ("model_providers.lithos.env_key", json!(KEY)),
        ("model_providers.lithos.requires_openai_auth", json!(false)),
        ("model_providers.lithos.supports_websockets", json!(false)),
        ("model_context_window", json!(endpoint.context)),
        // Well below the window, since what it sends with every request does not get shorter.
        ("model_auto_compact_token_limit", json!(compact)),
        // Its own search asks a cloud.
        ("web_search", json!("disabled")),
    ];
    for (name, value) in settings {
        launch.arguments.extend(["-c".into(), format!("{name}={value}").into()]);
    }
    if session.lean {
        for name in LEAN {
            launch.arguments.extend(["--disable".into(), name.into()]);
        }
    }
    launch.arguments.extend_from_slice(session.arguments);
}
