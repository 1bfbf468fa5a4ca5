//! Requests over HTTP, with limits on what a server can make callbox do.

mod address;
mod allowance;
mod download;
mod partial;
mod send;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use callbox::{Blame, Result, Status, StatusCode};
use ureq::Agent;
use ureq::http::{Response, header};
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::unversioned::resolver::DefaultResolver;

pub(crate) use self::address::Address;
use self::allowance::Allowance;
pub(crate) use self::download::Rules;
pub(crate) use self::send::{Call, Reply};

/// The longest time for a connection, between two parts of an answer, and for a file.
const CONNECT_TIME: Duration = Duration::from_secs(30);
const READ_TIME: Duration = Duration::from_secs(60);
const MOST_TIME: Duration = Duration::from_secs(1800);

/// A secret, which is shown nowhere.
#[derive(Clone)]
pub(crate) struct Token {
    scheme: &'static str,
    secret: String,
}

impl Token {
    /// `None` if it cannot be the value of a header.
    pub(crate) fn new(text: &str) -> Option<Self> {
        Self::of("Bearer", text)
    }

    /// A user's name and password, in Base64.
    pub(crate) fn basic(text: &str) -> Option<Self> {
        Self::of("Basic", text)
    }

    fn of(scheme: &'static str, text: &str) -> Option<Self> {
        let secret = text.trim().to_owned();
        let is_plain = !secret.is_empty() && secret.bytes().all(|b| b.is_ascii_graphic());
        is_plain.then_some(Self { scheme, secret })
    }

    /// The value of the header `Authorization`.
    fn header(&self) -> String {
        format!("{} {}", self.scheme, self.secret)
    }

    /// A server's text without the secret, which the server knows.
    fn redact(&self, text: &str) -> String {
        text.replace(&self.secret, "***")
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

/// A client of HTTP.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    agent: Agent,
    allowance: Allowance,
    /// The longest time for a file, all tries and redirects included.
    most_time: Duration,
    /// When all requests of this client end.
    until: Option<Instant>,
}

impl Client {
    /// A client for addresses like this one. Certificates are checked by those of the system.
    pub(crate) fn new(address: &Address) -> Result<Self> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let found = rustls_native_certs::load_native_certs();
        // An address without TLS can redirect to one with it.
        if found.certs.is_empty() && address.is_secure() {
            let reason = found.errors.first().map(ToString::to_string);
            return Err(unavailable(format!(
                "the system has no certificates of authorities: {}",
                reason.unwrap_or_else(|| "SSL_CERT_FILE can name a file".to_owned())
            )));
        }
        let certificates = found.certs.iter();
        let certificates = certificates.map(|found| Certificate::from_der(found).to_owned());
        let certificates: Vec<_> = certificates.collect();
        let tls = TlsConfig::builder()
            .unversioned_rustls_crypto_provider(provider)
            .root_certs(RootCerts::new_with_certs(&certificates));
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(concat!("callbox/", env!("CARGO_PKG_VERSION")))
            // Compressed bytes could become any number of bytes.
            .accept_encoding("identity")
            .timeout_connect(Some(CONNECT_TIME))
            .timeout_per_read(Some(READ_TIME))
            .timeout_global(Some(MOST_TIME))
            .tls_config(tls.build());
        let allowance = Allowance::default();
        let connector = allowance.connector();
        Ok(Self {
            agent: Agent::with_parts(config.build(), connector, DefaultResolver::default()),
            allowance,
            most_time: MOST_TIME,
            until: None,
        })
    }

    /// This client, with a time for all of its requests together.
    pub(crate) fn within(&self, time: Duration) -> Self {
        let until = Instant::now() + time;
        Self {
            until: Some(self.until.map_or(until, |earlier| earlier.min(until))),
            ..self.clone()
        }
    }

    /// Whether the time for all requests is over.
    pub(crate) fn is_late(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }

    /// When a request that begins now ends.
    fn end(&self) -> Instant {
        let end = Instant::now() + self.most_time;
        self.until.map_or(end, |until| until.min(end))
    }

    /// The commit of the repository that the answer about a file is of.
    pub(crate) fn commit(&self, address: &Address, token: Option<&Token>) -> Result<String> {
        let until = self.end();
        let answer = self
            .ask("HEAD", address, token, &[], 0, until)
            .map_err(|attempt| attempt.into_status(address))?;
        let found = header_of(&answer, COMMIT).unwrap_or_default();
        if !answer.status().is_redirection() {
            check_status(address, answer.status().as_u16())?;
        }
        let is_digit = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        if found.len() == 40 && found.bytes().all(is_digit) {
            return Ok(found);
        }
        Err(lie(format!(
            "{address}: expected a commit of 40 hexadecimal digits, found {}",
            quoted(&found)
        )))
    }

    /// Makes one request, whose answer has at most `most` bytes and ends by `until`.
    fn ask(
        &self,
        method: &str,
        address: &Address,
        token: Option<&Token>,
        headers: &[(&'static str, String)],
        most: usize,
        until: Instant,
    ) -> std::result::Result<Response<ureq::Body>, Attempt> {
        let mut request = match method {
            "HEAD" => self.agent.head(address.0.clone()),
            _ => self.agent.get(address.0.clone()),
        };
        if let Some(token) = token {
            request = request.header(header::AUTHORIZATION, token.header());
        }
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        self.allowance.begin(most);
        let left = until.saturating_duration_since(Instant::now());
        let request = request.config().timeout_global(Some(left)).build();
        request.call().map_err(|error| Attempt::of(address, error))
    }
}

/// The header in which the Hub tells the commit.
const COMMIT: &str = "x-repo-commit";

/// Why a try failed.
enum Attempt {
    /// Another one can succeed.
    BrokenOff(String),
    Refused(Status),
}

impl Attempt {
    fn of(address: &Address, error: ureq::Error) -> Self {
        use ureq::Error;
        match error {
            Error::Io(_) | Error::Timeout(_) | Error::ConnectionFailed | Error::BodyStalled => {
                Self::BrokenOff(one_line(&error.to_string()))
            }
            Error::Protocol(_) => Self::BrokenOff("the answer is not HTTP".to_owned()),
            error => unavailable(format!("{address}: {}", one_line(&error.to_string()))).into(),
        }
    }

    fn into_status(self, address: &Address) -> Status {
        match self {
            Self::BrokenOff(problem) => unavailable(format!("{address}: {problem}")),
            Self::Refused(status) => status,
        }
    }
}

impl From<Status> for Attempt {
    fn from(status: Status) -> Self {
        Self::Refused(status)
    }
}

/// The failure of an answer that has no file.
fn check_status(address: &Address, status: u16) -> Result<()> {
    let (code, blame, reason) = match status {
        200..=299 => return Ok(()),
        401 | 403 => (
            StatusCode::PermissionDenied,
            Blame::Caller,
            "the server refuses it: it may need a token, HF_TOKEN for the Hub",
        ),
        404 | 410 => (StatusCode::NotFound, Blame::Caller, "there is no such file"),
        _ => (
            StatusCode::Unavailable,
            Blame::Host,
            "the server cannot answer now",
        ),
    };
    let message = format!("{address}: {reason} (status {status})");
    Err(Status::new(code, blame, message))
}

fn header_of(answer: &Response<ureq::Body>, name: &str) -> Option<String> {
    let value = answer.headers().get(name)?.to_str().ok()?;
    Some(value.to_owned())
}

/// A stranger's text for a message: short, and without characters that control a terminal.
pub(crate) fn quoted(text: &str) -> String {
    let cut = &text[..text.floor_char_boundary(80)];
    let more = if cut.len() < text.len() { "..." } else { "" };
    format!("{:?}", format!("{cut}{more}"))
}

fn one_line(text: &str) -> String {
    crate::text::name(&text[..text.floor_char_boundary(400)])
}

fn unavailable(message: String) -> Status {
    Status::new(StatusCode::Unavailable, Blame::Host, message)
}

pub(crate) fn denied(message: String) -> Status {
    Status::new(StatusCode::PermissionDenied, Blame::Caller, message)
}

/// The failure for a server that contradicts itself.
pub(crate) fn lie(message: String) -> Status {
    Status::new(StatusCode::DataLoss, Blame::Host, message)
}

#[cfg(test)]
mod tests;
