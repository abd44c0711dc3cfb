//! Prefixes that outlive a server: the second turn of a conversation, and the same request after `kill -9`.

#![cfg(all(unix, feature = "builtin"))]

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::command;
use support::served::Served;

fn serve(folder: &Path) -> Served {
    Served::start(command().args(["serve", "--port", "0", "--prefix-dir"]).arg(folder))
}

/// As agents send them: long instructions, and a short question.
fn instructions() -> String {
    (0..150).map(|rule| format!("Rule {rule}: keep file {rule} short and say why.\n")).collect()
}

struct Told {
    text: String,
    prompt: u64,
    cached: u64,
}

fn ask(served: &Served, messages: &Value) -> Told {
    let body = json!({"messages": messages, "max_tokens": 12, "temperature": 0});
    let (status, answer) = served.ask("POST", "/v1/chat/completions", &body.to_string(), "");
    assert_eq!(status, 200, "{answer}");
    let usage = &answer["usage"];
    Told {
        text: answer["choices"][0]["message"]["content"].as_str().unwrap().to_owned(),
        prompt: usage["prompt_tokens"].as_u64().unwrap(),
        cached: usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap(),
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = |folder: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).into_iter().flatten();
        entries.map(|entry| entry.unwrap().path()).collect()
    };
    entries(folder).iter().flat_map(|model| entries(model)).collect()
}

/// Waits until what is written no longer changes.
fn written(folder: &Path) {
    let began = Instant::now();
    let mut before = 0;
    loop {
        std::thread::sleep(Duration::from_millis(500));
        let all = files(folder);
        let unfinished = all.iter().any(|file| file.extension().is_some_and(|end| end == "tmp"));
        if all.len() == before && before > 0 && !unfinished {
            return;
        }
        before = all.len();
        assert!(began.elapsed() < Duration::from_secs(30), "{before} files");
    }
}

fn metric(served: &Served, name: &str) -> f64 {
    let metrics = served.ask_text("GET", "/metrics", "", "").1;
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{name} in {metrics}")).parse().unwrap()
}

#[test]
fn ac_03_04_55_a_prefix_is_read_once_also_after_the_server_was_killed() {
    let folder = tempfile::tempdir().unwrap();
    let mut served = serve(folder.path());
    let mut messages = json!([
        {"role": "system", "content": instructions()},
        {"role": "user", "content": "What is a bicycle?"},
    ]);
    let first = ask(&served, &messages);
    assert!(first.prompt > 2000, "{}", first.prompt);
    assert_eq!(first.cached, 0);
    // The second turn reads its new end only.
    let turns = messages.as_array_mut().unwrap();
    turns.push(json!({"role": "assistant", "content": first.text}));
    turns.push(json!({"role": "user", "content": "And what is a boat?"}));
    let second = ask(&served, &messages);
    let new = second.prompt - second.cached;
    assert!(second.cached > 0 && new < second.prompt - first.prompt + 100, "{new} were read");
    assert_eq!(metric(&served, "lithos_prefix_hits_total"), 1.0);
    assert_eq!(metric(&served, "lithos_prefix_tokens_saved_total"), second.cached as f64);
    assert!(metric(&served, "lithos_prefix_memory_bytes") > 0.0);
    written(folder.path());
    served.child.kill().unwrap();
    served.child.wait().unwrap();
    drop(served);
    // The same request once more.
    let served = serve(folder.path());
    let again = ask(&served, &messages);
    assert_eq!((&again.text, again.prompt), (&second.text, second.prompt));
    assert!(again.cached * 100 >= again.prompt * 95, "{} of {}", again.cached, again.prompt);
    assert_eq!(metric(&served, "lithos_prefix_disk_hits_total"), 1.0);
    drop(served);
    // No byte is believed that was not written.
    for file in files(folder.path()) {
        let mut bytes = fs::read(&file).unwrap();
        let place = bytes.len() / 2;
        bytes[place] ^= 1;
        fs::write(&file, bytes).unwrap();
    }
    let served = serve(folder.path());
    let afresh = ask(&served, &messages);
    assert_eq!((afresh.cached, &afresh.text), (0, &second.text));
    assert!(metric(&served, "lithos_prefix_files_rejected_total") > 0.0);
    let (_, log) = served.end();
    assert!(log.contains("a kept prefix is not used, and removed"), "{log}");
}

#[test]
fn a_later_answer_on_the_command_line_goes_on_from_disk() {
    let folder = tempfile::tempdir().unwrap();
    let generate = || {
        let mut generate = command();
        generate.args(["generate", "--json", "-n", "4", "--temperature", "0", "--system"]);
        generate.arg(instructions()).args(["What is a bicycle?", "--prefix-dir"]);
        support::finish(generate.arg(folder.path()), b"").json()
    };
    let (first, second) = (generate(), generate());
    assert_eq!(first["cached_tokens"], 0);
    assert!(second["cached_tokens"].as_u64() > Some(2000), "{second}");
    assert_eq!(first["token_ids"], second["token_ids"]);
}

#[test]
fn what_cannot_be_kept_is_said_in_a_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let mut generate = command();
    generate.args(["generate", "hello", "--prefix-dir"]).arg(&file);
    support::finish(&mut generate, b"").refused(&["prefixes", "file"]);
    support::run(&["generate", "hello", "--prefix-memory", "some"]).refused(&["512M"]);
}
