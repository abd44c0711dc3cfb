//! `lithos bench --rows`: the time of single passes on a card, against what its memory can deliver.

use std::time::Duration;

use lithos_engine::{Engine, EngineOptions, Fusion, PassTimes, TokenId};
use serde_json::{Value, json};

use crate::model::{self, Given};
use crate::statistics::Spread;
use crate::table::align;
use crate::{memory, output};

/// What to measure.
pub struct Passes<'a> {
    /// The model.
    pub model: Given<'a>,
    /// How it is opened; the fusion level is that of `levels`.
    pub options: EngineOptions,
    /// Fusion levels.
    pub levels: &'a [Fusion],
    /// Rows of a pass.
    pub rows: &'a [usize],
    /// Tokens before them.
    pub context: usize,
    /// Passes of each kind.
    pub repeats: usize,
}

/// The figures of one kind of pass.
struct Measured {
    fusion: Fusion,
    rows: usize,
    times: PassTimes,
}

/// Measures and returns what to print: a table, or an object of JSON.
///
/// # Errors
/// One line with the cause: there is no card, or a pass failed.
pub fn run(passes: &Passes<'_>, as_json: bool, prompt: &[TokenId]) -> anyhow::Result<String> {
    let first = passes.levels.first().copied().unwrap_or(Fusion::Step);
    let options = EngineOptions { fusion: first, ..passes.options };
    let opened = model::open(passes.model, None, options)?;
    let (mut engine, load) = (opened.engine, opened.load);
    output::line(&format!(
        "{} on {}: ready after {:.1} s{}",
        engine.name(),
        engine.describe_backend(),
        load.as_secs_f64(),
        memory::peak().map_or(String::new(), |bytes| format!(
            ", at most {:.1} GB of this machine's memory",
            bytes as f64 / 1e9
        )),
    ));
    let before = engine.read_stream()?;
    let mut measured = Vec::new();
    for fusion in passes.levels {
        engine.set_fusion(*fusion)?;
        for rows in passes.rows {
            let tokens = &prompt[..passes.context + rows];
            let times = engine.measure_passes(tokens, *rows, passes.repeats)?;
            let result = Measured { fusion: *fusion, rows: *rows, times };
            output::line(&format!("{fusion}, {rows} rows: {:.3} ms", result.milliseconds()));
            measured.push(result);
        }
    }
    let after = engine.read_stream()?;
    let stream = Spread::of(before.into_iter().chain(after));
    let stream = stream.unwrap_or(Spread { median: f64::NAN, least: 0.0, most: 0.0 });
    Ok(match as_json {
        true => format!("{}\n", object(&engine, passes, load, stream, &measured)),
        false => text(&engine, passes, stream, &measured),
    })
}

impl Measured {
    fn spread(times: &[Duration]) -> Spread {
        Spread::of(times.iter().map(|time| time.as_secs_f64() * 1e3)).unwrap_or(Spread {
            median: f64::NAN,
            least: f64::NAN,
            most: f64::NAN,
        })
    }

    fn milliseconds(&self) -> f64 {
        Self::spread(&self.times.passes).median
    }

    /// Bytes of weights per second.
    fn rate(&self) -> f64 {
        self.times.weight_bytes() as f64 / (self.milliseconds() / 1e3)
    }

    /// Launches of the same kernel together, in the order in which they first come: name, kinds, launches, bytes, time.
    fn kernels(&self) -> Vec<(String, String, usize, u64, Duration)> {
        let mut kernels: Vec<(String, String, usize, u64, Duration)> = Vec::new();
        for launch in &self.times.launches {
            let (weighed, time) = (&launch.weighed, launch.time);
            match kernels.iter_mut().find(|kernel| kernel.0 == weighed.kernel) {
                Some(kernel) => {
                    kernel.2 += 1;
                    kernel.3 += weighed.weight_bytes;
                    kernel.4 += time;
                }
                None => {
                    let (name, kinds) = (weighed.kernel.clone(), weighed.kinds.clone());
                    kernels.push((name, kinds, 1, weighed.weight_bytes, time));
                }
            }
        }
        kernels
    }
}

fn text(engine: &Engine, passes: &Passes<'_>, stream: Spread, measured: &[Measured]) -> String {
    let mut out = format!(
        "{}\n{}\ncontext of {} tokens, {} passes of each kind; read stream {:.0} GB/s\n\n",
        engine.name(),
        engine.describe_backend(),
        passes.context,
        passes.repeats,
        stream.in_units_of(1e9)
    );
    let header = [
        "fusion",
        "rows",
        "launches",
        "pass ms",
        "with the host ms",
        "MB of weights",
        "GB/s",
        "% of the stream",
    ];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    for result in measured {
        rows.push(vec![
            result.fusion.to_string(),
            result.rows.to_string(),
            result.times.launches.len().to_string(),
            format!("{:.3}", Measured::spread(&result.times.passes)),
            format!("{:.3}", Measured::spread(&result.times.round_trips).median),
            format!("{:.1}", result.times.weight_bytes() as f64 / 1e6),
            format!("{:.0}", result.rate() / 1e9),
            format!("{:.1}", 100.0 * result.rate() / stream.median),
        ]);
    }
    out += &align(&rows, 1);
    for result in measured {
        out += &format!("\n{}, {} rows", result.fusion, result.rows);
        if let Some(why) = &result.times.refused {
            out += &format!(" (no graph: {why})");
        }
        out.push('\n');
        let header = ["kernel", "tasks", "launches", "us each", "MB each", "GB/s", "% of the time"];
        let mut rows = vec![header.map(str::to_owned).to_vec()];
        let kernels = result.kernels();
        let total: Duration = kernels.iter().map(|kernel| kernel.4).sum();
        for (name, kinds, launches, bytes, time) in kernels {
            let seconds = time.as_secs_f64();
            rows.push(vec![
                name,
                kinds,
                launches.to_string(),
                format!("{:.1}", seconds * 1e6 / launches as f64),
                format!("{:.2}", bytes as f64 / 1e6 / launches as f64),
                format!("{:.0}", bytes as f64 / 1e9 / seconds),
                format!("{:.1}", 100.0 * seconds / total.as_secs_f64()),
            ]);
        }
        out += &align(&rows, 2);
    }
    out
}

fn object(
    engine: &Engine,
    passes: &Passes<'_>,
    load: Duration,
    stream: Spread,
    measured: &[Measured],
) -> Value {
    let microseconds = |times: &[Duration]| -> Vec<f64> {
        times.iter().map(|time| time.as_secs_f64() * 1e6).collect()
    };
    let results = measured.iter().map(|result| {
        let kernels = result.kernels();
        let kernels = kernels.iter().map(|(name, kinds, launches, bytes, time)| {
            json!({
                "kernel": name,
                "tasks": kinds,
                "launches": launches,
                "weight_bytes": bytes,
                "us": time.as_secs_f64() * 1e6,
            })
        });
        json!({
            "fusion": result.fusion.name(),
            "rows": result.rows,
            "pass_us": microseconds(&result.times.passes),
            "round_trip_us": microseconds(&result.times.round_trips),
            "weight_bytes": result.times.weight_bytes(),
            "fraction_of_stream": result.rate() / stream.median,
            "no_graph": result.times.refused,
            "kernels": kernels.collect::<Vec<_>>(),
        })
    });
    json!({
        "model": engine.name(),
        "backend": engine.backend().name(),
        "device": engine.describe_backend(),
        "context": passes.context,
        "load_seconds": load.as_secs_f64(),
        "stream_gb_per_s": {"median": stream.median / 1e9, "min": stream.least / 1e9, "max": stream.most / 1e9},
        "passes": results.collect::<Vec<_>>(),
    })
}
