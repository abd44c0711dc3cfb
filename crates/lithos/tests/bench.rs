//! `lithos bench`: what it reports, not how fast it is.

mod support;

use support::{golden, run};

fn args<'a>(model: &'a str, flags: &[&'a str]) -> Vec<&'a str> {
    let base =
        ["bench", model, "--prompt-tokens", "20", "--gen", "6", "--threads", "2", "--repeat", "2"];
    [&base[..], flags].concat()
}

#[test]
fn json_has_all_samples_and_their_medians() {
    let model = golden("tiny_qwen3");
    let result = run(&args(model.to_str().unwrap(), &["--fusion", "step,none", "--json"])).json();
    assert_eq!(result["threads"], 2);
    assert_eq!(result["prompt_tokens"], 20);
    assert_eq!(result["generated_tokens"], 6);
    let [weights, keys_and_values] = ["weight_bytes_per_pass", "key_value_bytes_per_pass"]
        .map(|bytes| result[bytes].as_f64().unwrap());
    assert!(weights > 0.0 && keys_and_values > 0.0);
    let levels = result["levels"].as_array().unwrap();
    assert_eq!(levels.len(), 2);
    for (level, name) in levels.iter().zip(["step", "none"]) {
        assert_eq!(level["fusion"], name);
        let samples = level["samples"].as_array().unwrap();
        assert_eq!(samples.len(), 2);
        for figure in ["stream_gb_per_s", "prefill_tokens_per_s", "decode_tokens_per_s"] {
            let values: Vec<f64> =
                samples.iter().map(|sample| sample[figure].as_f64().unwrap()).collect();
            let median = level[figure]["median"].as_f64().unwrap();
            assert!((median - (values[0] + values[1]) / 2.0).abs() < 1e-6 * median, "{figure}");
        }
        for (bytes, figure) in [
            (weights + keys_and_values, "decode_fraction_of_stream"),
            (weights, "weights_fraction_of_stream"),
        ] {
            let fraction = |sample: &serde_json::Value| {
                let [decode, stream] = ["decode_tokens_per_s", "stream_gb_per_s"]
                    .map(|figure| sample[figure].as_f64().unwrap());
                decode * bytes / 1e9 / stream
            };
            let wanted = (fraction(&samples[0]) + fraction(&samples[1])) / 2.0;
            let found = level[figure]["median"].as_f64().unwrap();
            assert!((found / wanted - 1.0).abs() < 1e-6, "{figure}");
        }
    }
    assert_eq!(levels[1]["decode_against_none"]["median"], 1.0);
    assert!(levels[0]["decode_against_none"]["median"].as_f64().unwrap() > 0.0);
}

#[test]
fn the_table_has_a_row_for_each_level() {
    let model = golden("tiny_qwen35");
    let run = run(&args(model.to_str().unwrap(), &[]));
    // Where no terminal is, each turn is a line on standard error.
    assert_eq!(run.stderr.lines().filter(|line| line.starts_with("repeat ")).count(), 8);
    let table = run.ok();
    for level in ["none", "mixer", "layer", "step"] {
        // Speeds, and ratios.
        let rows = table.lines().filter(|line| line.split(' ').next() == Some(level));
        assert_eq!(rows.count(), 2, "{table}");
    }
}
