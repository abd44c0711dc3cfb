//! Opening the model that the command line names.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::bail;
use lithos_engine::{BackendKind, Engine, EngineOptions};

use crate::output;

/// An open model and how long it took to open.
pub struct Opened {
    /// The engine.
    pub engine: Engine,
    /// From the path to a model that can answer.
    pub load: Duration,
}

/// The model that was given, on the command line or in the environment.
///
/// # Errors
/// If none was; the line says how to give one.
pub fn given(path: Option<&Path>) -> anyhow::Result<&Path> {
    match path {
        Some(path) if !path.as_os_str().is_empty() => Ok(path),
        _ => bail!(
            "no model was given: name a Hugging Face directory or a GGUF file, with --model PATH or in LITHOS_MODEL"
        ),
    }
}

/// Opens a model, showing that it is being done and what was left out.
///
/// # Errors
/// One line that names the file and the cause.
pub fn open(path: &Path, options: EngineOptions) -> anyhow::Result<Opened> {
    let spinner = output::spinner(&format!("opening {}", path.display()));
    let started = Instant::now();
    let engine = Engine::open(path, options);
    spinner.finish_and_clear();
    let engine = engine?;
    let load = started.elapsed();
    for notice in engine.notices() {
        output::note(notice);
    }
    Ok(Opened { engine, load })
}

/// The fusion level that an engine runs at, by name. The interpreter runs op by op, whatever was asked for.
pub fn fusion_name(engine: &Engine) -> &'static str {
    match engine.backend() {
        BackendKind::Cpu => engine.options().fusion.name(),
        BackendKind::Interpreter => "none",
    }
}
