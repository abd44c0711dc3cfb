//! Opening safetensors directories: what works, and what every kind of damage says.

mod support;

use std::fs;
use std::path::Path;

use lithos_format::gguf::Writer;
use lithos_format::{Checkpoint, Container, DType, EmbeddedFile, Folder, write_safetensors};
use support::{
    assert_mentions, directory, message, open_error, tensor, two_tensors, write_tensors,
};

const CONFIG: &str = r#"{"model_type": "qwen3", "hidden_size": 32}"#;

#[test]
fn a_directory_gives_configuration_tensors_and_side_files() {
    let directory = directory(CONFIG, &two_tensors());
    fs::write(directory.path().join("generation_config.json"), "{\"top_k\": 20}").unwrap();
    fs::write(directory.path().join("tokenizer.json"), "{}").unwrap();
    let checkpoint = Checkpoint::open(directory.path()).unwrap();
    assert_eq!(checkpoint.container(), Container::Safetensors);
    assert_eq!(checkpoint.path(), directory.path());
    assert_eq!(checkpoint.config().unwrap()["hidden_size"], 32);
    assert_eq!(checkpoint.generation_config().unwrap()["top_k"], 20);
    assert!(checkpoint.gguf().is_none());
    let folder = checkpoint.folder().unwrap();
    assert!(folder.contains("tokenizer.json") && !folder.contains("vocab.json"));
    assert_eq!(checkpoint.tensor_names().count(), 2);
    assert_eq!(checkpoint.weight_bytes(), 32);

    let norm = checkpoint.tensor("norm").unwrap();
    assert_eq!((norm.name, norm.shape, &norm.dtype), ("norm", &[2][..], &DType::F32));
    assert_eq!(norm.to_f32().unwrap(), [0.5, -0.5]);
    assert!(checkpoint.tensor("absent").is_none());
    assert!(!checkpoint.has_matrix("absent"));
    assert_mentions(
        &message(checkpoint.matrix("absent").map(drop)),
        &["absent.weight", directory.path().to_str().unwrap()],
    );

    checkpoint.release_pages("a.weight");
    checkpoint.release_pages("absent");
    let matrix = checkpoint.matrix("a").unwrap();
    assert_eq!(matrix.decode(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
}

#[test]
fn one_safetensors_file_gives_its_tensors() {
    let directory = directory(CONFIG, &two_tensors());
    let file = directory.path().join("model.safetensors");
    let tensors = Checkpoint::open_safetensors_file(&file).unwrap();
    assert!(tensors.config().is_none());
    assert_eq!(tensors.tensor_names().count(), 2);
    assert!(tensors.folder().is_none());
    assert_mentions(&open_error(&file), &["model.safetensors", "directory"]);
}

/// The files of a directory as a program would hold them.
fn embedded(directory: &Path) -> &'static [EmbeddedFile] {
    let file = |entry: std::io::Result<fs::DirEntry>| -> EmbeddedFile {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        (name.leak(), fs::read(&path).unwrap().leak())
    };
    fs::read_dir(directory).unwrap().map(file).collect::<Vec<_>>().leak()
}

#[test]
fn files_in_the_program_are_a_checkpoint_too() {
    let directory = directory(CONFIG, &two_tensors());
    fs::write(directory.path().join("tokenizer.json"), "{}").unwrap();
    let files = embedded(directory.path());
    drop(directory);
    let checkpoint = Checkpoint::open_folder(Folder::embedded("tiny", files)).unwrap();
    assert_eq!(checkpoint.container(), Container::Safetensors);
    assert_eq!(checkpoint.path(), Path::new("tiny"));
    assert_eq!(checkpoint.config().unwrap()["hidden_size"], 32);
    assert!(checkpoint.generation_config().is_none());
    assert!(checkpoint.folder().unwrap().contains("tokenizer.json"));
    assert_eq!(checkpoint.file_of("a.weight"), Path::new("tiny/model.safetensors"));
    checkpoint.release_pages("a.weight");
    assert_eq!(checkpoint.matrix("a").unwrap().decode(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);

    let without = |name: &str| -> &'static [EmbeddedFile] {
        files.iter().copied().filter(|file| file.0 != name).collect::<Vec<_>>().leak()
    };
    let error = |name| {
        let folder = Folder::embedded("tiny", without(name));
        message(Checkpoint::open_folder(folder).map(drop))
    };
    assert_mentions(&error("config.json"), &["tiny", "config.json"]);
    assert_mentions(&error("model.safetensors"), &["tiny", "model.safetensors"]);
}

#[test]
fn plain_types_are_read_as_numbers() {
    let cases: Vec<(DType, Vec<u8>, f32)> = vec![
        (DType::F64, (-2.5f64).to_le_bytes().to_vec(), -2.5),
        (DType::F32, 1.25f32.to_le_bytes().to_vec(), 1.25),
        (DType::F16, vec![0x00, 0xc2], -3.0),
        (DType::Bf16, vec![0xc0, 0x3f], 1.5),
        (DType::F8E4m3, vec![0x7e], 448.0),
        (DType::Bool, vec![1], 1.0),
        (DType::U8, vec![200], 200.0),
        (DType::I8, vec![200], -56.0),
        (DType::U16, vec![0, 128], 32768.0),
        (DType::I16, vec![0, 128], -32768.0),
        (DType::U32, vec![0, 0, 0, 128], 2147483648.0),
        (DType::I32, vec![255; 4], -1.0),
        (DType::U64, vec![5, 0, 0, 0, 0, 0, 0, 0], 5.0),
        (DType::I64, vec![254, 255, 255, 255, 255, 255, 255, 255], -2.0),
    ];
    let tensors: Vec<_> = cases
        .iter()
        .map(|(dtype, bytes, _)| tensor(&dtype.to_string(), dtype.clone(), &[], bytes.clone()))
        .collect();
    let directory = directory(CONFIG, &tensors);
    let checkpoint = Checkpoint::open(directory.path()).unwrap();
    for (dtype, _, expected) in cases {
        let stored = checkpoint.tensor(&dtype.to_string()).unwrap();
        assert_eq!(stored.dtype, dtype);
        assert_eq!(stored.to_f32().unwrap(), [expected], "{dtype}");
    }
}

#[test]
fn a_directory_without_a_model_says_what_is_missing() {
    let empty = tempfile::tempdir().unwrap();
    let name = empty.path().to_str().unwrap();
    assert_mentions(&open_error(empty.path()), &[name, "no model here"]);
    fs::write(empty.path().join("pytorch_model.bin"), "x").unwrap();
    assert_mentions(&open_error(empty.path()), &["pytorch_model.bin", "converted"]);
    write_tensors(&empty.path().join("part.safetensors"), &two_tensors());
    assert_mentions(&open_error(empty.path()), &["part.safetensors"]);
    assert_mentions(&open_error(&empty.path().join("nowhere")), &["nowhere"]);
    assert_mentions(
        &open_error(&empty.path().join("pytorch_model.bin")),
        &["pytorch_model.bin", "GGUF"],
    );
}

#[test]
fn the_configuration_must_be_there_and_be_json() {
    let directory = directory("{\"model_type\": ", &two_tensors());
    assert_mentions(&open_error(directory.path()), &["config.json", "not valid JSON"]);
    fs::remove_file(directory.path().join("config.json")).unwrap();
    assert_mentions(&open_error(directory.path()), &["config.json"]);
    fs::write(directory.path().join("config.json"), CONFIG).unwrap();
    fs::write(directory.path().join("generation_config.json"), "[").unwrap();
    assert_mentions(&open_error(directory.path()), &["generation_config.json"]);
}

/// Two shards, with an index that may be wrong.
fn sharded(index: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let [first, second] = two_tensors();
    fs::write(path.join("config.json"), CONFIG).unwrap();
    write_tensors(&path.join("one.safetensors"), &[first]);
    write_tensors(&path.join("two.safetensors"), &[second]);
    fs::write(path.join("model.safetensors.index.json"), index).unwrap();
    directory
}

#[test]
fn shards_are_one_checkpoint() {
    let index = r#"{"weight_map": {"a.weight": "one.safetensors", "norm": "two.safetensors"}}"#;
    let directory = sharded(index);
    let checkpoint = Checkpoint::open(directory.path()).unwrap();
    assert_eq!(checkpoint.matrix("a").unwrap().decode()[5], 6.0);
    assert_eq!(checkpoint.tensor("norm").unwrap().to_f32().unwrap(), [0.5, -0.5]);
    assert_eq!(checkpoint.weight_bytes(), 32);
    checkpoint.release_pages("norm");
    assert_eq!(checkpoint.tensor("norm").unwrap().to_f32().unwrap(), [0.5, -0.5]);

    fs::remove_file(directory.path().join("two.safetensors")).unwrap();
    assert_mentions(&open_error(directory.path()), &["two.safetensors", "missing"]);
}

#[test]
fn an_index_is_held_against_its_shards() {
    let error = |index: &str| open_error(sharded(index).path());
    let misplaced = r#"{"weight_map": {"norm": "one.safetensors", "a.weight": "two.safetensors"}}"#;
    assert_mentions(&error(misplaced), &["missing", "index"]);
    let absent = r#"{"weight_map": {"b": "one.safetensors"}}"#;
    assert_mentions(&error(absent), &["one.safetensors", "\"b\""]);
    assert_mentions(&error("{}"), &["index.json", "weight_map"]);
    assert_mentions(&error(r#"{"weight_map": {}}"#), &["index.json", "empty"]);
    assert_mentions(&error(r#"{"weight_map": {"a": 3}}"#), &["index.json", "\"a\""]);
    let outside = r#"{"weight_map": {"a": "../one.safetensors"}}"#;
    assert_mentions(&error(outside), &["index.json", "beside"]);
    assert_mentions(&error("nonsense"), &["index.json", "not valid JSON"]);
}

#[test]
fn a_tensor_in_two_shards_is_an_error() {
    let index = r#"{"weight_map": {"a.weight": "one.safetensors", "norm": "two.safetensors"}}"#;
    let directory = sharded(index);
    write_tensors(&directory.path().join("two.safetensors"), &two_tensors());
    assert_mentions(
        &open_error(directory.path()),
        &["a.weight", "one.safetensors", "two.safetensors"],
    );
}

/// What opening a model says whose weights are these bytes.
fn safetensors_error(bytes: &[u8]) -> String {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("config.json"), CONFIG).unwrap();
    fs::write(directory.path().join("model.safetensors"), bytes).unwrap();
    let message = open_error(directory.path());
    assert_mentions(&message, &["model.safetensors"]);
    message
}

fn with_header(header: &str, data: usize) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.resize(bytes.len() + data, 0);
    bytes
}

#[test]
fn damaged_safetensors_say_what_is_wrong() {
    assert_mentions(&safetensors_error(b""), &["empty"]);
    assert_mentions(&safetensors_error(b"abc"), &["truncated", "3 bytes"]);
    let mut huge = (1u64 << 63).to_le_bytes().to_vec();
    huge.extend([0; 100]);
    assert_mentions(&safetensors_error(&huge), &["9223372036854775808", "100"]);
    assert_mentions(&safetensors_error(&with_header("{]", 0)), &["header"]);

    let entry = |name: &str, from: usize, to: usize| {
        format!(r#""{name}":{{"dtype":"F32","shape":[2],"data_offsets":[{from},{to}]}}"#)
    };
    let file = |entries: &[String], data: usize| {
        safetensors_error(&with_header(&format!("{{{}}}", entries.join(",")), data))
    };
    assert_mentions(&file(&[entry("a", 0, 8), entry("b", 4, 12)], 12), &["overlap"]);
    assert_mentions(&file(&[entry("a", 0, 8), entry("b", 16, 24)], 24), &["gap"]);
    assert_mentions(&file(&[entry("a", 0, 8)], 4), &["truncated"]);
    assert_mentions(&file(&[entry("a", 0, 8)], 12), &["bytes were added"]);
    assert_mentions(&file(&[entry("a", 0, 12)], 12), &["shape"]);
    assert_mentions(&file(&[entry("a", 0, 8), entry("a", 0, 8)], 8), &["\"a\"", "twice"]);
    let many = r#"{"a":{"dtype":"F32","shape":[4294967296,4294967296,4],"data_offsets":[0,8]}}"#;
    assert_mentions(&safetensors_error(&with_header(many, 8)), &["overflow"]);
    let strange = r#"{"a":{"dtype":"F\n2","shape":[1],"data_offsets":[0,1]}}"#;
    assert_mentions(&safetensors_error(&with_header(strange, 1)), &["header"]);
}

#[test]
fn a_truncated_safetensors_file_is_an_error_at_every_length() {
    let directory = directory(CONFIG, &two_tensors());
    let path = directory.path().join("model.safetensors");
    let bytes = fs::read(&path).unwrap();
    for length in 0..bytes.len() {
        fs::write(&path, &bytes[..length]).unwrap();
        assert_mentions(&open_error(directory.path()), &["model.safetensors"]);
    }
}

#[test]
fn writers_refuse_what_they_cannot_write() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.safetensors");
    let write =
        |tensors: &[(&str, DType, &[usize], &[u8])]| message(write_safetensors(&path, tensors));
    let twice = ("a", DType::U8, &[1][..], &[0][..]);
    assert_mentions(&write(&[twice.clone(), twice]), &["a", "two tensors"]);
    assert_mentions(&write(&[("a", DType::U8, &[2], &[0])]), &["1 bytes", "[2]"]);
    assert_mentions(&write(&[("a", DType::Q4_0, &[32], &[0; 18])]), &["no type Q4_0"]);
    assert!(!path.exists());
    let gguf = |writer: &Writer| message(writer.to_bytes().map(drop));
    let fp8 = tensor("a", DType::F8E4m3, &[1], vec![0]);
    assert_mentions(&gguf(Writer::new().tensor(fp8.entry())), &["no type F8_E4M3"]);
    assert_mentions(&gguf(Writer::new().alignment(24)), &["24", "power of two"]);
    assert_mentions(&gguf(Writer::new().bool("k", true).bool("k", true)), &["\"k\""]);
}

#[test]
fn paths_that_are_not_files() {
    let directory = directory(CONFIG, &two_tensors());
    let path = directory.path().join("model.safetensors");
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert_mentions(&open_error(directory.path()), &["model.safetensors", "not a regular file"]);
    assert_mentions(&open_error(Path::new("")), &["No such file"]);
}
