//! Help, version, completions, and mistakes on the command line.

mod support;

use support::run;

const COMMANDS: [&str; 14] = [
    "generate",
    "chat",
    "score",
    "eval",
    "serve",
    "claude",
    "codex",
    "opencode",
    "hermes",
    "run",
    "env",
    "bench",
    "models",
    "completions",
];

#[test]
fn every_command_explains_itself_with_examples() {
    let help = run(&["--help"]).ok();
    for command in COMMANDS {
        assert!(help.contains(command), "{command} is not in {help}");
        let help = run(&[command, "--help"]).ok();
        assert!(help.contains("Usage:") && help.contains("Examples:"), "{help}");
        assert!(help.contains(&format!("\n  lithos {command}")), "{help}");
    }
    assert_eq!(run(&["--version"]).ok(), format!("lithos {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn completions_name_commands_and_flags() {
    for shell in ["bash", "zsh", "fish"] {
        let script = run(&["completions", shell]).ok();
        for word in COMMANDS.into_iter().chain(["max-tokens", "fusion", "interpreter"]) {
            assert!(script.contains(word), "{word} is not among the completions of {shell}");
        }
    }
}

#[test]
fn mistakes_on_the_command_line_are_usage_errors() {
    for args in [
        &["generate", "--fusion", "all", "x"][..],
        &["generate", "--backend", "gpu", "x"],
        &["generate", "--threads", "0", "x"],
        &["generate", "--stop", "", "x"],
        &["generate", "--logit-bias", "5", "x"],
        &["generate", "--raw", "--system", "x", "x"],
        &["score", "m", "--ids", "1,a"],
        &["completions", "dos"],
        &["translate"],
        &[],
    ] {
        let run = run(args);
        assert_eq!(run.code, Some(2), "{args:?}: {run:?}");
        assert!(!run.stderr.contains("panicked"), "{run:?}");
    }
}
