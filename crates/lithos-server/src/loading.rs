//! What is answered while a model is being opened.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderValue, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::Response;
use axum::routing::get;
use lithos_protocol::ApiError;
use tokio::net::TcpListener;

use crate::connections::Connections;
use crate::guards::{Guards, HEALTH, guard};
use crate::health::{Report, Status};
use crate::options::{ServeError, ServerOptions};
use crate::page;
use crate::response::{HttpError, speak};
use crate::server::Ids;

/// Answers that the model is being opened until `opened` is ready: `/health` with the state `loading`, the page, and everything
/// else with 503 and a time to come again. Then [`serve`](crate::serve) may go on with the listener.
///
/// # Errors
/// As [`Server::start`](crate::Server::start) where there is no key; [`ServeError::Socket`].
pub async fn serve_while_loading(
    listener: &TcpListener,
    options: &ServerOptions,
    opened: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let address = listener.local_addr()?;
    options.check_key(address)?;
    Connections::new(listener, options).serve(router(options, address), opened).await;
    Ok(())
}

fn router(options: &ServerOptions, address: SocketAddr) -> Router {
    let guards = Arc::new(Guards::new(options, !address.ip().is_loopback()));
    Router::new()
        .route(HEALTH, get(loading))
        .merge(page::routes())
        .fallback(not_yet)
        .layer(from_fn_with_state(guards, guard))
        .layer(from_fn_with_state(Arc::new(Ids::default()), speak))
        .layer(from_fn(close))
}

async fn loading() -> Report {
    Report { status: Status::Loading, waiting: 0, running: 0 }
}

async fn not_yet() -> HttpError {
    let message = "the model is being opened; try again in a moment";
    HttpError(ApiError::new(503, "server_error", message).with_code("loading"))
}

/// A connection that stays open would meet the end of this router instead of the beginning of the next.
async fn close(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let close = HeaderValue::from_static("close");
    response.headers_mut().insert(header::CONNECTION, close);
    response
}
