//! Addresses of http and https.

use std::fmt;

use ureq::http::Uri;

use super::quoted;

/// The most bytes of an address in a message.
pub(super) const MOST_SHOWN: usize = 400;

/// The address of a file: http or https, without a user name or a fragment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address(pub(super) Uri);

impl Address {
    pub(crate) fn parse(text: &str) -> std::result::Result<Self, String> {
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

    pub(crate) fn is_secure(&self) -> bool {
        self.0.scheme_str() == Some("https")
    }

    /// Whether it is of this machine.
    pub(crate) fn is_loopback(&self) -> bool {
        let host = self.0.host().unwrap_or_default();
        let ip = host.trim_start_matches('[').trim_end_matches(']');
        let is_loopback = |ip: std::net::IpAddr| ip.is_loopback();
        host == "localhost" || ip.parse().is_ok_and(is_loopback)
    }

    pub(crate) fn authority(&self) -> &str {
        self.0.authority().map_or("", |found| found.as_str())
    }

    pub(crate) fn path(&self) -> &str {
        self.0.path()
    }

    /// The address without its query.
    pub(crate) fn text(&self) -> String {
        let scheme = self.0.scheme_str().unwrap_or_default();
        let (authority, path) = (self.authority(), self.path());
        format!("{scheme}://{authority}{path}")
    }

    pub(crate) fn has_query(&self) -> bool {
        self.0.query().is_some()
    }

    /// The address with this text at the end of its query.
    pub(crate) fn with_query(&self, query: &str) -> std::result::Result<Self, String> {
        let mark = if self.has_query() { '&' } else { '?' };
        Self::parse(&format!("{}{mark}{query}", self.0))
    }

    /// The scheme, host and port.
    pub(crate) fn origin(&self) -> (Option<&str>, String, u16) {
        let default = if self.is_secure() { 443 } else { 80 };
        (
            self.0.scheme_str(),
            self.0.host().unwrap_or_default().to_ascii_lowercase(),
            self.0.port_u16().unwrap_or(default),
        )
    }

    /// The address that a redirect or a link from here leads to.
    pub(crate) fn redirected(&self, location: &str) -> std::result::Result<Self, String> {
        if location.starts_with('/') && !location.starts_with("//") {
            let scheme = self.0.scheme_str().unwrap_or_default();
            return Self::parse(&format!("{scheme}://{}{location}", self.authority()));
        }
        if location.starts_with('?') {
            return Self::parse(&format!("{}{location}", self.text()));
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
