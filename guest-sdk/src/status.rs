//! How a target fails.

use alloc::borrow::Cow;
use alloc::string::String;
use core::fmt;

/// Declares the codes and, for each, the constructor of a [`Failure`].
macro_rules! status_codes {
    ($($(#[$doc:meta])* $variant:ident = $number:literal, $name:literal, $constructor:ident;)*) => {
        /// The kind of outcome that a call has: `absl::StatusCode`, name for name and number for number.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum StatusCode {
            /// The call did what it was asked to do.
            Ok = 0,
            $($(#[$doc])* $variant = $number,)*
        }

        impl StatusCode {
            /// The code with this number, if there is one.
            #[must_use]
            pub const fn from_number(number: u32) -> Option<Self> {
                match number { 0 => Some(Self::Ok), $($number => Some(Self::$variant),)* _ => None }
            }

            /// The name in XLA's messages: `INVALID_ARGUMENT`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { Self::Ok => "OK", $(Self::$variant => $name,)* }
            }
        }

        impl Failure {
            $(
                #[doc = concat!("A failure with code ", $name, ".")]
                #[must_use]
                #[cold]
                pub fn $constructor(message: impl Into<Cow<'static, str>>) -> Self {
                    Self::new(StatusCode::$variant, message)
                }
            )*
        }
    };
}

status_codes! {
    /// The caller asked for the call to stop.
    Cancelled = 1, "CANCELLED", cancelled;
    /// A failure that has no better code.
    Unknown = 2, "UNKNOWN", unknown;
    /// The request is wrong whatever the state of the system.
    InvalidArgument = 3, "INVALID_ARGUMENT", invalid_argument;
    /// The call ran past its deadline.
    DeadlineExceeded = 4, "DEADLINE_EXCEEDED", deadline_exceeded;
    /// Something that was named does not exist.
    NotFound = 5, "NOT_FOUND", not_found;
    /// Something that was to be made exists.
    AlreadyExists = 6, "ALREADY_EXISTS", already_exists;
    /// The caller may not do this.
    PermissionDenied = 7, "PERMISSION_DENIED", permission_denied;
    /// A limit was reached.
    ResourceExhausted = 8, "RESOURCE_EXHAUSTED", resource_exhausted;
    /// The system is not in the state that the request needs.
    FailedPrecondition = 9, "FAILED_PRECONDITION", failed_precondition;
    /// The call was broken off.
    Aborted = 10, "ABORTED", aborted;
    /// An access or index past what is there.
    OutOfRange = 11, "OUT_OF_RANGE", out_of_range;
    /// What was asked for is not supported.
    Unimplemented = 12, "UNIMPLEMENTED", unimplemented;
    /// An invariant does not hold.
    Internal = 13, "INTERNAL", internal;
    /// What is needed is not there now, and may be later.
    Unavailable = 14, "UNAVAILABLE", unavailable;
    /// Data is lost or corrupt.
    DataLoss = 15, "DATA_LOSS", data_loss;
    /// The caller is not known.
    Unauthenticated = 16, "UNAUTHENTICATED", unauthenticated;
}

/// Why a target did not do what it was asked to do: what it returns as `Err`, and what the caller gets as a status.
///
/// There is one constructor for each code:
///
/// ```
/// use callbox_guest::Failure;
///
/// let failure = Failure::invalid_argument("Info must be >= 0").recoverable();
/// assert_eq!(failure.to_string(), "INVALID_ARGUMENT: Info must be >= 0");
/// ```
#[derive(Clone, Debug)]
pub struct Failure {
    code: StatusCode,
    is_recoverable: bool,
    /// The number of the call of a function that failed so; 0 if it is the target's own.
    function_call: u32,
    message: Cow<'static, str>,
}

impl Failure {
    /// A failure with this code and message. Take [`StatusCode::Ok`] for [`StatusCode::Unknown`]: no failure is OK.
    #[must_use]
    #[cold]
    pub fn new(code: StatusCode, message: impl Into<Cow<'static, str>>) -> Self {
        let code = match code {
            StatusCode::Ok => StatusCode::Unknown,
            code => code,
        };
        Self {
            code,
            is_recoverable: false,
            function_call: 0,
            message: message.into(),
        }
    }

    /// The failure of a function that was called back. `call` is the call's number.
    #[cold]
    pub(crate) fn of_function(code: StatusCode, message: String, call: u32) -> Self {
        Self {
            function_call: call,
            ..Self::new(code, message)
        }
    }

    /// The number that [`Failure::of_function`] was given; 0 if it is the target's own.
    pub(crate) const fn function_call(&self) -> u32 {
        self.function_call
    }

    /// Says that the caller can expect a later call with other inputs to succeed.
    #[must_use]
    pub fn recoverable(mut self) -> Self {
        self.is_recoverable = true;
        self.function_call = 0;
        self
    }

    /// The code, never [`StatusCode::Ok`].
    #[must_use]
    pub const fn code(&self) -> StatusCode {
        self.code
    }

    /// The message.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Whether the caller can expect a later call with other inputs to succeed.
    #[must_use]
    pub const fn is_recoverable(&self) -> bool {
        self.is_recoverable
    }
}

impl PartialEq for Failure {
    /// Where a failure comes from is no part of what it says.
    fn eq(&self, other: &Self) -> bool {
        let said = |failure: &Self| (failure.code, failure.is_recoverable);
        said(self) == said(other) && self.message == other.message
    }
}

impl Eq for Failure {}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code.name(), self.message)
    }
}

impl core::error::Error for Failure {}

/// What a target may return: nothing, or `Result<(), Failure>`.
#[diagnostic::on_unimplemented(
    message = "a target does not return `{Self}`",
    label = "expected `()` or `Result<(), callbox_guest::Failure>`",
    note = "a target writes its results into its `ResultBuffer` parameters"
)]
pub trait Outcome {
    /// The outcome in its general form.
    ///
    /// # Errors
    /// The failure that the target returned.
    fn into_result(self) -> Result<(), Failure>;
}

impl Outcome for () {
    fn into_result(self) -> Result<(), Failure> {
        Ok(())
    }
}

impl Outcome for Result<(), Failure> {
    fn into_result(self) -> Result<(), Failure> {
        self
    }
}

/// A message of XLA's form for something of which there is more or less than was expected.
#[cold]
pub(crate) fn wrong_count(what: &str, expected: &str, found: usize) -> String {
    alloc::format!("Wrong number of {what}: expected {expected} but got {found}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_absls() {
        assert_eq!(StatusCode::from_number(0), Some(StatusCode::Ok));
        for number in 1..=16 {
            assert!(StatusCode::from_number(number).is_some_and(|code| code as u32 == number));
        }
        assert_eq!(StatusCode::from_number(17), None);
        assert_eq!(StatusCode::Unauthenticated as u8, 16);
    }

    #[test]
    fn a_failure_is_never_ok() {
        assert_eq!(Failure::new(StatusCode::Ok, "").code(), StatusCode::Unknown);
    }
}
