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

fn first_turn() -> Value {
    json!([
        {"role": "system", "content": instructions()},
        {"role": "user", "content": "What is a bicycle?"},
    ])
}

/// The next turn, after an answer.
fn next_turn(before: &Value, answer: &str, question: &str) -> Value {
    let mut messages = before.clone();
    let turns = messages.as_array_mut().unwrap();
    turns.push(json!({"role": "assistant", "content": answer}));
    turns.push(json!({"role": "user", "content": question}));
    messages
}

#[test]
fn ac_03_04_07_08_turns_share_what_they_begin_with() {
    let served = Served::start(command().args(["serve", "--port", "0"]));
    let messages = first_turn();
    let first = ask(&served, &messages);
    assert!(first.prompt > 2000, "{}", first.prompt);
    assert_eq!(first.cached, 0);
    // Another question after the same instructions.
    let mut other = messages.clone();
    other[1]["content"] = "What is a boat?".into();
    let fanned = ask(&served, &other);
    assert!(fanned.prompt - fanned.cached < 400, "{} of {}", fanned.cached, fanned.prompt);
    // A title in between.
    let title = json!([
        {"role": "system", "content": "Write a title of three words."},
        {"role": "user", "content": instructions()},
    ]);
    assert_eq!(ask(&served, &title).cached, 0);
    // The second turn reads its new end only.
    let turn = next_turn(&messages, &first.text, "And what is a train?");
    let second = ask(&served, &turn);
    let new = second.prompt - second.cached;
    assert!(new < second.prompt - first.prompt + 100, "{new} were read");
    // Its question is edited.
    let edited = ask(&served, &next_turn(&messages, &first.text, "And what is a river?"));
    assert!(edited.cached >= second.cached, "{} and {}", edited.cached, second.cached);
    assert_eq!(metric(&served, "lithos_prefix_hits_total"), 3.0);
    let saved = (fanned.cached + second.cached + edited.cached) as f64;
    assert_eq!(metric(&served, "lithos_prefix_tokens_saved_total"), saved);
    assert!(metric(&served, "lithos_prefix_memory_bytes") > 0.0);
    // Nothing of it changes an answer.
    let afresh = Served::start(command().args(["serve", "--port", "0", "--prefix-memory", "0"]));
    let plain = ask(&afresh, &turn);
    assert_eq!((plain.cached, plain.text), (0, second.text));
}

#[test]
fn ac_09_what_was_read_outlives_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let mut served = serve(folder.path());
    let turn = next_turn(&first_turn(), "It has two wheels.", "And what is a boat?");
    let first = ask(&served, &turn);
    assert_eq!(first.cached, 0);
    written(folder.path());
    served.child.kill().unwrap();
    served.child.wait().unwrap();
    drop(served);
    // The same request once more.
    let served = serve(folder.path());
    let again = ask(&served, &turn);
    assert_eq!((&again.text, again.prompt), (&first.text, first.prompt));
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
    let afresh = ask(&served, &turn);
    assert_eq!((afresh.cached, &afresh.text), (0, &first.text));
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
    let wrong = support::run(&["generate", "hello", "--prefix-memory", "some"]);
    assert!(wrong.code == Some(2) && wrong.stderr.contains("512M"), "{wrong:?}");
}
