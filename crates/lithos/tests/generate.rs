//! `lithos generate`: what it prints, where prompts come from, and how it ends.

mod support;

use std::io::Read;
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;
use support::{Run, command, finish, run, run_with, text_model};

fn generate(model: &Path, flags: &[&str]) -> Run {
    let mut args = vec!["generate", "--model", model.to_str().unwrap(), "--max-tokens", "12"];
    args.extend(flags);
    run(&args)
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn json_holds_what_was_measured() {
    let model = text_model();
    let result = generate(model.path(), &["--json", "--fusion", "layer", "Hello"]).json();
    let wanted = "model backend fusion prompt_tokens cached_tokens generated_tokens token_ids text finish_reason timings speculation";
    assert_eq!(keys(&result), wanted.split(' ').collect::<Vec<_>>());
    let wanted = "load_s prefill_s decode_s prefill_tokens_per_s decode_tokens_per_s";
    assert_eq!(keys(&result["timings"]), wanted.split(' ').collect::<Vec<_>>());
    for (name, time) in result["timings"].as_object().unwrap() {
        assert!(time.as_f64().unwrap() > 0.0, "{name}");
    }
    let wanted =
        "source rounds tokens_per_round proposed accepted accepted_by_position verify_len_hist";
    assert_eq!(keys(&result["speculation"]), wanted.split(' ').collect::<Vec<_>>());
    assert_eq!(result["speculation"]["source"], "copy");
    assert_eq!(result["backend"], "cpu");
    assert_eq!(result["fusion"], "layer");
    assert_eq!(result["finish_reason"], "length");
    assert_eq!(result["generated_tokens"], 12);
    assert_eq!(result["token_ids"].as_array().unwrap().len(), 12);
    // The template is around it.
    assert!(result["prompt_tokens"].as_u64().unwrap() > 6);
    // Without --json the text alone is printed.
    let text = generate(model.path(), &["--fusion", "layer", "Hello"]).ok();
    assert_eq!(result["text"], text.as_str());
}

#[test]
fn every_backend_and_level_says_the_same() {
    let model = text_model();
    let first = generate(model.path(), &["--json", "Hello"]).json();
    let mut ways: Vec<Vec<&str>> =
        ["none", "mixer", "layer"].map(|level| vec!["--fusion", level]).to_vec();
    ways.push(vec!["--backend", "interpreter"]);
    ways.push(vec!["--threads", "1"]);
    for way in ways {
        let other = generate(model.path(), &[&["--json", "Hello"][..], &way].concat()).json();
        assert_eq!(other["token_ids"], first["token_ids"], "{way:?}");
    }
}

#[test]
fn a_seed_repeats_an_answer() {
    let model = text_model();
    let with_seed = |seed: &str| {
        let flags = ["--json", "--temperature", "1.5", "--seed", seed, "Hello"];
        generate(model.path(), &flags).json()["token_ids"].clone()
    };
    assert_eq!(with_seed("1"), with_seed("1"));
    assert_ne!(with_seed("1"), with_seed("2"));
}

#[test]
fn sampling_flags_reach_the_sampler() {
    let model = text_model();
    let greedy = generate(model.path(), &["--json", "Hello"]).json();
    let id = greedy["token_ids"][0].as_u64().unwrap();
    // One candidate is the greedy choice, whatever the temperature.
    let flags = ["--json", "--temperature", "5", "--top-k", "1", "Hello"];
    assert_eq!(generate(model.path(), &flags).json()["token_ids"], greedy["token_ids"]);
    let bias = format!("{id}=-100");
    let biased = generate(model.path(), &["--json", "--logit-bias", &bias, "Hello"]).json();
    assert!(!biased["token_ids"].as_array().unwrap().contains(&id.into()));
    let forced = generate(model.path(), &["--json", "--logit-bias", "77=500", "Hello"]).json();
    assert!(forced["token_ids"].as_array().unwrap().iter().all(|token| token == 77));
    generate(model.path(), &["--logit-bias", "2016=1", "Hello"]).refused(&["2016", "--logit-bias"]);
    generate(model.path(), &["--top-p", "1.5", "Hello"]).refused(&["top_p", "1.5"]);
    generate(model.path(), &["--temperature", "-1", "Hello"]).refused(&["temperature", "-1"]);
}

#[test]
fn a_stop_text_ends_the_answer_before_it() {
    let model = text_model();
    let whole = generate(model.path(), &["Hello"]).ok();
    let characters: Vec<char> = whole.chars().collect();
    let stop: String = characters[characters.len() / 2..].iter().take(3).collect();
    let stopped = generate(model.path(), &["--json", "--stop", &stop, "Hello"]).json();
    assert_eq!(stopped["finish_reason"], "stop");
    assert_eq!(stopped["text"], whole.split(&stop).next().unwrap());
}

#[test]
fn an_end_token_ends_the_answer_unless_ignored() {
    let model = text_model();
    let first = generate(model.path(), &["--json", "Hello"]).json();
    let end = first["token_ids"][3].clone();
    support::edit_json(&model.path().join("generation_config.json"), |config| {
        config["eos_token_id"] = end.clone();
    });
    let ended = generate(model.path(), &["--json", "Hello"]).json();
    assert_eq!(ended["finish_reason"], "stop");
    assert_eq!(ended["token_ids"].as_array().unwrap().last(), Some(&end));
    assert!(ended["generated_tokens"].as_u64().unwrap() <= 4);
    let ignored = generate(model.path(), &["--json", "--ignore-eos", "Hello"]).json();
    assert_eq!(ignored["token_ids"], first["token_ids"]);
}

#[test]
fn prompts_come_from_standard_input_too() {
    let model = text_model();
    let path = model.path().to_str().unwrap();
    let wanted = generate(model.path(), &["--json", "Hello there"]).json();
    let base = ["generate", "--model", path, "--max-tokens", "12", "--json"];
    let piped = run_with(&base, b"Hello there\n").json();
    assert_eq!(piped["token_ids"], wanted["token_ids"]);
    let dash = [&base[..], &["-"]].concat();
    assert_eq!(run_with(&dash, b"Hello there").json()["token_ids"], wanted["token_ids"]);
    run_with(&base, b"ab\xffcd").refused(&["standard input", "UTF-8", "byte 2"]);
    run_with(&base, b"").refused(&["prompt is empty"]);
}

#[cfg(unix)]
#[test]
fn a_prompt_argument_must_be_text() {
    use std::os::unix::ffi::OsStrExt;
    let model = text_model();
    let mut command = command();
    command.arg("generate").arg("--model").arg(model.path());
    command.arg(std::ffi::OsStr::from_bytes(b"ab\xff"));
    finish(&mut command, b"").refused(&["prompt", "UTF-8"]);
}

#[test]
fn raw_prompts_have_no_template() {
    let model = text_model();
    let raw = generate(model.path(), &["--json", "--raw", "Hello"]).json();
    let templated = generate(model.path(), &["--json", "Hello"]).json();
    assert!(raw["prompt_tokens"].as_u64() < templated["prompt_tokens"].as_u64());
    let with_system = generate(model.path(), &["--json", "--system", "Be brief.", "Hello"]).json();
    assert!(with_system["prompt_tokens"].as_u64() > templated["prompt_tokens"].as_u64());
    // Without a template only raw prompts work.
    std::fs::remove_file(model.path().join("chat_template.jinja")).unwrap();
    generate(model.path(), &["Hello"]).refused(&["template", "--raw"]);
    generate(model.path(), &["--raw", "Hello"]).ok();
}

#[test]
fn the_model_may_be_in_the_environment() {
    let model = text_model();
    let mut named = command();
    named.args(["generate", "--max-tokens", "2", "Hello"]).env("LITHOS_MODEL", model.path());
    finish(&mut named, b"").ok();
}

#[test]
fn a_reader_that_leaves_is_no_failure() {
    let model = text_model();
    let mut child = command()
        .args(["generate", "--ignore-eos", "--model"])
        .arg(model.path())
        .arg("Hello")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0];
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut first).unwrap();
    drop(stdout);
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0));
}

#[cfg(unix)]
#[test]
fn an_interrupt_ends_the_answer() {
    let model = text_model();
    // The interpreter is slow enough that the answer cannot be over before the signal.
    let mut child = command()
        .args(["generate", "--ignore-eos", "--backend", "interpreter", "--model"])
        .arg(model.path())
        .arg("Hello")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    support::interrupt(&child);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn an_answer_has_the_form_that_was_asked_for() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("colour.lark");
    std::fs::write(&file, "start: \"red\" | \"green\"\n").expect("written");
    let builtin = |flags: &[&str]| {
        let args = ["generate", "--max-tokens", "100", "--temperature", "0"];
        run(&[&args[..], flags, &["Which one?"]].concat()).ok()
    };
    let schema = r#"{"type": "object", "properties": {"n": {"type": "integer", "minimum": 1, "maximum": 9}},
        "required": ["n"], "additionalProperties": false}"#;
    let answer: Value = serde_json::from_str(&builtin(&["--json-schema", schema])).expect("JSON");
    assert!((1..=9).contains(&answer["n"].as_u64().unwrap()), "{answer}");
    let answer = builtin(&["--grammar", file.to_str().unwrap()]);
    assert!(answer == "red" || answer == "green", "{answer}");
    let answer = builtin(&["--regex", "(yes|no)"]);
    assert!(answer == "yes" || answer == "no", "{answer}");
}

#[test]
fn forms_that_do_not_work_are_refused() {
    for (flags, parts) in [
        (["--regex", "("], &["regular expression"][..]),
        (["--json-schema", "{\"type\": \"colour\"}"], &["JSON schema", "colour"]),
        (["--json-schema", "{"], &["--json-schema is not JSON"]),
        (["--json-schema", "absent.json"], &["--json-schema", "absent.json"]),
        (["--grammar", "absent.lark"], &["--grammar", "absent.lark"]),
    ] {
        run(&["generate", flags[0], flags[1], "x"]).refused(parts);
    }
    let both = run(&["generate", "--regex", "a", "--grammar", "b", "x"]);
    assert_eq!(both.code, Some(2), "{both:?}");
    run(&["generate", "--regex", "a", "--thinking", "on", "x"]).refused(&["--thinking"]);
}
