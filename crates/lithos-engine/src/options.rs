//! How to open a model.

use std::fmt;
use std::str::FromStr;

use lithos_compiler::Fusion;
use lithos_cpu::simd::Isa;

/// What computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BackendKind {
    /// The schedule on this machine's cores.
    #[default]
    Cpu,
    /// The f32 oracle: slow, for comparisons.
    Interpreter,
}

impl BackendKind {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            BackendKind::Cpu => "cpu",
            BackendKind::Interpreter => "interpreter",
        }
    }
}

impl fmt::Display for BackendKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for BackendKind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        [BackendKind::Cpu, BackendKind::Interpreter]
            .into_iter()
            .find(|kind| kind.name() == name)
            .ok_or_else(|| format!("unknown backend `{name}`: cpu or interpreter"))
    }
}

/// How to open a model.
#[derive(Clone, Copy, Debug)]
pub struct EngineOptions {
    /// What computes.
    pub backend: BackendKind,
    /// Where launches are cut.
    pub fusion: Fusion,
    /// Worker threads; `None` for one per core.
    pub threads: Option<usize>,
    /// Instruction set; `None` for the best of this processor.
    pub isa: Option<Isa>,
    /// Positions that a sequence can reach; `None` for what the model was made for, within memory.
    pub context: Option<usize>,
    /// Rows of a prefill chunk; `None` for the backend's choice.
    pub chunk: Option<usize>,
}

impl Default for EngineOptions {
    fn default() -> Self {
        EngineOptions {
            backend: BackendKind::Cpu,
            fusion: Fusion::Step,
            threads: None,
            isa: None,
            context: None,
            chunk: None,
        }
    }
}
