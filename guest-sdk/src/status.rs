//! Failures of a target.

use alloc::borrow::Cow;
use alloc::string::String;
use core::fmt;

use callbox_abi::StatusCode;

use crate::text::text;

/// The failure of a call, which a target returns as `Err` and the caller receives as a status.
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
    /// The number of the function call that failed, or 0 for the target's own failure.
    function_call: u32,
    message: Cow<'static, str>,
}

impl Failure {
    /// Returns a failure with this code and message. [`StatusCode::Ok`] becomes
    /// [`StatusCode::Unknown`], because no failure is OK.
    ///
    /// ```
    /// use callbox_guest::{Failure, StatusCode};
    ///
    /// let failure = Failure::new(StatusCode::DataLoss, "the file ends early");
    /// assert_eq!(failure, Failure::data_loss("the file ends early"));
    /// ```
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

    /// Returns the failure of a called function. `call` is the number of the function call.
    #[cold]
    pub(crate) fn of_function(code: StatusCode, message: String, call: u32) -> Self {
        Self {
            function_call: call,
            ..Self::new(code, message)
        }
    }

    /// Returns the number of the function call that failed, or 0 for the target's own failure.
    pub(crate) const fn function_call(&self) -> u32 {
        self.function_call
    }

    /// Tells the caller that a later call with other inputs may succeed.
    ///
    /// ```
    /// use callbox_guest::Failure;
    ///
    /// let failure = Failure::out_of_range("expected a smaller image").recoverable();
    /// assert!(failure.is_recoverable());
    /// ```
    #[must_use]
    pub fn recoverable(mut self) -> Self {
        self.is_recoverable = true;
        self.function_call = 0;
        self
    }

    /// Returns the code, which is never [`StatusCode::Ok`].
    ///
    /// ```
    /// use callbox_guest::{Failure, StatusCode};
    ///
    /// assert_eq!(Failure::internal("").code(), StatusCode::Internal);
    /// ```
    #[must_use]
    pub const fn code(&self) -> StatusCode {
        self.code
    }

    /// Returns the message.
    ///
    /// ```
    /// use callbox_guest::Failure;
    ///
    /// assert_eq!(Failure::internal("no sum").message(), "no sum");
    /// ```
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns whether a later call with other inputs may succeed.
    ///
    /// ```
    /// use callbox_guest::Failure;
    ///
    /// assert!(!Failure::internal("").is_recoverable());
    /// ```
    #[must_use]
    pub const fn is_recoverable(&self) -> bool {
        self.is_recoverable
    }
}

/// Declares a constructor of [`Failure`] for each status code.
macro_rules! constructors {
    ($($constructor:ident: $variant:ident,)*) => {
        impl Failure {
            $(
                #[doc = concat!("A failure with [`StatusCode::", stringify!($variant), "`].")]
                ///
                /// ```
                /// use callbox_guest::{Failure, StatusCode};
                ///
                #[doc = concat!("let failure = Failure::", stringify!($constructor), "(\"why\");")]
                #[doc = concat!(
                    "assert_eq!(failure.code(), StatusCode::", stringify!($variant), ");"
                )]
                /// ```
                #[must_use]
                #[cold]
                pub fn $constructor(message: impl Into<Cow<'static, str>>) -> Self {
                    Self::new(StatusCode::$variant, message)
                }
            )*
        }
    };
}

constructors! {
    cancelled: Cancelled,
    unknown: Unknown,
    invalid_argument: InvalidArgument,
    deadline_exceeded: DeadlineExceeded,
    not_found: NotFound,
    already_exists: AlreadyExists,
    permission_denied: PermissionDenied,
    resource_exhausted: ResourceExhausted,
    failed_precondition: FailedPrecondition,
    aborted: Aborted,
    out_of_range: OutOfRange,
    unimplemented: Unimplemented,
    internal: Internal,
    unavailable: Unavailable,
    data_loss: DataLoss,
    unauthenticated: Unauthenticated,
}

impl PartialEq for Failure {
    /// Compares what the caller sees. The origin of the failure does not matter.
    fn eq(&self, other: &Self) -> bool {
        self.code == other.code
            && self.is_recoverable == other.is_recoverable
            && self.message == other.message
    }
}

impl Eq for Failure {}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code.name(), self.message)
    }
}

impl core::error::Error for Failure {}

/// The return type of a target: `()` or `Result<(), Failure>`.
///
/// ```
/// use callbox_guest::{Failure, Outcome};
///
/// assert_eq!(().into_result(), Ok(()));
/// let failure = Failure::internal("no sum");
/// assert_eq!(Err(failure.clone()).into_result(), Err(failure));
/// ```
#[diagnostic::on_unimplemented(
    message = "a target does not return `{Self}`",
    label = "expected `()` or `Result<(), callbox_guest::Failure>`",
    note = "a target writes its results into its `ResultBuffer` parameters"
)]
pub trait Outcome {
    /// Converts the outcome to a `Result`.
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

/// Returns XLA's message for a wrong count.
#[cold]
pub(crate) fn wrong_count(what: &str, expected: &str, found: usize) -> String {
    text![
        "Wrong number of ",
        what,
        ": expected ",
        expected,
        " but got ",
        found
    ]
}

/// Returns the numbers that are allowed: `2`, or `1 to 2`.
#[cold]
pub(crate) fn range(least: usize, most: usize) -> String {
    if least == most {
        text![most]
    } else {
        text![least, " to ", most]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_never_ok() {
        assert_eq!(Failure::new(StatusCode::Ok, "").code(), StatusCode::Unknown);
    }
}
