//! Names of synthetic checkpoints, and the shapes behind them.

use std::fmt;
use std::str::FromStr;

use lithos_format::{Checkpoint, Folder, FormatError};
use lithos_model::shape::known::{
    LLAMA_3_1_8B, LLAMA_3_1_70B, LLAMA_3_2_1B, LLAMA_3_2_3B, QWEN3_0_6B, QWEN3_1_7B, QWEN3_4B,
    QWEN3_5_0_8B, QWEN3_5_2B, QWEN3_5_4B, QWEN3_5_9B, QWEN3_5_27B, QWEN3_5_35B_A3B,
    QWEN3_8_27B_DSPARK, QWEN3_8B, QWEN3_14B, QWEN3_32B, SMOLLM2_1_7B, SMOLLM2_135M, SMOLLM2_360M,
};
use lithos_model::shape::{Delta, DrafterShape, Experts, Format, MatrixFormat, Shape};
use thiserror::Error;

use crate::{config, tensors, text};

/// What the names of synthetic checkpoints begin with.
pub const PREFIX: &str = "synthetic:";

/// Names of the shapes of language models: small ones for tests, then published ones.
pub const SHAPES: &[(&str, Shape)] = &[
    ("tiny-hybrid", TINY_HYBRID),
    ("tiny-moe", TINY_MOE),
    ("tiny-qwen3", TINY_QWEN3),
    ("tiny-llama", TINY_LLAMA),
    ("smollm2-135m", SMOLLM2_135M),
    ("smollm2-360m", SMOLLM2_360M),
    ("smollm2-1.7b", SMOLLM2_1_7B),
    ("qwen3-0.6b", QWEN3_0_6B),
    ("qwen3-1.7b", QWEN3_1_7B),
    ("qwen3-4b", QWEN3_4B),
    ("qwen3-8b", QWEN3_8B),
    ("qwen3-14b", QWEN3_14B),
    ("qwen3-32b", QWEN3_32B),
    ("qwen3.5-0.8b", QWEN3_5_0_8B),
    ("qwen3.5-2b", QWEN3_5_2B),
    ("qwen3.5-4b", QWEN3_5_4B),
    ("qwen3.5-9b", QWEN3_5_9B),
    ("qwen3.5-27b", QWEN3_5_27B),
    ("qwen3.6-27b", QWEN3_5_27B),
    ("qwen3.8-27b", QWEN3_5_27B),
    ("qwen3.5-35b-a3b", QWEN3_5_35B_A3B),
    ("qwen3.6-35b-a3b", QWEN3_5_35B_A3B),
    ("llama-3.2-1b", LLAMA_3_2_1B),
    ("llama-3.2-3b", LLAMA_3_2_3B),
    ("llama-3.1-8b", LLAMA_3_1_8B),
    ("llama-3.1-70b", LLAMA_3_1_70B),
];

/// Names of the shapes of drafters.
pub const DRAFTERS: &[(&str, DrafterShape)] =
    &[("tiny-hybrid-dspark", TINY_HYBRID_DSPARK), ("qwen3.8-27b-dspark", QWEN3_8_27B_DSPARK)];

/// Names of formats. The first is meant where none is named; drafters have the first and the third.
pub const FORMATS: [(&str, Format); 4] = [
    ("bf16", Format::Bf16),
    ("fp8", Format::Fp8),
    ("nvfp4", Format::Nvfp4Fp8),
    ("int4", Format::AffineInt4),
];

/// All extents that kernels tile are multiples of 64, so that a small model takes the ways of a large one.
const TINY_QWEN3: Shape = Shape {
    hidden: 128,
    layers: 2,
    heads: 4,
    key_value_heads: 2,
    head_dim: 64,
    intermediate: 192,
    vocabulary: 512,
    context: 4096,
    ..QWEN3_0_6B
};

const TINY_LLAMA: Shape = Shape {
    architecture: "llama",
    tied: false,
    theta: 500_000.0,
    rotary_factor: Some(8.0),
    ..TINY_QWEN3
};

const TINY_HYBRID: Shape = Shape {
    architecture: "qwen3_5",
    layers: 4,
    tied: false,
    theta: 10_000_000.0,
    delta: Some(Delta {
        attention_every: 4,
        key_heads: 1,
        value_heads: 2,
        key_dim: 64,
        value_dim: 64,
    }),
    ..TINY_QWEN3
};

const TINY_MOE: Shape = Shape {
    architecture: "qwen3_5_moe",
    intermediate: 64,
    experts: Some(Experts { count: 12, chosen: 3 }),
    ..TINY_HYBRID
};

const TINY_HYBRID_DSPARK: DrafterShape = DrafterShape {
    hidden: 128,
    layers: 2,
    heads: 4,
    key_value_heads: 2,
    head_dim: 64,
    intermediate: 192,
    vocabulary: 512,
    context: 4096,
    taps: &[0, 2],
    target_hidden: 128,
    target_layers: 4,
    markov_rank: 64,
    mask_token: 500,
    ..QWEN3_8_27B_DSPARK
};

/// `synthetic:NAME[?seed=N&format=F]`: NAME is one of [`SHAPES`] or [`DRAFTERS`], where a format of [`FORMATS`] may
/// follow after a hyphen (`qwen3.8-27b-nvfp4`) instead of as a parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct SyntheticName {
    shape: NamedShape,
    format: (&'static str, Format),
    seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum NamedShape {
    Model(&'static str, Shape),
    Drafter(&'static str, DrafterShape),
}

/// Why a name stands for no synthetic checkpoint.
#[derive(Debug, Error)]
pub enum SyntheticError {
    /// No such shape.
    #[error("there is no synthetic model `{name}`: near are {}; `lithos models --synthetic` lists all", nearest.join(", "))]
    Unknown {
        /// The name that was given.
        name: String,
        /// The names most like it.
        nearest: Vec<String>,
    },
    /// A parameter that does not exist, comes twice, or has no value that it can have.
    #[error("`{text}`: {cause}")]
    Parameter {
        /// What was given.
        text: String,
        /// What is wrong with it.
        cause: String,
    },
    /// The checkpoint could not be put together: a fault of its description.
    #[error(transparent)]
    Format(#[from] FormatError),
}

/// Whether a text names a synthetic checkpoint, known or not.
pub fn is_synthetic(text: &str) -> bool {
    text.starts_with(PREFIX)
}

impl SyntheticName {
    /// Opens the checkpoint. It takes no memory to speak of, whatever its size.
    ///
    /// # Errors
    /// Only if the description of the shape is at fault.
    pub fn checkpoint(&self) -> Result<Checkpoint, SyntheticError> {
        let (config, files, tensors) = match &self.shape {
            NamedShape::Model(_, shape) => (
                config::of_model(shape, self.format.1),
                text::files(),
                tensors::of_model(shape, self.format.1, self.seed),
            ),
            NamedShape::Drafter(_, shape) => (
                config::of_drafter(shape),
                Vec::new(),
                tensors::of_drafter(shape, drafter_format(self.format.1), self.seed),
            ),
        };
        let mut files = files;
        files.push(("config.json".to_owned(), config.to_string().into_bytes()));
        let folder = Folder::in_memory(&self.to_string(), files);
        Ok(Checkpoint::generated(folder, tensors)?)
    }
}

/// How a drafter's matrices are stored.
fn drafter_format(format: Format) -> MatrixFormat {
    format.matrices().feed_forward
}

impl NamedShape {
    fn name(&self) -> &'static str {
        match self {
            NamedShape::Model(name, _) | NamedShape::Drafter(name, _) => name,
        }
    }

    fn all() -> impl Iterator<Item = NamedShape> {
        let models = SHAPES.iter().map(|(name, shape)| NamedShape::Model(name, *shape));
        models.chain(DRAFTERS.iter().map(|(name, shape)| NamedShape::Drafter(name, *shape)))
    }

    fn find(name: &str) -> Option<NamedShape> {
        Self::all().find(|shape| shape.name() == name)
    }

    /// The formats that checkpoints of the shape come in.
    fn formats(&self) -> Vec<&'static str> {
        let names = FORMATS.iter().map(|(name, _)| *name);
        match self {
            NamedShape::Model(..) => names.collect(),
            NamedShape::Drafter(..) => {
                names.filter(|name| ["bf16", "nvfp4"].contains(name)).collect()
            }
        }
    }
}

impl fmt::Display for SyntheticName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{PREFIX}{}-{}", self.shape.name(), self.format.0)?;
        match self.seed {
            0 => Ok(()),
            seed => write!(formatter, "?seed={seed}"),
        }
    }
}

impl FromStr for SyntheticName {
    type Err = SyntheticError;

    fn from_str(text: &str) -> Result<Self, SyntheticError> {
        let wrong = |cause: String| SyntheticError::Parameter { text: text.to_owned(), cause };
        let Some(rest) = text.strip_prefix(PREFIX) else {
            return Err(wrong(format!("the names of synthetic models begin with {PREFIX}")));
        };
        let (name, parameters) = rest.split_once('?').unwrap_or((rest, ""));
        let (shape, suffix) = resolve(name).ok_or_else(|| SyntheticError::Unknown {
            name: name.to_owned(),
            nearest: nearest(name),
        })?;
        let (mut seed, mut format) = (None, suffix);
        for parameter in parameters.split('&').filter(|parameter| !parameter.is_empty()) {
            let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let repeated = match key {
                "seed" => {
                    let number = value.parse::<u64>().map_err(|_| {
                        wrong(format!("the seed `{value}` is not a number from 0 to 2^64 - 1"))
                    })?;
                    seed.replace(number).is_some()
                }
                "format" => {
                    let known =
                        FORMATS.iter().find(|(name, _)| *name == value).ok_or_else(|| {
                            let names = FORMATS.map(|(name, _)| name).join(", ");
                            wrong(format!("there is no format `{value}`, only {names}"))
                        })?;
                    format.replace(*known).is_some()
                }
                _ => {
                    return Err(wrong(format!(
                        "there is no parameter `{key}`, only seed and format"
                    )));
                }
            };
            if repeated {
                return Err(wrong(format!("the {key} is given twice")));
            }
        }
        let format = format.unwrap_or(FORMATS[0]);
        let possible = shape.formats();
        if !possible.contains(&format.0) {
            return Err(wrong(format!(
                "{} comes as {}, not as {}",
                shape.name(),
                possible.join(" or "),
                format.0
            )));
        }
        Ok(SyntheticName { shape, format, seed: seed.unwrap_or(0) })
    }
}

/// The shape of a name, and the format at its end if there is one.
fn resolve(name: &str) -> Option<(NamedShape, Option<(&'static str, Format)>)> {
    if let Some(shape) = NamedShape::find(name) {
        return Some((shape, None));
    }
    let (name, suffix) = name.rsplit_once('-')?;
    let format = FORMATS.into_iter().find(|(known, _)| *known == suffix)?;
    NamedShape::find(name).map(|shape| (shape, Some(format)))
}

/// The three names that are most like a text, whether with a format or without.
fn nearest(text: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for shape in NamedShape::all() {
        names.push(shape.name().to_owned());
        names.extend(shape.formats().iter().map(|format| format!("{}-{format}", shape.name())));
    }
    let text = text.to_lowercase();
    names.sort_by_key(|name| edits(&text, name));
    names.truncate(3);
    names
}

/// How many characters must be put in, left out or replaced to make one text of the other (Levenshtein's distance).
fn edits(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (index, character) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = index + 1;
        for column in 0..to.len() {
            let replaced = diagonal + usize::from(to[column] != character);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        let message = text.parse::<SyntheticName>().unwrap_err().to_string();
        assert!(!message.contains('\n'), "{message}");
        message
    }

    #[test]
    fn a_name_is_a_shape_a_format_and_a_seed() {
        for (given, meant) in [
            ("synthetic:qwen3.8-27b-nvfp4", "synthetic:qwen3.8-27b-nvfp4"),
            ("synthetic:qwen3.8-27b?format=nvfp4", "synthetic:qwen3.8-27b-nvfp4"),
            ("synthetic:qwen3.5-0.8b", "synthetic:qwen3.5-0.8b-bf16"),
            ("synthetic:tiny-llama?seed=7&format=int4", "synthetic:tiny-llama-int4?seed=7"),
            ("synthetic:tiny-llama-fp8?seed=0", "synthetic:tiny-llama-fp8"),
            ("synthetic:qwen3.8-27b-dspark", "synthetic:qwen3.8-27b-dspark-bf16"),
            ("synthetic:qwen3.8-27b-dspark-nvfp4", "synthetic:qwen3.8-27b-dspark-nvfp4"),
            ("synthetic:qwen3.6-35b-a3b-nvfp4", "synthetic:qwen3.6-35b-a3b-nvfp4"),
        ] {
            let name: SyntheticName = given.parse().unwrap();
            assert_eq!(name.to_string(), meant, "{given}");
            assert_eq!(meant.parse::<SyntheticName>().unwrap(), name);
        }
    }

    #[test]
    fn wrong_names_and_parameters_are_named() {
        for (given, parts) in [
            ("synthetic:qwen3.8-72b-nvfp4", &["qwen3.8-72b-nvfp4", "qwen3.8-27b-nvfp4"][..]),
            ("synthetic:Tiny-Lama", &["Tiny-Lama", "tiny-llama", "lithos models --synthetic"]),
            ("synthetic:", &["``", "lithos models --synthetic"]),
            ("synthetic:tiny-llama?seed=-1", &["`-1`", "2^64"]),
            ("synthetic:tiny-llama?seed=99999999999999999999", &["2^64"]),
            ("synthetic:tiny-llama?seed", &["``", "2^64"]),
            ("synthetic:tiny-llama?seed=1&seed=2", &["seed", "twice"]),
            ("synthetic:tiny-llama-fp8?format=fp8", &["format", "twice"]),
            ("synthetic:tiny-llama?format=q8", &["`q8`", "bf16, fp8, nvfp4, int4"]),
            ("synthetic:tiny-llama?color=red", &["`color`", "seed and format"]),
            ("synthetic:tiny-hybrid-dspark-fp8", &["bf16 or nvfp4", "not as fp8"]),
            ("tiny-llama", &["begin with synthetic:"]),
        ] {
            let message = error(given);
            for part in parts {
                assert!(message.contains(part), "{part:?} is not in {message:?}");
            }
        }
    }

    #[test]
    fn names_are_there_once_and_end_in_no_format() {
        let names: Vec<_> = NamedShape::all().map(|shape| shape.name()).collect();
        for (index, name) in names.iter().enumerate() {
            assert!(!names[index + 1..].contains(name), "{name}");
            assert!(FORMATS.iter().all(|(format, _)| !name.ends_with(format)), "{name}");
            assert_eq!(resolve(name).unwrap().0.name(), *name);
        }
    }

    #[test]
    fn edits_are_counted() {
        assert_eq!(edits("kitten", "sitting"), 3);
        assert_eq!(edits("", "ab"), 2);
        assert_eq!(edits("ab", "ab"), 0);
    }
}
