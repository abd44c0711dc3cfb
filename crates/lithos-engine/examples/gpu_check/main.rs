//! Checks of generated kernels on an NVIDIA card, against the interpreter and the CPU. `scripts/gpu-check` builds and runs it.
//!
//! Usage: `gpu_check [operations] [models] [synthetic] [--repeats N] [--seed N]`, all three parts where none is named. Prints one
//! line for each case; fails if one fails. What is read in the repository is looked for in `LITHOS_ROOT`.

mod models;
mod operations;
mod report;

#[allow(dead_code, reason = "tests use more of it")]
#[path = "../../tests/support/mod.rs"]
mod support;

#[path = "../../tests/support/checkpoints.rs"]
mod checkpoints;

use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use lithos_engine::{BackendKind, EngineOptions, Fusion};

use crate::report::Report;

/// What was asked for.
struct Arguments {
    parts: Vec<String>,
    repeats: usize,
    seed: u64,
}

fn main() -> ExitCode {
    let arguments = match arguments() {
        Ok(arguments) => arguments,
        Err(problem) => {
            eprintln!("error: {problem}");
            return ExitCode::FAILURE;
        }
    };
    let wanted =
        |part: &str| arguments.parts.is_empty() || arguments.parts.iter().any(|p| p == part);
    println!("seed {} (repeat with --seed {})", arguments.seed, arguments.seed);
    let mut report = Report::new();
    if wanted("operations") {
        operations::check(&mut report, arguments.seed, arguments.repeats);
    }
    if wanted("models") {
        models::check(&mut report, arguments.repeats);
    }
    if wanted("synthetic") {
        models::check_synthetic(&mut report, arguments.seed, arguments.repeats);
    }
    report.finish()
}

fn arguments() -> Result<Arguments, String> {
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |time| time.as_secs());
    let mut arguments = Arguments { parts: Vec::new(), repeats: 50, seed: clock };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut number = || {
            let value = words.next().ok_or(format!("{word} needs a number"))?;
            value.parse::<u64>().map_err(|_| format!("`{value}` is not a number"))
        };
        match word.as_str() {
            "--repeats" => arguments.repeats = number()?.max(1) as usize,
            "--seed" => arguments.seed = number()?,
            "operations" | "models" | "synthetic" => arguments.parts.push(word),
            _ => {
                return Err(format!(
                    "unknown argument `{word}`: operations, models, synthetic, --repeats N, --seed N"
                ));
            }
        }
    }
    Ok(arguments)
}

/// The backend under test.
fn cuda(fusion: Fusion) -> EngineOptions {
    EngineOptions {
        backend: BackendKind::Cuda,
        fusion,
        context: Some(512),
        ..EngineOptions::default()
    }
}

/// The CPU on all cores, to compare with.
fn cpu() -> EngineOptions {
    EngineOptions { context: Some(512), ..EngineOptions::default() }
}
