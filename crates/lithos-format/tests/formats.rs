//! Every format against a decoder written here, from the format's description, and its encoder against the decoder.

mod support;

use std::path::Path;

use half::{bf16, f16};
use lithos_format::numbers::{E2M1, e4m3_to_f32};
use lithos_format::{
    Checkpoint, Codes, DType, Matrix, OwnedTensor, ScaleType, encode_affine_int4, encode_matrix,
    format_names,
};
use support::{Noise, assert_mentions, directory, message, open_tensors, tensor};

/// The value of a float with the given field widths, from the definition of IEEE 754 formats, without special values.
fn small_float(code: u8, exponent_bits: u32, mantissa_bits: u32, bias: i32) -> f64 {
    let mantissa =
        f64::from(u32::from(code) & ((1 << mantissa_bits) - 1)) / f64::from(1 << mantissa_bits);
    let exponent = ((u32::from(code) >> mantissa_bits) & ((1 << exponent_bits) - 1)) as i32;
    let negative = (u32::from(code) >> (mantissa_bits + exponent_bits)) & 1 == 1;
    let magnitude = if exponent == 0 {
        mantissa * 2f64.powi(1 - bias)
    } else {
        (1.0 + mantissa) * 2f64.powi(exponent - bias)
    };
    if negative { -magnitude } else { magnitude }
}

fn half_at(bytes: &[u8], index: usize) -> f32 {
    f16::from_le_bytes([bytes[2 * index], bytes[2 * index + 1]]).to_f32()
}

fn brain_at(bytes: &[u8], index: usize) -> f32 {
    bf16::from_le_bytes([bytes[2 * index], bytes[2 * index + 1]]).to_f32()
}

/// Decodes tensors value by value: index arithmetic per element, as the format's description states it.
fn decode_independently(
    format: &str,
    tensors: &[OwnedTensor],
    rows: usize,
    cols: usize,
) -> Vec<f32> {
    let find = |suffix: &str| {
        let name = format!("m.{suffix}");
        &tensors.iter().find(|tensor| tensor.name == name).unwrap().bytes
    };
    let single = |suffix: &str| f32::from_le_bytes(find(suffix)[..4].try_into().unwrap());
    let weight = find("weight");
    let value = |row: usize, col: usize| -> f32 {
        let element = row * cols + col;
        match format {
            "f32" => f32::from_le_bytes(weight[element * 4..element * 4 + 4].try_into().unwrap()),
            "f16" => half_at(weight, element),
            "bf16" => brain_at(weight, element),
            "fp8" => small_float(weight[element], 4, 3, 7) as f32 * single("weight_scale"),
            "nvfp4" => {
                let byte = weight[row * (cols / 2) + col / 2];
                let code = if col.is_multiple_of(2) { byte & 0xf } else { byte >> 4 };
                let scale = find("weight_scale")[row * (cols / 16) + col / 16];
                let product = small_float(code, 2, 1, 1) * small_float(scale, 4, 3, 7);
                product as f32 * single("weight_scale_2")
            }
            "int4-affine" => {
                let scales = find("scales");
                let group = cols * rows * 2 / scales.len();
                let at = row * (cols / 8) + col / 8;
                let word = u32::from_le_bytes(weight[at * 4..at * 4 + 4].try_into().unwrap());
                let code = (word >> (4 * (col % 8))) & 15;
                let index = row * (cols / group) + col / group;
                code as f32 * brain_at(scales, index) + brain_at(find("biases"), index)
            }
            "q4_0" | "q4_1" => {
                let (size, head) = if format == "q4_0" { (18, 2) } else { (20, 4) };
                let block = &weight[element / 32 * size..][..size];
                let place = element % 32;
                let byte = block[head + place % 16];
                let code = if place < 16 { byte & 15 } else { byte >> 4 };
                match format {
                    "q4_0" => (f32::from(code) - 8.0) * half_at(block, 0),
                    _ => f32::from(code) * half_at(block, 0) + half_at(block, 1),
                }
            }
            "q8_0" => {
                let block = &weight[element / 32 * 34..][..34];
                f32::from(block[2 + element % 32] as i8) * half_at(block, 0)
            }
            other => panic!("no decoder for {other}: write one"),
        }
    };
    (0..rows * cols).map(|element| value(element / cols, element % cols)).collect()
}

#[test]
fn every_format_decodes_as_its_description_says() {
    let (rows, cols) = (5, 192);
    for format in format_names() {
        let values = Noise(7).values(rows * cols);
        let mut tensors = encode_matrix(format, "m", cols, &values).unwrap();
        // Random codes reach what an encoder never writes; NaN codes are left to their own test.
        for weight in tensors.iter_mut().filter(|tensor| tensor.name == "m.weight") {
            if format == "nvfp4" || format == "int4-affine" {
                weight.bytes = Noise(9).bytes(weight.bytes.len());
            }
        }
        let (_directory, checkpoint) = open_tensors(&tensors);
        let matrix = checkpoint.matrix("m").unwrap();
        assert_eq!(matrix.format(), format);
        assert_eq!((matrix.rows(), matrix.cols()), (rows, cols));
        assert_eq!(matrix.decode(), decode_independently(format, &tensors, rows, cols), "{format}");
    }
}

/// What an encoder may lose: half a step of the widest spacing that the format has for values up to 1.
fn tolerance(format: &str) -> f32 {
    match format {
        "f32" => 0.0,
        "f16" => 1.0 / 4096.0,
        "bf16" => 1.0 / 512.0,
        "fp8" => 1.0 / 28.0,
        // Half of the step from 4 to 6, and the scale's own rounding of up to 1/16 on the largest value.
        "nvfp4" => 1.0 / 6.0 + 1.0 / 16.0,
        "int4-affine" | "q4_1" => 2.0 / 30.0 * 1.05,
        // Codes reach from -8 to 7, so the value opposite to the largest loses up to a whole step.
        "q4_0" => 1.0 / 8.0 * 1.01,
        "q8_0" => 1.0 / 254.0 * 1.01,
        other => panic!("no tolerance for {other}: derive one"),
    }
}

#[test]
fn encoding_then_decoding_stays_within_half_a_step() {
    let (rows, cols) = (7, 128);
    for format in format_names() {
        let values = Noise(3).values(rows * cols);
        let tensors = encode_matrix(format, "m", cols, &values).unwrap();
        let (_directory, checkpoint) = open_tensors(&tensors);
        let decoded = checkpoint.matrix("m").unwrap().decode();
        let worst = values
            .iter()
            .zip(&decoded)
            .map(|(value, decoded)| (value - decoded).abs())
            .fold(0.0, f32::max);
        assert!(worst <= tolerance(format), "{format}: {worst}");
        assert!(format == "f32" || worst > 0.0, "{format} cannot be lossless on noise");
    }
}

#[test]
fn encoding_keeps_zeros_and_tiny_values() {
    for format in format_names() {
        let mut values = vec![0.0; 2 * 64];
        values[64..].fill(1e-30);
        let tensors = encode_matrix(format, "m", 64, &values).unwrap();
        let (_directory, checkpoint) = open_tensors(&tensors);
        let decoded = checkpoint.matrix("m").unwrap().decode();
        assert!(decoded[..64].iter().all(|value| *value == 0.0), "{format}");
        assert!(decoded[64..].iter().all(|value| value.abs() <= 2e-30), "{format}");
    }
}

/// Decodes a row from the unpacked parts alone, as another crate would.
fn decode_from_parts(matrix: &Matrix<'_>, row: usize) -> Vec<f32> {
    let encoding = matrix.encoding();
    let mut codes = vec![0; matrix.cols() * encoding.codes.bytes_unpacked()];
    matrix.unpack_codes(row, &mut codes);
    let mut scales = vec![0; matrix.blocks_per_row()];
    let mut biases = vec![0; matrix.blocks_per_row()];
    matrix.unpack_scales(row, &mut scales);
    matrix.unpack_biases(row, &mut biases);
    let code_bytes = encoding.codes.bytes_unpacked();
    (0..matrix.cols())
        .map(|col| {
            let code = &codes[col * code_bytes..][..code_bytes];
            let code = match encoding.codes {
                Codes::F32 => f32::from_le_bytes(code.try_into().unwrap()),
                Codes::F16 => half_at(code, 0),
                Codes::Bf16 => brain_at(code, 0),
                Codes::E4m3 => e4m3_to_f32(code[0]),
                Codes::U4 => {
                    assert!(code[0] < 16);
                    f32::from(code[0]) - f32::from(encoding.zero_point)
                }
                Codes::I8 => f32::from(code[0] as i8),
                Codes::E2m1 => {
                    assert!(code[0] < 16);
                    E2M1[usize::from(code[0])]
                }
            };
            match encoding.blocks {
                None => code * matrix.tensor_scale(),
                Some(blocks) => {
                    let block = col / blocks.cols;
                    let scaled = code * blocks.scale.to_f32(scales[block]) * matrix.tensor_scale();
                    match blocks.bias {
                        Some(bias) => scaled + bias.to_f32(biases[block]),
                        None => scaled,
                    }
                }
            }
        })
        .collect()
}

#[test]
fn unpacked_parts_give_the_decoded_row() {
    for format in format_names() {
        let tensors = encode_matrix(format, "m", 128, &Noise(11).values(4 * 128)).unwrap();
        let (_directory, checkpoint) = open_tensors(&tensors);
        let matrix = checkpoint.matrix("m").unwrap();
        let mut row = vec![0.0; 128];
        for index in 0..4 {
            matrix.decode_row(index, &mut row);
            assert_eq!(row, decode_from_parts(&matrix, index), "{format}");
        }
        let total: usize = tensors
            .iter()
            .filter(|tensor| tensor.shape.len() == 2)
            .map(|tensor| tensor.bytes.len())
            .sum();
        assert_eq!(matrix.bytes(), total as u64, "{format}");
    }
}

#[test]
fn nvfp4_decodes_every_code_at_every_scale() {
    // Row s has block scale s; its 16 columns are the 16 codes, 0x10 being columns 0 and 1.
    let row: Vec<u8> = (0..8).map(|pair| (2 * pair) | (2 * pair + 1) << 4).collect();
    let scales: Vec<u8> = (0..=255).collect();
    let tensors = [
        tensor("m.weight", DType::U8, &[256, 8], row.repeat(256)),
        tensor("m.weight_scale", DType::F8E4m3, &[256, 1], scales),
        OwnedTensor::from_f32("m.weight_scale_2", &[], &[0.25]),
        OwnedTensor::from_f32("m.input_scale", &[], &[3.0]),
    ];
    let (_directory, checkpoint) = open_tensors(&tensors);
    let matrix = checkpoint.matrix("m").unwrap();
    let mut out = [0.0; 16];
    for scale in 0..=255u8 {
        matrix.decode_row(usize::from(scale), &mut out);
        for (code, value) in out.iter().enumerate() {
            if scale & 0x7f == 0x7f {
                assert!(value.is_nan());
                continue;
            }
            let expected = small_float(code as u8, 2, 1, 1) * small_float(scale, 4, 3, 7) * 0.25;
            assert_eq!(f64::from(*value), expected, "code {code} scale {scale:#x}");
        }
    }
    let mut companions = checkpoint.companions("m");
    companions.sort_unstable();
    assert_eq!(companions, ["m.input_scale", "m.weight", "m.weight_scale", "m.weight_scale_2"]);
}

#[test]
fn nvfp4_encodes_by_the_quantizer_rule() {
    // The largest value, 6 * 448, makes weight_scale_2 exactly 1 and its block's scale 448, whose code is 0x7e.
    let mut values = vec![0.0f32; 32];
    values[0] = 6.0 * 448.0;
    values[1] = -5.0 * 448.0; // a tie, goes to 4, code 6, with the sign bit 14
    let tensors = encode_matrix("nvfp4", "m", 32, &values).unwrap();
    assert_eq!(tensors[0].bytes[0], 0xe7);
    assert_eq!(tensors[1].bytes, [0x7e, 0x38], "a block of zeros has scale 1");
    assert_eq!(tensors[2].bytes, 1.0f32.to_le_bytes());
}

#[test]
fn fp8_decodes_every_code() {
    let tensors = [
        tensor("m.weight", DType::F8E4m3, &[2, 128], (0..=255).collect()),
        OwnedTensor::from_f32("m.weight_scale", &[1], &[0.5]),
    ];
    let (_directory, checkpoint) = open_tensors(&tensors);
    let values = checkpoint.matrix("m").unwrap().decode();
    for (code, value) in values.iter().enumerate() {
        if code & 0x7f == 0x7f {
            assert!(value.is_nan());
        } else {
            assert_eq!(f64::from(*value), small_float(code as u8, 4, 3, 7) * 0.5);
        }
    }
}

#[test]
fn nibble_orders_are_those_of_the_formats() {
    // Bytes 0x10, 0x32, ... hold 0, 1, 2, 3 in order when the low nibble comes first.
    let ascending: Vec<u8> = (0..8).map(|pair| (2 * pair) | (2 * pair + 1) << 4).collect();
    let in_order: Vec<u8> = (0..16).chain(0..16).collect();
    let scale = bf16::from_f32(1.0).to_le_bytes().to_vec();
    let affine = [
        tensor("m.weight", DType::U32, &[1, 4], ascending.repeat(2)),
        tensor("m.scales", DType::Bf16, &[1, 1], scale.clone()),
        tensor("m.biases", DType::Bf16, &[1, 1], scale),
    ];
    let (_directory, checkpoint) = open_tensors(&affine);
    let mut codes = [0; 32];
    checkpoint.matrix("m").unwrap().unpack_codes(0, &mut codes);
    assert_eq!(codes.as_slice(), in_order);

    // Q4_0 puts columns 0 to 15 in low nibbles, 16 to 31 in high ones.
    let mut block = f16::from_f32(1.0).to_le_bytes().to_vec();
    block.extend((0..16u8).map(|column| column | (15 - column) << 4));
    let (_directory, checkpoint) =
        open_tensors(&[tensor("m.weight", DType::Q4_0, &[1, 32], block)]);
    let matrix = checkpoint.matrix("m").unwrap();
    matrix.unpack_codes(0, &mut codes);
    let expected: Vec<u8> = (0..16).chain((0..16).rev()).collect();
    assert_eq!(codes.as_slice(), expected);
    assert_eq!(matrix.decode()[0], -8.0);
    assert_eq!(matrix.decode()[15], 7.0);
}

#[test]
fn affine_groups_and_scale_types() {
    let values = Noise(21).values(3 * 256);
    for group in [32, 64, 128] {
        for scale in [ScaleType::F32, ScaleType::F16, ScaleType::Bf16] {
            let tensors = encode_affine_int4("m", 256, &values, group, scale).unwrap();
            let (_directory, checkpoint) = open_tensors(&tensors);
            let matrix = checkpoint.matrix("m").unwrap();
            let blocks = matrix.encoding().blocks.unwrap();
            assert_eq!((blocks.cols, blocks.scale), (group, scale));
            for (value, decoded) in values.iter().zip(matrix.decode()) {
                assert!((value - decoded).abs() <= tolerance("int4-affine"));
            }
        }
    }
    assert!(encode_affine_int4("m", 256, &values, 16, ScaleType::F16).is_err());
    assert!(encode_affine_int4("m", 256, &values, 64, ScaleType::E4m3).is_err());
}

#[test]
fn affine_is_held_against_the_configuration() {
    let tensors = encode_affine_int4("m", 128, &Noise(1).values(256), 64, ScaleType::F16).unwrap();
    let error_with = |config: &str| {
        let directory = directory(config, &tensors);
        let checkpoint = Checkpoint::open(directory.path()).unwrap();
        checkpoint.matrix("m").map(drop)
    };
    assert!(error_with(r#"{"quantization": {"bits": 4, "group_size": 64}}"#).is_ok());
    let own =
        r#"{"quantization": {"bits": 8, "group_size": 32, "m": {"bits": 4, "group_size": 64}}}"#;
    assert!(error_with(own).is_ok());
    let bits = message(error_with(r#"{"quantization": {"bits": 8, "group_size": 32}}"#));
    assert_mentions(&bits, &["m.weight", "8 bits", "not supported"]);
    let group = message(error_with(r#"{"quantization": {"bits": 4, "group_size": 32}}"#));
    assert_mentions(&group, &["m.weight", "groups of 32", "groups of 64"]);
}

fn detection_error(tensors: &[OwnedTensor]) -> String {
    let (_directory, checkpoint) = open_tensors(tensors);
    assert!(checkpoint.has_matrix("m"), "a refused matrix is still there");
    message(checkpoint.matrix("m").map(drop))
}

#[test]
fn layouts_that_are_not_read_are_named() {
    let fp8 = |suffix: &str, shape: &[usize]| {
        let count = shape.iter().product();
        [
            tensor("m.weight", DType::F8E4m3, &[4, 128], vec![0; 512]),
            OwnedTensor::from_f32(format!("m.{suffix}"), shape, &vec![1.0; count]),
        ]
    };
    let channel = detection_error(&fp8("weight_scale", &[4, 1]));
    assert_mentions(&channel, &["m.weight", "FP8", "[4, 1]", "not supported"]);
    let block = detection_error(&fp8("weight_scale_inv", &[1, 1]));
    assert_mentions(&block, &["m.weight", "FP8", "block scales"]);
    let bare = detection_error(&fp8("weight_scale", &[1])[..1]);
    assert_mentions(&bare, &["m.weight", "FP8 without weight_scale"]);

    let packed = tensor("m.weight_packed", DType::U8, &[4, 8], vec![0; 32]);
    assert_mentions(&detection_error(&[packed]), &["m.weight_packed", "compressed-tensors"]);
    let qweight = tensor("m.qweight", DType::I32, &[2, 2], vec![0; 16]);
    assert_mentions(&detection_error(&[qweight]), &["m.qweight", "AWQ or GPTQ"]);

    let mlx = [
        tensor("m.weight", DType::U32, &[1, 4], vec![0; 16]),
        tensor("m.scales", DType::U8, &[1, 2], vec![0; 2]),
    ];
    assert_mentions(&detection_error(&mlx), &["m.weight", "MLX nvfp4 or mxfp4"]);
    let integers = tensor("m.weight", DType::I32, &[1, 4], vec![0; 16]);
    assert_mentions(&detection_error(&[integers]), &["m.weight", "type I32"]);
    let scaled = [
        OwnedTensor::from_f32("m.weight", &[1, 2], &[1.0, 2.0]),
        OwnedTensor::from_f32("m.weight_scale", &[], &[2.0]),
    ];
    assert_mentions(&detection_error(&scaled), &["m.weight", "type F32", "weight_scale"]);
}

#[test]
fn shapes_that_do_not_fit_are_named() {
    let with = |index: usize, shape: &[usize], bytes: usize| {
        let mut tensors = encode_matrix("nvfp4", "m", 64, &Noise(2).values(128)).unwrap();
        tensors[index].shape = shape.to_vec();
        tensors[index].bytes.resize(bytes, 0);
        detection_error(&tensors)
    };
    assert_mentions(
        &with(1, &[2, 2], 4),
        &["m.weight", "[2, 32]", "m.weight_scale", "[2, 4]", "[2, 2]"],
    );
    assert_mentions(&with(0, &[2, 4], 8), &["m.weight", "[2, 4]", "8 columns"]);
    assert_mentions(&with(2, &[2], 8), &["m.weight_scale_2", "[2]", "one number"]);

    let mut affine = encode_matrix("int4-affine", "m", 128, &Noise(2).values(256)).unwrap();
    affine[2].shape = vec![4, 1];
    assert_mentions(&detection_error(&affine), &["m.weight", "m.biases", "[2, 2]", "[4, 1]"]);
    affine[1].shape = vec![4, 1];
    assert_mentions(&detection_error(&affine), &["m.weight", "m.scales"]);

    let cube = OwnedTensor::from_f32("m.weight", &[1, 2, 2], &[0.0; 4]);
    assert_mentions(&detection_error(&[cube]), &["m.weight", "[1, 2, 2]"]);
    let empty = OwnedTensor::from_f32("m.weight", &[0, 4], &[]);
    assert_mentions(&detection_error(&[empty]), &["m.weight", "[0, 4]"]);
}

#[test]
fn what_cannot_be_encoded_is_refused() {
    for format in format_names() {
        let infinite = message(encode_matrix(format, "m", 32, &[f32::INFINITY; 32]).map(drop));
        assert_mentions(&infinite, &["m", "not finite"]);
        assert!(encode_matrix(format, "m", 32, &[0.0; 33]).is_err());
        assert!(encode_matrix(format, "m", 0, &[]).is_err());
    }
    for format in ["nvfp4", "int4-affine", "q4_0", "q4_1", "q8_0"] {
        let partial = message(encode_matrix(format, "m", 24, &[0.0; 24]).map(drop));
        assert_mentions(&partial, &["24 columns", "blocks"]);
    }
    for format in ["q4_0", "q4_1", "q8_0"] {
        assert!(encode_matrix(format, "m", 32, &[3e38; 32]).is_err(), "{format}");
    }
    assert_mentions(&message(encode_matrix("q9", "m", 32, &[0.0; 32]).map(drop)), &["q9", "nvfp4"]);
}

/// `reference.gguf` and `reference.safetensors` were made by other implementations, see `data/make_reference.py`.
#[test]
fn files_of_other_implementations_decode_to_their_values() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let gguf = Checkpoint::open(&data.join("reference.gguf")).unwrap();
    let safetensors =
        Checkpoint::open_safetensors_file(&data.join("reference.safetensors")).unwrap();
    for (checkpoint, count) in [(&gguf, 6), (&safetensors, 3)] {
        let bases: Vec<_> =
            checkpoint.tensor_names().filter_map(|name| name.strip_suffix(".weight")).collect();
        assert_eq!(bases.len(), count);
        for base in bases {
            let matrix = checkpoint.matrix(base).unwrap();
            let expected = checkpoint.tensor(&format!("{base}.expected")).unwrap();
            assert_eq!(matrix.format(), base);
            assert_eq!([matrix.rows(), matrix.cols()], expected.shape);
            assert_eq!(matrix.decode(), expected.to_f32().unwrap(), "{base}");
        }
    }
    let metadata = gguf.gguf().unwrap();
    assert_eq!(metadata.string("general.architecture").unwrap(), "llama");
    assert_eq!(metadata.u32("llama.block_count").unwrap(), 2);
    assert_eq!(metadata.f32("llama.rope.freq_base").unwrap(), 10000.0);
    assert!(!metadata.bool("tokenizer.ggml.add_bos_token").unwrap());
    assert_eq!(metadata.string_array("tokenizer.ggml.tokens").unwrap(), ["a", "b", "é"]);
    assert_eq!(metadata.integer_array("tokenizer.ggml.token_type").unwrap(), [1, 3, 1]);
}
