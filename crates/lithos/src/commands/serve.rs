//! `lithos serve`: a model behind OpenAI's and Anthropic's APIs.

use std::net::{SocketAddr, TcpListener};
use std::process::ExitCode;

use anyhow::{anyhow, bail};
use clap::builder::{NonEmptyStringValueParser, TypedValueParser};
use clap::{Args, ValueEnum};
use lithos_engine::{Engine, MAX_SLOTS};
use lithos_server::{ServerOptions, serve_while_loading};
use tokio::sync::oneshot;
use tracing_subscriber::EnvFilter;

use crate::args::{ModelArgs, count};
use crate::key::KeyArgs;
use crate::statistics::Spread;
use crate::stream::Stream;
use crate::{model, output, serving};

/// Which log lines are written, in the syntax of the tracing crates: `lithos_server=debug`.
const LOG_VARIABLE: &str = "LITHOS_LOG";

/// Reads of memory whose median counts.
const STREAM_READS: usize = 5;

/// The arguments of `serve`.
#[derive(Args)]
#[command(after_help = "Examples:
  lithos serve
  lithos serve --model ./Qwen3-0.6B --port 9000 --context 8192
  LITHOS_KEY=... lithos serve --model smollm2.gguf --host 0.0.0.0 --api-key-env LITHOS_KEY

With OpenAI's Python client:
  from openai import OpenAI
  client = OpenAI(base_url=\"http://127.0.0.1:8080/v1\", api_key=\"none\")

With Anthropic's:
  from anthropic import Anthropic
  client = Anthropic(base_url=\"http://127.0.0.1:8080\", api_key=\"none\")

With a coding agent, or in a browser:
  lithos claude
  http://127.0.0.1:8080/

Answers POST /v1/chat/completions, /v1/completions, /v1/responses and /v1/messages (streamed or not), POST /v1/messages/count_tokens, GET /v1/models, \
GET /health (loading, ready, busy or failing) and GET /metrics (for Prometheus). \
Ctrl-C ends it. LITHOS_LOG says which log lines are written, such as LITHOS_LOG=warn or LITHOS_LOG=lithos_server=debug.")]
pub struct ServeArgs {
    /// The address to listen on; one that other machines reach needs a key
    #[arg(long, default_value = "127.0.0.1", help_heading = "Server")]
    host: String,
    /// The port to listen on; 0 for any that is free
    #[arg(short, long, default_value = "8080", help_heading = "Server")]
    port: u16,
    #[command(flatten, next_help_heading = "Server")]
    key: KeyArgs,
    /// Requests that are answered side by side, each with a context of its own: fewer where memory does not hold as many
    #[arg(long, value_name = "N", default_value_t = serving::SLOTS as u32, value_parser = slots(), help_heading = "Server")]
    slots: u32,
    /// Requests that may wait while others run; those past it are told to try again
    #[arg(long, value_name = "N", default_value = "32", value_parser = count(), help_heading = "Server")]
    queue: usize,
    /// A host name that clients may use besides those of this machine; may be repeated
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new(), help_heading = "Server")]
    allow_host: Vec<String>,
    /// An origin whose web pages may send requests, such as `https://chat.example`; may be repeated
    #[arg(long, value_name = "ORIGIN", value_parser = NonEmptyStringValueParser::new(), help_heading = "Server")]
    allow_origin: Vec<String>,
    /// Measure at the start how fast memory can be read (with a buffer of up to 1 GiB), to show beside what decoding reads
    #[arg(long, help_heading = "Server")]
    measure_stream: bool,
    /// How log lines are written to standard error: for people, or as one JSON object each
    #[arg(long, value_name = "FORM", default_value = "text", help_heading = "Server")]
    log: LogForm,
    #[command(flatten)]
    model: ModelArgs,
}

/// How log lines are written.
// Comments on the values would be shown by the help, each on lines of its own.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LogForm {
    Text,
    Json,
}

/// Serves until interrupted.
pub fn run(args: &ServeArgs) -> anyhow::Result<ExitCode> {
    let model = model::given(args.model.model.as_deref())?;
    let mut options = ServerOptions {
        api_key: args.key.key()?,
        queue_capacity: args.queue,
        allowed_hosts: args.allow_host.clone(),
        allowed_origins: args.allow_origin.clone(),
        ..ServerOptions::default()
    };
    // A port that is taken or a key that is missing is better said before the model is opened.
    let (listener, address) = listen(args)?;
    options.check_key(address)?;
    log(args.log);
    let runtime = serving::runtime()?;
    // Clients learn meanwhile that the model is on its way.
    let (opened, on_opened) = oneshot::channel::<()>();
    let meanwhile = options.clone();
    let loading = runtime.spawn(async move {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let opened = async {
            // Its sender ends either way.
            let _ = on_opened.await;
        };
        serve_while_loading(&listener, &meanwhile, opened).await.map(|()| listener)
    });
    let mut engine = serving::open(model, &args.model, args.slots as usize)?;
    if args.measure_stream {
        options.read_stream = Some(measure_stream(&mut engine, args.model.engine.threads)?);
    }
    drop(opened);
    runtime.block_on(async {
        let listener = loading.await.map_err(|error| anyhow!("the server ended: {error}"))??;
        let shutdown = interrupted();
        greet(args, &engine, address);
        lithos_server::serve(listener, engine, options, shutdown).await?;
        anyhow::Ok(())
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Reads memory a few times and says how fast that was, in bytes per second.
fn measure_stream(engine: &mut Engine, threads: Option<usize>) -> anyhow::Result<u64> {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let stream = Stream::of(engine.backend(), threads.unwrap_or_else(cores));
    // The first finds everything cold.
    stream.measure(engine)?;
    let speeds =
        (0..STREAM_READS).map(|_| stream.measure(engine)).collect::<Result<Vec<f64>, _>>()?;
    let Some(Spread { median, .. }) = Spread::of(speeds) else { bail!("nothing was measured") };
    output::line(&format!(
        "memory is read at {:.1} GB/s (median of {STREAM_READS} reads)",
        median / 1e9
    ));
    Ok(median as u64)
}

fn listen(args: &ServeArgs) -> anyhow::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind((args.host.as_str(), args.port));
    let listener = listener.and_then(|listener| {
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    });
    listener.map_err(|error| anyhow!("cannot listen on {} port {}: {error}", args.host, args.port))
}

fn log(form: LogForm) {
    let filter = EnvFilter::try_from_env(LOG_VARIABLE).unwrap_or_else(|_| EnvFilter::new("info"));
    let ansi = output::stderr_is_terminal();
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(ansi);
    match form {
        LogForm::Text => log.init(),
        LogForm::Json => log.json().flatten_event(true).init(),
    }
}

/// Up to as many slots as a pass can carry.
fn slots() -> impl TypedValueParser<Value = u32> {
    clap::value_parser!(u32).range(1..=MAX_SLOTS as i64)
}

/// Says where the server is, how many it answers at a time, and how to ask it something.
fn greet(args: &ServeArgs, engine: &Engine, address: SocketAddr) {
    let (model, slots, context) = (engine.name(), engine.slots(), engine.context());
    let fewer = if slots < args.slots as usize { ": memory does not hold more" } else { "" };
    let many = if slots == 1 { "one request" } else { "requests" };
    output::line(&format!(
        "answers {many} of up to {context} tokens{}{fewer}",
        if slots == 1 { " at a time".to_owned() } else { format!(", {slots} at a time") }
    ));
    let mut header = String::new();
    if let Some(key) = args.key.in_shell() {
        header = format!(" \\\n    -H \"Authorization: Bearer {key}\"");
    }
    let body = serde_json::json!({
        "model": model,
        "messages": [{"role": "user", "content": "What is the capital of France?"}],
    });
    // For a shell, inside single quotes.
    let body = body.to_string().replace('\'', "'\\''");
    output::line(&format!(
        "{model} is at http://{address}/v1, with a page for browsers at http://{address}/; Ctrl-C ends it. For example:\n\n  curl http://{address}/v1/chat/completions{header} \\\n    -H \"Content-Type: application/json\" \\\n    -d '{body}'\n"
    ));
}

/// Ready when the process is asked to end.
async fn interrupted() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut terminate) = signal(SignalKind::terminate()) {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
            return;
        }
    }
    // Without a handler the system ends the process itself.
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}
