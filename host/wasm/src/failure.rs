//! Constructors for common statuses.

use callbox_core::values::{Blame, Status, StatusCode};

/// A status of this code and blame, with a formatted message.
macro_rules! status {
    ($code:ident, $blame:ident, $($message:tt)+) => {
        callbox_core::values::Status::new(
            callbox_core::values::StatusCode::$code,
            callbox_core::values::Blame::$blame,
            format!($($message)+),
        )
    };
}
pub(crate) use status;

/// INVALID_ARGUMENT, blamed on the guest.
pub(crate) fn invalid(message: impl Into<String>) -> Status {
    Status::new(StatusCode::InvalidArgument, Blame::Guest, message)
}

/// RESOURCE_EXHAUSTED, blamed on the guest.
pub(crate) fn exhausted(message: impl Into<String>) -> Status {
    Status::new(StatusCode::ResourceExhausted, Blame::Guest, message)
}

/// RESOURCE_EXHAUSTED, blamed on the caller.
pub(crate) fn caller_exhausted(message: impl Into<String>) -> Status {
    Status::new(StatusCode::ResourceExhausted, Blame::Caller, message)
}

/// RESOURCE_EXHAUSTED, blamed on the host.
pub(crate) fn host_exhausted(message: impl Into<String>) -> Status {
    Status::new(StatusCode::ResourceExhausted, Blame::Host, message)
}
