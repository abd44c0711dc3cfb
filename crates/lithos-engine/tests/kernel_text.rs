//! The kernels that reference models are compiled to, word for word: a change of them shows in review.
//!
//! `LITHOS_UPDATE_TEXTS=1 cargo test -p lithos-engine --test kernel_text` writes them anew.

use std::path::PathBuf;

use lithos_compiler::Fusion;
use lithos_compiler::device::{DeviceOptions, KeyValues, Program};
use lithos_kernels::Language;
use lithos_model::Model;

/// The kernels of a text, without the library of task bodies before them.
fn kernels(text: &str) -> &str {
    let start = text.find("#define RECORD").expect("the kernels follow this line");
    &text[start..]
}

#[test]
fn kernels_are_those_that_were_reviewed() {
    let repository = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (family, fusion, language, extension) in [
        ("tiny_qwen35", Fusion::Layer, Language::Metal, "metal"),
        ("tiny_qwen35", Fusion::Step, Language::Cuda, "cu"),
        ("tiny_llama3", Fusion::None, Language::Metal, "metal"),
        ("tiny_qwen3", Fusion::Mixer, Language::Metal, "metal"),
        ("tiny_qwen35_moe", Fusion::Layer, Language::Metal, "metal"),
    ] {
        let model = Model::open(&repository.join("testdata/goldens").join(family))
            .expect("the model opens");
        let options = DeviceOptions {
            fusion,
            slots: 1,
            context: 512,
            key_values: KeyValues::Bf16,
            range_keys: 256,
        };
        let program = Program::new(&model.graph, options).expect("a program");
        let text = program.text(language);
        let file = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("tests/kernel_texts")
            .join(format!("{family}.{fusion}.{extension}"));
        if std::env::var_os("LITHOS_UPDATE_TEXTS").is_some() {
            std::fs::create_dir_all(file.parent().expect("a folder")).expect("can be made");
            std::fs::write(&file, kernels(&text)).expect("can be written");
        }
        let reviewed = std::fs::read_to_string(&file).expect("a reviewed text");
        assert!(kernels(&text) == reviewed, "{} changed: review it anew", file.display());
    }
}
