//! Hermes, which speaks Chat Completions.

use super::{Agent, NO_KEY, Session};
use crate::launch::Launch;

/// Hermes.
pub const HERMES: Agent = Agent {
    name: "Hermes",
    program: "hermes",
    install: "pip install hermes-agent",
    // It refuses less.
    least_context: 64_000,
    // It sends one of its own making, whatever the environment says.
    takes_key: false,
    prepare,
};

/// The tools that reading, writing and running take.
const LEAN_TOOLSETS: &str = "terminal,file";

fn prepare(launch: &mut Launch, session: &Session<'_>) {
    let endpoint = session.endpoint;
    launch.variables = vec![
        ("CUSTOM_BASE_URL", format!("{}/v1", endpoint.url)),
        ("CUSTOM_API_KEY", NO_KEY.to_owned()),
        // Without these it takes itself for not set up.
        ("OPENAI_BASE_URL", format!("{}/v1", endpoint.url)),
        ("OPENAI_API_KEY", NO_KEY.to_owned()),
        ("HERMES_INFERENCE_PROVIDER", "custom".into()),
        ("HERMES_INFERENCE_MODEL", endpoint.model.clone()),
    ];
    // `chat` is what it does without arguments.
    let (command, rest) = match session.arguments.split_first() {
        Some((command, rest)) if command == "chat" => (true, rest),
        None => (true, session.arguments),
        _ => (false, session.arguments),
    };
    if command {
        let model = ["chat", "--provider", "custom", "--model", &endpoint.model];
        launch.arguments.extend(model.map(Into::into));
        if session.lean {
            launch.arguments.extend(["--toolsets".into(), LEAN_TOOLSETS.into()]);
        }
    }
    launch.arguments.extend_from_slice(rest);
}
