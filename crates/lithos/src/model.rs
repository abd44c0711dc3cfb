//! Opening the model that the command line names.

use std::path::Path;
use std::sync::Once;
use std::time::{Duration, Instant};

use lithos_engine::{BackendKind, Engine, EngineOptions};

use crate::{builtin, output};

/// An open model and how long it took to open.
pub struct Opened {
    /// The engine.
    pub engine: Engine,
    /// From the path to a model that can answer.
    pub load: Duration,
}

/// The model that a command is about.
#[derive(Clone, Copy)]
pub enum Given<'a> {
    /// The one that is part of the program.
    BuiltIn,
    /// A directory or a file.
    At(&'a Path),
}

/// The model that was given, on the command line or in the environment; without one, the built-in model.
///
/// # Errors
/// If it is to be the built-in model and there is none; the line says what to do.
pub fn given(path: Option<&Path>) -> anyhow::Result<Given<'_>> {
    match path.filter(|path| !path.as_os_str().is_empty()) {
        Some(path) if path != Path::new(builtin::NAME) => Ok(Given::At(path)),
        _ => builtin::folder().map(|_| Given::BuiltIn),
    }
}

/// Opens a model, showing that it is being done and what was left out. Says once if it is the built-in one.
///
/// # Errors
/// One line that names the file and the cause.
pub fn open(model: Given<'_>, options: EngineOptions) -> anyhow::Result<Opened> {
    let started = Instant::now();
    let engine = match model {
        Given::BuiltIn => Engine::from_checkpoint(builtin::open()?, options)?,
        Given::At(path) => {
            let spinner = output::spinner(&format!("opening {}", path.display()));
            let engine = Engine::open(path, options);
            spinner.finish_and_clear();
            engine?
        }
    };
    let load = started.elapsed();
    let built_in = matches!(model, Given::BuiltIn);
    if built_in {
        announce(&engine);
    }
    // Who has not chosen a model need not know what was left out of it.
    if !built_in || output::is_verbose() {
        engine.notices().iter().for_each(|notice| output::note(notice));
    }
    Ok(Opened { engine, load })
}

/// Says which model answers and how to get a better one.
fn announce(engine: &Engine) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        output::line(&output::dim(&format!(
            "{} answers: a demonstration model of {} parameters, built into this program; for a better one, download it and name its directory: see `lithos models`",
            engine.name(),
            output::parameters(engine.parameters())
        )));
    });
}

/// The fusion level that an engine runs at, by name. The interpreter runs op by op, whatever was asked for.
pub fn fusion_name(engine: &Engine) -> &'static str {
    match engine.backend() {
        BackendKind::Cpu => engine.options().fusion.name(),
        BackendKind::Interpreter => "none",
    }
}
