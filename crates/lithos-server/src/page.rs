//! The page at `/`: to talk with the model, and to watch it. Its files are part of the program.
//!
//! They are given without a key, since a browser has none before it has the page. The page asks for the key and sends it with its
//! own requests. It may run and load nothing but its own files, so that a text of the model that got into it as HTML could do
//! nothing; and it is never shown inside another page.

use axum::Router;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'";

/// Sent with every file.
const HEADERS: [(HeaderName, &str); 6] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    // Another program may serve at this address tomorrow.
    (header::CACHE_CONTROL, "no-cache"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// One file of the page.
struct File {
    path: &'static str,
    content_type: &'static str,
    text: &'static str,
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

const FILES: [File; 6] = [
    File::new("/", HTML, include_str!("page/index.html")),
    File::new("/page/style.css", CSS, include_str!("page/style.css")),
    File::new("/page/chat.js", SCRIPT, include_str!("page/chat.js")),
    File::new("/page/panel.js", SCRIPT, include_str!("page/panel.js")),
    File::new("/page/server.js", SCRIPT, include_str!("page/server.js")),
    File::new("/page/icon.svg", SVG, include_str!("page/icon.svg")),
];

impl File {
    const fn new(path: &'static str, content_type: &'static str, text: &'static str) -> Self {
        File { path, content_type, text }
    }
}

/// Whether a path is one of the page's files.
pub(crate) fn is_part(path: &str) -> bool {
    FILES.iter().any(|file| file.path == path)
}

/// The routes of the page.
pub(crate) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    FILES.iter().fold(Router::new(), |router, file| router.route(file.path, get(|| respond(file))))
}

async fn respond(file: &'static File) -> Response {
    let mut response = file.text.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(file.content_type));
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}
