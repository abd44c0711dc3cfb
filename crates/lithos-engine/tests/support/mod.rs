//! What several of the engine's tests share: reference checkpoints and passes over them.

use std::path::PathBuf;

use lithos_emulator::EmulatorError;
use lithos_engine::{BackendKind, Engine, EngineError, EngineOptions, Fusion, TokenId};
use lithos_format::Checkpoint;

/// Ids and logits `[T, V]` of an independent implementation.
#[allow(dead_code, reason = "not every test compares logits")]
pub struct Reference {
    pub ids: Vec<TokenId>,
    pub logits: Vec<f32>,
}

/// The repository: `LITHOS_ROOT` where this runs on another machine than it was built on.
pub fn repository() -> PathBuf {
    let built = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::env::var_os("LITHOS_ROOT").map_or_else(built, PathBuf::from)
}

/// Where a reference checkpoint is.
#[allow(dead_code, reason = "not every test opens one")]
pub fn folder(name: &str) -> PathBuf {
    repository().join("testdata/goldens").join(name)
}

/// What was computed from a reference checkpoint.
#[allow(dead_code, reason = "not every test opens one")]
pub fn reference(name: &str) -> Reference {
    let file = folder(name).join("reference.safetensors");
    let stored = Checkpoint::open_safetensors_file(&file).expect("the reference opens");
    let values = |tensor: &str| stored.tensor(tensor).expect(tensor).to_f32().expect("decodes");
    let ids = values("ids").into_iter().map(|id| TokenId(id as u32)).collect();
    Reference { ids, logits: values("logits") }
}

/// The CPU backend with two workers.
pub fn cpu(fusion: Fusion) -> EngineOptions {
    EngineOptions { fusion, threads: Some(2), context: Some(512), ..EngineOptions::default() }
}

/// The f32 oracle.
#[allow(dead_code, reason = "not every test compares with it")]
pub fn interpreter() -> EngineOptions {
    EngineOptions { backend: BackendKind::Interpreter, ..cpu(Fusion::None) }
}

/// Kernels of Metal in the emulator.
#[allow(dead_code, reason = "not every test runs kernels")]
pub fn emulator(fusion: Fusion) -> EngineOptions {
    EngineOptions { backend: BackendKind::Emulator, context: Some(128), ..cpu(fusion) }
}

/// An engine that may be in the emulator; `None`, and a line that says so, where there is no clang.
#[allow(dead_code, reason = "not every test runs kernels")]
pub fn opened(engine: Result<Engine, EngineError>) -> Option<Engine> {
    let required = std::env::var_os("LITHOS_REQUIRE_CLANG").is_some();
    match engine {
        Ok(engine) => Some(engine),
        Err(EngineError::Emulator(error @ EmulatorError::NoCompiler { .. })) if !required => {
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("it opens: {error}"),
    }
}

/// Logits of all tokens through prefill passes.
#[allow(dead_code, reason = "not every test compares logits")]
pub fn prefilled(engine: &mut Engine, ids: &[TokenId]) -> Vec<f32> {
    let mut logits = Vec::new();
    let mut sequence = engine.sequence();
    sequence.reset();
    sequence
        .prefill(ids, ids.len(), |index, row| {
            assert_eq!(index * row.len(), logits.len(), "rows come in order");
            logits.extend_from_slice(row);
        })
        .expect("prefill runs");
    logits
}

/// Logits of all tokens through decode passes of `rows` rows, all accepted.
#[allow(dead_code, reason = "not every test compares logits")]
pub fn decoded(engine: &mut Engine, ids: &[TokenId], rows: usize) -> Vec<f32> {
    let mut logits = Vec::new();
    let mut sequence = engine.sequence();
    sequence.reset();
    for ids in ids.chunks(rows) {
        logits.extend_from_slice(sequence.decode(ids).expect("decode runs"));
        sequence.accept(ids.len());
    }
    logits
}

/// Prefills 20 tokens, verifies 8 drafts of which `accepted` are right, twice in a row, and decodes the `count` tokens that
/// really follow, five rows at a time. Returns the index of the first of them, and their logits.
#[allow(dead_code, reason = "not every test rejects drafts")]
pub fn after_rejection(
    engine: &mut Engine,
    ids: &[TokenId],
    accepted: usize,
    count: usize,
) -> (usize, Vec<f32>) {
    let vocabulary = engine.vocabulary() as u32;
    let mut sequence = engine.sequence();
    sequence.reset();
    sequence.prefill(&ids[..20], 0, |_, _| ()).expect("prefill runs");
    // Right as far as it is accepted, wrong from there on.
    let draft: Vec<TokenId> = (0..8)
        .map(|i| match i < accepted {
            true => ids[20 + i],
            false => TokenId((ids[20 + i].0 + 1) % vocabulary),
        })
        .collect();
    sequence.decode(&draft).expect("verification runs");
    sequence.accept(accepted);
    let first = 20 + accepted;
    // Once more, so that a second verification follows a first without a prefill between.
    sequence.decode(&draft).expect("verification runs");
    sequence.accept(0);
    let mut found = Vec::new();
    for rows in ids[first..first + count].chunks(5) {
        found.extend_from_slice(sequence.decode(rows).expect("decode runs"));
        sequence.accept(rows.len());
    }
    (first, found)
}
