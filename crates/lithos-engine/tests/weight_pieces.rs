//! Weights for graphics processors are the same however they are cut into pieces.

#[path = "support/checkpoints.rs"]
#[allow(dead_code, reason = "one container is enough here")]
mod checkpoints;
#[allow(dead_code, reason = "no passes are run here")]
mod support;

use checkpoints::{tensors, write_in_format};
use lithos_compiler::Fusion;
use lithos_compiler::device::{DeviceOptions, KeyValues, Program};
use lithos_model::Model;

#[test]
fn pieces_of_any_size_in_any_order_are_the_whole() {
    for (name, format) in
        [("tiny_qwen35", "nvfp4"), ("tiny_qwen35", "bf16"), ("tiny_qwen35_moe", "nvfp4")]
    {
        let folder = tempfile::tempdir().expect("a folder");
        write_in_format(name, tensors(name), format, folder.path());
        let model = Model::open(folder.path()).expect("opens");
        let options = DeviceOptions {
            fusion: Fusion::Step,
            slots: 1,
            context: 512,
            key_values: KeyValues::Bf16,
            range_keys: 256,
        };
        let places = Program::new(&model.graph, options).expect("a program").places.weights;
        let mut whole = vec![0; places.bytes];
        let factors = places.load(&model.checkpoint, &model.graph, &mut whole).expect("loads");
        assert!(whole.iter().any(|byte| *byte != 0));
        for most in [1, 3000, 1 << 30] {
            let pieces = places.pieces(&model.checkpoint, &model.graph, most).expect("pieces");
            assert_eq!(pieces.factors(), &factors);
            let mut found = vec![0; places.bytes];
            // Whatever was in the memory before must not show.
            let mut memory = vec![0xa5; pieces.largest()];
            for index in (0..pieces.len()).rev() {
                for part in pieces.pack(index, &mut memory).expect("packs") {
                    let packed = &memory[part.at..][..part.bytes];
                    found[part.place..][..part.bytes].copy_from_slice(packed);
                }
            }
            assert!(found == whole, "{name} as {format}, pieces of {most} bytes");
        }
    }
}
