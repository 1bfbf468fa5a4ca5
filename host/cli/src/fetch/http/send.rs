//! Single requests: what publishing and registries need.

use std::io::Read as _;
use std::time::Instant;

use callbox::{Blame, Result, Status, StatusCode};
use callbox_core::json;
use ureq::http::{HeaderMap, Request, Response, header};
use ureq::{AsSendBody, Body};

use super::{Address, Attempt, Client, Token, one_line, quoted, unavailable};

/// A request, whose redirects are not followed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'a> {
    pub(crate) method: &'static str,
    pub(crate) address: &'a Address,
    pub(crate) token: Option<&'a Token>,
    pub(crate) headers: &'a [(&'a str, &'a str)],
    /// `None` for methods without a body.
    pub(crate) body: Option<&'a [u8]>,
    /// The most bytes of the answer.
    pub(crate) most: usize,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    /// What the server says of a failure, without the token.
    reason: String,
}

impl Client {
    /// Makes a request.
    ///
    /// # Errors
    /// UNAVAILABLE if there is no answer, RESOURCE_EXHAUSTED if it is too long.
    pub(crate) fn send(&self, call: Call<'_>) -> Result<Reply> {
        let address = call.address;
        let wrong = |error: ureq::http::Error| {
            let reason = one_line(&error.to_string());
            Status::invalid_argument(format!("{address}: {reason}"))
        };
        let mut request = Request::builder()
            .method(call.method)
            .uri(address.0.clone());
        if let Some(token) = call.token {
            request = request.header(header::AUTHORIZATION, token.header());
        }
        for (name, value) in call.headers {
            request = request.header(*name, *value);
        }
        self.allowance.begin(call.most);
        let answer = match call.body {
            None => self.run(request.body(()).map_err(wrong)?),
            Some(body) => self.run(request.body(body).map_err(wrong)?),
        };
        let answer = answer.map_err(|error| Attempt::of(address, error).into_status(address))?;
        let (parts, mut body) = answer.into_parts();
        let mut bytes = Vec::new();
        if call.method != "HEAD" {
            let reader = body.as_reader();
            reader
                .take(call.most as u64 + 1)
                .read_to_end(&mut bytes)
                .map_err(|error| {
                    unavailable(format!("{address}: {}", one_line(&error.to_string())))
                })?;
        }
        if bytes.len() > call.most {
            let most = call.most;
            let message = format!("{address}: expected at most {most} bytes, found more");
            return Err(Status::new(
                StatusCode::ResourceExhausted,
                Blame::Host,
                message,
            ));
        }
        let said = parts.headers.get("x-error-message");
        let said = said.and_then(|said| said.to_str().ok()).map(str::to_owned);
        let said = said.unwrap_or_else(|| String::from_utf8_lossy(&bytes).into_owned());
        Ok(Reply {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body: bytes,
            reason: call.token.map_or(said.clone(), |token| token.redact(&said)),
        })
    }

    fn run(
        &self,
        request: Request<impl AsSendBody>,
    ) -> std::result::Result<Response<Body>, ureq::Error> {
        let left = self.end().saturating_duration_since(Instant::now());
        let request = self.agent.configure_request(request);
        self.agent.run(request.timeout_global(Some(left)).build())
    }
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The values of a header that can be there several times.
    pub(crate) fn headers(&self, name: &str) -> impl Iterator<Item = &str> {
        let values = self.headers.get_all(name).into_iter();
        values.filter_map(|value| value.to_str().ok())
    }

    /// The answer to a request that must succeed.
    ///
    /// # Errors
    /// The server's failure, with what it says of it.
    pub(crate) fn done(self, address: &Address) -> Result<Self> {
        let (code, blame, reason) = match self.status {
            200..=299 => return Ok(self),
            401 | 403 => (
                StatusCode::PermissionDenied,
                Blame::Caller,
                "the server refuses it: it may need a token with the right to write",
            ),
            404 | 410 => (
                StatusCode::NotFound,
                Blame::Caller,
                "there is no such thing",
            ),
            409 | 412 => (
                StatusCode::Aborted,
                Blame::Host,
                "it was changed at the same time",
            ),
            413 => (
                StatusCode::ResourceExhausted,
                Blame::Host,
                "it is too large",
            ),
            429 | 500.. => (StatusCode::Unavailable, Blame::Host, "it cannot answer now"),
            _ => (
                StatusCode::FailedPrecondition,
                Blame::Host,
                "the server refuses it",
            ),
        };
        let (status, said) = (self.status, quoted(&self.reason));
        let message = format!("{address}: {reason} (status {status}): {said}");
        Err(Status::new(code, blame, message))
    }

    /// The JSON of the body.
    pub(crate) fn json<T: serde::de::DeserializeOwned>(&self, address: &Address) -> Result<T> {
        /// The most memory of the values in an answer.
        const MOST: usize = 48 << 20;
        let read = || {
            json::check_memory(&self.body, json::MAP, MOST)?;
            serde_json::from_slice(&self.body).map_err(|error| one_line(&error.to_string()))
        };
        read().map_err(|reason| super::lie(format!("{address}: the answer is wrong: {reason}")))
    }
}
