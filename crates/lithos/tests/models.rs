//! `lithos models`: what is listed, and that its figures add up.

mod support;

use serde_json::Value;
use support::run;

fn list(flags: &[&str]) -> Vec<Value> {
    let list = run(&[&["models", "--json"], flags].concat()).json();
    list["models"].as_array().unwrap().clone()
}

fn entry<'a>(list: &'a [Value], name: &str) -> &'a Value {
    list.iter().find(|entry| entry["name"] == name).expect(name)
}

#[test]
fn figures_add_up() {
    for entry in list(&[]) {
        let figure = |key: &str| entry[key].as_u64().unwrap_or_else(|| panic!("{key} of {entry}"));
        let parts = figure("weight_bytes") + figure("key_value_bytes") + figure("state_bytes");
        assert_eq!(figure("memory_bytes"), parts + 200_000_000, "{entry}");
        let bits = figure("weight_bytes") as f64 * 8.0 / figure("parameters") as f64;
        // The built-in model's file also holds what the graph does not use.
        assert!((4.4..33.0).contains(&bits), "{bits} bits per parameter: {entry}");
        let known = ["qwen3_5", "qwen3_5_moe", "qwen3", "llama"];
        assert!(known.contains(&entry["architecture"].as_str().unwrap()), "{entry}");
    }
}

#[test]
fn memory_grows_with_the_context_up_to_the_models_own() {
    let name = "HuggingFaceTB/SmolLM2-135M-Instruct";
    let bytes = |context: &str| {
        let list = list(&["--context", context]);
        entry(&list, name)["key_value_bytes"].as_u64().unwrap()
    };
    // 30 layers of 3 heads of 64 elements of two bytes, keys and values.
    assert_eq!(bytes("1"), 30 * 3 * 64 * 2 * 2);
    assert_eq!(bytes("4096"), 4096 * bytes("1"));
    assert_eq!(bytes("9000"), 8192 * bytes("1"));
}

#[test]
fn the_table_says_what_to_do_and_what_the_figures_are() {
    let table = run(&["models"]).ok();
    let names = list(&[]);
    for entry in &names {
        let name = entry["name"].as_str().unwrap();
        assert!(table.lines().any(|line| line.split(' ').next() == Some(name)), "{name}");
    }
    for part in ["--model DIR", "computed", "not measured", "8192 tokens", "huggingface.co"] {
        assert!(table.contains(part), "{part:?} is not in {table}");
    }
    assert!(table.lines().all(|line| line.chars().count() <= 120), "{table}");
    // Only the built-in model is listed before the others.
    assert!(names.iter().skip(1).all(|entry| entry["built_in"] == false));
}
