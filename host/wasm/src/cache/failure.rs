//! The cache's statuses, all blamed on the host.

use callbox_core::values::{Blame, Status, StatusCode};

/// PERMISSION_DENIED, for files that others can access.
pub(super) fn denied(message: impl Into<String>) -> Status {
    Status::new(StatusCode::PermissionDenied, Blame::Host, message)
}

/// DATA_LOSS, for files that were altered.
pub(super) fn corrupt(message: impl Into<String>) -> Status {
    Status::new(StatusCode::DataLoss, Blame::Host, message)
}
