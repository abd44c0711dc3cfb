//! `POST /v1/chat/completions`.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use lithos_engine::{Cancel, Sampling, TokenId};
use lithos_protocol::ApiError;
use lithos_protocol::chat_completions::{
    ChatCompletion, ChatRequest, ChatStream, FinishReason, Usage,
};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::body::read_json_body;
use crate::queue::{Job, JobEvent};
use crate::request_log::RequestLog;
use crate::response::HttpError;
use crate::server::App;
use crate::stream::{self, Answer};

/// Cancels a request when whoever waits for its answer goes away.
pub(crate) struct CancelOnDrop(Cancel);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Answers a conversation.
pub(crate) async fn chat_completions(
    State(app): State<Arc<App>>,
    Extension(log): Extension<Arc<RequestLog>>,
    request: Request,
) -> Result<Response, HttpError> {
    let body = read_json_body(request, app.body_limit).await?;
    let request = ChatRequest::parse(&body)?;
    drop(body);
    app.check_model(&request.model)?;
    let (id, created) = (app.ids.next("chatcmpl-"), app.now());
    let model = app.info.id.clone();
    let chat = request.stream.then(|| ChatStream::new(&id, created, &model, request.include_usage));
    let (events, cancel) = submit(&app, request)?;
    if let Some(chat) = chat {
        let answer = Answer { chat, events, _cancel: cancel, log, heartbeat: app.heartbeat };
        return Ok(stream::respond(answer).await?);
    }
    let (text, finish, usage) = collect(events).await?;
    drop(cancel);
    log.usage(&usage);
    Ok(Json(ChatCompletion::new(id, created, model, text, finish, usage)).into_response())
}

/// Puts a request into the queue.
fn submit(
    app: &App,
    request: ChatRequest,
) -> Result<(UnboundedReceiver<JobEvent>, CancelOnDrop), ApiError> {
    let sampling = sampling(&app.default_sampling, &request);
    sampling.validate().map_err(ApiError::bad_request)?;
    let (sender, events) = unbounded_channel();
    let cancel = Cancel::default();
    app.queue.push(Job {
        messages: request.messages,
        template_variables: request.template_variables,
        sampling,
        max_tokens: request.max_tokens,
        stop: request.stop,
        ignore_end: request.ignore_end,
        cancel: cancel.clone(),
        events: sender,
    })?;
    Ok((events, CancelOnDrop(cancel)))
}

/// The model's defaults, changed where the request says so.
fn sampling(defaults: &Sampling, request: &ChatRequest) -> Sampling {
    let asked = |value: Option<f32>, default: f32| value.unwrap_or(default);
    Sampling {
        temperature: asked(request.temperature, defaults.temperature),
        top_k: request.top_k.unwrap_or(defaults.top_k),
        top_p: asked(request.top_p, defaults.top_p),
        min_p: asked(request.min_p, defaults.min_p),
        repetition_penalty: asked(request.repetition_penalty, defaults.repetition_penalty),
        presence_penalty: asked(request.presence_penalty, defaults.presence_penalty),
        frequency_penalty: asked(request.frequency_penalty, defaults.frequency_penalty),
        logit_bias: match request.logit_bias.is_empty() {
            true => defaults.logit_bias.clone(),
            false => request.logit_bias.iter().map(|b| (TokenId(b.token), b.bias)).collect(),
        },
        seed: request.seed.or(defaults.seed),
    }
}

/// Waits for a whole answer.
async fn collect(
    mut events: UnboundedReceiver<JobEvent>,
) -> Result<(String, FinishReason, Usage), ApiError> {
    let mut answer = String::new();
    while let Some(event) = events.recv().await {
        match event {
            JobEvent::Started => {}
            JobEvent::Text(text) => answer.push_str(&text),
            JobEvent::Finished(finish, usage) => return Ok((answer, finish, usage)),
            JobEvent::Failed(error) => return Err(error),
        }
    }
    Err(stream::lost())
}
