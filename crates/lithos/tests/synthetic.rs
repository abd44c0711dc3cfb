//! `synthetic:NAME` where a model's path could stand.

mod support;

use std::fs;

use support::{command, finish, run};

#[test]
fn a_synthetic_model_is_named_wherever_a_path_could_be() {
    let name = "synthetic:tiny-hybrid-nvfp4";
    let generate = ["generate", "--model", name, "--max-tokens", "12", "Say something"];
    let text = run(&generate).ok();
    assert_eq!(run(&generate).ok(), text, "the weights are the same in every run");
    let interpreter = [&generate[..], &["--backend", "interpreter"]].concat();
    assert_eq!(run(&interpreter).ok(), text);
    for level in ["none", "mixer", "layer", "step"] {
        assert_eq!(run(&[&generate[..], &["--fusion", level]].concat()).ok(), text, "{level}");
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("text.txt");
    fs::write(&file, "Some text that a model can be measured on.").unwrap();
    let scored = run(&["score", name, "--text", file.to_str().unwrap()]).ok();
    assert!(!scored.is_empty());
    let bench = ["bench", name, "--prompt-tokens", "8", "--gen", "4", "--repeat", "1", "--json"];
    let result = run(&[&bench[..], &["--fusion", "step"]].concat()).json();
    assert_eq!(result["model"], name);
    assert!(result["weight_bytes_per_pass"].as_u64().unwrap() > 300_000);
    let given = finish(command().env("LITHOS_MODEL", name).args(["generate", "-n", "1", "a"]), b"");
    given.ok();
}

#[test]
fn seeds_make_other_models_and_notes_say_what_it_is() {
    let generate = |seed: &str| {
        let name = format!("synthetic:tiny-llama-bf16?seed={seed}");
        run(&["generate", "--verbose", "--raw", "--model", &name, "-n", "24", "abc"])
    };
    let [first, second] = ["0", "1"].map(generate);
    assert!(
        first.stderr.contains("pseudo-random") && first.stderr.contains("measuring"),
        "{first:?}"
    );
    assert_ne!(first.ok(), second.ok());
}

#[test]
fn names_that_mean_nothing_are_refused_in_one_line() {
    let refused = |name: &str, parts: &[&str]| {
        run(&["generate", "--model", name, "a"]).refused(parts);
        run(&["bench", name]).refused(parts);
    };
    refused(
        "synthetic:qwen3.8-72b-nvfp4",
        &["qwen3.8-72b-nvfp4", "qwen3.8-27b-nvfp4", "--synthetic"],
    );
    refused("synthetic:tiny-llama?seed=x", &["`x`", "seed"]);
    refused("synthetic:tiny-llama?sed=1", &["`sed`", "seed"]);
    refused("synthetic:tiny-llama?format=q9", &["`q9`", "nvfp4"]);
    refused("synthetic:qwen3.8-27b-dspark", &["qwen3.8-27b-dspark", "is a drafter"]);
}

#[test]
fn large_shapes_are_compiled_to_a_plan() {
    let plan = run(&["explain", "synthetic:qwen3.6-35b-a3b-nvfp4", "--fusion", "layer"]).ok();
    assert!(plan.starts_with("42 launches of 4 kernels"), "{plan}");
    for phase in ["route | linear\n", "  expert_gate_up\n", "  expert_down\n", "  combine\n"] {
        assert_eq!(plan.matches(phase).count(), 40, "{phase} in {plan}");
    }
    // 70 GB of weights are more than a program's offsets reach.
    run(&["explain", "synthetic:qwen3.6-35b-a3b"]).refused(&["bytes of weights", "68719476720"]);
}

#[test]
fn what_no_memory_holds_is_refused_before_any_work() {
    // 141 GB of weights; where they fit there is nothing to refuse.
    let available = run(&["models", "--json"]).json()["available_memory_bytes"].as_u64();
    if available.is_none_or(|bytes| bytes > 141_000_000_000) {
        return;
    }
    let parts = ["synthetic:llama-3.1-70b", "MB of packed weights", "MB available"];
    run(&["generate", "--model", "synthetic:llama-3.1-70b", "a"]).refused(&parts);
}

#[test]
fn models_lists_the_shapes() {
    let table = run(&["models", "--synthetic"]).ok();
    let list = run(&["models", "--synthetic", "--json"]).json();
    let names = ["models", "drafters"].map(|part| list[part].as_array().unwrap().clone()).concat();
    assert!(names.len() > 20);
    for entry in &names {
        let name = entry["name"].as_str().unwrap().strip_prefix("synthetic:").unwrap();
        assert!(table.lines().any(|line| line.split(' ').next() == Some(name)), "{name}");
    }
    let weights = |name: &str, format: &str| {
        let entry = names.iter().find(|entry| entry["name"] == name).unwrap();
        entry["weight_bytes"][format].as_f64().unwrap()
    };
    assert!((weights("synthetic:qwen3.8-27b", "bf16") / 53.8e9 - 1.0).abs() < 0.01);
    assert!((weights("synthetic:qwen3.8-27b", "nvfp4") / 20.1e9 - 1.0).abs() < 0.02);
    assert!(table.lines().all(|line| line.chars().count() <= 120), "{table}");
    // The list of models to download says that there is another.
    assert!(run(&["models"]).ok().contains("lithos models --synthetic"));
}
