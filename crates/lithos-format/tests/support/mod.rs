//! Builds model files for the tests.
#![allow(dead_code)] // Each test file uses its own part.

use std::fs;
use std::path::{Path, PathBuf};

use lithos_format::{Checkpoint, FormatError, OwnedTensor, gguf, write_safetensors};
use tempfile::TempDir;

pub fn write_tensors(path: &Path, tensors: &[OwnedTensor]) {
    let entries: Vec<_> = tensors.iter().map(OwnedTensor::entry).collect();
    write_safetensors(path, &entries).unwrap();
}

/// A directory with a configuration and one safetensors file.
pub fn directory(config: &str, tensors: &[OwnedTensor]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("config.json"), config).unwrap();
    write_tensors(&directory.path().join("model.safetensors"), tensors);
    directory
}

pub fn gguf_bytes(tensors: &[OwnedTensor]) -> Vec<u8> {
    let mut writer = gguf::Writer::new();
    writer.string("general.architecture", "llama");
    for tensor in tensors {
        writer.tensor(tensor.entry());
    }
    writer.to_bytes().unwrap()
}

/// A directory with `bytes` as its only GGUF file.
pub fn gguf_directory(bytes: &[u8]) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("model.gguf");
    fs::write(&path, bytes).unwrap();
    (directory, path)
}

/// The tensors in the container that can hold them.
pub fn open_tensors(tensors: &[OwnedTensor]) -> (TempDir, Checkpoint) {
    let is_gguf = tensors
        .iter()
        .any(|tensor| matches!(tensor.dtype.block(), Some((elements, _)) if elements > 1));
    let directory =
        if is_gguf { gguf_directory(&gguf_bytes(tensors)).0 } else { directory("{}", tensors) };
    let checkpoint = Checkpoint::open(directory.path()).unwrap();
    (directory, checkpoint)
}

/// The message of the error that opening must give: one line, naming the path.
pub fn open_error(path: &Path) -> String {
    message(Checkpoint::open(path).map(drop))
}

pub fn message(result: Result<(), FormatError>) -> String {
    let message = result.expect_err("this must fail").to_string();
    assert!(!message.contains('\n'), "more than one line: {message}");
    message
}

/// Asserts that a message contains every part.
#[track_caller]
pub fn assert_mentions(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "{part:?} is not in {message:?}");
    }
}

/// Deterministic values in [-1, 1), from a linear congruential generator (Knuth's MMIX constants).
pub struct Noise(pub u64);

impl Noise {
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.0 >> 33
    }

    pub fn value(&mut self) -> f32 {
        (self.bits() as f64 / f64::from(1u32 << 30) - 1.0) as f32
    }

    pub fn values(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.value()).collect()
    }

    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| (self.bits() >> 7) as u8).collect()
    }
}

pub fn tensor(
    name: &str,
    dtype: lithos_format::DType,
    shape: &[usize],
    bytes: Vec<u8>,
) -> OwnedTensor {
    OwnedTensor { name: name.to_owned(), dtype, shape: shape.to_vec(), bytes }
}

pub fn two_tensors() -> [OwnedTensor; 2] {
    [
        OwnedTensor::from_f32("a.weight", &[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
        OwnedTensor::from_f32("norm", &[2], &[0.5, -0.5]),
    ]
}
