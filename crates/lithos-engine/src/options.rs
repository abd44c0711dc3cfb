//! How to open a model.

use std::fmt;
use std::str::FromStr;

use lithos_compiler::Fusion;
use lithos_cpu::simd::Isa;

use crate::drafters::{Draft, DraftLength, Proposals};

/// What computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BackendKind {
    /// The schedule on this machine's cores.
    #[default]
    Cpu,
    /// The f32 oracle: slow, for comparisons.
    Interpreter,
    /// The Metal text of the model's kernels, run lane by lane on the host: slow, to check kernels. Needs clang.
    Emulator,
    /// The CUDA text of the model's kernels on an NVIDIA card.
    Cuda,
    /// A card that opens and has room for the model, else this machine's cores.
    Auto,
}

impl BackendKind {
    /// All backends, the usual one first.
    pub const ALL: [BackendKind; 5] = [
        BackendKind::Cpu,
        BackendKind::Cuda,
        BackendKind::Auto,
        BackendKind::Interpreter,
        BackendKind::Emulator,
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            BackendKind::Cpu => "cpu",
            BackendKind::Interpreter => "interpreter",
            BackendKind::Emulator => "emulator",
            BackendKind::Cuda => "cuda",
            BackendKind::Auto => "auto",
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
        BackendKind::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| {
            let names = BackendKind::ALL.map(BackendKind::name).join(", ");
            format!("unknown backend `{name}`: one of {names}")
        })
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
    /// Whether the emulator checks every access (bounds, unwritten values, races), at a hundredth of its speed.
    pub checks: bool,
    /// Where drafts come from.
    pub draft: Draft,
    /// How many of them a pass verifies.
    pub draft_length: DraftLength,
    /// What trained drafters propose where a text is drawn.
    pub proposals: Proposals,
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
            checks: false,
            draft: Draft::None,
            draft_length: DraftLength::Auto,
            proposals: Proposals::Likeliest,
        }
    }
}
