//! How a server is set up.

use std::net::SocketAddr;
use std::time::Duration;

use crate::model::ModelError;

/// Where a server listens unless told otherwise.
pub const DEFAULT_ADDRESS: &str = "127.0.0.1:8080";

/// How a server is set up.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerOptions {
    /// The key that clients must send, as `Authorization: Bearer KEY` or `x-api-key: KEY`. Needed on addresses that other
    /// machines reach.
    pub api_key: Option<String>,
    /// Requests that may wait while one runs. Those past it are answered with 429.
    pub queue_capacity: usize,
    /// The longest silence of a stream: after it an event of the dialect tells the client to wait on.
    pub heartbeat: Duration,
    /// How long a connection may go without the whole head of a request: at its beginning, and between requests; and without
    /// taking anything of an answer that is there.
    pub idle: Duration,
    /// Bytes of a request's body at most.
    pub body_limit: usize,
    /// Host names that clients may use, besides those of loopback. Without port.
    pub allowed_hosts: Vec<String>,
    /// Origins of web pages that may send requests, such as `https://chat.example`, besides pages of loopback addresses and of
    /// the server itself.
    pub allowed_origins: Vec<String>,
    /// What this machine's memory was measured to deliver to plain reads, in bytes per second. Shown beside what decoding reads;
    /// `None` where nothing was measured.
    pub read_stream: Option<u64>,
}

impl ServerOptions {
    /// Checks that a server with these options may listen on `address`.
    ///
    /// # Errors
    /// [`ServeError::KeyNeeded`] if other machines reach the address and there is no key; [`ServeError::EmptyKey`].
    pub fn check_key(&self, address: SocketAddr) -> Result<(), ServeError> {
        match &self.api_key {
            None if !address.ip().is_loopback() => Err(ServeError::KeyNeeded { address }),
            Some(key) if key.is_empty() => Err(ServeError::EmptyKey),
            _ => Ok(()),
        }
    }
}

impl Default for ServerOptions {
    fn default() -> Self {
        ServerOptions {
            api_key: None,
            queue_capacity: 32,
            heartbeat: Duration::from_secs(5),
            idle: Duration::from_secs(60),
            body_limit: 32 << 20,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            read_stream: None,
        }
    }
}

/// Leaves the key out, so that it cannot end up in a log.
impl std::fmt::Debug for ServerOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerOptions")
            .field("api_key", &self.api_key.as_ref().map(|_| "(set)"))
            .field("queue_capacity", &self.queue_capacity)
            .field("heartbeat", &self.heartbeat)
            .field("idle", &self.idle)
            .field("body_limit", &self.body_limit)
            .field("allowed_hosts", &self.allowed_hosts)
            .field("allowed_origins", &self.allowed_origins)
            .field("read_stream", &self.read_stream)
            .finish()
    }
}

/// Why a server cannot run.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Other machines could use it without a key.
    #[error("{address} is reachable from other machines: set an API key, or listen on 127.0.0.1")]
    KeyNeeded {
        /// Where it would listen.
        address: SocketAddr,
    },
    /// The key is empty.
    #[error("the API key is empty: set a key, or none")]
    EmptyKey,
    /// The model has no text side.
    #[error("the model cannot answer conversations: {0}")]
    NoPrompts(ModelError),
    /// The thread of the model could not be started.
    #[error("the thread of the model could not be started: {0}")]
    Thread(std::io::Error),
    /// The socket failed.
    #[error("the socket failed: {0}")]
    Socket(#[from] std::io::Error),
}
