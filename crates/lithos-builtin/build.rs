//! Writes the table of embedded files, or an empty one where the model's folder is not there.

use std::path::{Path, PathBuf};
use std::{env, fs};

/// What the folder must hold. `draft/` is the drafter.
const FILES: [&str; 10] = [
    "README.md",
    "config.json",
    "generation_config.json",
    "hf_quant_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "draft/config.json",
    "draft/model.safetensors",
];

fn main() {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let folder = root.join("../../models/lithos-mini");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut entries = String::new();
    if folder.is_dir() {
        let folder = folder.canonicalize().expect("the folder is there");
        for name in FILES {
            entries += &entry(&folder, name);
        }
    } else {
        println!(
            "cargo::warning=models/lithos-mini is not there: the program will have no built-in model"
        );
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join("files.rs");
    fs::write(&out, format!("&[\n{entries}]\n")).expect("the table can be written");
}

/// One line of the table.
fn entry(folder: &Path, name: &str) -> String {
    let file = folder.join(name);
    println!("cargo::rerun-if-changed={}", file.display());
    if !file.is_file() {
        println!(
            "cargo::error={} is missing: the built-in model is incomplete (or build without it: --no-default-features)",
            file.display()
        );
    }
    format!("    ({name:?}, aligned!({:?})),\n", file.display().to_string())
}
