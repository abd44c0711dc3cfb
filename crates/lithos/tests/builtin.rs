//! The model that is part of the program: it answers where no other is named, and as its files on disk do.

mod support;

#[cfg(not(feature = "builtin"))]
#[test]
fn a_build_without_it_says_so() {
    let parts = ["no built-in model", "--model", "LITHOS_MODEL", "builtin"];
    for args in [
        &["generate", "Hello"][..],
        &["chat"],
        &["serve", "--port", "0"],
        &["score", "--ids", "1"],
        &["eval"],
        &["bench"],
        &["generate", "--model", "lithos-mini", "Hello"],
        &["models", "--card"],
    ] {
        support::run(args).refused(&parts);
    }
    assert!(support::run(&["models"]).ok().contains("no built-in model"));
}

#[cfg(feature = "builtin")]
mod with_the_model {
    use std::fs;
    use std::path::{Path, PathBuf};

    use crate::support::{Run, command, finish, run, run_with};

    fn folder() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/lithos-mini")
    }

    /// Asserts success and the one line on standard error; returns standard output.
    #[track_caller]
    fn answered(run: Run) -> String {
        assert_eq!(run.stderr.lines().count(), 1, "{run:?}");
        assert!(run.stderr.starts_with("lithos-mini answers: "), "{run:?}");
        assert!(
            run.stderr.contains("parameters") && run.stderr.contains("`lithos models`"),
            "{run:?}"
        );
        run.ok()
    }

    const PROMPT: &str = "What is the capital of France?";

    #[test]
    fn it_answers_where_no_model_is_named() {
        let answer =
            answered(run(&["generate", "--max-tokens", "40", "--temperature", "0", PROMPT]));
        assert!(!answer.trim().is_empty(), "{answer:?}");
        let named =
            ["generate", "--max-tokens", "40", "--temperature", "0", "--model", "lithos-mini"];
        assert_eq!(answered(run(&[&named[..], &[PROMPT]].concat())), answer);
        let mut empty = command();
        empty.args(["generate", "--max-tokens", "40", "--temperature", "0", PROMPT]);
        assert_eq!(answered(finish(empty.env("LITHOS_MODEL", ""), b"")), answer);
        let chat = ["chat", "--max-tokens", "40", "--temperature", "0"];
        let said = answered(run_with(&chat, format!("{PROMPT}\n").as_bytes()));
        assert_eq!(said.trim_end_matches('\n'), answer.trim_end_matches('\n'));
    }

    #[test]
    fn it_says_what_it_is_and_stops() {
        let args = ["generate", "--json", "--max-tokens", "120", "--temperature", "0"];
        let answer = run(&[&args[..], &["Who are you?"]].concat()).json();
        assert_eq!(answer["finish_reason"], "stop", "{answer}");
        assert!(answer["text"].as_str().unwrap().contains("lithos-mini"), "{answer}");
    }

    #[test]
    fn it_is_the_model_in_the_folder() {
        let folder = folder();
        let folder = folder.to_str().unwrap();
        let flags = ["generate", "--json", "--max-tokens", "48", "--seed", "7"];
        for prompt in [PROMPT, "Write a Python function that adds two numbers.", "Hi!"] {
            for temperature in ["0", "0.7"] {
                let args = [&flags[..], &["--temperature", temperature, prompt]].concat();
                let built_in = run(&args).json();
                let on_disk = run(&[&args[..], &["--model", folder]].concat()).json();
                for key in ["model", "prompt_tokens", "token_ids", "text", "finish_reason"] {
                    assert_eq!(built_in[key], on_disk[key], "{key} of {prompt:?}");
                }
            }
        }
        // As a directory it is a model like any other.
        let named = run(&["generate", "--max-tokens", "4", "--model", folder, PROMPT]);
        assert_eq!(named.stderr, "", "{named:?}");
    }

    #[test]
    fn commands_that_take_a_model_by_position_use_it_too() {
        let folder = folder();
        let folder = folder.to_str().unwrap();
        let text = b"The north wind and the sun argued which of them was the stronger.";
        let score =
            |args: &[&str]| run_with(&[&["score", "--json", "--text", "-"], args].concat(), text);
        let built_in: serde_json::Value = serde_json::from_str(&answered(score(&[]))).unwrap();
        assert_eq!(built_in["perplexity"], score(&[folder]).json()["perplexity"]);
        let eval = run_with(&["eval", "--text", "-", "--json"], text);
        let eval: serde_json::Value = serde_json::from_str(&answered(eval)).unwrap();
        assert_eq!(eval["total"]["perplexity"], built_in["perplexity"]);
        // The line is written once, however often the model is opened.
        let flags = ["--prompt-tokens", "8", "--gen", "2", "--repeat", "1", "--threads", "1"];
        let bench = run(&[&["bench", "--fusion", "none,step"], &flags[..]].concat());
        assert_eq!(bench.stderr.matches("lithos-mini answers").count(), 1, "{bench:?}");
        assert!(bench.ok().starts_with("lithos-mini, "));
    }

    #[test]
    fn its_drafter_is_evaluated() {
        let found = run(&["eval", "--json", "--answers", "12"]).json();
        let drafts = &found["drafts"];
        assert_eq!(drafts["kinds"].as_array().unwrap().len(), 6);
        let all = &drafts["all"];
        let [rounds, accepted] = ["rounds", "accepted"].map(|figure| all[figure].as_f64().unwrap());
        // Every round verifies as many drafts as the drafter makes, but at the end of an answer.
        assert_eq!(all["source"], "dspark");
        assert!(all["proposed"].as_f64().unwrap() > 3.0 * rounds, "{all}");
        assert!((all["tokens_per_round"].as_f64().unwrap() - 1.0 - accepted / rounds).abs() < 0.2);
        let shares: Vec<f64> = all["acceptance_by_position"]
            .as_array()
            .unwrap()
            .iter()
            .map(|share| share.as_f64().unwrap())
            .collect();
        assert!(shares.windows(2).all(|pair| pair[0] >= pair[1]), "{shares:?}");
        assert!(shares[0] > 0.2, "{shares:?}");
    }

    #[test]
    fn its_card_is_there() {
        let card = fs::read_to_string(folder().join("README.md")).unwrap();
        assert_eq!(run(&["models", "--card"]).ok(), card);
        let list = run(&["models", "--json"]).json();
        let first = &list["models"][0];
        assert_eq!((&first["name"], &first["built_in"]), (&"lithos-mini".into(), &true.into()));
        assert_eq!(first["architecture"], "qwen3_5");
        // The tensors are all of the file but its header.
        let file = fs::metadata(folder().join("model.safetensors")).unwrap().len();
        let weights = first["weight_bytes"].as_u64().unwrap();
        assert!(weights < file && file - weights < 1 << 20, "{weights} of {file}");
    }
}
