//! Opening GGUF files: what works, and what every kind of damage says.

mod support;

use std::fs;

use lithos_format::gguf::{MetadataArray, MetadataValue, Writer};
use lithos_format::{Checkpoint, Container, DType, GgufMetadata, encode_matrix};
use support::{
    Noise, assert_mentions, gguf_bytes, gguf_directory, message, open_error, tensor, two_tensors,
};

fn open_gguf(writer: &Writer) -> (tempfile::TempDir, Checkpoint) {
    let (directory, path) = gguf_directory(&writer.to_bytes().unwrap());
    let checkpoint = Checkpoint::open(&path).unwrap();
    (directory, checkpoint)
}

#[test]
fn gguf_metadata_is_typed() {
    let mut writer = Writer::new();
    writer
        .string("s", "text")
        .integer("small", 7)
        .integer("large", 1 << 40)
        .value("negative", MetadataValue::Signed(-3))
        .value("positive", MetadataValue::Signed(3))
        .f32("f", 0.5)
        .value("double", MetadataValue::F64(0.25))
        .bool("b", true)
        .string_array("strings", &["a", "", "ü"])
        .integer_array("integers", &[-1, 1 << 40])
        .value("unsigned", MetadataValue::Array(MetadataArray::Unsigned(vec![1, 2])))
        .value("bools", MetadataValue::Array(MetadataArray::Bool(vec![true, false])))
        .value("doubles", MetadataValue::Array(MetadataArray::F64(vec![0.5])))
        .f32_array("floats", &[1.5, -2.0]);
    let (_directory, checkpoint) = open_gguf(&writer);
    let metadata = checkpoint.gguf().unwrap();
    assert_eq!(metadata.string("s").unwrap(), "text");
    assert_eq!(metadata.u32("small").unwrap(), 7);
    assert_eq!(metadata.u64("small").unwrap(), 7);
    assert_eq!(metadata.u64("large").unwrap(), 1 << 40);
    assert_eq!(metadata.u32("positive").unwrap(), 3);
    assert_eq!(metadata.f32("f").unwrap(), 0.5);
    assert_eq!(metadata.f32("double").unwrap(), 0.25);
    assert!(metadata.bool("b").unwrap());
    assert_eq!(metadata.string_array("strings").unwrap(), ["a", "", "ü"]);
    assert_eq!(metadata.integer_array("integers").unwrap(), [-1, 1 << 40]);
    assert_eq!(metadata.integer_array("unsigned").unwrap(), [1, 2]);
    assert_eq!(metadata.f32_array("floats").unwrap(), [1.5, -2.0]);
    assert_eq!(
        metadata.value("bools"),
        Some(&MetadataValue::Array(MetadataArray::Bool(vec![true, false])))
    );
    assert_eq!(metadata.keys().count(), 14);
    assert_eq!(metadata.optional("absent", GgufMetadata::f32).unwrap(), None);
    assert_eq!(metadata.optional("f", GgufMetadata::f32).unwrap(), Some(0.5));

    let missing = message(metadata.string("llama.block_count").map(drop));
    assert_mentions(&missing, &["model.gguf", "llama.block_count", "missing"]);
    let wrong = message(metadata.u32("s").map(drop));
    assert_mentions(&wrong, &["model.gguf", "\"s\"", "a string", "an integer"]);
    assert_mentions(&message(metadata.u32("large").map(drop)), &["large", "1099511627776"]);
    assert_mentions(&message(metadata.u64("negative").map(drop)), &["negative", "-3"]);
    assert_mentions(&message(metadata.f32("small").map(drop)), &["small"]);
    assert_mentions(&message(metadata.bool("small").map(drop)), &["small", "bool"]);
    assert_mentions(&message(metadata.string_array("floats").map(drop)), &["floats"]);
    assert_mentions(&message(metadata.integer_array("floats").map(drop)), &["floats"]);
    assert_mentions(&message(metadata.f32_array("integers").map(drop)), &["integers"]);
    let optional = metadata.optional("s", GgufMetadata::f32);
    assert_mentions(&message(optional.map(drop)), &["\"s\""]);
}

#[test]
fn a_directory_with_one_gguf_file_is_that_file() {
    let (directory, path) = gguf_directory(&gguf_bytes(&two_tensors()));
    let checkpoint = Checkpoint::open(directory.path()).unwrap();
    assert_eq!(checkpoint.container(), Container::Gguf);
    assert_eq!(checkpoint.path(), path);
    assert!(checkpoint.config().is_none());
    assert!(checkpoint.folder().is_none());
    let weight = checkpoint.tensor("a.weight").unwrap();
    assert_eq!(weight.shape, [2, 3], "rows first");
    assert_eq!(checkpoint.tensor("norm").unwrap().to_f32().unwrap(), [0.5, -0.5]);

    fs::copy(&path, directory.path().join("other.gguf")).unwrap();
    assert_mentions(&open_error(directory.path()), &["model.gguf", "other.gguf"]);
}

#[test]
fn gguf_alignment_is_honoured() {
    for alignment in [1u32, 8, 64, 4096] {
        let mut writer = Writer::new();
        writer.alignment(alignment);
        let odd = tensor("odd", DType::I8, &[3], vec![1, 2, 3]);
        writer.tensor(odd.entry());
        for tensor in &two_tensors() {
            writer.tensor(tensor.entry());
        }
        let (_directory, checkpoint) = open_gguf(&writer);
        assert_eq!(*checkpoint.tensor("odd").unwrap().bytes.all(), [1, 2, 3]);
        assert_eq!(checkpoint.tensor("norm").unwrap().to_f32().unwrap(), [0.5, -0.5]);
    }
}

/// A GGUF file put together by hand, to write what the writer would refuse.
struct Raw(Vec<u8>);

impl Raw {
    fn new(version: u32, tensors: u64, entries: u64) -> Self {
        let mut raw = Self(b"GGUF".to_vec());
        raw.u32(version).u64(tensors).u64(entries);
        raw
    }

    fn u32(&mut self, value: u32) -> &mut Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn u64(&mut self, value: u64) -> &mut Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn text(&mut self, text: &[u8]) -> &mut Self {
        self.u64(text.len() as u64);
        self.0.extend(text);
        self
    }

    fn tensor(&mut self, name: &str, dimensions: &[u64], type_id: u32, offset: u64) -> &mut Self {
        self.text(name.as_bytes()).u32(dimensions.len() as u32);
        for size in dimensions {
            self.u64(*size);
        }
        self.u32(type_id).u64(offset)
    }

    /// Pads to where tensors begin, and adds that many bytes.
    fn data(&mut self, bytes: usize) -> &mut Self {
        self.0.resize(self.0.len().next_multiple_of(32) + bytes, 0);
        self
    }

    fn error(&self) -> String {
        let (_directory, path) = gguf_directory(&self.0);
        let message = open_error(&path);
        assert_mentions(&message, &["model.gguf"]);
        message
    }

    fn open(&self) -> (tempfile::TempDir, Checkpoint) {
        let (directory, path) = gguf_directory(&self.0);
        let checkpoint = Checkpoint::open(&path).unwrap();
        (directory, checkpoint)
    }
}

#[test]
fn gguf_versions() {
    let error = |version| Raw::new(version, 0, 0).data(0).error();
    assert_mentions(&error(1), &["version 1", "not supported"]);
    assert_mentions(&error(4), &["version 4", "not supported"]);
    assert_mentions(&error(3u32.swap_bytes()), &["big-endian"]);
    let (_directory, checkpoint) = Raw::new(2, 1, 0).tensor("a", &[2], 0, 0).data(8).open();
    assert_eq!(checkpoint.tensor("a").unwrap().shape, [2]);
}

#[test]
fn gguf_counts_that_lie() {
    let lie = 1u64 << 60;
    assert_mentions(&Raw::new(3, lie, 0).data(64).error(), &["tensors", "1152921504606846976"]);
    assert_mentions(&Raw::new(3, 0, lie).data(64).error(), &["metadata entries"]);
    assert_mentions(&Raw::new(3, 0, u64::MAX).data(64).error(), &["metadata entries"]);
    let string = Raw::new(3, 0, 1).u64(lie).data(64).error();
    assert_mentions(&string, &["a metadata key", "truncated"]);
    let array = |element: u32| {
        Raw::new(3, 0, 1).text(b"tokens").u32(9).u32(element).u64(lie).data(64).error()
    };
    for element in [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12] {
        assert_mentions(&array(element), &["tokens", "1152921504606846976"]);
    }
    assert_mentions(&array(9), &["tokens", "arrays of arrays"]);
    assert_mentions(&array(77), &["tokens", "77"]);
    let value = Raw::new(3, 0, 1).text(b"key").u32(13).data(64).error();
    assert_mentions(&value, &["key", "type 13"]);
    let utf8 = Raw::new(3, 0, 1).text(b"key").u32(8).text(&[0xff]).data(64).error();
    assert_mentions(&utf8, &["key", "not UTF-8"]);
    let line = Raw::new(3, 0, 1).text(b"two\nlines").u32(13).data(64).error();
    assert_mentions(&line, &["two\\nlines"]);
}

#[test]
fn gguf_tensors_that_do_not_fit() {
    let one = |dimensions: &[u64], type_id, offset, data| {
        Raw::new(3, 1, 0).tensor("w", dimensions, type_id, offset).data(data).error()
    };
    assert_mentions(&one(&[64], 0, 0, 255), &["\"w\"", "256 bytes", "truncated"]);
    assert_mentions(&one(&[64], 0, 32, 256), &["\"w\"", "offset 32"]);
    assert_mentions(&one(&[64], 0, u64::MAX - 31, 256), &["\"w\"", "offset"]);
    assert_mentions(&one(&[64], 0, 16, 512), &["\"w\"", "alignment 32"]);
    assert_mentions(&one(&[1; 5], 0, 0, 32), &["\"w\"", "5 dimensions"]);
    assert_mentions(&one(&[u64::MAX, 2], 0, 0, 32), &["\"w\"", "overflow"]);
    assert_mentions(&one(&[33, 2], 2, 0, 64), &["\"w\"", "33 columns", "blocks of 32"]);
    let overlap =
        Raw::new(3, 2, 0).tensor("a", &[16], 0, 0).tensor("b", &[16], 0, 32).data(128).error();
    assert_mentions(&overlap, &["\"a\"", "overlap"]);
    let twice = Raw::new(3, 2, 0).tensor("a", &[8], 0, 0).tensor("a", &[8], 0, 32).data(64).error();
    assert_mentions(&twice, &["\"a\"", "twice"]);
    let key = Raw::new(3, 0, 2).text(b"k").u32(4).u32(1).text(b"k").u32(4).u32(1).data(32).error();
    assert_mentions(&key, &["\"k\"", "twice"]);
    let alignment =
        |value| Raw::new(3, 0, 1).text(b"general.alignment").u32(4).u32(value).data(64).error();
    assert_mentions(&alignment(24), &["general.alignment", "24"]);
    assert_mentions(&alignment(0), &["general.alignment", "0"]);
    let split = Raw::new(3, 0, 1).text(b"split.count").u32(4).u32(3).data(64).error();
    assert_mentions(&split, &["3 parts"]);
}

#[test]
fn gguf_empty_tensors_and_unread_types_open() {
    let (_directory, checkpoint) = Raw::new(3, 4, 0)
        .tensor("empty", &[0, 4], 0, 0)
        .tensor("q.weight", &[256, 2], 12, 0)
        .tensor("u.weight", &[32, 2], 99, 288)
        .tensor("late", &[0], 0, 320)
        .data(320)
        .open();
    assert!(checkpoint.tensor("empty").unwrap().bytes.is_empty());
    assert!(checkpoint.tensor("late").unwrap().bytes.is_empty());
    assert_eq!(checkpoint.tensor("q.weight").unwrap().bytes.len(), 288);
    assert_eq!(checkpoint.tensor("u.weight").unwrap().bytes.len(), 32);
    let error = |base| message(checkpoint.matrix(base).map(drop));
    assert_mentions(&error("q"), &["model.gguf", "q.weight", "Q4_K", "not supported"]);
    assert_mentions(&error("u"), &["u.weight", "99", "not supported"]);
    let plain = checkpoint.tensor("q.weight").unwrap().to_f32();
    assert_mentions(&message(plain.map(drop)), &["q.weight", "Q4_K"]);
}

#[test]
fn a_truncated_gguf_file_is_an_error_at_every_length() {
    let mut tensors = two_tensors().to_vec();
    tensors.extend(encode_matrix("q4_1", "q", 32, &Noise(1).values(64)).unwrap());
    let bytes = gguf_bytes(&tensors);
    // The padding behind the last tensor may be missing.
    let needed = bytes.len() - 32 + 8;
    let (_directory, path) = gguf_directory(&bytes);
    for length in 0..needed {
        fs::write(&path, &bytes[..length]).unwrap();
        assert_mentions(&open_error(&path), &["model.gguf"]);
    }
    fs::write(&path, &bytes[..needed]).unwrap();
    assert_eq!(Checkpoint::open(&path).unwrap().tensor_names().count(), 3);
}
