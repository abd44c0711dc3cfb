//! Claude Code, which speaks the Messages API.

use super::{Agent, Session};
use crate::launch::Launch;

/// Claude Code.
pub const CLAUDE: Agent = Agent {
    name: "Claude Code",
    program: "claude",
    install: "npm install -g @anthropic-ai/claude-code",
    least_context: 0,
    takes_key: true,
    prepare,
};

/// Where the user's own key or cloud would take the place of the server.
const REMOVED: &[&str] = &[
    "ANTHROPIC_API_KEY",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_VERTEX",
    "CLAUDE_CODE_USE_FOUNDRY",
];

/// Every name under which it looks for a model.
const MODELS: [&str; 6] = [
    "ANTHROPIC_MODEL",
    "ANTHROPIC_DEFAULT_OPUS_MODEL",
    "ANTHROPIC_DEFAULT_SONNET_MODEL",
    "ANTHROPIC_DEFAULT_HAIKU_MODEL",
    "ANTHROPIC_DEFAULT_FABLE_MODEL",
    "CLAUDE_CODE_SUBAGENT_MODEL",
];

/// The tools that reading, writing and running take. With all tools the first prompt is about twice as long.
const LEAN_TOOLS: &str = "Bash,Edit,Read,Write,Glob,Grep";

fn prepare(launch: &mut Launch, session: &Session<'_>) {
    let endpoint = session.endpoint;
    launch.removed = REMOVED;
    launch.variables = vec![
        ("ANTHROPIC_BASE_URL", endpoint.url.clone()),
        ("ANTHROPIC_AUTH_TOKEN", session.key.to_owned()),
        // It takes a model that it does not know for one with a million tokens.
        ("CLAUDE_CODE_MAX_CONTEXT_TOKENS", endpoint.context.to_string()),
        ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1".into()),
        ("DISABLE_AUTOUPDATER", "1".into()),
    ];
    launch.variables.extend(MODELS.map(|name| (name, endpoint.model.clone())));
    if session.lean {
        launch.arguments.extend(["--tools".into(), LEAN_TOOLS.into()]);
    }
    launch.arguments.extend_from_slice(session.arguments);
}
