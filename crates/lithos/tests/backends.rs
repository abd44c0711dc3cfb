//! `--backend`: what is said where there is no card.

mod support;

use support::{Run, command, text_model};

/// Runs without any card, also on a machine that has one.
fn without_card(args: &[&str]) -> Run {
    let output = command().args(args).env("CUDA_VISIBLE_DEVICES", "-1").output().expect("it runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    Run { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

#[test]
fn without_a_card_cuda_is_refused_in_one_line() {
    let model = text_model();
    let path = model.path().to_str().expect("UTF-8");
    for args in [
        &["generate", "--backend", "cuda", "--model", path, "Hello"][..],
        &["score", path, "--backend", "cuda", "--ids", "1,2"],
        &["bench", path, "--backend", "cuda", "--gen", "2"],
        &["bench", path, "--backend", "cuda", "--rows", "1,8"],
    ] {
        without_card(args).refused(&["NVIDIA driver"]);
    }
}

#[test]
fn without_a_card_auto_is_the_cpu_and_says_why() {
    let model = text_model();
    let path = model.path().to_str().expect("UTF-8");
    let generate = |backend| {
        let args = ["generate", "--backend", backend, "-n", "4", "--model", path, "Hello"];
        without_card(&args)
    };
    let auto = generate("auto");
    let lines: Vec<&str> = auto.stderr.lines().filter(|line| line.contains("NVIDIA")).collect();
    assert_eq!(lines.len(), 1, "{auto:?}");
    assert!(lines[0].starts_with("running on the CPU: "), "{auto:?}");
    assert_eq!(auto.ok(), generate("cpu").ok());
}

#[test]
fn only_cards_are_measured_pass_by_pass() {
    let model = text_model();
    let path = model.path().to_str().expect("UTF-8");
    let run = without_card(&["bench", path, "--rows", "1"]);
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(run.stderr.contains("--backend cuda"), "{run:?}");
}
