//! Requests over HTTP, with limits on what a server can make callbox do.

use std::fmt;
use std::io::Read as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use callbox::{Blame, Result, Status, StatusCode};
use ureq::Agent;
use ureq::http::{Response, Uri, header};
use ureq::tls::{Certificate, RootCerts, TlsConfig};

use crate::progress;

/// How often a download may begin, and the pause before it begins anew.
const TRIES: u32 = 3;
const PAUSE: Duration = Duration::from_secs(1);

/// The most bytes of an address in a message.
const MOST_SHOWN: usize = 400;

/// How many redirects one request may follow.
const MOST_REDIRECTS: usize = 5;

/// The longest time for a connection, between two parts of an answer, and for a file.
const CONNECT_TIME: Duration = Duration::from_secs(30);
const READ_TIME: Duration = Duration::from_secs(60);
const MOST_TIME: Duration = Duration::from_secs(1800);

/// The address of a file: http or https, without a user name or a fragment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address(Uri);

impl Address {
    pub(super) fn parse(text: &str) -> std::result::Result<Self, String> {
        let wrong = || format!("expected an https address, found {}", quoted(text));
        let uri: Uri = text.parse().map_err(|_| wrong())?;
        let authority = uri.authority().ok_or_else(wrong)?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) || authority.host().is_empty() {
            return Err(wrong());
        }
        if authority.as_str().contains('@') || text.contains('#') {
            return Err(format!(
                "expected an address without a user name and without `#`, found one for {}",
                quoted(authority.host())
            ));
        }
        Ok(Self(uri))
    }

    pub(super) fn is_secure(&self) -> bool {
        self.0.scheme_str() == Some("https")
    }

    /// Whether it is of this machine.
    pub(super) fn is_loopback(&self) -> bool {
        let host = self.0.host().unwrap_or_default();
        let ip = host.trim_start_matches('[').trim_end_matches(']');
        let is_loopback = |ip: std::net::IpAddr| ip.is_loopback();
        host == "localhost" || ip.parse().is_ok_and(is_loopback)
    }

    pub(super) fn path(&self) -> &str {
        self.0.path()
    }

    /// The address without its query.
    pub(super) fn text(&self) -> String {
        let (scheme, authority) = (self.0.scheme_str(), self.0.authority());
        let authority = authority.map_or("", |authority| authority.as_str());
        let (scheme, path) = (scheme.unwrap_or_default(), self.0.path());
        format!("{scheme}://{authority}{path}")
    }

    /// The scheme, host and port.
    fn origin(&self) -> (Option<&str>, String, u16) {
        let default = if self.is_secure() { 443 } else { 80 };
        (
            self.0.scheme_str(),
            self.0.host().unwrap_or_default().to_ascii_lowercase(),
            self.0.port_u16().unwrap_or(default),
        )
    }

    /// The address that a redirect from here leads to.
    fn redirected(&self, location: &str) -> std::result::Result<Self, String> {
        if location.starts_with('/') && !location.starts_with("//") {
            let scheme = self.0.scheme_str().unwrap_or_default();
            let authority = self.0.authority().map_or("", |found| found.as_str());
            return Self::parse(&format!("{scheme}://{authority}{location}"));
        }
        Self::parse(location)
    }
}

impl fmt::Display for Address {
    /// Cut, and without the query, which can be a signature that stands for a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.text();
        let cut = &text[..text.floor_char_boundary(MOST_SHOWN)];
        let more = if cut.len() < text.len() { "..." } else { "" };
        write!(f, "{cut}{more}")
    }
}

/// A secret, which is shown nowhere.
#[derive(Clone)]
pub(super) struct Token(String);

impl Token {
    /// `None` if it cannot be the value of a header.
    pub(super) fn new(text: &str) -> Option<Self> {
        let text = text.trim();
        let is_plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic());
        is_plain.then(|| Self(text.to_owned()))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

/// What a request may be answered with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules<'a> {
    pub(super) token: Option<&'a Token>,
    /// Whether another host may have the file: its digest is known.
    pub(super) may_leave: bool,
    /// The text that the path of each address of the first host must have.
    pub(super) within: Option<&'a str>,
    /// The most bytes.
    pub(super) most: usize,
    /// The commit of the repository that the first answer must be of.
    pub(super) commit: Option<&'a str>,
}

/// A client of HTTP.
#[derive(Debug)]
pub(super) struct Client {
    agent: Agent,
    /// The longest time for a file, all tries and redirects included.
    most_time: Duration,
}

impl Client {
    /// A client for addresses like this one. Certificates are checked by those of the system.
    pub(super) fn new(address: &Address) -> Result<Self> {
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
            .tls_config(tls.build());
        Ok(Self {
            agent: config.build().new_agent(),
            most_time: MOST_TIME,
        })
    }

    /// Downloads a file. A download that breaks off begins anew.
    pub(super) fn get(&self, address: &Address, rules: Rules<'_>) -> Result<Vec<u8>> {
        let received = AtomicU64::new(0);
        let until = Instant::now() + self.most_time;
        let text = || {
            let received = received.load(Ordering::Relaxed);
            format!("downloading {address}: {received} bytes")
        };
        progress::show(text, || {
            let mut tries = 1;
            loop {
                received.store(0, Ordering::Relaxed);
                match self.try_get(address, rules, until, &received) {
                    Err(Attempt::BrokenOff(problem))
                        if tries == TRIES || Instant::now() + PAUSE * tries > until =>
                    {
                        return Err(unavailable(format!(
                            "{address}: the download failed {tries} times: {problem}"
                        )));
                    }
                    Err(Attempt::BrokenOff(_)) => std::thread::sleep(PAUSE * tries),
                    Err(Attempt::Refused(status)) => return Err(status),
                    Ok(bytes) => return Ok(bytes),
                }
                tries += 1;
            }
        })
    }

    /// The commit of the repository that the answer about a file is of.
    pub(super) fn commit(&self, address: &Address, token: Option<&Token>) -> Result<String> {
        let rules = Rules {
            token,
            may_leave: false,
            within: None,
            most: 0,
            commit: None,
        };
        let until = Instant::now() + self.most_time;
        let answer = self
            .ask("HEAD", address, rules, until)
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

    fn try_get(
        &self,
        address: &Address,
        rules: Rules<'_>,
        until: Instant,
        received: &AtomicU64,
    ) -> std::result::Result<Vec<u8>, Attempt> {
        let (mut at, mut rules) = (address.clone(), rules);
        for _ in 0..=MOST_REDIRECTS {
            let answer = self.ask("GET", &at, rules, until)?;
            if let Some(commit) = rules.commit.take() {
                let found = header_of(&answer, COMMIT).unwrap_or_default();
                if answer.status().as_u16() < 400 && found != commit {
                    let found = quoted(&found);
                    let message = format!("{at}: expected the commit {commit}, found {found}");
                    return Err(lie(message).into());
                }
            }
            if answer.status().is_redirection() {
                let location = header_of(&answer, header::LOCATION.as_str()).unwrap_or_default();
                let next = at
                    .redirected(&location)
                    .map_err(|message| lie(format!("{at} redirects to no address: {message}")))?;
                check_redirect(&at, &next, &mut rules)?;
                at = next;
                continue;
            }
            check_status(&at, answer.status().as_u16())?;
            return receive(&at, answer, rules.most, received);
        }
        let message = format!("{address}: expected at most {MOST_REDIRECTS} redirects, found more");
        Err(unavailable(message).into())
    }

    /// Makes one request, whose answer ends by `until`.
    fn ask(
        &self,
        method: &str,
        address: &Address,
        rules: Rules<'_>,
        until: Instant,
    ) -> std::result::Result<Response<ureq::Body>, Attempt> {
        let mut request = match method {
            "HEAD" => self.agent.head(address.0.clone()),
            _ => self.agent.get(address.0.clone()),
        };
        if let Some(token) = rules.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {}", token.0));
        }
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

/// Checks a redirect. Another host gets no token.
fn check_redirect(from: &Address, to: &Address, rules: &mut Rules<'_>) -> Result<()> {
    if from.is_secure() && !to.is_secure() {
        return Err(denied(format!("{from} redirects from https to {to}")));
    }
    if from.origin() != to.origin() {
        if !rules.may_leave {
            return Err(denied(format!(
                "{from} redirects to another host, {to}: name that address, or add #sha256:DIGEST"
            )));
        }
        rules.token = None;
        rules.within = None;
    }
    match rules.within {
        Some(within) if !to.path().contains(within) => Err(denied(format!(
            "{from} redirects to {to}, which is of another repository: name that one to use it"
        ))),
        _ => Ok(()),
    }
}

/// Reads the body of an answer.
fn receive(
    address: &Address,
    answer: Response<ureq::Body>,
    most: usize,
    received: &AtomicU64,
) -> std::result::Result<Vec<u8>, Attempt> {
    let too_large = |found: String| -> Attempt {
        let message = format!("{address}: expected at most {most} bytes, found {found}");
        Status::new(StatusCode::ResourceExhausted, Blame::Guest, message).into()
    };
    let mut body = answer.into_body();
    let said = body.content_length();
    if let Some(said) = said.filter(|&said| said > most as u64) {
        return Err(too_large(said.to_string()));
    }
    let mut bytes = Vec::new();
    let mut reader = body.as_reader();
    let mut piece = vec![0; 64 << 10];
    loop {
        let count = reader.read(&mut piece);
        let count = count.map_err(|error| Attempt::BrokenOff(one_line(&error.to_string())))?;
        if count == 0 {
            break;
        }
        if count > most - bytes.len() {
            return Err(too_large("more".to_owned()));
        }
        bytes.extend_from_slice(&piece[..count]);
        received.store(bytes.len() as u64, Ordering::Relaxed);
    }
    match said {
        Some(said) if (bytes.len() as u64) < said => Err(Attempt::BrokenOff(format!(
            "expected {said} bytes, found {}",
            bytes.len()
        ))),
        _ => Ok(bytes),
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
pub(super) fn quoted(text: &str) -> String {
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

pub(super) fn denied(message: String) -> Status {
    Status::new(StatusCode::PermissionDenied, Blame::Caller, message)
}

/// The failure for a server that contradicts itself.
pub(super) fn lie(message: String) -> Status {
    Status::new(StatusCode::DataLoss, Blame::Host, message)
}

#[cfg(test)]
mod tests;
