//! The outcome of a call, in XLA's terms.

use std::fmt;

/// What kind of outcome a call had: `absl::StatusCode`, name for name and number for number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum StatusCode {
    /// The call did what it was asked to do.
    Ok = 0,
    /// The caller asked for the call to stop.
    Cancelled = 1,
    /// A failure that has no better code.
    Unknown = 2,
    /// The request is wrong whatever the state of the system.
    InvalidArgument = 3,
    /// The call ran past its deadline.
    DeadlineExceeded = 4,
    /// Something that was named does not exist.
    NotFound = 5,
    /// Something that was to be made exists.
    AlreadyExists = 6,
    /// The policy does not grant what was asked for.
    PermissionDenied = 7,
    /// A limit was reached: memory, stack, instances, sizes.
    ResourceExhausted = 8,
    /// The system is not in the state that the request needs.
    FailedPrecondition = 9,
    /// The call was broken off: a guest trapped or panicked.
    Aborted = 10,
    /// An access or index past what is there.
    OutOfRange = 11,
    /// What was asked for is not supported.
    Unimplemented = 12,
    /// An invariant does not hold.
    Internal = 13,
    /// What is needed is not there now, and may be later.
    Unavailable = 14,
    /// Data is lost or corrupt.
    DataLoss = 15,
    /// The caller is not known.
    Unauthenticated = 16,
}

impl StatusCode {
    /// All codes, in the order of their numbers.
    pub const ALL: [Self; 17] = [
        Self::Ok,
        Self::Cancelled,
        Self::Unknown,
        Self::InvalidArgument,
        Self::DeadlineExceeded,
        Self::NotFound,
        Self::AlreadyExists,
        Self::PermissionDenied,
        Self::ResourceExhausted,
        Self::FailedPrecondition,
        Self::Aborted,
        Self::OutOfRange,
        Self::Unimplemented,
        Self::Internal,
        Self::Unavailable,
        Self::DataLoss,
        Self::Unauthenticated,
    ];

    /// The code's number in XLA and gRPC.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The code with this number, if there is one.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.get(usize::try_from(number).ok()?).copied()
    }

    /// The code's name as XLA prints it: `INVALID_ARGUMENT`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::Cancelled => "CANCELLED",
            Self::Unknown => "UNKNOWN",
            Self::InvalidArgument => "INVALID_ARGUMENT",
            Self::DeadlineExceeded => "DEADLINE_EXCEEDED",
            Self::NotFound => "NOT_FOUND",
            Self::AlreadyExists => "ALREADY_EXISTS",
            Self::PermissionDenied => "PERMISSION_DENIED",
            Self::ResourceExhausted => "RESOURCE_EXHAUSTED",
            Self::FailedPrecondition => "FAILED_PRECONDITION",
            Self::Aborted => "ABORTED",
            Self::OutOfRange => "OUT_OF_RANGE",
            Self::Unimplemented => "UNIMPLEMENTED",
            Self::Internal => "INTERNAL",
            Self::Unavailable => "UNAVAILABLE",
            Self::DataLoss => "DATA_LOSS",
            Self::Unauthenticated => "UNAUTHENTICATED",
        }
    }

    /// The code with this name, if there is one.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.name() == name)
    }
}

impl fmt::Display for StatusCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Whose doing a failure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Blame {
    /// The guest: its module, its targets, what they did and what they reported.
    Guest,
    /// The caller: the program, its inputs, the policy that it chose.
    Caller,
    /// callbox or the machine that it runs on.
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

/// Where a guest was when it failed, innermost function first. Names come from the module's name section: they are
/// the guest's claim, with control characters replaced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Backtrace {
    frames: Vec<String>,
    truncated: bool,
}

impl Backtrace {
    /// A backtrace of these frames, and whether there are more that were left out.
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
    /// A failure that is not recoverable. `code` is not [`StatusCode::Ok`]; where it is, the failure is
    /// [`StatusCode::Internal`], for a failure never passes as a success.
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

    /// [`StatusCode::InvalidArgument`], the caller's doing.
    #[must_use]
    pub fn invalid_argument(message: impl Into<String>) -> Self {
        Self::new(StatusCode::InvalidArgument, Blame::Caller, message)
    }

    /// [`StatusCode::Unimplemented`], the caller's doing.
    #[must_use]
    pub fn unimplemented(message: impl Into<String>) -> Self {
        Self::new(StatusCode::Unimplemented, Blame::Caller, message)
    }

    /// [`StatusCode::NotFound`], the caller's doing.
    #[must_use]
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NotFound, Blame::Caller, message)
    }

    /// [`StatusCode::Internal`], the host's doing: callbox contradicts itself.
    #[must_use]
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::Internal, Blame::Host, message)
    }

    /// The same failure, recoverable or not: whether a later call with other inputs can be expected to succeed.
    #[must_use]
    pub fn with_recoverable(mut self, recoverable: bool) -> Self {
        self.0.recoverable = recoverable;
        self
    }

    /// The same failure, with where the guest was.
    #[must_use]
    pub fn with_backtrace(mut self, backtrace: Backtrace) -> Self {
        self.0.backtrace = Some(backtrace);
        self
    }

    /// The same failure with `context` and a colon before its message: where it happened.
    #[must_use]
    pub fn context(mut self, context: impl fmt::Display) -> Self {
        self.0.message = format!("{context}: {}", self.0.message);
        self
    }

    /// The same failure with another message, made of its own.
    #[must_use]
    pub(crate) fn map_message(mut self, map: impl FnOnce(&str) -> String) -> Self {
        self.0.message = map(&self.0.message);
        self
    }

    /// What kind of failure it is. Never [`StatusCode::Ok`].
    #[must_use]
    pub fn code(&self) -> StatusCode {
        self.0.code
    }

    /// What was expected and what was found. What a guest wrote is capped in length, and its control characters are
    /// replaced.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Whether a later call with other inputs can be expected to succeed, as the target says.
    #[must_use]
    pub fn recoverable(&self) -> bool {
        self.0.recoverable
    }

    /// Whose doing it is.
    #[must_use]
    pub fn blame(&self) -> Blame {
        self.0.blame
    }

    /// Where the guest was, for a failure that broke it off.
    #[must_use]
    pub fn backtrace(&self) -> Option<&Backtrace> {
        self.0.backtrace.as_ref()
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
    fn codes_have_xla_numbers_and_names() {
        for (number, code) in StatusCode::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(code.number()), number);
            assert_eq!(StatusCode::from_number(number as u32), Some(code));
            assert_eq!(StatusCode::from_name(code.name()), Some(code));
        }
        assert_eq!(StatusCode::from_number(17), None);
        assert_eq!(StatusCode::from_number(u32::MAX), None);
    }

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
