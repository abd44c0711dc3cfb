//! Connections: accepted up to a bound, closed when they are silent, or do not read, for too long.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_io_timeout::TimeoutStream;

use crate::options::ServerOptions;

/// Connections at once. More than a machine's agents open, and fewer than the files that a process may commonly have open; those
/// past it wait to be accepted.
const MOST: usize = 512;

/// Bytes of the head of a request.
const HEAD: usize = 64 << 10;

/// How long open connections may take to end once the server is told to.
pub(crate) const GRACE: Duration = Duration::from_secs(5);

/// After an error of the system, such as too many open files, which would only come again at once.
const PAUSE: Duration = Duration::from_millis(200);

/// A listening socket and how its connections are bounded.
pub(crate) struct Connections<'l> {
    listener: &'l TcpListener,
    idle: Duration,
}

impl<'l> Connections<'l> {
    pub(crate) fn new(listener: &'l TcpListener, options: &ServerOptions) -> Self {
        Connections { listener, idle: options.idle }
    }

    /// Answers requests until `until` is ready. Then connections end with the answer they are at, by force if that takes
    /// more than a few seconds.
    pub(crate) async fn serve(&self, router: Router, until: impl Future<Output = ()>) {
        let permits = Arc::new(Semaphore::new(MOST));
        let graceful = GracefulShutdown::new();
        let mut tasks = JoinSet::new();
        let mut builder = http1::Builder::new();
        // The timer runs from the end of one answer to the end of the next head, so that it bounds idle connections, too.
        builder.timer(TokioTimer::new()).header_read_timeout(self.idle).max_buf_size(HEAD);
        let mut until = pin!(until);
        loop {
            let next = async {
                let permit = permits.clone().acquire_owned().await;
                (self.listener.accept().await, permit)
            };
            let (accepted, permit) = tokio::select! {
                next = next => next,
                () = &mut until => break,
            };
            while tasks.try_join_next().is_some() {}
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::debug!(%error, "a connection was not accepted");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            // Small pieces of text must not wait to be put together with later ones.
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(%error, "TCP_NODELAY could not be set");
            }
            let service = TowerToHyperService::new(router.clone());
            // Who does not read its answer would hold its connection for ever.
            let mut stream = TimeoutStream::new(stream);
            stream.set_write_timeout(Some(self.idle));
            let connection = builder.serve_connection(TokioIo::new(Box::pin(stream)), service);
            let connection = graceful.watch(connection);
            tasks.spawn(async move {
                let _permit = permit;
                if let Err(error) = connection.await {
                    tracing::debug!(%error, "a connection broke off");
                }
            });
        }
        if tokio::time::timeout(GRACE, graceful.shutdown()).await.is_err() {
            tracing::warn!("connections were closed by force");
        }
        tasks.shutdown().await;
    }
}
