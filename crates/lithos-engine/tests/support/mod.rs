//! What several of the engine's tests share: reference checkpoints and passes over them.

use std::path::PathBuf;

use lithos_engine::{BackendKind, Engine, EngineOptions, Fusion, TokenId};
use lithos_format::Checkpoint;

/// Ids and logits `[T, V]` of an independent implementation.
pub struct Reference {
    pub ids: Vec<TokenId>,
    pub logits: Vec<f32>,
}

/// Where a reference checkpoint is.
pub fn folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/goldens").join(name)
}

/// What was computed from a reference checkpoint.
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

/// Logits of all tokens through prefill passes.
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
