//! Opening the model that the command line names.

use std::collections::HashSet;
use std::fmt;
use std::path::Path;
use std::sync::Once;
use std::time::{Duration, Instant};

use anyhow::bail;
use lithos_engine::{BackendKind, Engine, EngineOptions, choose_backend};
use lithos_format::{Checkpoint, FormatError};
use lithos_graph::{Graph, OpKind, StoredWeight, ValueId};
use lithos_model::shape::Footprint;
use lithos_model::{Model, ModelError};
use lithos_synthetic::SyntheticName;

use crate::{builtin, memory, output};

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
    /// A known shape with pseudo-random weights, by its whole name; see [`lithos_synthetic`].
    Synthetic(&'a str),
}

impl Given<'_> {
    /// Whether a drafter lies beside it.
    pub fn has_drafter(self) -> bool {
        const CONFIG: &str = "config.json";
        match self {
            Given::BuiltIn => {
                builtin::folder().is_ok_and(|folder| folder.subfolder("draft").contains(CONFIG))
            }
            Given::At(path) => path.join("draft").join(CONFIG).is_file(),
            Given::Synthetic(_) => false,
        }
    }
}

/// The model that was given, on the command line or in the environment; without one, the built-in model.
///
/// # Errors
/// If it is to be the built-in model and there is none, or a synthetic one that does not exist; the line says what to do.
pub fn given(path: Option<&Path>) -> anyhow::Result<Given<'_>> {
    let path = path.filter(|path| !path.as_os_str().is_empty());
    if let Some(name) =
        path.and_then(Path::to_str).filter(|text| lithos_synthetic::is_synthetic(text))
    {
        name.parse::<SyntheticName>()?;
        return Ok(Given::Synthetic(name));
    }
    match path {
        Some(path) if path != Path::new(builtin::NAME) => Ok(Given::At(path)),
        _ => builtin::folder().map(|_| Given::BuiltIn),
    }
}

/// The files of a model, or what stands for them.
///
/// # Errors
/// One line that names the file and the cause.
pub fn checkpoint(model: Given<'_>) -> anyhow::Result<Checkpoint> {
    Ok(match model {
        Given::BuiltIn => builtin::open()?,
        Given::At(path) => Checkpoint::open(path)?,
        Given::Synthetic(name) => lithos_synthetic::open(name)?,
    })
}

/// Opens a model, with the drafter in `drafter` if one is named, showing that it is being done and what was left out. Says once if it is
/// the built-in one.
///
/// # Errors
/// One line that names the file and the cause.
pub fn open(
    model: Given<'_>,
    drafter: Option<&Path>,
    options: EngineOptions,
) -> anyhow::Result<Opened> {
    let started = Instant::now();
    let engine = match model {
        Given::BuiltIn => engine(model, drafter, options)?,
        Given::At(_) | Given::Synthetic(_) => {
            let spinner = output::spinner(&format!("opening {model}"));
            let engine = engine(model, drafter, options);
            spinner.finish_and_clear();
            engine?
        }
    };
    let load = started.elapsed();
    let built_in = matches!(model, Given::BuiltIn);
    if matches!(model, Given::Synthetic(_)) {
        output::note("its weights are pseudo-random: it is for measuring, not for talking");
    }
    if built_in {
        announce(&engine);
    }
    // Who has not chosen a model need not know what was left out of it.
    if !built_in || output::is_verbose() {
        engine.notices().iter().for_each(|notice| output::note(notice));
    }
    Ok(Opened { engine, load })
}

fn engine(
    model: Given<'_>,
    drafter: Option<&Path>,
    mut options: EngineOptions,
) -> anyhow::Result<Engine> {
    let mut checkpoint = checkpoint(model)?;
    if options.backend == BackendKind::Auto {
        options.backend = say_choice(&checkpoint);
    }
    // The interpreter decodes weights where it needs them and holds none.
    if options.backend == BackendKind::Cpu {
        let described = Model::from_checkpoint(checkpoint)?;
        let needed = Resident::of(&described)?;
        needed.check(&described.name(), memory::available())?;
        checkpoint = described.checkpoint;
    }
    Ok(match drafter {
        Some(path) => Engine::with_drafter(checkpoint, Some(Checkpoint::open(path)?), options)?,
        None => Engine::from_checkpoint(checkpoint, options)?,
    })
}

/// The backend that was asked for, or what `auto` comes to, which is said.
///
/// # Errors
/// As [`checkpoint`].
pub fn chosen_backend(asked: BackendKind, model: Given<'_>) -> anyhow::Result<BackendKind> {
    match asked {
        BackendKind::Auto => Ok(say_choice(&checkpoint(model)?)),
        backend => Ok(backend),
    }
}

/// Tokens of a model's vocabulary.
///
/// # Errors
/// As [`checkpoint`].
pub fn vocabulary(model: Given<'_>) -> anyhow::Result<usize> {
    Ok(Model::from_checkpoint(checkpoint(model)?)?.graph.limits.vocabulary)
}

fn say_choice(checkpoint: &Checkpoint) -> BackendKind {
    let (backend, why) = choose_backend(checkpoint.weight_bytes());
    output::line(&why);
    backend
}

/// Bytes that a model takes however short its context is.
struct Resident {
    /// Matrices that passes multiply, packed.
    weights: u64,
    /// Recurrent states.
    states: u64,
}

impl Resident {
    fn of(model: &Model) -> Result<Self, ModelError> {
        let weights = multiplied(&model.graph)
            .into_iter()
            .map(|id| packed_bytes(model, id))
            .sum::<Result<u64, FormatError>>()?;
        Ok(Resident { weights, states: Footprint::of(&model.graph, weights).states })
    }

    /// Fails if there is less memory than it takes. Packing would end in the middle, by the system's hand.
    fn check(&self, name: &str, available: Option<u64>) -> anyhow::Result<()> {
        let needed = self.weights + self.states;
        match available {
            Some(available) if needed > available => bail!(
                "{name} needs {} MB of memory ({} MB of packed weights, {} MB of states, without any context), and this machine has {} MB available: choose a smaller model, or one in fewer bits",
                needed >> 20,
                self.weights >> 20,
                self.states >> 20,
                available >> 20
            ),
            _ => Ok(()),
        }
    }
}

/// The matrices of a graph's projections and experts, each once. Tables that are only gathered from are not packed.
fn multiplied(graph: &Graph) -> HashSet<ValueId> {
    let matrices = graph.ops.iter().flat_map(|op| match op.kind {
        OpKind::Linear => &op.inputs[1..],
        OpKind::Experts { .. } => &op.inputs[2..],
        _ => &[],
    });
    matrices.copied().collect()
}

fn packed_bytes(model: &Model, id: ValueId) -> Result<u64, FormatError> {
    let stored = StoredWeight::open(&model.checkpoint, model.graph.value(id))?;
    Ok(stored.map_or(0, |stored| stored.bytes()))
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
        BackendKind::Cpu | BackendKind::Emulator | BackendKind::Cuda | BackendKind::Auto => {
            engine.options().fusion.name()
        }
        BackendKind::Interpreter => "none",
    }
}

impl fmt::Display for Given<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Given::BuiltIn => formatter.write_str(builtin::NAME),
            Given::At(path) => path.display().fmt(formatter),
            Given::Synthetic(name) => formatter.write_str(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resident(name: &str) -> Resident {
        Resident::of(&Model::from_checkpoint(lithos_synthetic::open(name).unwrap()).unwrap())
            .unwrap()
    }

    #[test]
    fn what_does_not_fit_is_refused_with_the_numbers() {
        let needed = resident("synthetic:qwen3.8-27b-nvfp4");
        // A pass over NVIDIA's file reads 17.608 GB, small tensors included; the embedding table is not among them.
        assert!((17.59e9..17.61e9).contains(&(needed.weights as f64)), "{}", needed.weights);
        assert!((150e6..170e6).contains(&(needed.states as f64)), "{}", needed.states);
        let total = needed.weights + needed.states;
        assert!(needed.check("a", Some(total)).is_ok() && needed.check("a", None).is_ok());
        let message = needed.check("a", Some(total - 1)).unwrap_err().to_string();
        for bytes in [total, needed.weights, needed.states] {
            assert!(message.contains(&format!("{} MB", bytes >> 20)), "{message}");
        }
        assert!(message.starts_with("a needs"), "{message}");
    }

    #[test]
    fn a_table_counts_once_where_it_is_also_the_head() {
        let [hybrid, llama] = ["synthetic:tiny-qwen3", "synthetic:tiny-llama"].map(resident);
        assert_eq!(hybrid.weights, llama.weights);
        assert_eq!(llama.states, 0);
    }

    #[test]
    fn names_of_synthetic_models_are_checked_before_work() {
        let name = Path::new("synthetic:tiny-llama?seed=3");
        assert!(matches!(given(Some(name)), Ok(Given::Synthetic("synthetic:tiny-llama?seed=3"))));
        assert!(given(Some(Path::new("synthetic:nothing"))).is_err());
        assert!(matches!(given(Some(Path::new("./synthetic:nothing"))), Ok(Given::At(_))));
    }
}
