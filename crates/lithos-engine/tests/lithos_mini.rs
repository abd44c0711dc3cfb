//! The built-in model against Hugging Face's implementation on the values of the same file.

use std::path::PathBuf;

use lithos_engine::{Engine, EngineOptions, Fusion, TokenId, largest};
use serde_json::Value;

fn repository(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// A prompt and its greedy continuation, from `training/lithos_training/reference.py`.
struct Reference {
    prompt: Vec<TokenId>,
    greedy: Vec<TokenId>,
}

fn references() -> Vec<Reference> {
    let file = repository("testdata/lithos-mini/reference.json");
    let text = std::fs::read_to_string(&file).expect("the reference is in the repository");
    let stored: Value = serde_json::from_str(&text).expect("it is JSON");
    let ids = |value: &Value| -> Vec<TokenId> {
        let ids = value.as_array().expect("a list of ids");
        ids.iter().map(|id| TokenId(id.as_u64().expect("an id") as u32)).collect()
    };
    let list = stored.as_array().expect("a list of prompts");
    list.iter()
        .map(|entry| Reference { prompt: ids(&entry["prompt"]), greedy: ids(&entry["greedy"]) })
        .collect()
}

#[test]
fn greedy_tokens_are_those_of_the_reference() {
    let references = references();
    assert_eq!(references.len(), 5);
    for fusion in Fusion::ALL {
        let options =
            EngineOptions { fusion, threads: Some(2), context: Some(512), ..Default::default() };
        let mut engine =
            Engine::open(&repository("models/lithos-mini"), options).expect("the model opens");
        for (index, Reference { prompt, greedy }) in references.iter().enumerate() {
            assert_eq!(greedy.len(), 64);
            let mut sequence = engine.sequence();
            sequence.reset();
            let mut last = Vec::new();
            sequence.prefill(prompt, 1, |_, row| last = row.to_vec()).expect("prefill runs");
            let mut found = Vec::new();
            loop {
                let token = largest(&last);
                found.push(token);
                if found.len() == greedy.len() {
                    break;
                }
                last = sequence.decode(&[token]).expect("decode runs").to_vec();
                sequence.accept(1);
            }
            assert_eq!(&found, greedy, "prompt {index} at {fusion}");
        }
    }
}
