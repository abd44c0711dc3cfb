//! Drafters by name and by directory, what they cannot be, and traces.

mod support;

use std::path::PathBuf;

use serde_json::Value;
use support::{command, finish, run};

fn models() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../models")
}

fn generate(flags: &[&str]) -> Vec<String> {
    let ask = ["generate", "--max-tokens", "24", "--ignore-eos", "--json", "What is a bicycle?"];
    ask.iter().chain(flags).map(|flag| (*flag).to_owned()).collect()
}

fn json(flags: &[&str]) -> Value {
    let args = generate(flags);
    run(&args.iter().map(String::as_str).collect::<Vec<_>>()).json()
}

fn refused(flags: &[&str]) -> String {
    let args = generate(flags);
    let failed = run(&args.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(failed.code.is_some_and(|code| code != 0), "{flags:?}: {failed:?}");
    assert!(!failed.stderr.contains("panicked"), "{failed:?}");
    failed.stderr
}

#[test]
fn drafters_are_named_or_are_directories_and_change_no_text() {
    let greedy = ["--temperature", "0"];
    let with = |flags: &[&str]| json(&[&greedy[..], flags].concat());
    let plain = with(&["--draft", "none"]);
    assert!(plain["speculation"].is_null());
    let drafter = models().join("lithos-mini/draft");
    for (source, name) in
        [("mtp", "mtp"), ("dspark", "dspark"), (drafter.to_str().unwrap(), "dspark")]
    {
        let drafted = with(&["--draft", source, "--draft-len", "3"]);
        assert_eq!(drafted["token_ids"], plain["token_ids"], "{source}");
        assert_eq!(drafted["speculation"]["source"], name);
        assert!(drafted["speculation"]["accepted"].as_u64().unwrap() > 0, "{drafted}");
    }
    // Drawn drafts change no text that is not drawn, and repeat one that is.
    let drawn = ["--draft", "mtp", "--draft-len", "3", "--draft-proposals", "drawn"];
    assert_eq!(with(&drawn)["token_ids"], plain["token_ids"]);
    let warm = [&drawn[..], &["--temperature", "0.9", "--seed", "4"]].concat();
    assert_eq!(json(&warm)["token_ids"], json(&warm)["token_ids"]);
}

#[test]
fn what_cannot_draft_is_refused_by_name() {
    let model = models().join("lithos-mini");
    let error = refused(&["--draft", "mpt"]);
    assert!(error.contains("dspark, mtp, copy") && error.contains("directory"), "{error}");
    let error = refused(&["--draft", model.to_str().unwrap()]);
    assert!(error.contains("lithos-mini/config.json") && error.contains("no DSpark"), "{error}");
    let folder = tempfile::tempdir().unwrap();
    let error = refused(&["--draft", folder.path().to_str().unwrap()]);
    assert!(error.contains(folder.path().to_str().unwrap()), "{error}");
    let error = refused(&["--draft", "mtp", "--backend", "interpreter"]);
    assert!(error.contains("interpreter") && error.contains("--backend cpu"), "{error}");
}

#[test]
fn what_passes_take_is_measured_once_and_only_where_it_decides() {
    let home = tempfile::tempdir().unwrap();
    let costs = home.path().join("lithos/costs");
    let ask = |flags: &[&str]| {
        let mut command = command();
        command.args(generate(flags)).env("XDG_CACHE_HOME", home.path());
        finish(&mut command, b"").json()
    };
    for flags in
        [&["--draft", "none"][..], &["--draft-len", "3"], &["--draft-len", "threshold:0.6"]]
    {
        ask(flags);
        assert!(!costs.exists(), "{flags:?} asks for no measurement");
    }
    let first = ask(&["--temperature", "0"]);
    let files = || -> Vec<PathBuf> {
        std::fs::read_dir(&costs).unwrap().map(|file| file.unwrap().path()).collect()
    };
    let [file] = &files()[..] else { panic!("one file: {:?}", files()) };
    let measured = std::fs::read(file).unwrap();
    let entry: Value = serde_json::from_slice(&measured).unwrap();
    let seconds: Vec<f64> =
        entry["seconds"].as_array().unwrap().iter().filter_map(Value::as_f64).collect();
    assert!(!seconds.is_empty() && seconds.iter().all(|seconds| *seconds > 0.0), "{entry}");
    ask(&["--temperature", "0"]);
    assert_eq!(std::fs::read(file).unwrap(), measured, "it is not measured again");
    // One thread is another machine, and a damaged file is as good as none.
    ask(&["--threads", "1"]);
    assert_eq!(files().len(), 2);
    std::fs::write(file, &measured[..measured.len() / 2]).unwrap();
    assert_eq!(ask(&["--temperature", "0"])["token_ids"], first["token_ids"]);
    serde_json::from_slice::<Value>(&std::fs::read(file).unwrap()).unwrap();
    // Where nothing can be kept, it is measured each time.
    let blocked = home.path().join("file");
    std::fs::write(&blocked, "").unwrap();
    let mut command = command();
    command.args(generate(&["--temperature", "0"])).env("XDG_CACHE_HOME", &blocked);
    assert_eq!(finish(&mut command, b"").json()["token_ids"], first["token_ids"]);
}

#[test]
fn rules_of_length_are_a_number_a_threshold_or_what_pays() {
    let greedy = ["--temperature", "0", "--draft", "mtp"];
    let with = |rule: &str| json(&[&greedy[..], &["--draft-len", rule]].concat());
    let verified = |report: &Value| report["speculation"]["proposed"].as_u64().unwrap();
    let (some, few) = (with("threshold:0.05"), with("threshold:0.9"));
    assert_eq!(some["token_ids"], few["token_ids"]);
    assert!(verified(&some) > verified(&few), "{some} {few}");
    for nonsense in ["0", "16", "many", "threshold:", "threshold:0", "threshold:1.5", "threshold:x"]
    {
        let error = refused(&["--draft-len", nonsense]);
        assert!(error.contains("threshold:") && error.contains("--draft-len"), "{error}");
    }
    let error = refused(&["--draft-len", "threshold:NaN"]);
    assert!(error.contains("above 0 and at most 1"), "{error}");
}

#[test]
fn a_trace_holds_every_round_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace.json");
    let name = file.to_str().unwrap();
    let report = json(&["--draft", "mtp", "--draft-len", "2", "--trace", name]);
    let trace: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let named = |name: &str| events.iter().filter(|event| event["name"] == name).count() as u64;
    assert!(named("prefill") > 0);
    for part in ["draft", "verify", "accept"] {
        assert_eq!(report["speculation"]["rounds"], named(part), "{part}");
    }
    let mut end = 0.0;
    for event in events {
        let [start, took] = ["ts", "dur"].map(|key| event[key].as_f64().unwrap());
        // One after the other; nanoseconds are lost in writing.
        assert!(start + 0.01 >= end && took >= 0.0, "{event}");
        end = start + took;
    }
    let error = refused(&["--trace", folder.path().join("no/where").to_str().unwrap()]);
    assert!(error.contains("cannot write the trace"), "{error}");
}
