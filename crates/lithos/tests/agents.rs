//! Launchers, with a program in place of the agents that tells what it was given.

#![cfg(unix)]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use serde_json::Value;
use support::served::Served;
use support::{Run, command, finish, text_model};
use tempfile::TempDir;

const AGENTS: [&str; 4] = ["claude", "codex", "opencode", "hermes"];

/// A folder with a program under the name of each agent. It prints its arguments and variables, asks the server for its models if
/// it finds curl, and ends with code 7.
fn agents() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in AGENTS.into_iter().chain(["other"]) {
        let file = folder.path().join(name);
        let script =
            "#!/bin/sh\nfor a in \"$@\"; do printf 'argument %s\\n' \"$a\"; done\nenv\nexit 7\n";
        fs::write(&file, script).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }
    folder
}

fn lithos(agents: &TempDir, args: &[&str]) -> Command {
    let mut command = command();
    let path = std::env::var("PATH").unwrap();
    command.env("PATH", format!("{}:{path}", agents.path().display()));
    command.env_remove("LITHOS_URL").env("ANTHROPIC_API_KEY", "key of the user");
    command.args(args);
    command
}

fn serve(flags: &[&str]) -> (TempDir, Served) {
    let model = text_model();
    // Hermes wants a long context; the model's own limit is all that the server asks for.
    support::edit_json(&model.path().join("config.json"), |config| {
        config["max_position_embeddings"] = 65_536.into();
    });
    let mut serve = command();
    serve.args(["serve", "--port", "0", "--context", "65536"]).args(flags);
    let served =
        Served::start(serve.env("LITHOS_TEST_KEY", "secret").arg("--model").arg(model.path()));
    (model, served)
}

fn model_of(served: &Served) -> String {
    let (_, models) = served.ask("GET", "/v1/models", "", "x-api-key: secret\r\n");
    models["data"][0]["id"].as_str().unwrap().to_owned()
}

/// What the program was given, line by line; it ended with its own code.
#[track_caller]
fn told(run: Run) -> Vec<String> {
    assert_eq!(run.code, Some(7), "{run:?}");
    run.stdout.lines().map(str::to_owned).collect()
}

#[track_caller]
fn has(lines: &[String], line: &str) {
    assert!(lines.iter().any(|found| found == line), "{line} is not in {lines:#?}");
}

#[test]
fn agents_are_told_of_the_server_and_its_model() {
    let (_model, served) = serve(&[]);
    let (url, model) = (served.url(), model_of(&served));
    let agents = agents();
    let run = |name: &str, flags: &[&str]| {
        let args = [&[name, "--url", &url], flags, &["--", "say", "a b"]].concat();
        told(finish(&mut lithos(&agents, &args), b""))
    };
    let claude = run("claude", &[]);
    has(&claude, &format!("ANTHROPIC_BASE_URL={url}"));
    has(&claude, "ANTHROPIC_AUTH_TOKEN=none");
    has(&claude, "CLAUDE_CODE_MAX_CONTEXT_TOKENS=65536");
    for tier in ["MODEL", "DEFAULT_OPUS_MODEL", "DEFAULT_HAIKU_MODEL", "DEFAULT_FABLE_MODEL"] {
        has(&claude, &format!("ANTHROPIC_{tier}={model}"));
    }
    assert_eq!(claude[..2], ["argument say", "argument a b"]);
    // The user's own key is for somebody else.
    assert!(!claude.iter().any(|line| line.starts_with("ANTHROPIC_API_KEY")), "{claude:?}");
    assert_eq!(
        run("claude", &["--lean"])[..2],
        ["argument --tools", "argument Bash,Edit,Read,Write,Glob,Grep"]
    );

    let codex = run("codex", &[]);
    has(&codex, "LITHOS_API_KEY=none");
    for setting in [
        format!("model=\"{model}\""),
        "model_provider=\"lithos\"".into(),
        format!("model_providers.lithos.base_url=\"{url}/v1\""),
        "model_providers.lithos.wire_api=\"responses\"".into(),
        "model_providers.lithos.env_key=\"LITHOS_API_KEY\"".into(),
        "model_context_window=65536".into(),
        "model_auto_compact_token_limit=49152".into(),
    ] {
        has(&codex, &format!("argument {setting}"));
    }
    let given = codex.iter().filter(|line| line.starts_with("argument")).collect::<Vec<_>>();
    assert_eq!(given[given.len() - 2..], ["argument say", "argument a b"]);
    has(&run("codex", &["--lean"]), "argument --disable");

    for lean in [false, true] {
        let opencode = run("opencode", if lean { &["--lean"] } else { &[] });
        let config = opencode.iter().find_map(|line| line.strip_prefix("OPENCODE_CONFIG_CONTENT="));
        let config: Value = serde_json::from_str(config.unwrap()).unwrap();
        assert_eq!(config["model"], format!("lithos/{model}"));
        assert_eq!(config["small_model"], config["model"]);
        let provider = &config["provider"]["lithos"];
        assert_eq!(provider["options"]["baseURL"], format!("{url}/v1"));
        assert_eq!(provider["models"][&model]["limit"]["context"], 65_536);
        assert_eq!(config["tools"]["webfetch"] == false, lean);
    }

    let hermes = run("hermes", &["--lean"]);
    has(&hermes, &format!("CUSTOM_BASE_URL={url}/v1"));
    has(&hermes, &format!("OPENAI_BASE_URL={url}/v1"));
    has(&hermes, "OPENAI_API_KEY=none");
    has(&hermes, &format!("HERMES_INFERENCE_MODEL={model}"));
    // Other commands of its own get no flags of a conversation.
    assert_eq!(hermes[..2], ["argument say", "argument a b"]);
    let args = ["hermes", "--url", &url, "--lean", "--", "chat", "-q", "hi"];
    let hermes = told(finish(&mut lithos(&agents, &args), b""));
    let model = format!("argument {model}");
    for (line, wanted) in [
        "argument chat",
        "argument --provider",
        "argument custom",
        "argument --model",
        &model,
        "argument --toolsets",
        "argument terminal,file",
        "argument -q",
        "argument hi",
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(hermes[line], wanted);
    }
}

#[test]
fn keys_reach_the_agent_and_nobody_else() {
    let (_model, served) = serve(&["--api-key-env", "LITHOS_TEST_KEY"]);
    let url = served.url();
    let agents = agents();
    let run = |args: &[&str]| {
        let args = [&args[..1], &["--url", &url], &args[1..]].concat();
        finish(lithos(&agents, &args).env("LITHOS_TEST_KEY", "secret"), b"")
    };
    let key = ["--api-key-env", "LITHOS_TEST_KEY"];
    has(&told(run(&["claude", key[0], key[1]])), "ANTHROPIC_AUTH_TOKEN=secret");
    has(&told(run(&["codex", key[0], key[1]])), "LITHOS_API_KEY=secret");
    has(&told(run(&["run", key[0], key[1], "--", "other"])), "OPENAI_API_KEY=secret");
    for args in [&["claude", "--print"][..], &["codex", "--print"], &["opencode", "--print"]] {
        let shown = run(&[args, &key].concat()).ok();
        assert!(shown.starts_with("env \\\n") && !shown.contains("secret"), "{shown}");
        assert!(shown.contains("***") && shown.contains(&url), "{shown}");
    }
    let shown = run(&["run", "--print", key[0], key[1], "--", "other"]).ok();
    assert!(!shown.contains("secret") && shown.ends_with("other\n"), "{shown}");
    // What is not there is said before anything is run.
    run(&["claude"]).refused(&["key", "--api-key-env", &url]);
    run(&["hermes", key[0], key[1]]).refused(&["Hermes", "without a key"]);
    // The variables work in a shell, which finds the key itself.
    let lines = run(&["env", key[0], key[1]]).ok();
    assert!(!lines.contains("secret"), "{lines}");
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{lines} printf %s \"$OPENAI_API_KEY $OPENAI_BASE_URL\"")]);
    let printed = finish(shell.env("LITHOS_TEST_KEY", "secret"), b"").ok();
    assert_eq!(printed, format!("secret {url}/v1"));
}

#[test]
fn programs_are_told_by_variables() {
    let (_model, served) = serve(&[]);
    let (url, model) = (served.url(), model_of(&served));
    let agents = agents();
    let args = ["run", "--url", &url, "--", "other", "--flag"];
    let lines = told(finish(lithos(&agents, &args).env("ANTHROPIC_AUTH_TOKEN", "mine"), b""));
    assert_eq!(lines[0], "argument --flag");
    has(&lines, &format!("OPENAI_BASE_URL={url}/v1"));
    has(&lines, &format!("ANTHROPIC_BASE_URL={url}"));
    has(&lines, &format!("OPENAI_MODEL={model}"));
    has(&lines, "ANTHROPIC_API_KEY=none");
    assert!(!lines.iter().any(|line| line.starts_with("ANTHROPIC_AUTH_TOKEN")), "{lines:?}");
}

#[test]
fn a_server_is_started_for_the_agent_where_none_answers() {
    let model = text_model();
    let agents = agents();
    // It asks the server that it was told of.
    let script = "#!/bin/sh\nexec \"$LITHOS_BINARY\" run --url \"$ANTHROPIC_BASE_URL\" -- printenv OPENAI_MODEL\n";
    fs::write(agents.path().join("claude"), script).unwrap();
    // Nobody listens where somebody did a moment ago.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("http://{free}");
    let mut run = lithos(&agents, &["claude", "--url", &url, "--serve", "--model"]);
    run.arg(model.path()).env("LITHOS_BINARY", env!("CARGO_BIN_EXE_lithos"));
    let asked = finish(&mut run, b"").ok();
    let name = model.path().file_name().unwrap().to_string_lossy();
    assert_eq!(asked.trim_end(), name);
    // Without being told to, none is started.
    finish(&mut lithos(&agents, &["claude", "--url", &url]), b"").refused(&[&url, "lithos serve"]);
}

#[test]
fn what_cannot_be_run_is_said_with_what_to_do() {
    let model = text_model();
    let mut serve = command();
    let served = Served::start(serve.args(["serve", "--port", "0", "--model"]).arg(model.path()));
    let url = served.url();
    let agents = agents();
    fs::remove_file(agents.path().join("claude")).unwrap();
    let run = |args: &[&str]| {
        let args = [&args[..1], &["--url", &url], &args[1..]].concat();
        let mut command = lithos(&agents, &args);
        command.env("PATH", agents.path());
        finish(&mut command, b"")
    };
    run(&["claude"]).refused(&["claude", "npm install -g @anthropic-ai/claude-code"]);
    run(&["run", "--", "nothing-of-this-name"]).refused(&["nothing-of-this-name"]);
    run(&["hermes"]).refused(&["64000", "4096", "--context"]);
    for args in
        [&["env", "--url", "localhost:8080"][..], &["run"], &["claude", "--print", "--serve"]]
    {
        assert_eq!(finish(&mut lithos(&agents, args), b"").code, Some(2), "{args:?}");
    }
}
