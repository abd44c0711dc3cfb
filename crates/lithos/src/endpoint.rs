//! A server that runs: where it is, and what it serves.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use clap::Args;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::handshake;
use hyper::{Request, StatusCode, Uri, header};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

use crate::key::KeyArgs;
use crate::output;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a server may take to open its model.
const LOADING: Duration = Duration::from_secs(600);

/// Bytes of an answer at most.
const ANSWER: usize = 1 << 20;

/// Where the server is, and its key.
#[derive(Args)]
#[command(next_help_heading = "Server")]
pub struct EndpointArgs {
    /// Where the server is
    #[arg(long, env = "LITHOS_URL", value_name = "URL", default_value = "http://127.0.0.1:8080", value_parser = base_url)]
    pub url: String,
    /// Where its key is.
    #[command(flatten)]
    pub key: KeyArgs,
}

/// A server and what it serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Where it is, without a slash at the end.
    pub url: String,
    /// The id of its model.
    pub model: String,
    /// Tokens that prompt and answer can have together.
    pub context: usize,
}

/// Why nothing is known of a server.
pub enum Missing {
    /// Nobody listens there.
    Nobody,
    /// It is no server of this kind, or it refuses.
    Other(anyhow::Error),
}

impl Endpoint {
    /// Asks a server what it serves. One that opens its model is waited for.
    ///
    /// # Errors
    /// [`Missing`], whose line says what to do.
    pub fn find(url: &str, key: Option<&str>) -> Result<Self, Missing> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| Missing::Other(error.into()))?;
        let spinner = output::spinner(&format!("waiting for the model of {url}"));
        let deadline = Instant::now() + LOADING;
        let found = loop {
            match runtime.block_on(models(url, key))? {
                (StatusCode::SERVICE_UNAVAILABLE, _) if Instant::now() < deadline => {
                    sleep(Duration::from_secs(1));
                }
                (status, body) => break read(url, status, &body).map_err(Missing::Other),
            }
        };
        spinner.finish_and_clear();
        found
    }
}

impl Missing {
    /// What to do about it.
    pub fn explain(self, url: &str) -> anyhow::Error {
        match self {
            Missing::Nobody => anyhow!(
                "no server answers at {url}: start one with `lithos serve`, or name another with --url or in LITHOS_URL"
            ),
            Missing::Other(error) => error,
        }
    }
}

fn read(url: &str, status: StatusCode, body: &[u8]) -> anyhow::Result<Endpoint> {
    match status {
        StatusCode::OK => {}
        StatusCode::UNAUTHORIZED => bail!(
            "the server at {url} asks for another key: name where it is, with --api-key-env or --api-key-file"
        ),
        status => bail!("the server at {url} answers with status {status}"),
    }
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let model = &body["data"][0];
    let id = model["id"].as_str();
    let context = model["context_length"].as_u64().and_then(|tokens| usize::try_from(tokens).ok());
    let (Some(id), Some(context)) = (id, context) else {
        bail!("the server at {url} does not say what it serves: is it `lithos serve`?");
    };
    Ok(Endpoint { url: url.to_owned(), model: id.to_owned(), context })
}

/// `GET /v1/models`
async fn models(url: &str, key: Option<&str>) -> Result<(StatusCode, Bytes), Missing> {
    let other =
        |error: anyhow::Error| Missing::Other(error.context(format!("{url} cannot be asked")));
    let uri: Uri =
        url.parse().map_err(|error: hyper::http::uri::InvalidUri| other(error.into()))?;
    let (host, port) = (uri.host().unwrap_or_default(), uri.port_u16().unwrap_or(80));
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let connecting = tokio::time::timeout(PATIENCE, TcpStream::connect((bare, port)));
    let Ok(Ok(stream)) = connecting.await else { return Err(Missing::Nobody) };
    let mut request = Request::get("/v1/models").header(header::HOST, format!("{host}:{port}"));
    if let Some(key) = key {
        request = request.header(header::AUTHORIZATION, format!("Bearer {key}"));
    }
    let request = request.body(Empty::<Bytes>::new()).map_err(|error| other(error.into()))?;
    let exchange = async {
        let (mut sender, connection) = handshake(TokioIo::new(stream)).await?;
        let connection = tokio::spawn(connection);
        let response = sender.send_request(request).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER).collect().await;
        connection.abort();
        let body = body.map_err(|error| anyhow!("its answer cannot be read: {error}"))?;
        anyhow::Ok((status, body.to_bytes()))
    };
    let answered = tokio::time::timeout(PATIENCE, exchange).await;
    answered.context("it takes too long").and_then(|answer| answer).map_err(other)
}

/// The address of a server, from what people write for it.
fn base_url(text: &str) -> Result<String, String> {
    let text = text.trim_end_matches('/');
    let text = text.strip_suffix("/v1").unwrap_or(text);
    let uri: Uri = text.parse().map_err(|error| format!("{error}"))?;
    match (uri.scheme_str(), uri.host()) {
        (Some("http"), Some(_)) if uri.path() == "/" && uri.query().is_none() => {
            Ok(text.to_owned())
        }
        _ => Err("write it like http://127.0.0.1:8080".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_as_people_write_them() {
        for text in ["http://localhost:8080", "http://localhost:8080/", "http://localhost:8080/v1"]
        {
            assert_eq!(base_url(text).as_deref(), Ok("http://localhost:8080"));
        }
        for wrong in ["localhost:8080", "https://localhost", "http://", "http://a/b", "http://a?b"]
        {
            assert!(base_url(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_a_server_serves_is_read_from_its_list_of_models() {
        let body = br#"{"data": [{"id": "a/b", "context_length": 4096}]}"#;
        let found = read("http://x", StatusCode::OK, body).unwrap();
        assert_eq!((found.model.as_str(), found.context), ("a/b", 4096));
        for (status, body) in [
            (StatusCode::UNAUTHORIZED, &body[..]),
            (StatusCode::NOT_FOUND, &body[..]),
            (StatusCode::OK, b"hello"),
            (StatusCode::OK, br#"{"data": [{"id": "a"}]}"#),
        ] {
            assert!(read("http://x", status, body).is_err());
        }
    }
}
