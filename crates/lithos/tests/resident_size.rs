//! How much memory a real model takes. `scripts/fetch-smollm2` fetches it; where it is absent this says so and is skipped, unless
//! `LITHOS_REQUIRE_SMOLLM2` is set, as in CI.

#![cfg(unix)]

use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Beyond the weights, for everything: vocabulary, buffers, the pages of keys and values that a short answer touches.
const ALLOWANCE: u64 = 200 << 20;

#[test]
fn generate_takes_its_weights_and_little_more() {
    let model = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../testdata/models/SmolLM2-135M-Instruct.Q4_1.gguf");
    if !model.exists() {
        let required = std::env::var_os("LITHOS_REQUIRE_SMOLLM2").is_some();
        assert!(!required, "{} is absent: run scripts/fetch-smollm2", model.display());
        eprintln!("skipped: {} is absent (scripts/fetch-smollm2 fetches it)", model.display());
        return;
    }
    let status = Command::new(env!("CARGO_BIN_EXE_lithos"))
        .args(["generate", "--max-tokens", "32", "What is the capital of France?", "--model"])
        .arg(&model)
        .stdout(Stdio::null())
        .status()
        .expect("the program starts");
    assert!(status.success());
    let weights = std::fs::metadata(&model).expect("the model's file").len();
    let peak = largest_child();
    assert!(
        peak <= weights + ALLOWANCE,
        "{} MB resident for {} MB of weights",
        peak >> 20,
        weights >> 20
    );
    assert!(peak > weights / 2, "{peak} bytes cannot hold the model: the measurement is wrong");
}

/// Largest resident size of a child that has ended, in bytes. This process has only the one.
fn largest_child() -> u64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the struct is plain numbers, and the call fills it.
    let usage = unsafe {
        assert_eq!(libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr()), 0);
        usage.assume_init()
    };
    let unit = if cfg!(target_os = "macos") { 1 } else { 1024 };
    usage.ru_maxrss as u64 * unit
}
