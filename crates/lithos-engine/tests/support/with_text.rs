//! Reference checkpoints that have a tokenizer.

use std::fs;

use lithos_engine::TokenId;
use tempfile::TempDir;

use crate::support::{folder, repository};

/// A reference checkpoint with a tokenizer, whose end tokens are `ends`.
pub fn model_with_text(name: &str, ends: &[TokenId]) -> TempDir {
    let to = tempfile::tempdir().expect("a temporary folder");
    for file in ["config.json", "model.safetensors"] {
        fs::copy(folder(name).join(file), to.path().join(file)).expect("can be copied");
    }
    let tokenizer = repository().join("crates/lithos-model/tests/data/text/tiny_tokenizer.json");
    fs::copy(tokenizer, to.path().join("tokenizer.json")).expect("can be copied");
    let ends: Vec<u32> = ends.iter().map(|end| end.0).collect();
    let defaults = serde_json::json!({ "eos_token_id": ends });
    fs::write(to.path().join("generation_config.json"), defaults.to_string()).expect("is written");
    to
}
