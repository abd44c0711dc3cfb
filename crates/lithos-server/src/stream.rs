//! An answer as a stream of server-sent events.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures_core::Stream;
use lithos_protocol::{ApiError, DialectAnswer, sse};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, Sleep, sleep, timeout};

use crate::answer::CancelOnDrop;
use crate::queue::JobEvent;
use crate::request_log::RequestLog;
use crate::usage;

/// How long the headers wait for the model to begin with the prompt. Within it a refusal still has its own status; past it the
/// client learns that the server is there, and a refusal comes as an event.
const HEADERS_WAIT: Duration = Duration::from_secs(1);

/// An answer on its way.
pub(crate) struct Answer {
    pub(crate) answer: Box<dyn DialectAnswer>,
    pub(crate) events: UnboundedReceiver<JobEvent>,
    /// Lives as long as the response, so that a client that leaves ends the generation.
    pub(crate) _cancel: CancelOnDrop,
    pub(crate) log: Arc<RequestLog>,
    /// The longest silence.
    pub(crate) heartbeat: Duration,
}

/// Begins the response.
///
/// # Errors
/// The model's, if it comes before the headers are sent.
pub(crate) async fn respond(mut answer: Answer) -> Result<Response, ApiError> {
    let first = match timeout(HEADERS_WAIT.min(answer.heartbeat), answer.events.recv()).await {
        Ok(Some(JobEvent::Failed(error))) => return Err(error),
        Ok(None) => return Err(lost()),
        Ok(Some(event)) => Some(event),
        Err(_) => None,
    };
    let mut body = EventBody {
        begin: Bytes::from(sse::encode(&answer.answer.start())),
        ended: false,
        silence: Box::pin(sleep(answer.heartbeat)),
        answer,
    };
    if let Some(event) = first {
        let next = body.take_in(event);
        body.begin = [body.begin.as_ref(), next.as_ref()].concat().into();
    }
    let mut response = Body::from_stream(body).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Some reverse proxies hold a response back unless told so.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(response)
}

/// The error of a request whose model has vanished.
pub(crate) fn lost() -> ApiError {
    ApiError::internal("the model stopped without an answer")
}

/// The body of the response.
struct EventBody {
    /// Not yet sent: what the stream begins with.
    begin: Bytes,
    answer: Answer,
    /// Runs out when the client should hear something.
    silence: Pin<Box<Sleep>>,
    ended: bool,
}

impl EventBody {
    /// What goes over the wire for an event; empty for nothing.
    fn take_in(&mut self, event: JobEvent) -> Bytes {
        let Answer { answer, log, .. } = &mut self.answer;
        let events = match event {
            JobEvent::Started => Vec::new(),
            JobEvent::Text(text) => {
                log.text();
                answer.text(&text)
            }
            JobEvent::Finished(ending, counts, drafts) => {
                self.ended = true;
                log.counts(counts);
                let mut events = answer.finish(&ending, counts);
                usage::add_to_events(&mut events, drafts.as_deref());
                events
            }
            JobEvent::Failed(error) => {
                self.ended = true;
                log.status(error.status);
                answer.fail(&error)
            }
        };
        sse::encode(&events).into()
    }

    fn poll_events(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if !self.begin.is_empty() {
            return Poll::Ready(Some(std::mem::take(&mut self.begin)));
        }
        while !self.ended {
            let wire = match self.answer.events.poll_recv(context) {
                Poll::Ready(Some(event)) => self.take_in(event),
                Poll::Ready(None) => self.take_in(JobEvent::Failed(lost())),
                Poll::Pending => {
                    ready!(self.silence.as_mut().poll(context));
                    sse::encode(&self.answer.answer.heartbeat()).into()
                }
            };
            if !wire.is_empty() {
                self.silence.as_mut().reset(Instant::now() + self.answer.heartbeat);
                return Poll::Ready(Some(wire));
            }
        }
        Poll::Ready(None)
    }
}

impl Stream for EventBody {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_events(context).map(|wire| wire.map(Ok))
    }
}
