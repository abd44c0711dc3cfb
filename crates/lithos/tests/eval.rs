//! `lithos eval`: one table for several texts, by the same sums as `score`.

mod support;

use std::fs;
use std::path::Path;

use serde_json::Value;
use support::{Run, golden, run, text_model};

fn eval(model: &Path, flags: &[&str]) -> Run {
    run(&[&["eval", model.to_str().unwrap()], flags].concat())
}

fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or_else(|| panic!("{key} of {value}"))
}

#[test]
fn a_text_has_the_same_figures_as_in_score() {
    let model = text_model();
    let file = model.path().join("text.txt");
    fs::write(&file, "Who was the stronger of the two? ".repeat(20)).unwrap();
    let file = file.to_str().unwrap();
    for window in ["2048", "32"] {
        let flags = ["--text", file, "--window", window, "--json"];
        let found = eval(model.path(), &flags).json();
        let score = [&["score", model.path().to_str().unwrap()], &flags[..]].concat();
        let wanted = run(&score).json();
        let texts = found["texts"].as_array().unwrap();
        assert_eq!(texts.len(), 1);
        assert_eq!(texts[0]["name"], file);
        for key in ["tokens", "bytes", "bits_per_byte", "perplexity"] {
            assert_eq!(texts[0][key], wanted[key], "{key}, window {window}");
            assert_eq!(found["total"][key], wanted[key], "{key}, window {window}");
        }
    }
}

#[test]
fn the_total_is_that_of_all_bytes() {
    let model = text_model();
    let [one, two] = ["one.txt", "two.txt"].map(|name| model.path().join(name));
    fs::write(&one, "The sun shone.").unwrap();
    fs::write(&two, "The wind blew as hard as it could. ".repeat(9)).unwrap();
    let flags = ["--text", one.to_str().unwrap(), "--text", two.to_str().unwrap()];
    let found = eval(model.path(), &[&flags[..], &["--json"]].concat()).json();
    let (texts, total) = (found["texts"].as_array().unwrap(), &found["total"]);
    for key in ["tokens", "bytes"] {
        assert_eq!(number(total, key), number(&texts[0], key) + number(&texts[1], key));
    }
    let bits = |value: &Value| number(value, "bits_per_byte") * number(value, "bytes");
    assert!((bits(total) - bits(&texts[0]) - bits(&texts[1])).abs() < 1e-6);
    let surprise = |value: &Value| number(value, "perplexity").ln() * number(value, "tokens");
    assert!((surprise(total) - surprise(&texts[0]) - surprise(&texts[1])).abs() < 1e-6);
    let table = eval(model.path(), &flags).ok();
    let row = table.lines().last().unwrap().split_whitespace().collect::<Vec<_>>();
    let wanted = [
        format!("{:.4}", number(total, "bits_per_byte")),
        format!("{:.4}", number(total, "perplexity")),
    ];
    assert_eq!((row[0], &row[3..]), ("total", &[wanted[0].as_str(), &wanted[1]][..]), "{table}");
}

#[test]
fn without_a_text_the_prompts_are_scored_by_kind() {
    let model = text_model();
    let found = eval(model.path(), &["--json"]).json();
    let texts = found["texts"].as_array().unwrap();
    let names: Vec<_> = texts.iter().map(|text| text["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["code", "code-edit", "math", "chat", "prose", "tool-use"]);
    for text in texts {
        // Eight prompts of at least a sentence, and no more bytes than a byte-level vocabulary has tokens for.
        assert!(number(text, "bytes") > 8.0 * 40.0, "{text}");
        assert!(number(text, "bytes") > number(text, "tokens"), "{text}");
        assert!(number(text, "perplexity") > 1.0, "{text}");
    }
    // Special tokens steer the model: what is scored of `mathematics` is its text and the names of the roles.
    let math = fs::read_to_string(golden("../../bench/prompts/math.jsonl")).unwrap();
    let text = |line: &str| {
        let prompt: Value = serde_json::from_str(line).unwrap();
        prompt["messages"][0]["content"].as_str().unwrap().len()
    };
    let (bytes, prompts) = (math.lines().map(text).sum::<usize>(), math.lines().count());
    assert_eq!(number(&texts[2], "bytes"), (bytes + prompts * "user\n\n".len()) as f64);
    assert!(found["drafts"].is_null(), "there is no drafter");
    let other = eval(model.path(), &["--json", "--chunk", "7", "--fusion", "none"]).json();
    let ratio = number(&other["total"], "perplexity") / number(&found["total"], "perplexity");
    assert!((ratio - 1.0).abs() < 1e-4, "{ratio}");
}

#[test]
fn what_cannot_be_scored_is_said() {
    let model = text_model();
    let file = model.path().join("text.txt");
    let text = ["--text", file.to_str().unwrap()];
    eval(model.path(), &text).refused(&["text.txt"]);
    fs::write(&file, b"ab\xff").unwrap();
    eval(model.path(), &text).refused(&["text.txt", "UTF-8", "byte 2"]);
    fs::write(&file, "").unwrap();
    eval(model.path(), &text).refused(&["text.txt", "too short"]);
    fs::write(&file, "Long enough.").unwrap();
    eval(model.path(), &[&text[..], &["--window", "1"]].concat()).refused(&["--window"]);
    fs::remove_file(model.path().join("chat_template.jinja")).unwrap();
    eval(model.path(), &[]).refused(&["template", "--text"]);
    eval(model.path(), &text).ok();
    eval(&golden("tiny_llama3"), &text).refused(&["tokenizer.json"]);
}
