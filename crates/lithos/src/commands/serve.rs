//! `lithos serve`: a model behind OpenAI's and Anthropic's APIs.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{anyhow, bail};
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use lithos_server::{ServeError, ServerOptions};
use tracing_subscriber::EnvFilter;

use crate::args::{ModelArgs, count};
use crate::{model, output};

/// Which log lines are written, in the syntax of the tracing crates: `lithos_server=debug`.
const LOG_VARIABLE: &str = "LITHOS_LOG";

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

Answers POST /v1/chat/completions, /v1/responses and /v1/messages (streamed or not), POST /v1/messages/count_tokens, GET /v1/models and \
GET /health, one request at a time, in order. \
Ctrl-C ends it. LITHOS_LOG says which log lines are written, such as LITHOS_LOG=warn or LITHOS_LOG=lithos_server=debug.")]
pub struct ServeArgs {
    /// The address to listen on; one that other machines reach needs a key
    #[arg(long, default_value = "127.0.0.1", help_heading = "Server")]
    host: String,
    /// The port to listen on; 0 for any that is free
    #[arg(short, long, default_value = "8080", help_heading = "Server")]
    port: u16,
    /// The environment variable that holds the key which clients must send
    #[arg(long, value_name = "NAME", conflicts_with = "api_key_file", help_heading = "Server")]
    api_key_env: Option<String>,
    /// The file whose first line is the key which clients must send
    #[arg(long, value_name = "FILE", help_heading = "Server")]
    api_key_file: Option<PathBuf>,
    /// Requests that may wait while one runs; those past it are told to try again
    #[arg(long, value_name = "N", default_value = "32", value_parser = count(), help_heading = "Server")]
    queue: usize,
    /// A host name that clients may use besides those of this machine; may be repeated
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new(), help_heading = "Server")]
    allow_host: Vec<String>,
    /// An origin whose web pages may send requests, such as `https://chat.example`; may be repeated
    #[arg(long, value_name = "ORIGIN", value_parser = NonEmptyStringValueParser::new(), help_heading = "Server")]
    allow_origin: Vec<String>,
    #[command(flatten)]
    model: ModelArgs,
}

/// Serves until interrupted.
pub fn run(args: &ServeArgs) -> anyhow::Result<ExitCode> {
    let model = model::given(args.model.model.as_deref())?;
    let options = ServerOptions {
        api_key: api_key(args)?,
        queue_capacity: args.queue,
        allowed_hosts: args.allow_host.clone(),
        allowed_origins: args.allow_origin.clone(),
        ..ServerOptions::default()
    };
    // A port that is taken or a key that is missing is better said before the model is opened.
    let (listener, address) = listen(args)?;
    if options.api_key.is_none() && !address.ip().is_loopback() {
        return Err(ServeError::KeyNeeded { address }.into());
    }
    let engine = args.model.open(model)?.engine;
    engine.text()?.template()?;
    log();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| anyhow!("cannot start threads: {error}"))?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let shutdown = interrupted();
        greet(args, &engine.name(), address);
        lithos_server::serve(listener, engine, options, shutdown).await
    })?;
    Ok(ExitCode::SUCCESS)
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

/// The key, from where the flags say.
fn api_key(args: &ServeArgs) -> anyhow::Result<Option<String>> {
    let (key, place) = if let Some(name) = &args.api_key_env {
        let key = std::env::var(name).map_err(|error| match error {
            std::env::VarError::NotPresent => anyhow!("--api-key-env: {name} is not set"),
            std::env::VarError::NotUnicode(_) => anyhow!("--api-key-env: {name} is not UTF-8 text"),
        })?;
        (key, name.clone())
    } else if let Some(file) = &args.api_key_file {
        let text =
            fs::read_to_string(file).map_err(|error| anyhow!("{}: {error}", file.display()))?;
        (text.lines().next().unwrap_or_default().to_owned(), file.display().to_string())
    } else {
        return Ok(None);
    };
    let key = key.trim();
    if key.is_empty() {
        bail!("{place}: the key is empty");
    }
    Ok(Some(key.to_owned()))
}

fn log() {
    let filter = EnvFilter::try_from_env(LOG_VARIABLE).unwrap_or_else(|_| EnvFilter::new("info"));
    let ansi = output::stderr_is_terminal();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(ansi)
        .init();
}

/// Says where the server is and how to ask it something.
fn greet(args: &ServeArgs, model: &str, address: SocketAddr) {
    let mut header = String::new();
    if let Some(name) = &args.api_key_env {
        header = format!(" \\\n    -H \"Authorization: Bearer ${name}\"");
    } else if let Some(file) = &args.api_key_file {
        header = format!(" \\\n    -H \"Authorization: Bearer $(head -n 1 {})\"", file.display());
    }
    let body = serde_json::json!({
        "model": model,
        "messages": [{"role": "user", "content": "What is the capital of France?"}],
    });
    // For a shell, inside single quotes.
    let body = body.to_string().replace('\'', "'\\''");
    output::line(&format!(
        "{model} is at http://{address}/v1; Ctrl-C ends it. For example:\n\n  curl http://{address}/v1/chat/completions{header} \\\n    -H \"Content-Type: application/json\" \\\n    -d '{body}'\n"
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
