//! `--trace FILE`: what an engine did when, in the format of Chrome's tracing (chrome://tracing, ui.perfetto.dev).

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::anyhow;
use lithos_engine::Span;
use serde_json::{Value, json};

/// A file that a trace is going to be written to.
pub struct TraceFile {
    path: PathBuf,
    file: File,
    start: Instant,
}

impl TraceFile {
    /// Creates the file, before any work: whoever wants a trace should not wait for an answer to learn that there is none. Times count from
    /// here.
    ///
    /// # Errors
    /// One line that names the file.
    pub fn create(path: &Path) -> anyhow::Result<Self> {
        let file = File::create(path).map_err(|error| cannot_write(path, &error))?;
        Ok(TraceFile { path: path.to_owned(), file, start: Instant::now() })
    }

    /// Writes spans.
    ///
    /// # Errors
    /// As [`TraceFile::create`].
    pub fn write(self, spans: &[Span]) -> anyhow::Result<()> {
        let mut out = BufWriter::new(self.file);
        let text = events(self.start, spans).to_string();
        out.write_all(text.as_bytes())
            .and_then(|()| out.flush())
            .map_err(|error| cannot_write(&self.path, &error))
    }
}

fn cannot_write(path: &Path, error: &std::io::Error) -> anyhow::Error {
    anyhow!("cannot write the trace {}: {error}", path.display())
}

/// Complete events, in microseconds.
fn events(start: Instant, spans: &[Span]) -> Value {
    let event = |span: &Span| {
        json!({
            "name": span.name,
            "ph": "X",
            "ts": span.start.saturating_duration_since(start).as_nanos() as f64 / 1000.0,
            "dur": span.took.as_nanos() as f64 / 1000.0,
            "pid": 1,
            "tid": 1,
            "args": {"tokens": span.tokens},
        })
    };
    json!({"traceEvents": spans.iter().map(event).collect::<Vec<_>>(), "displayTimeUnit": "ms"})
}
