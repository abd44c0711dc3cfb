//! Running the binary, and a small text model with random weights for it to run.

#![allow(dead_code, reason = "each test file uses its part")]

#[cfg(unix)]
pub mod served;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use lithos_format::{Checkpoint, DType, write_safetensors};
use serde_json::{Value, json};
use tempfile::TempDir;

/// What a run left.
#[derive(Debug)]
pub struct Run {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Run {
    /// Asserts success and returns standard output.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        assert!(!self.stderr.contains("panicked"), "{self:?}");
        self.stdout
    }

    /// Asserts success and returns standard output as JSON.
    #[track_caller]
    pub fn json(self) -> Value {
        serde_json::from_str(&self.ok()).expect("standard output is one JSON value")
    }

    /// Asserts a refusal: exit code 1, nothing on standard output, one line on standard error with these parts.
    #[track_caller]
    pub fn refused(self, parts: &[&str]) {
        assert_eq!(self.code, Some(1), "{self:?}");
        assert_eq!(self.stdout, "", "{self:?}");
        assert!(self.stderr.starts_with("error: "), "{self:?}");
        assert!(self.stderr.ends_with('\n') && self.stderr.lines().count() == 1, "{self:?}");
        assert!(!self.stderr.contains("panicked"), "{self:?}");
        for part in parts {
            assert!(self.stderr.contains(part), "`{part}` is not in {:?}", self.stderr);
        }
    }
}

/// The binary, away from the environment of whoever runs the tests.
pub fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lithos"));
    command.env_remove("LITHOS_MODEL").env_remove("LITHOS_LOG");
    command
}

pub fn run<S: AsRef<std::ffi::OsStr>>(args: &[S]) -> Run {
    run_with(args, b"")
}

/// Runs with this on standard input.
pub fn run_with<S: AsRef<std::ffi::OsStr>>(args: &[S], input: &[u8]) -> Run {
    finish(command().args(args), input)
}

pub fn finish(command: &mut Command, input: &[u8]) -> Run {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut stdin = child.stdin.take().expect("standard input is a pipe");
    // A command that does not read its input may be gone already.
    let _ = stdin.write_all(input);
    drop(stdin);
    let output = child.wait_with_output().expect("the binary ends");
    Run {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).expect("standard output is UTF-8"),
        stderr: String::from_utf8(output.stderr).expect("standard error is UTF-8"),
    }
}

pub fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/goldens").join(name)
}

/// A copy of a checkpoint without tokenizer, to damage.
pub fn copy_of_golden(name: &str) -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for file in ["config.json", "generation_config.json", "model.safetensors"] {
        fs::copy(golden(name).join(file), folder.path().join(file)).expect(file);
    }
    folder
}

/// Changes a JSON file.
pub fn edit_json(file: &Path, edit: impl FnOnce(&mut Value)) {
    let mut value = serde_json::from_slice(&fs::read(file).expect("a file")).expect("JSON");
    edit(&mut value);
    fs::write(file, value.to_string()).expect("written");
}

/// The values of one tensor of a safetensors file, and its shape.
pub fn tensor(file: &Path, name: &str) -> (Vec<f32>, Vec<usize>) {
    let checkpoint = Checkpoint::open_safetensors_file(file).expect("the file opens");
    let tensor = checkpoint.tensor(name).expect(name);
    (tensor.to_f32().expect("it decodes"), tensor.shape.to_vec())
}

const HIDDEN: usize = 128;
const HEAD: usize = 32;
const HEADS: usize = 4;
const KEY_VALUE_HEADS: usize = 2;
const INTERMEDIATE: usize = 256;
const LAYERS: usize = 2;
const VOCABULARY: usize = 2016;

const TEMPLATE: &str = "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n\
    {% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// A llama with random weights, a tokenizer of two thousand tokens, a template, and no choice of sampling.
pub fn text_model() -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let tokenizer = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../lithos-model/tests/data/text/tiny_tokenizer.json");
    fs::copy(tokenizer, folder.path().join("tokenizer.json")).expect("the tokenizer is there");
    let write = |name: &str, text: String| fs::write(folder.path().join(name), text).expect(name);
    write("chat_template.jinja", TEMPLATE.to_owned());
    write("generation_config.json", json!({"do_sample": false}).to_string());
    let config = json!({
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": HIDDEN,
        "head_dim": HEAD,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KEY_VALUE_HEADS,
        "num_hidden_layers": LAYERS,
        "intermediate_size": INTERMEDIATE,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": true,
        "vocab_size": VOCABULARY,
    });
    write("config.json", config.to_string());
    write_weights(&folder.path().join("model.safetensors"));
    folder
}

fn write_weights(file: &Path) {
    let mut random = Random(1);
    let mut tensors: Vec<(String, Vec<usize>, Vec<f32>)> = Vec::new();
    let mut add = |name: String, shape: &[usize]| {
        let values = (0..shape.iter().product()).map(|_| random.next()).collect();
        tensors.push((name, shape.to_vec(), values));
    };
    add("model.embed_tokens.weight".into(), &[VOCABULARY, HIDDEN]);
    for layer in 0..LAYERS {
        let mut matrix = |part: &str, rows: usize, cols: usize| {
            add(format!("model.layers.{layer}.{part}_proj.weight"), &[rows, cols]);
        };
        matrix("self_attn.q", HEADS * HEAD, HIDDEN);
        matrix("self_attn.k", KEY_VALUE_HEADS * HEAD, HIDDEN);
        matrix("self_attn.v", KEY_VALUE_HEADS * HEAD, HIDDEN);
        matrix("self_attn.o", HIDDEN, HEADS * HEAD);
        matrix("mlp.gate", INTERMEDIATE, HIDDEN);
        matrix("mlp.up", INTERMEDIATE, HIDDEN);
        matrix("mlp.down", HIDDEN, INTERMEDIATE);
    }
    let mut norms = vec!["model.norm.weight".to_owned()];
    for layer in 0..LAYERS {
        norms.push(format!("model.layers.{layer}.input_layernorm.weight"));
        norms.push(format!("model.layers.{layer}.post_attention_layernorm.weight"));
    }
    tensors.extend(norms.into_iter().map(|name| (name, vec![HIDDEN], vec![1.0; HIDDEN])));
    let bytes: Vec<Vec<u8>> = tensors
        .iter()
        .map(|(_, _, values)| values.iter().flat_map(|value| value.to_le_bytes()).collect())
        .collect();
    let entries: Vec<_> = tensors
        .iter()
        .zip(&bytes)
        .map(|((name, shape, _), bytes)| (name.as_str(), DType::F32, &shape[..], &bytes[..]))
        .collect();
    write_safetensors(file, &entries).expect("the weights are written");
}

/// Values between -0.2 and 0.2.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f32 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 40) as f32 / (1u64 << 24) as f32 - 0.5) * 0.4
    }
}

/// What Ctrl-C sends.
#[cfg(unix)]
pub fn interrupt(child: &std::process::Child) {
    let status = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(status.expect("kill is there").success());
}
