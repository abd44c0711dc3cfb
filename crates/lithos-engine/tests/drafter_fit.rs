//! Drafters with other Markov heads, and drafters that do not fit: refused by name.

mod support;

use std::fs;
use std::path::Path;

use lithos_engine::{Drafter, Dspark, Engine, Fusion, TokenId, largest};
use lithos_format::{Checkpoint, OwnedTensor, write_safetensors};
use serde_json::{Value, json};
use support::{cpu, folder, repository};
use tempfile::TempDir;

/// Width of `tiny_dspark`, and rank of its Markov head.
const WIDTH: usize = 128;
const RANK: usize = 16;

/// A copy of a drafter of F32 tensors whose Markov head decides, with other values of its configuration, and more tensors.
fn variant(drafter: &Path, changes: &[(&str, Value)], more: &[OwnedTensor]) -> TempDir {
    let copy = tempfile::tempdir().expect("a folder");
    let text = fs::read_to_string(drafter.join("config.json")).expect("reads");
    let mut config: Value = serde_json::from_str(&text).expect("is JSON");
    for (key, value) in changes {
        config[*key] = value.clone();
    }
    fs::write(copy.path().join("config.json"), config.to_string()).expect("writes");
    let stored = Checkpoint::open(drafter).expect("opens");
    let mut tensors = Vec::new();
    for name in stored.tensor_names() {
        let tensor = stored.tensor(name).expect("listed");
        let mut values = tensor.to_f32().expect("decodes");
        if name.ends_with("markov_w2.weight") {
            // As drawn it is too small to decide anything.
            values.iter_mut().for_each(|value| *value *= 1000.0);
        }
        tensors.push(OwnedTensor::from_f32(name, tensor.shape, &values));
    }
    let entries: Vec<_> = tensors.iter().chain(more).map(OwnedTensor::entry).collect();
    write_safetensors(&copy.path().join("model.safetensors"), &entries).expect("writes");
    copy
}

fn open(target: &Path, drafter: &Path) -> Result<Engine, String> {
    let [target, drafter] = [target, drafter].map(|path| Checkpoint::open(path).expect("opens"));
    Engine::with_drafter(target, Some(drafter), cpu(Fusion::Step))
        .map_err(|error| error.to_string())
}

/// What a drafter proposes after a context, and the likeliest tokens of its rows before the Markov head.
fn proposals(drafter: &Path) -> (Vec<TokenId>, Vec<TokenId>) {
    let mut engine = open(&folder("tiny_qwen35"), drafter).expect("fits");
    let head = engine.draft_head().expect("has a drafter").clone();
    let vocabulary = engine.vocabulary();
    let ids: Vec<TokenId> = (0..30).map(|id| TokenId(id * 11 % 512)).collect();
    let mut sequence = engine.sequence();
    sequence.prefill(&ids, 0, |_, _| ()).expect("prefill runs");
    let mut block = vec![TokenId(head.mask); head.block];
    block[0] = TokenId(5);
    let (logits, _) = sequence.draft(&block).expect("the block runs");
    let likeliest = logits.chunks(vocabulary).map(largest).collect();
    let mut drafter = Dspark::new(head.clone());
    drafter.begin(&[TokenId(5)]);
    (drafter.propose(&mut sequence, head.block).expect("proposes").tokens, likeliest)
}

/// A projection of the Markov head with one value in all its weights, and one in its biases.
fn projection(name: &str, rows: usize, columns: usize, bias: f32) -> [OwnedTensor; 2] {
    let name = |part: &str| format!("markov_head.{name}.{part}");
    [
        OwnedTensor::from_f32(name("weight"), &[rows, columns], &vec![0.0; rows * columns]),
        OwnedTensor::from_f32(name("bias"), &[rows], &vec![bias; rows]),
    ]
}

#[test]
fn heads_whose_gates_are_open_or_shut_are_the_plain_head_or_none() {
    let drafter = folder("tiny_dspark");
    let (vanilla, likeliest) = proposals(variant(&drafter, &[], &[]).path());
    assert_ne!(vanilla, likeliest, "the Markov head decides something");
    let gated = json!("gated");
    let open_gate = projection("gate_proj", RANK, WIDTH + RANK, 40.0);
    let open_gate = variant(&drafter, &[("markov_head_type", gated.clone())], &open_gate);
    assert_eq!(proposals(open_gate.path()).0, vanilla);
    let shut = projection("gate_proj", RANK, WIDTH + RANK, -90.0);
    let shut = variant(&drafter, &[("markov_head_type", gated)], &shut);
    assert_eq!(proposals(shut.path()), (likeliest.clone(), likeliest.clone()));
    let silent = projection("joint_proj", 3 * RANK, 2 * RANK + WIDTH, 0.0);
    let silent = variant(&drafter, &[("markov_head_type", json!("rnn"))], &silent);
    assert_eq!(proposals(silent.path()), (likeliest.clone(), likeliest));
}

#[test]
fn drafters_that_do_not_fit_are_refused_by_name() {
    let (target, drafter) = (folder("tiny_qwen35"), folder("tiny_dspark"));
    let short = projection("gate_proj", RANK, WIDTH, 0.0);
    for (changes, more, words) in [
        (("vocab_size", json!(1000)), &[][..], ["config.json", "vocabulary of 1000"]),
        (("num_target_layers", json!(12)), &[], ["12 layers", "the model has 8"]),
        (("target_hidden_size", json!(256)), &[], ["256 wide", "the model is 128"]),
        (("hidden_size", json!(64)), &[], ["64 wide", "128 wide"]),
        (("mask_token_id", json!(512)), &[], ["mask_token_id", "512"]),
        (("target_layer_ids", json!([1, 3, 8])), &[], ["layer 8", "has 8"]),
        (("markov_head_type", json!("deep")), &[], ["deep", "vanilla, gated, rnn"]),
        (("markov_head_type", json!("gated")), &[], ["gate_proj", "missing"]),
        (("markov_head_type", json!("gated")), &short, ["gate_proj", "[16, 144]"]),
    ] {
        let copy = variant(&drafter, &[changes], more);
        let error = open(&target, copy.path()).err().expect("does not fit");
        assert!(!error.contains('\n'), "{error}");
        for word in words {
            assert!(error.contains(word), "{error}");
        }
    }
}

#[test]
fn a_drafter_of_another_tokenizer_is_refused_by_the_token_that_differs() {
    let target = repository().join("models/lithos-mini");
    let copy = tempfile::tempdir().expect("a folder");
    for file in ["config.json", "model.safetensors"] {
        fs::copy(target.join("draft").join(file), copy.path().join(file)).expect("copies");
    }
    let text = fs::read_to_string(target.join("tokenizer.json")).expect("reads");
    let file = copy.path().join("tokenizer.json");
    fs::write(&file, &text).expect("writes");
    assert_eq!(open(&target, copy.path()).err(), None, "the same tokenizer");
    let mut tokenizer: Value = serde_json::from_str(&text).expect("is JSON");
    let vocabulary = tokenizer["model"]["vocab"].as_object_mut().expect("has a vocabulary");
    let text = |id: u64| {
        let found = vocabulary.iter().find(|(_, value)| value.as_u64() == Some(id));
        found.map(|(text, _)| text.clone()).expect("is used")
    };
    let (a, b) = (text(700), text(701));
    vocabulary.insert(a.clone(), json!(701));
    vocabulary.insert(b, json!(700));
    fs::write(&file, tokenizer.to_string()).expect("writes");
    let error = open(&target, copy.path()).err().expect("does not fit");
    assert!(error.contains("tokenizer") && error.contains("token 700"), "{error}");
    assert!(error.contains(&format!("{a:?} in the model")), "{error}");
}
