//! The routes, and the life of a server.

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::extract::{Path, State};
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};
use axum::{Json, Router};
use lithos_engine::Sampling;
use lithos_protocol::ApiError;
use lithos_protocol::chat_completions::ChatRequest;
use lithos_protocol::completions::CompletionRequest;
use lithos_protocol::messages::MessagesRequest;
use lithos_protocol::models::{Model, ModelList};
use lithos_protocol::responses::ResponsesRequest;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, oneshot};

use crate::answer::{answer, count_tokens};
use crate::connections::{Connections, GRACE};
use crate::guards::{Guards, HEALTH, guard};
use crate::health::{Health, health};
use crate::metrics::{METRICS, Metrics, metrics};
use crate::model::{ModelInfo, Prompts, TextModel};
use crate::options::{ServeError, ServerOptions};
use crate::page;
use crate::queue::JobQueue;
use crate::request_log::log_request;
use crate::response::{HttpError, speak};
use crate::worker;

/// Names the served model, whatever it is called.
const ANY_MODEL: &str = "default";

/// Prompts that are made at once: each takes a processor from the model.
const ENCODERS: usize = 2;

/// What all requests share.
pub(crate) struct App {
    pub(crate) info: ModelInfo,
    pub(crate) default_sampling: Sampling,
    pub(crate) prompts: Arc<dyn Prompts>,
    /// Bounds how many prompts are made at once.
    pub(crate) encoders: Semaphore,
    pub(crate) queue: Arc<JobQueue>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) health: Arc<Health>,
    pub(crate) ids: Arc<Ids>,
    pub(crate) heartbeat: Duration,
    pub(crate) body_limit: usize,
    started: u64,
}

impl App {
    /// Checks the model that a request names: the served one by its id or the last part of it, `default`, or none.
    pub(crate) fn check_model(&self, asked: &str) -> Result<(), ApiError> {
        let served = self.info.id.as_str();
        let short = served.rsplit(['/', '\\']).next().unwrap_or(served);
        if [served, short, ANY_MODEL, ""].contains(&asked) {
            Ok(())
        } else {
            Err(ApiError::model_not_found(asked, served))
        }
    }

    /// Seconds since 1970.
    pub(crate) fn now(&self) -> u64 {
        // A clock set before 1970 is no reason to fail.
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
    }

    fn model(&self) -> Model {
        let created = self.info.created.unwrap_or(self.started);
        Model::new(self.info.id.as_str(), created, self.info.context)
    }
}

/// Makes ids that differ between requests and between servers.
#[derive(Default)]
pub(crate) struct Ids {
    /// Seeded by the system at random.
    random: RandomState,
    count: AtomicU64,
}

impl Ids {
    pub(crate) fn next(&self, prefix: &str) -> String {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        let [first, second] = [0, 1].map(|half: u8| self.random.hash_one((count, half)));
        format!("{prefix}{first:016x}{second:016x}")
    }
}

/// A model's thread and the routes to it. When it is dropped, the thread ends.
pub struct Server {
    app: Arc<App>,
    guards: Arc<Guards>,
    model_ended: Option<oneshot::Receiver<()>>,
}

impl Server {
    /// Starts the model's thread for a server that listens on `address`.
    ///
    /// # Errors
    /// [`ServeError::KeyNeeded`] if other machines reach the address and there is no key; [`ServeError::EmptyKey`];
    /// [`ServeError::NoPrompts`]; [`ServeError::Thread`].
    pub fn start(
        model: impl TextModel,
        options: &ServerOptions,
        address: SocketAddr,
    ) -> Result<Self, ServeError> {
        options.check_key(address)?;
        let prompts: Arc<dyn Prompts> = model.prompts().map_err(ServeError::NoPrompts)?.into();
        let queue = Arc::new(JobQueue::new(options.queue_capacity, model.slots()));
        let info = model.info();
        let metrics = Arc::new(Metrics::new(&info, model.resources(), options));
        let health = Arc::new(Health::default());
        let mut app = App {
            info,
            default_sampling: model.default_sampling(),
            prompts: prompts.clone(),
            encoders: Semaphore::new(ENCODERS),
            queue: queue.clone(),
            metrics: metrics.clone(),
            health: health.clone(),
            ids: Arc::default(),
            heartbeat: options.heartbeat,
            body_limit: options.body_limit,
            started: 0,
        };
        app.started = app.now();
        let ended = worker::start(model, prompts, queue, metrics, health);
        let model_ended = Some(ended.map_err(ServeError::Thread)?);
        let guards = Arc::new(Guards::new(options, !address.ip().is_loopback()));
        Ok(Server { app: Arc::new(app), guards, model_ended })
    }

    /// The routes, with all their guards.
    pub fn router(&self) -> Router {
        Router::new()
            .route("/v1/chat/completions", post(answer::<ChatRequest>))
            .route("/v1/completions", post(answer::<CompletionRequest>))
            .route("/v1/responses", post(answer::<ResponsesRequest>))
            .route("/v1/messages", post(answer::<MessagesRequest>))
            .route("/v1/messages/count_tokens", post(count_tokens))
            .route("/v1/models", get(models))
            // Ids may hold slashes.
            .route("/v1/models/{*id}", get(model))
            .route(HEALTH, get(health))
            .route(METRICS, get(metrics))
            .merge(page::routes())
            .fallback(no_such_path)
            .method_not_allowed_fallback(no_such_method)
            .layer(from_fn_with_state(self.guards.clone(), guard))
            .layer(from_fn_with_state(self.app.ids.clone(), speak))
            .layer(from_fn_with_state(self.app.metrics.clone(), log_request))
            .with_state(self.app.clone())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.app.queue.close();
    }
}

/// Serves a model on a socket until `shutdown` is ready. Then running answers are cancelled, waiting requests are turned away
/// with 503, and connections are closed, by force if they take more than a few seconds.
///
/// # Errors
/// As [`Server::start`], and [`ServeError::Socket`].
pub async fn serve(
    listener: TcpListener,
    model: impl TextModel,
    options: ServerOptions,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<(), ServeError> {
    let address = listener.local_addr()?;
    let mut server = Server::start(model, &options, address)?;
    tracing::info!(%address, model = server.app.info.id, "listening");
    let queue = server.app.queue.clone();
    let until = async move {
        shutdown.await;
        queue.close();
    };
    Connections::new(&listener, &options).serve(server.router(), until).await;
    if let Some(ended) = server.model_ended.take()
        && tokio::time::timeout(GRACE, ended).await.is_err()
    {
        tracing::warn!("the model is still busy with its last round");
    }
    Ok(())
}

async fn models(State(app): State<Arc<App>>) -> Json<ModelList> {
    Json(ModelList::new(vec![app.model()]))
}

async fn model(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
) -> Result<Json<Model>, HttpError> {
    app.check_model(&id)?;
    Ok(Json(app.model()))
}

async fn no_such_path() -> HttpError {
    let message = "there is nothing at this path: see /v1/chat/completions, /v1/completions, /v1/responses, /v1/messages, /v1/models, /health, /metrics, and / for a page";
    HttpError(ApiError::new(404, "invalid_request_error", message).with_code("unknown_url"))
}

async fn no_such_method() -> HttpError {
    let message = "this path does not take this method";
    HttpError(ApiError::new(405, "invalid_request_error", message).with_code("method_not_allowed"))
}
