//! `lithos explain`: what a model is compiled to.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use lithos_compiler::Fusion;
use lithos_compiler::device::{DeviceOptions, KeyValues, Program};
use lithos_kernels::Language;
use lithos_model::Model;

use crate::{model, output};

/// The arguments of `explain`.
#[derive(Args)]
#[command(after_help = "Examples:
  lithos explain                                  regions of the built-in model
  lithos explain ./Qwen3-0.6B --fusion layer
  lithos explain --fusion layer --emit metal      the text of its kernels")]
pub struct ExplainArgs {
    /// A Hugging Face directory or a GGUF file [default: the built-in model]
    #[arg(env = "LITHOS_MODEL")]
    model: Option<PathBuf>,
    /// Where launches are cut
    #[arg(long, default_value = "layer", value_name = "LEVEL",
        value_parser = PossibleValuesParser::new(Fusion::ALL.map(Fusion::name)).map(|name| name.parse::<Fusion>().expect("one of the levels")))]
    fusion: Fusion,
    /// Print the text of the kernels in this language
    #[arg(long, value_name = "LANGUAGE")]
    emit: Option<Emit>,
    /// Tokens that the caches hold
    #[arg(long, default_value_t = 4096, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(1..))]
    context: u32,
}

/// A language to print.
#[derive(Clone, Copy, ValueEnum)]
enum Emit {
    /// Metal Shading Language
    Metal,
    /// CUDA C++
    Cuda,
}

/// Prints a listing of regions and phases, or the text of the kernels.
pub fn run(args: &ExplainArgs) -> anyhow::Result<ExitCode> {
    let given = model::given(args.model.as_deref())?;
    let model = Model::from_checkpoint(model::checkpoint(given)?)?;
    let options = DeviceOptions {
        fusion: args.fusion,
        slots: 1,
        context: args.context as usize,
        key_values: KeyValues::Bf16,
        range_keys: 256,
    };
    let program = Program::new(&model.graph, options)?;
    let text = match args.emit {
        Some(Emit::Metal) => program.text(Language::Metal),
        Some(Emit::Cuda) => program.text(Language::Cuda),
        None => listing(&program),
    };
    output::print_bytes(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// Regions, their phases, and the task kinds of each.
fn listing(program: &Program) -> String {
    let schedule = &program.schedule;
    let mut text = format!(
        "{} launches of {} kernels, {} phases, {:.1} MB of weights, {:.1} MB of intermediate buffers\n",
        program.launches.len(),
        program.kernels(),
        schedule.phases.len(),
        program.places.weights.bytes as f64 / 1e6,
        schedule.arena as f64 / 1e6,
    );
    for (launch, region) in program.launches.iter().zip(&schedule.regions) {
        let scope = schedule.groups[schedule.phases[region.phases.start].start].scope;
        let layer = scope.layer.map_or(String::new(), |layer| format!(", layer {layer}"));
        let _ = writeln!(
            text,
            "\nregion {} ({}{layer})",
            launch.region,
            Program::kernel_name(launch.kernel)
        );
        for phase in &schedule.phases[region.phases.clone()] {
            let kinds: Vec<_> =
                schedule.groups[phase.clone()].iter().map(|group| group.kind.name()).collect();
            let _ = writeln!(text, "  {}", kinds.join(" | "));
        }
    }
    text
}
