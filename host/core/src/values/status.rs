//! The outcome of a call, in XLA's terms.

use std::fmt;

use callbox_abi::{StatusCode, UnknownName};
use serde::{Deserialize, Serialize};

/// The party that caused a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Blame {
    /// The guest: its module, or what its targets did or reported.
    Guest,
    /// The caller: the program, its inputs, the policy that it chose.
    Caller,
    /// callbox, or the machine that it runs on.
    Host,
}

impl Blame {
    /// The lower-case name: `guest`, `caller` or `host`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Guest => "guest",
            Self::Caller => "caller",
            Self::Host => "host",
        }
    }
}

impl fmt::Display for Blame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The functions of a guest that were running when it failed, the innermost first.
///
/// Names come from the module's name section: the guest chooses them. Control characters are
/// replaced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backtrace {
    frames: Vec<String>,
    truncated: bool,
}

impl Backtrace {
    /// A backtrace of these frames. `truncated` says whether outer frames were left out.
    #[must_use]
    pub fn new(frames: Vec<String>, truncated: bool) -> Self {
        Self { frames, truncated }
    }

    /// The functions' names, innermost first.
    #[must_use]
    pub fn frames(&self) -> &[String] {
        &self.frames
    }

    /// Whether outer frames were left out.
    #[must_use]
    pub fn is_truncated(&self) -> bool {
        self.truncated
    }
}

impl fmt::Display for Backtrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, frame) in self.frames.iter().enumerate() {
            writeln!(f, "  {index}: {frame}")?;
        }
        if self.truncated {
            writeln!(f, "  ... and more")?;
        }
        Ok(())
    }
}

/// A failure: never [`StatusCode::Ok`]. Success is `Ok(..)` of a [`Result`](crate::Result).
#[derive(Clone, PartialEq, Eq)]
pub struct Status(Box<Failure>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Failure {
    code: StatusCode,
    message: String,
    recoverable: bool,
    blame: Blame,
    backtrace: Option<Backtrace>,
}

impl Status {
    /// A failure that is not recoverable. A `code` of [`StatusCode::Ok`] becomes
    /// [`StatusCode::Internal`], so that a failure never passes as a success.
    #[must_use]
    pub fn new(code: StatusCode, blame: Blame, message: impl Into<String>) -> Self {
        debug_assert!(code != StatusCode::Ok, "a failure has a code other than OK");
        let code = match code {
            StatusCode::Ok => StatusCode::Internal,
            code => code,
        };
        Self(Box::new(Failure {
            code,
            message: message.into(),
            recoverable: false,
            blame,
            backtrace: None,
        }))
    }

    /// A failure with [`StatusCode::InvalidArgument`], caused by the caller.
    #[must_use]
    pub fn invalid_argument(message: impl Into<String>) -> Self {
        Self::new(StatusCode::InvalidArgument, Blame::Caller, message)
    }

    /// A failure with [`StatusCode::Unimplemented`], caused by the caller.
    #[must_use]
    pub fn unimplemented(message: impl Into<String>) -> Self {
        Self::new(StatusCode::Unimplemented, Blame::Caller, message)
    }

    /// A failure with [`StatusCode::NotFound`], caused by the caller.
    #[must_use]
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NotFound, Blame::Caller, message)
    }

    /// A failure with [`StatusCode::Internal`], caused by the host: a bug in callbox.
    #[must_use]
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::Internal, Blame::Host, message)
    }

    /// Sets whether a later call with other inputs can be expected to succeed.
    #[must_use]
    pub fn with_recoverable(mut self, recoverable: bool) -> Self {
        self.0.recoverable = recoverable;
        self
    }

    /// Adds the guest's backtrace.
    #[must_use]
    pub fn with_backtrace(mut self, backtrace: Backtrace) -> Self {
        self.0.backtrace = Some(backtrace);
        self
    }

    /// Prefixes the message with `context` and a colon.
    #[must_use]
    pub fn context(mut self, context: impl fmt::Display) -> Self {
        self.0.message = format!("{context}: {}", self.0.message);
        self
    }

    /// Replaces the message by `map` of it.
    #[must_use]
    pub fn map_message(mut self, map: impl FnOnce(&str) -> String) -> Self {
        self.0.message = map(&self.0.message);
        self
    }

    /// The kind of failure. Never [`StatusCode::Ok`].
    #[must_use]
    pub fn code(&self) -> StatusCode {
        self.0.code
    }

    /// The message. Text from a guest is limited in length, and its control characters are
    /// replaced.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Whether the target reported that a later call with other inputs can be expected to succeed.
    #[must_use]
    pub fn recoverable(&self) -> bool {
        self.0.recoverable
    }

    /// The party that caused it.
    #[must_use]
    pub fn blame(&self) -> Blame {
        self.0.blame
    }

    /// Whether a call failed for a lack of what others take: RESOURCE_EXHAUSTED, blamed on the
    /// caller.
    #[must_use]
    pub fn is_lack(&self) -> bool {
        self.code() == StatusCode::ResourceExhausted && self.blame() == Blame::Caller
    }

    /// The guest's backtrace, if the failure interrupted it.
    #[must_use]
    pub fn backtrace(&self) -> Option<&Backtrace> {
        self.0.backtrace.as_ref()
    }
}

impl From<UnknownName> for Status {
    fn from(error: UnknownName) -> Self {
        Self::invalid_argument(error.to_string())
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.code, self.0.message)
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Status")
            .field("code", &self.0.code)
            .field("message", &self.0.message)
            .field("recoverable", &self.0.recoverable)
            .field("blame", &self.0.blame)
            .field("backtrace", &self.0.backtrace)
            .finish()
    }
}

impl std::error::Error for Status {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn context_goes_before_the_message() {
        let status = Status::invalid_argument("expected 2 operands, found 1").context("%add.1");
        assert_eq!(
            status.to_string(),
            "INVALID_ARGUMENT: %add.1: expected 2 operands, found 1"
        );
        assert_eq!(status.blame(), Blame::Caller);
    }
}
