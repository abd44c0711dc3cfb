//! What is counted and timed: `GET /metrics`, in the text form of OpenMetrics, which Prometheus reads.
//!
//! Every value was counted or timed in this process. What was not measured is left out.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use lithos_engine::{Completion, PrefixCounts};
use lithos_protocol::ApiError;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry, Unit};

use crate::model::{ModelInfo, Resources};
use crate::options::ServerOptions;
use crate::response::HttpError;
use crate::server::App;

/// Where they are found.
pub(crate) const METRICS: &str = "/metrics";

const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The route of requests that belong to none.
const OTHER: &str = "other";

/// The source of drafts where there are none.
const NO_DRAFTS: &str = "none";

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    route: String,
    status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DraftLabels {
    source: &'static str,
}

type Seconds = Counter<f64, AtomicU64>;

/// Everything that is counted and timed.
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    first_token: Histogram,
    inter_token: Histogram,
    queue_wait: Histogram,
    waiting: Gauge,
    running: Gauge,
    prompt_tokens: Counter,
    cached_tokens: Counter,
    completion_tokens: Counter,
    prefill: Seconds,
    decode: Seconds,
    passes: Family<DraftLabels, Counter>,
    pass_tokens: Family<DraftLabels, Counter>,
    proposed: Family<DraftLabels, Counter>,
    accepted: Family<DraftLabels, Counter>,
    read: Counter,
    read_per_pass: u64,
    resident: Option<Gauge>,
    prefixes: PrefixMetrics,
}

/// What became of kept prefixes.
struct PrefixMetrics {
    lookups: Counter,
    hits: Counter,
    disk_hits: Counter,
    tokens_saved: Counter,
    memory: Gauge,
    memory_budget: Gauge,
    memory_evictions: Counter,
    disk: Gauge,
    disk_evictions: Counter,
    rejected: Counter,
}

impl PrefixMetrics {
    fn new(all: &mut Register) -> Self {
        PrefixMetrics {
            lookups: all.plain("prefix_lookups", "Prompts that kept prefixes were looked up for"),
            hits: all.plain("prefix_hits", "Prompts that went on from a kept prefix"),
            disk_hits: all.plain(
                "prefix_disk_hits",
                "Of those, prompts whose prefix came from disk, at least in part",
            ),
            tokens_saved: all.plain(
                "prefix_tokens_saved",
                "Tokens of prompts that were taken from kept prefixes",
            ),
            memory: all.now("prefix_memory", "Memory of kept prefixes", Unit::Bytes),
            memory_budget: all.now(
                "prefix_memory_budget",
                "Memory that kept prefixes may take",
                Unit::Bytes,
            ),
            memory_evictions: all
                .plain("prefix_memory_evictions", "Parts of prefixes that memory let go of"),
            disk: all.now(
                "prefix_disk",
                "Files of kept prefixes, of all models in the directory",
                Unit::Bytes,
            ),
            disk_evictions: all
                .plain("prefix_disk_evictions", "Files of prefixes that went to make room"),
            rejected: all
                .plain("prefix_files_rejected", "Files of prefixes that were corrupt or foreign"),
        }
    }

    fn set(&self, counts: PrefixCounts) {
        // Both only grow, and nothing else counts here.
        for (counter, count) in [
            (&self.lookups, counts.lookups),
            (&self.hits, counts.hits),
            (&self.disk_hits, counts.disk_hits),
            (&self.tokens_saved, counts.tokens_saved),
            (&self.memory_evictions, counts.memory_evictions),
            (&self.disk_evictions, counts.disk_evictions),
            (&self.rejected, counts.rejected_files),
        ] {
            counter.inc_by(count.saturating_sub(counter.get()));
        }
        self.memory.set(gauge(counts.memory_bytes));
        self.memory_budget.set(gauge(counts.memory_budget));
        self.disk.set(gauge(counts.disk_bytes));
    }
}

impl Metrics {
    pub(crate) fn new(model: &ModelInfo, resources: Resources, options: &ServerOptions) -> Self {
        let mut all = Register(Registry::with_prefix("lithos"));
        let name = [("model", model.id.clone()), ("version", env!("CARGO_PKG_VERSION").into())];
        all.0.register("server", "The program and the model it serves", Info::new(name.to_vec()));
        all.now::<Gauge<f64, AtomicU64>>(
            "start_time",
            "When the server started, in seconds since 1970",
            Unit::Seconds,
        )
        .set(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64()));
        all.plain::<Gauge>("context_tokens", "Tokens that prompt and answer can have together")
            .set(gauge(model.context as u64));
        if let Some(bytes) = resources.memory {
            let help = "Weights, buffers and recurrent states of the model in memory";
            all.now::<Gauge>("model_memory", help, Unit::Bytes).set(gauge(bytes));
        }
        if let Some(bytes) = resources.read_per_pass {
            let help = "Weights that one decode pass reads";
            all.now::<Gauge>("pass_read", help, Unit::Bytes).set(gauge(bytes));
        }
        if let Some(bytes) = options.read_stream {
            let help = "What memory was measured to deliver to plain reads at the start of the server, per second";
            all.now::<Gauge>("read_stream", help, Unit::Bytes).set(gauge(bytes));
        }
        let resident = resident().map(|_| {
            let help = "Memory of the process that is resident";
            all.now::<Gauge>("process_resident_memory", help, Unit::Bytes)
        });
        Metrics {
            requests: all.plain("requests", "Requests by route and status; 499 for clients that left before an answer began"),
            first_token: all.histogram("time_to_first_token", "From the arrival of a request to the first text of its answer, waiting included", 0.01, 16),
            inter_token: all.histogram("inter_token", "Time of a token after the first, as the mean of each answer", 0.0005, 16),
            queue_wait: all.histogram("queue_wait", "How long requests waited for their turn", 0.001, 18),
            waiting: all.plain("requests_waiting", "Requests that wait"),
            running: all.plain("requests_running", "Requests that run"),
            prompt_tokens: all.plain("prompt_tokens", "Tokens of prompts"),
            cached_tokens: all.plain("cached_tokens", "Tokens of prompts that were not computed again"),
            completion_tokens: all.plain("completion_tokens", "Tokens of answers"),
            prefill: all.now("prefill", "Time in prompts, up to the first token", Unit::Seconds),
            decode: all.now("decode", "Time in passes after the first token", Unit::Seconds),
            passes: all.plain("decode_passes", "Passes after the first token, by the source of drafts"),
            pass_tokens: all.plain("decode_pass_tokens", "Tokens that these passes made"),
            proposed: all.plain("drafts_proposed", "Drafts that were verified, by source"),
            accepted: all.plain("drafts_accepted", "Drafts that were accepted, by source"),
            read: all.now("decode_read", "Weights that passes after the first token read; keys, values and drafters are not counted", Unit::Bytes),
            read_per_pass: resources.read_per_pass.unwrap_or(0),
            resident,
            prefixes: PrefixMetrics::new(&mut all),
            registry: all.0,
        }
    }

    /// A request has ended.
    pub(crate) fn requested(&self, route: Option<&str>, status: u16) {
        let route = route.unwrap_or(OTHER).to_owned();
        self.requests.get_or_create(&RequestLabels { route, status }).inc();
    }

    /// The first text of an answer came so long after its request.
    pub(crate) fn first_text(&self, time: Duration) {
        self.first_token.observe(time.as_secs_f64());
    }

    /// A request had its turn after so long.
    pub(crate) fn waited(&self, time: Duration) {
        self.queue_wait.observe(time.as_secs_f64());
    }

    /// What became of prefixes that the model keeps, up to now.
    pub(crate) fn prefixes(&self, counts: PrefixCounts) {
        self.prefixes.set(counts);
    }

    /// The model has ended an answer, whole or cancelled.
    pub(crate) fn completed(&self, completion: &Completion) {
        let count = |number: usize| number as u64;
        let tokens = count(completion.tokens.len());
        self.prompt_tokens.inc_by(count(completion.prompt_tokens));
        self.cached_tokens.inc_by(count(completion.reused_tokens));
        self.completion_tokens.inc_by(tokens);
        self.prefill.inc_by(completion.timings.prefill.as_secs_f64());
        // The first token comes from the prompt.
        let Some(after_first) = tokens.checked_sub(1).filter(|tokens| *tokens > 0) else { return };
        let decode = completion.timings.decode.as_secs_f64();
        self.decode.inc_by(decode);
        self.inter_token.observe(decode / after_first as f64);
        let drafts = completion.speculation.as_ref();
        let labels = DraftLabels { source: drafts.map_or(NO_DRAFTS, |drafts| drafts.source) };
        let (passes, made) =
            drafts.map_or((after_first, after_first), |drafts| (drafts.rounds, drafts.tokens));
        self.passes.get_or_create(&labels).inc_by(passes);
        self.pass_tokens.get_or_create(&labels).inc_by(made);
        self.read.inc_by(passes.saturating_mul(self.read_per_pass));
        if let Some(drafts) = drafts {
            self.proposed.get_or_create(&labels).inc_by(drafts.proposed);
            self.accepted.get_or_create(&labels).inc_by(drafts.accepted);
        }
    }

    fn write(&self, (waiting, running): (usize, usize)) -> Result<String, std::fmt::Error> {
        self.waiting.set(gauge(waiting as u64));
        self.running.set(gauge(running as u64));
        if let (Some(gauge_of_memory), Some(bytes)) = (&self.resident, resident()) {
            gauge_of_memory.set(gauge(bytes));
        }
        let mut written = String::new();
        text::encode(&mut written, &self.registry)?;
        Ok(written)
    }
}

/// Makes metrics known and hands them out.
struct Register(Registry);

impl Register {
    fn plain<M: Metric + Default + Clone>(&mut self, name: &str, help: &str) -> M {
        let metric = M::default();
        self.0.register(name, help, metric.clone());
        metric
    }

    fn now<M: Metric + Default + Clone>(&mut self, name: &str, help: &str, unit: Unit) -> M {
        let metric = M::default();
        self.0.register_with_unit(name, help, unit, metric.clone());
        metric
    }

    /// Seconds, in buckets that double from `smallest`.
    fn histogram(&mut self, name: &str, help: &str, smallest: f64, buckets: u16) -> Histogram {
        let histogram = Histogram::new(exponential_buckets(smallest, 2.0, buckets));
        self.0.register_with_unit(name, help, Unit::Seconds, histogram.clone());
        histogram
    }
}

fn gauge(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Bytes of this process that are in memory, if the system says.
fn resident() -> Option<u64> {
    // Only Linux has this file.
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes * 1024)
}

/// `GET /metrics`
pub(crate) async fn metrics(State(app): State<Arc<App>>) -> Result<Response, HttpError> {
    let written = app.metrics.write(app.queue.lengths());
    let written = written.map_err(|_| ApiError::internal("the metrics could not be written"))?;
    Ok(([(header::CONTENT_TYPE, CONTENT_TYPE)], written).into_response())
}
