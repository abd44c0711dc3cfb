//! Valid files with random damage: opening and decoding may fail, but never panic.

mod support;

use std::fs;
use std::path::Path;

use lithos_format::{Checkpoint, OwnedTensor, encode_matrix, format_names};
use proptest::prelude::*;
use support::{Noise, gguf_bytes, gguf_directory, write_tensors};

/// Reads everything that the checkpoint offers.
fn read_all(path: &Path) {
    let Ok(checkpoint) = Checkpoint::open(path) else {
        return;
    };
    for name in checkpoint.tensor_names() {
        let tensor = checkpoint.tensor(name).unwrap();
        let _ = tensor.to_f32();
        if let Some(base) = name.strip_suffix(".weight")
            && let Ok(matrix) = checkpoint.matrix(base)
        {
            assert_eq!(matrix.decode().len(), matrix.rows() * matrix.cols());
        }
        checkpoint.release_pages(name);
    }
}

fn matrices(formats: &[&str]) -> Vec<OwnedTensor> {
    formats
        .iter()
        .flat_map(|format| encode_matrix(format, format, 64, &Noise(4).values(128)).unwrap())
        .collect()
}

fn valid_gguf() -> Vec<u8> {
    gguf_bytes(&matrices(&["f32", "f16", "bf16", "q4_0", "q4_1", "q8_0"]))
}

fn valid_safetensors() -> Vec<u8> {
    let formats: Vec<_> = format_names().filter(|format| !format.starts_with('q')).collect();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("model.safetensors");
    write_tensors(&path, &matrices(&formats));
    fs::read(path).unwrap()
}

/// Bytes to overwrite (place as a fraction of the head, new byte) and where to cut the file off.
fn damage() -> impl Strategy<Value = (Vec<(usize, u8)>, Option<usize>)> {
    let interesting =
        prop_oneof![any::<u8>(), Just(0), Just(0xff), Just(0x7f), Just(b'0'), Just(b'9')];
    (
        prop::collection::vec((0usize..1 << 20, interesting), 1..6),
        prop::option::weighted(0.3, 0usize..1 << 20),
    )
}

/// Most damage goes to the first part of the file, where counts, shapes and offsets are.
fn apply(mut bytes: Vec<u8>, head: usize, changes: &[(usize, u8)], cut: Option<usize>) -> Vec<u8> {
    for (place, byte) in changes {
        let reach = if place % 8 == 0 { bytes.len() } else { head };
        bytes[place % reach] = *byte;
    }
    if let Some(cut) = cut {
        bytes.truncate(cut % bytes.len());
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn damaged_gguf_never_panics((changes, cut) in damage()) {
        let bytes = apply(valid_gguf(), 400, &changes, cut);
        let (_directory, path) = gguf_directory(&bytes);
        read_all(&path);
    }

    #[test]
    fn damaged_safetensors_never_panics((changes, cut) in damage()) {
        let bytes = apply(valid_safetensors(), 900, &changes, cut);
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("config.json"), "{}").unwrap();
        fs::write(directory.path().join("model.safetensors"), bytes).unwrap();
        read_all(directory.path());
    }

    #[test]
    fn noise_behind_a_gguf_magic_never_panics(noise in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut bytes = b"GGUF\x03\0\0\0".to_vec();
        bytes.extend(noise);
        let (_directory, path) = gguf_directory(&bytes);
        read_all(&path);
    }
}

#[test]
fn the_undamaged_files_are_read() {
    let (_directory, path) = gguf_directory(&valid_gguf());
    assert_eq!(Checkpoint::open(&path).unwrap().tensor_names().count(), 6);
    read_all(&path);
    assert!(valid_safetensors().len() > 1000);
}
