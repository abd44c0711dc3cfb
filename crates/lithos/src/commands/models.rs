//! `lithos models`: what there is to run.

use std::collections::BTreeSet;
use std::process::ExitCode;

use clap::Args;
use lithos_graph::StoredWeight;
use lithos_model::Model;
use lithos_model::shape::Footprint;
use lithos_synthetic::{DRAFTERS, FORMATS, PREFIX, SHAPES};
use serde_json::{Map, Value, json};

use crate::args::count;
use crate::catalogue::{Entry, MODELS};
use crate::table::align;
use crate::{builtin, memory, output};

/// The arguments of `models`.
#[derive(Args)]
#[command(after_help = "Examples:
  lithos models
  lithos models --context 32768 --json
  lithos models --card
  lithos models --synthetic

There is no download yet: fetch a repository of huggingface.co with any tool, and name its directory with --model DIR (a \
GGUF file: --model FILE). Other repositories of the same architectures and formats work as well.")]
pub struct ModelsArgs {
    /// Tokens of context whose keys and values count as memory
    #[arg(long, value_name = "TOKENS", default_value = "8192", value_parser = count())]
    context: usize,
    /// Print the model card of the built-in model: what it is, from what it was made, its limits, its licence
    #[arg(long, conflicts_with = "json")]
    card: bool,
    /// List the shapes that `synthetic:NAME` opens with pseudo-random weights, for measuring without a download
    #[arg(long, conflicts_with = "card")]
    synthetic: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Prints the list.
pub fn run(args: &ModelsArgs) -> anyhow::Result<ExitCode> {
    if args.card {
        output::print(&builtin::card()?)?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.synthetic {
        let text = match args.json {
            true => format!("{}\n", synthetic_json()),
            false => synthetic_text(),
        };
        output::print(&text)?;
        return Ok(ExitCode::SUCCESS);
    }
    let list = List { built_in: built_in()?, context: args.context as u64 };
    output::print(&if args.json { format!("{}\n", list.json()) } else { list.text() })?;
    Ok(ExitCode::SUCCESS)
}

/// One line of the list.
struct Line {
    name: String,
    built_in: bool,
    architecture: String,
    format: String,
    parameters: u64,
    footprint: Footprint,
}

/// The built-in model, if this build has one.
fn built_in() -> anyhow::Result<Option<Line>> {
    if builtin::folder().is_err() {
        return Ok(None);
    }
    let model = Model::from_checkpoint(builtin::open()?)?;
    let mut formats = BTreeSet::new();
    for value in model.graph.weights().map(|id| model.graph.value(id)) {
        if let Some(stored) = StoredWeight::open(&model.checkpoint, value)? {
            formats.extend(stored.matrices().iter().map(|matrix| matrix.format().to_uppercase()));
        }
    }
    Ok(Some(Line {
        name: model.name(),
        built_in: true,
        architecture: model.graph.architecture.clone(),
        format: formats.into_iter().collect::<Vec<_>>().join(", "),
        parameters: model.parameters(),
        footprint: Footprint::of(&model.graph, model.checkpoint.weight_bytes()),
    }))
}

impl From<&Entry> for Line {
    fn from(entry: &Entry) -> Self {
        Line {
            name: entry.repository.to_owned(),
            built_in: false,
            architecture: entry.shape.architecture.to_owned(),
            format: entry.format.name().to_owned(),
            parameters: entry.shape.parameters(),
            footprint: entry.shape.footprint(entry.format),
        }
    }
}

struct List {
    built_in: Option<Line>,
    context: u64,
}

impl List {
    fn text(&self) -> String {
        let heading = ["model", "format", "parameters", "weights", "memory"];
        let mut rows = vec![heading.map(str::to_owned).to_vec()];
        rows.extend(self.built_in.iter().map(|line| self.cells(line)));
        rows.extend(MODELS.iter().map(|entry| self.cells(&entry.into())));
        let table = align(&rows, 2);
        let built_in = match &self.built_in {
            Some(line) => format!(
                "{} is built into this program and answers where no model is named; `lithos models --card` says more.\n",
                line.name
            ),
            None => "This build has no built-in model.\n".to_owned(),
        };
        let context = self.context;
        let available = memory::available()
            .map_or_else(String::new, |bytes| format!(" {} are available now.", size(bytes)));
        format!(
            "{table}\n{built_in}\
             The others are repositories of huggingface.co whose architecture and format Lithos runs. There is no download\n\
             yet: fetch a repository with any tool, then name it with --model DIR (a GGUF file: --model FILE).\n\
             `lithos models --synthetic` lists shapes that run without a download, with random weights, for measuring.\n\n\
             Figures are computed from shape and format, not measured. weights: of the text model; a repository may hold a\n\
             vision part and more. memory: weights, keys and values of {context} tokens of context, and 200 MB.{available}\n"
        )
    }

    fn cells(&self, line: &Line) -> Vec<String> {
        vec![
            line.name.clone(),
            line.format.clone(),
            output::parameters(line.parameters),
            size(line.footprint.weights),
            size(line.footprint.memory(self.context)),
        ]
    }

    fn json(&self) -> Value {
        let line = |line: &Line| {
            json!({
                "name": line.name,
                "built_in": line.built_in,
                "architecture": line.architecture,
                "format": line.format,
                "parameters": line.parameters,
                "weight_bytes": line.footprint.weights,
                "key_value_bytes": line.footprint.key_values(self.context),
                "state_bytes": line.footprint.states,
                "memory_bytes": line.footprint.memory(self.context),
                "max_context": line.footprint.most_context,
            })
        };
        let others: Vec<Line> = MODELS.iter().map(Line::from).collect();
        json!({
            "context": self.context,
            "basis": "computed from shape and format",
            "available_memory_bytes": memory::available(),
            "models": self.built_in.iter().chain(&others).map(line).collect::<Vec<_>>(),
        })
    }
}

/// The shapes of synthetic models, with the size of their weights in each format.
fn synthetic_text() -> String {
    let mut heading = vec!["synthetic model".to_owned(), "parameters".to_owned()];
    heading.extend(FORMATS.map(|(name, _)| name.to_owned()));
    let mut rows = vec![heading];
    for (name, shape) in SHAPES {
        let mut row = vec![(*name).to_owned(), output::parameters(shape.parameters())];
        row.extend(FORMATS.map(|(_, format)| size(shape.footprint(format).weights)));
        rows.push(row);
    }
    for (name, shape) in DRAFTERS {
        rows.push(vec![(*name).to_owned(), output::parameters(shape.parameters())]);
    }
    format!(
        "{}\n\
         synthetic:NAME, synthetic:NAME-FORMAT (a column; the first is the default) and synthetic:NAME?seed=N stand where a\n\
         model's path could: the shape with pseudo-random weights, which are computed where they are used. It is for\n\
         measuring, not for talking. nvfp4: feed-forward networks and head in NVFP4, mixers in FP8, the rest in BF16.\n\
         Sizes are those of the text model's weights. Drafters (-dspark) cannot be run yet.\n\n\
         Example: lithos bench {PREFIX}qwen3.5-0.8b-nvfp4\n",
        align(&rows, 1)
    )
}

fn synthetic_json() -> Value {
    let models = SHAPES.iter().map(|(name, shape)| {
        let weights = FORMATS
            .iter()
            .map(|(format, kind)| ((*format).to_owned(), json!(shape.footprint(*kind).weights)));
        json!({
            "name": format!("{PREFIX}{name}"),
            "architecture": shape.architecture,
            "parameters": shape.parameters(),
            "weight_bytes": weights.collect::<Map<_, _>>(),
            "max_context": shape.context,
        })
    });
    let drafters = DRAFTERS.iter().map(|(name, shape)| {
        json!({"name": format!("{PREFIX}{name}"), "parameters": shape.parameters()})
    });
    json!({
        "basis": "computed from shape and format",
        "models": models.collect::<Vec<_>>(),
        "drafters": drafters.collect::<Vec<_>>(),
    })
}

/// Bytes for people; a gigabyte has 10^9.
fn size(bytes: u64) -> String {
    if bytes < 999_500_000 {
        format!("{:.0} MB", bytes as f64 / 1e6)
    } else {
        format!("{:.1} GB", bytes as f64 / 1e9)
    }
}
