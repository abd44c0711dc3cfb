//! Every weight format and task kind at several numbers of rows, with fresh random weights and tokens, against the interpreter.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use lithos_engine::{Engine, EngineError, Fusion, TokenId};
use lithos_format::{OwnedTensor, format_names};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tempfile::TempDir;

use crate::checkpoints::{is_projection, tensors, write_gguf, write_in_format};
use crate::cuda;
use crate::report::{Report, relative_error, same_bits, turned};
use crate::support::{interpreter, prefilled};

/// Rows of a pass.
const ROWS: [usize; 5] = [1, 2, 5, 8, 16];

/// Tokens of a case: some passes of 16 rows, and one that is not full.
const TOKENS: usize = 40;

/// What a format's logits may differ by, relatively.
const TOLERANCE: f64 = 5e-3;

/// Standard deviations of a row's logits by which a token may lead and still lose: a near tie.
const NEAR_TIE: f64 = 0.05;

/// A model in a format, and what it should compute.
struct Case {
    name: String,
    path: PathBuf,
    ids: Vec<TokenId>,
    wanted: Vec<f32>,
    _folder: TempDir,
}

/// Checks all formats.
pub fn check(report: &mut Report, seed: u64, repeats: usize) {
    let mut wanted = Vec::new();
    for format in format_names() {
        let only_gguf = ["q4_0", "q4_1", "q8_0"].contains(&format);
        let names: &[&str] =
            if only_gguf { &["tiny_llama3"] } else { &["tiny_qwen35", "tiny_llama3"] };
        wanted.extend(names.iter().map(|name| (*name, format, only_gguf)));
    }
    // The interpreter and the compiler of kernels take most of the time; both are cheap to run side by side.
    let (next, cases) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let threads = std::thread::available_parallelism().map_or(2, usize::from).min(16);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some((name, format, gguf)) = wanted.get(index) else { break };
                    let case = Case::new(name, format, *gguf, seed.wrapping_add(index as u64));
                    cases.lock().expect("no case panicked").push((index, case));
                }
            });
        }
    });
    let mut cases = cases.into_inner().expect("no case panicked");
    cases.sort_by_key(|(index, _)| *index);
    for (_, case) in cases {
        if let Err(error) = case.check(report, repeats) {
            report.broken(&case.name, &error.to_string());
        }
    }
}

impl Case {
    fn new(name: &str, format: &str, gguf: bool, seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let folder = tempfile::tempdir().expect("a folder for a model");
        let tensors = tensors(name).into_iter().map(|tensor| redrawn(tensor, &mut random));
        let path = write(name, tensors.collect(), format, gguf, folder.path());
        let mut oracle = Engine::open(&path, interpreter()).expect("the interpreter opens it");
        let vocabulary = oracle.vocabulary() as u32;
        let ids: Vec<TokenId> =
            (0..TOKENS).map(|_| TokenId(random.random_range(0..vocabulary))).collect();
        let wanted = prefilled(&mut oracle, &ids);
        // Leaves the kernels in the cache; errors come again when it counts.
        if let Ok(mut engine) = Engine::open(&path, cuda(Fusion::None)) {
            let _ = Fusion::ALL.map(|level| engine.set_fusion(level).is_ok());
        }
        Case { name: format!("{name} {format}"), path, ids, wanted, _folder: folder }
    }

    fn check(&self, report: &mut Report, repeats: usize) -> Result<(), EngineError> {
        let mut engine = Engine::open(&self.path, cuda(Fusion::None))?;
        let vocabulary = engine.vocabulary();
        let mut reference: Option<Vec<f32>> = None;
        for fusion in Fusion::ALL {
            engine.set_fusion(fusion)?;
            for rows in ROWS {
                let first = poisoned(&mut engine, &self.ids, rows)?;
                let error = relative_error(&first, &self.wanted);
                let mut problem = judge(&first, &self.wanted, vocabulary, error);
                for repeat in 1..repeats {
                    let again = poisoned(&mut engine, &self.ids, rows)?;
                    if problem.is_none() && !same_bits(&first, &again) {
                        problem = Some(format!("repeat {repeat} has other bits"));
                        break;
                    }
                }
                // A row's sums have one order, whatever stands beside it and wherever launches are cut.
                let reference = reference.get_or_insert_with(|| first.clone());
                if problem.is_none() && !same_bits(reference, &first) {
                    let off = relative_error(&first, reference);
                    problem = Some(format!("other bits than 1 row at none ({off:.1e})"));
                }
                report.case(&self.name, rows, fusion.name(), error, repeats, problem);
            }
        }
        Ok(())
    }
}

/// What is wrong with logits, if anything.
pub fn judge(found: &[f32], wanted: &[f32], vocabulary: usize, error: f64) -> Option<String> {
    if error.is_nan() || error >= TOLERANCE {
        return Some(format!("relative error above {TOLERANCE}"));
    }
    match turned(found, wanted, vocabulary) {
        (rows, lead) if lead > NEAR_TIE => {
            Some(format!("{rows} rows choose another token, one that was {lead:.2} behind"))
        }
        _ => None,
    }
}

/// Logits of all tokens through decode passes of `rows` rows, with NaN in every intermediate buffer before.
pub fn poisoned(
    engine: &mut Engine,
    ids: &[TokenId],
    rows: usize,
) -> Result<Vec<f32>, EngineError> {
    engine.poison()?;
    let mut logits = Vec::new();
    let mut sequence = engine.sequence();
    sequence.reset();
    for ids in ids.chunks(rows) {
        logits.extend_from_slice(sequence.decode(ids)?);
        sequence.accept(ids.len());
    }
    Ok(logits)
}

/// A projection with other random values of the same mean square; other tensors as they are.
fn redrawn(tensor: OwnedTensor, random: &mut StdRng) -> OwnedTensor {
    if !is_projection(&tensor) {
        return tensor;
    }
    let count = tensor.bytes.len() / 4;
    let squares: f32 = tensor
        .bytes
        .as_chunks::<4>()
        .0
        .iter()
        .map(|bytes| f32::from_le_bytes(*bytes).powi(2))
        .sum();
    let deviation = (squares / count.max(1) as f32).sqrt();
    // Three uniform numbers: nearly normal, and without far outliers.
    let mut draw = || (0..3).map(|_| random.random_range(-1.0f32..1.0)).sum::<f32>() * deviation;
    let values: Vec<f32> = (0..count).map(|_| draw()).collect();
    OwnedTensor::from_f32(&tensor.name, &tensor.shape, &values)
}

fn write(
    name: &str,
    tensors: Vec<OwnedTensor>,
    format: &str,
    gguf: bool,
    folder: &Path,
) -> PathBuf {
    if gguf {
        let file = folder.join("model.gguf");
        write_gguf(name, tensors, format, &file);
        return file;
    }
    write_in_format(name, tensors, format, folder);
    folder.to_path_buf()
}
