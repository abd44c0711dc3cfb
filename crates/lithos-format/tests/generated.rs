//! Checkpoints whose tensors are computed where they are needed.

use lithos_format::numbers::f32_to_bf16;
use lithos_format::{
    Checkpoint, Container, DType, Folder, FormatError, GeneratedBytes, GeneratedTensor,
    encode_matrix,
};

/// Computes what it holds: a stand-in for a function of the place.
#[derive(Debug)]
struct Known(Vec<u8>);

impl GeneratedBytes for Known {
    fn copy_to(&self, offset: usize, out: &mut [u8]) {
        out.copy_from_slice(&self.0[offset..offset + out.len()]);
    }
}

fn folder() -> Folder {
    let files = [("config.json", "{\"model_type\": \"llama\"}"), ("generation_config.json", "{}")];
    let owned = files.map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec()));
    Folder::in_memory("made:tiny", owned.to_vec())
}

fn generated(name: &str, dtype: DType, shape: &[usize], bytes: Vec<u8>) -> GeneratedTensor {
    GeneratedTensor {
        name: name.to_owned(),
        dtype,
        shape: shape.to_vec(),
        source: Box::new(Known(bytes)),
    }
}

#[test]
fn tensors_read_as_if_they_were_stored() {
    let norm: Vec<u8> =
        [1.0, -0.5].iter().flat_map(|value| f32_to_bf16(*value).to_le_bytes()).collect();
    let tensors = vec![generated("norm", DType::Bf16, &[2], norm.clone())];
    let checkpoint = Checkpoint::generated(folder(), tensors).unwrap();
    assert_eq!(checkpoint.container(), Container::Safetensors);
    assert_eq!(checkpoint.config().unwrap()["model_type"], "llama");
    let tensor = checkpoint.tensor("norm").unwrap();
    assert_eq!((tensor.elements(), tensor.bytes.len()), (2, 4));
    assert_eq!(tensor.to_f32().unwrap(), [1.0, -0.5]);
    assert_eq!(*tensor.bytes.all(), norm);
    assert_eq!(*tensor.bytes.range(1..3), norm[1..3]);
    // There are no pages to release, and no file but the name that stands for all.
    checkpoint.release_pages("norm");
    assert_eq!(checkpoint.file_of("norm"), checkpoint.path());
    assert_eq!(checkpoint.path().to_str(), Some("made:tiny"));
    assert_eq!(checkpoint.weight_bytes(), 4);
}

#[test]
fn matrices_decode_in_every_format_of_safetensors() {
    let cols = 128;
    let values: Vec<f32> = (0..8 * cols).map(|i| ((i * 37) % 101) as f32 / 50.0 - 1.0).collect();
    for format in ["f32", "bf16", "f16", "fp8", "nvfp4", "int4-affine"] {
        let stored = encode_matrix(format, "m", cols, &values).unwrap();
        let tensors = stored
            .into_iter()
            .map(|tensor| generated(&tensor.name, tensor.dtype, &tensor.shape, tensor.bytes))
            .collect();
        let checkpoint = Checkpoint::generated(folder(), tensors).unwrap();
        let matrix = checkpoint.matrix("m").unwrap();
        assert_eq!((matrix.format(), matrix.rows(), matrix.cols()), (format, 8, cols));
        for (found, wanted) in matrix.decode().iter().zip(&values) {
            assert!((found - wanted).abs() < 0.2, "{format}: {found} for {wanted}");
        }
    }
}

#[test]
fn what_cannot_be_a_checkpoint_is_refused() {
    let refused = |folder: Folder, tensors| -> String {
        let error: FormatError = Checkpoint::generated(folder, tensors).unwrap_err();
        error.to_string()
    };
    let message = refused(Folder::in_memory("made:bare", Vec::new()), Vec::new());
    assert!(message.contains("made:bare") && message.contains("config.json"), "{message}");
    let twice = || generated("a", DType::U8, &[1], vec![0]);
    let message = refused(folder(), vec![twice(), twice()]);
    assert!(message.contains("\"a\"") && message.contains("also"), "{message}");
    let huge = generated("b", DType::F32, &[usize::MAX, 2], Vec::new());
    let message = refused(folder(), vec![huge]);
    assert!(message.contains("\"b\"") && message.contains("cannot"), "{message}");
}

#[test]
#[should_panic(expected = "past the end")]
fn reading_past_the_end_is_a_fault_of_the_reader() {
    let tensors = vec![generated("a", DType::U8, &[4], vec![0; 8])];
    let checkpoint = Checkpoint::generated(folder(), tensors).unwrap();
    checkpoint.tensor("a").unwrap().bytes.copy_to(2, &mut [0; 3]);
}
