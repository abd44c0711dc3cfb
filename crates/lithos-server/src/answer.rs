//! Requests that a model answers, in all dialects: `POST /v1/chat/completions`, `/v1/completions`, `/v1/messages`,
//! `/v1/responses`.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use lithos_engine::{Cancel, Constraint, Sampling, Speculation, TokenId};
use lithos_protocol::messages::{CountRequest, TokenCount};
use lithos_protocol::{ApiError, DialectRequest, Ending, Generation, Heading, Prompt, TokenCounts};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::body::read_json_body;
use crate::model::{ModelError, Prompts};
use crate::queue::{Job, JobEvent};
use crate::request_log::RequestLog;
use crate::response::HttpError;
use crate::server::App;
use crate::stream::{self, Answer};
use crate::usage;

/// Cancels a request when whoever waits for its answer goes away.
pub(crate) struct CancelOnDrop(Cancel);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Answers a conversation in the dialect of `R`.
pub(crate) async fn answer<R: DialectRequest>(
    State(app): State<Arc<App>>,
    Extension(log): Extension<Arc<RequestLog>>,
    request: Request,
) -> Result<Response, HttpError> {
    let client = client(request.headers());
    let body = read_json_body(request, app.body_limit).await?;
    let request = R::parse(&body)?;
    drop(body);
    app.check_model(request.model())?;
    log.ignored(request.ignored());
    let prompt = encode(&app, request.prompt()).await?;
    if prompt.is_empty() {
        let field = R::PROMPT_FIELD;
        let message = format!("{field} is empty: there is nothing to continue");
        return Err(ApiError::invalid(field, message).into());
    }
    let opens_thought = app.prompts.opens_thought(&prompt);
    let (prompt_tokens, context) = (prompt.len(), app.info.context);
    if prompt_tokens >= context {
        return Err(too_long::<R>(prompt_tokens, context).into());
    }
    let constraint = constraint(&app, request.generation(), opens_thought).await?;
    let heading = Heading {
        name: app.ids.next(""),
        created: app.now(),
        model: app.info.id.clone(),
        prompt_tokens,
        opens_thought,
    };
    let answer = request.answer(heading);
    let (events, cancel) =
        submit(&app, client, request.generation(), prompt, opens_thought, constraint)?;
    if request.streams() {
        let answer = Answer { answer, events, _cancel: cancel, log, heartbeat: app.heartbeat };
        return Ok(stream::respond(answer).await?);
    }
    let (text, ending, counts, drafts) = collect(events, &log).await?;
    drop(cancel);
    log.counts(counts);
    let mut whole = answer.whole(&text, &ending, counts);
    usage::add(&mut whole, drafts.as_deref());
    Ok(Json(whole).into_response())
}

/// `POST /v1/messages/count_tokens`: how long the prompt of a conversation is.
pub(crate) async fn count_tokens(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Json<TokenCount>, HttpError> {
    let body = read_json_body(request, app.body_limit).await?;
    let request = CountRequest::parse(&body)?;
    app.check_model(&request.model)?;
    Ok(Json(TokenCount::new(encode(&app, Prompt::Conversation(request.conversation)).await?.len())))
}

/// Makes the prompt of a conversation, so that what cannot be answered is refused at once.
async fn encode(app: &App, prompt: Prompt) -> Result<Vec<TokenId>, ApiError> {
    beside_the_model(app, move |prompts| match prompt {
        Prompt::Conversation(conversation) => prompts.encode_chat(&conversation),
        Prompt::Text(text) => prompts.encode_text(&text),
        Prompt::Tokens(ids) => Ok(ids.into_iter().map(TokenId).collect()),
    })
    .await
}

/// Compiles the form that an answer is held to, if to any.
async fn constraint(
    app: &App,
    generation: &Generation,
    opens_thought: bool,
) -> Result<Option<Constraint>, ApiError> {
    let Some(form) = generation.held_to(app.prompts.call_syntax()) else { return Ok(None) };
    let param = form.param;
    if opens_thought {
        let message =
            format!("{param} leaves no place for thoughts, and this model begins with one");
        return Err(ApiError::unsupported(param, message));
    }
    let compiled = beside_the_model(app, move |prompts| prompts.constraint(&form)).await;
    compiled.map(Some).map_err(|error| match error.status {
        400 => error.with_param(param).with_code("invalid_value"),
        _ => error,
    })
}

/// Works on the text side of the model, beside the model's own thread.
async fn beside_the_model<T: Send + 'static>(
    app: &App,
    work: impl FnOnce(&dyn Prompts) -> Result<T, ModelError> + Send + 'static,
) -> Result<T, ApiError> {
    let unexpected = || {
        let message = "the prompt could not be made; the server's own output says why";
        ApiError::internal(message)
    };
    let _permit = app.encoders.acquire().await.map_err(|_| unexpected())?;
    let prompts = app.prompts.clone();
    let working = tokio::task::spawn_blocking(move || work(prompts.as_ref()));
    // It panicked, or the server is going.
    let done = working.await.map_err(|_| unexpected())?;
    done.map_err(|error| {
        if let ModelError::Failed(message) = &error {
            tracing::error!(error = %message, "a prompt could not be made");
        }
        error.into()
    })
}

/// Who asks, as far as it can be told: a program with its key.
fn client(headers: &HeaderMap) -> u64 {
    let mut hasher = DefaultHasher::new();
    for name in [header::USER_AGENT, header::AUTHORIZATION, HeaderName::from_static("x-api-key")] {
        headers.get(name).map(HeaderValue::as_bytes).hash(&mut hasher);
    }
    hasher.finish()
}

fn too_long<R: DialectRequest>(prompt_tokens: usize, context: usize) -> ApiError {
    ApiError::context_length_exceeded(prompt_tokens, context).with_param(R::PROMPT_FIELD)
}

/// Puts a request into the queue.
fn submit(
    app: &App,
    client: u64,
    generation: &Generation,
    prompt: Vec<TokenId>,
    opens_thought: bool,
    constraint: Option<Constraint>,
) -> Result<(UnboundedReceiver<JobEvent>, CancelOnDrop), ApiError> {
    let sampling = sampling(&app.default_sampling, generation);
    sampling.validate().map_err(ApiError::bad_request)?;
    let (sender, events) = unbounded_channel();
    let cancel = Cancel::default();
    app.queue.push(Job {
        client,
        turn: generation.conversation.tools.is_some(),
        overtaken: 0,
        prompt,
        opens_thought,
        sampling,
        max_tokens: generation.max_tokens,
        stop: generation.stop.clone(),
        ignore_end: generation.ignore_end,
        constraint,
        queued: Instant::now(),
        cancel: cancel.clone(),
        events: sender,
    })?;
    Ok((events, CancelOnDrop(cancel)))
}

/// The model's defaults, changed where the request says so.
fn sampling(defaults: &Sampling, asked: &Generation) -> Sampling {
    let or = |value: Option<f32>, default: f32| value.unwrap_or(default);
    Sampling {
        temperature: or(asked.temperature, defaults.temperature),
        top_k: asked.top_k.unwrap_or(defaults.top_k),
        top_p: or(asked.top_p, defaults.top_p),
        min_p: or(asked.min_p, defaults.min_p),
        repetition_penalty: or(asked.repetition_penalty, defaults.repetition_penalty),
        presence_penalty: or(asked.presence_penalty, defaults.presence_penalty),
        frequency_penalty: or(asked.frequency_penalty, defaults.frequency_penalty),
        logit_bias: match asked.logit_bias.is_empty() {
            true => defaults.logit_bias.clone(),
            false => asked.logit_bias.iter().map(|b| (TokenId(b.token), b.bias)).collect(),
        },
        seed: asked.seed.or(defaults.seed),
    }
}

/// An answer, how it ended, and what became of tokens and drafts.
type Collected = (String, Ending, TokenCounts, Option<Box<Speculation>>);

/// Waits for a whole answer.
async fn collect(
    mut events: UnboundedReceiver<JobEvent>,
    log: &RequestLog,
) -> Result<Collected, ApiError> {
    let mut answer = String::new();
    while let Some(event) = events.recv().await {
        match event {
            JobEvent::Started => {}
            JobEvent::Text(text) => {
                log.text();
                answer.push_str(&text);
            }
            JobEvent::Finished(ending, counts, drafts) => {
                return Ok((answer, ending, counts, drafts));
            }
            JobEvent::Failed(error) => return Err(error),
        }
    }
    Err(stream::lost())
}
