//! Who may send requests.
//!
//! A web page can make its visitor's browser send requests to loopback addresses, and by changing what its name resolves to
//! (DNS rebinding) even read the answers. Browsers then send the page's name as `Host` and its address as `Origin`, so both are
//! compared with the names of this server.

use std::hint::black_box;
use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use lithos_protocol::ApiError;

use crate::options::ServerOptions;
use crate::page;
use crate::response::HttpError;

/// Needs no key, so that supervisors can ask.
pub(crate) const HEALTH: &str = "/health";

/// What requests must show.
pub(crate) struct Guards {
    api_key: Option<String>,
    allowed_hosts: Vec<String>,
    allowed_origins: Vec<String>,
    /// Whether other machines reach the server. They use addresses and names of their own for it.
    public: bool,
}

impl Guards {
    pub(crate) fn new(options: &ServerOptions, public: bool) -> Self {
        Guards {
            api_key: options.api_key.clone(),
            allowed_hosts: options.allowed_hosts.clone(),
            allowed_origins: options.allowed_origins.clone(),
            public,
        }
    }

    fn check(&self, request: &Request) -> Result<(), ApiError> {
        let headers = request.headers();
        let host = self.check_host(headers)?;
        self.check_origin(headers, &host)?;
        let path = request.uri().path();
        if path == HEALTH || page::is_part(path) { Ok(()) } else { self.check_key(headers) }
    }

    /// Checks the host that the client thinks it talks to; returns it with its port.
    fn check_host(&self, headers: &HeaderMap) -> Result<Authority, ApiError> {
        let mut hosts = headers.get_all(header::HOST).iter();
        let (host, more) = (hosts.next(), hosts.next());
        let host = host.and_then(|host| Authority::try_from(host.as_bytes()).ok());
        match host {
            Some(host) if more.is_none() && self.host_allowed(&host) => Ok(host),
            _ => Err(forbidden(
                "the Host header is not a name of this server: use localhost, or allow the name when starting the server",
            )),
        }
    }

    fn host_allowed(&self, host: &Authority) -> bool {
        let name = host.host();
        is_loopback(name)
            || self.allowed_hosts.iter().any(|allowed| allowed.eq_ignore_ascii_case(name))
            // An address cannot be made to resolve elsewhere.
            || self.public && address(name).is_some()
    }

    /// Checks the web page that sends the request, if one does.
    fn check_origin(&self, headers: &HeaderMap, host: &Authority) -> Result<(), ApiError> {
        for origin in headers.get_all(header::ORIGIN) {
            let origin = origin.to_str().unwrap_or("null");
            let page = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
            let page = page.and_then(|page| page.parse::<Authority>().ok());
            let near = page.is_some_and(|page| is_loopback(page.host()) || page == *host);
            if !near && !self.allowed_origins.iter().any(|allowed| allowed == origin) {
                return Err(forbidden(
                    "pages of this Origin may not send requests: allow it when starting the server",
                ));
            }
        }
        Ok(())
    }

    fn check_key(&self, headers: &HeaderMap) -> Result<(), ApiError> {
        let Some(key) = &self.api_key else { return Ok(()) };
        let bearer = headers.get_all(header::AUTHORIZATION).iter().filter_map(|value| {
            let (scheme, key) = value.as_bytes().split_at_checked(7)?;
            scheme.eq_ignore_ascii_case(b"bearer ").then_some(key)
        });
        // Clients of the Messages API send either or both, and some a key of their own making in one of them.
        let plain = headers.get_all("x-api-key").iter().map(|value| value.as_bytes());
        let right = |given: &[u8]| equal_in_constant_time(given.trim_ascii(), key.as_bytes());
        if bearer.chain(plain).any(right) {
            return Ok(());
        }
        let message = "the API key is missing or wrong: send it as 'Authorization: Bearer KEY' or 'x-api-key: KEY'";
        Err(ApiError::new(401, "invalid_request_error", message).with_code("invalid_api_key"))
    }
}

/// The guards as a layer around all routes.
pub(crate) async fn guard(
    State(guards): State<Arc<Guards>>,
    request: Request,
    next: Next,
) -> Response {
    match guards.check(&request) {
        Ok(()) => next.run(request).await,
        Err(error) => HttpError(error).into_response(),
    }
}

fn is_loopback(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost") || address(host).is_some_and(|ip| ip.is_loopback())
}

/// The address that a host is, if it is not a name.
fn address(host: &str) -> Option<IpAddr> {
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    match inner {
        Some(inner) => inner.parse().ok().map(IpAddr::V6),
        None => host.parse().ok().map(IpAddr::V4),
    }
}

fn forbidden(message: &str) -> ApiError {
    ApiError::new(403, "permission_error", message).with_code("forbidden")
}

/// Compares without telling by its duration how far two texts agree: every byte of `given` is visited whatever came before.
/// The duration does depend on the length of `given`, which its sender knows. `black_box` keeps the compiler from leaving the
/// loop early.
fn equal_in_constant_time(given: &[u8], key: &[u8]) -> bool {
    let mut difference = given.len() ^ key.len();
    for (index, byte) in given.iter().enumerate() {
        // Past the end of the key the lengths differ already; any byte will do.
        let other = key.get(index).copied().unwrap_or(0);
        difference = black_box(difference | usize::from(byte ^ other));
    }
    difference == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_equal_only_if_all_bytes_are() {
        assert!(equal_in_constant_time(b"secret", b"secret"));
        for wrong in ["", "secre", "secret1", "Secret", "secreT", "secret\0"] {
            assert!(!equal_in_constant_time(wrong.as_bytes(), b"secret"), "{wrong}");
        }
    }

    #[test]
    fn hosts_are_names_of_this_server() {
        let options = ServerOptions { allowed_hosts: vec!["box.lan".into()], ..Default::default() };
        let local = Guards::new(&options, false);
        let public = Guards::new(&options, true);
        let allowed = |guards: &Guards, host: &str| guards.host_allowed(&host.parse().unwrap());
        for host in ["localhost", "LOCALHOST:80", "127.0.0.1:8080", "[::1]:1", "box.lan:8080"] {
            assert!(allowed(&local, host) && allowed(&public, host), "{host}");
        }
        for host in ["evil.example", "localhost.evil.example", "127.0.0.1.nip.io", "box.lan.evil"] {
            assert!(!allowed(&local, host) && !allowed(&public, host), "{host}");
        }
        assert!(!allowed(&local, "192.168.0.7:8080"));
        assert!(allowed(&public, "192.168.0.7:8080"));
    }
}
