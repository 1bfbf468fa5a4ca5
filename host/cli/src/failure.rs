//! The error of a command: a status, and whether the usage is wrong.

use std::fmt::Display;
use std::io;
use std::process::ExitCode;

use callbox::{Blame, Status, StatusCode};

/// The exit code for wrong usage, which clap uses too.
pub(super) const USAGE: u8 = 2;

/// The exit code for every other failure.
pub(super) const FAILED: u8 = 1;

/// The result of a step of a command.
pub(super) type Outcome<T> = Result<T, Failure>;

/// Why a command failed. A status converts into a failure that is not wrong usage.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    status: Status,
    is_usage: bool,
}

impl Failure {
    /// Wrong usage: a wrong argument, or one that names a file or folder that cannot be opened.
    pub(super) fn usage(status: Status) -> Self {
        Self {
            status,
            is_usage: true,
        }
    }

    /// A named file or folder cannot be used: `expected` says for what.
    pub(super) fn file(expected: impl Display, error: &io::Error) -> Self {
        let (code, blame) = code(error.kind());
        Self::usage(Status::new(code, blame, format!("{expected}: {error}")))
    }

    /// The same failure with `context` and a colon before its message.
    pub(super) fn context(mut self, context: impl Display) -> Self {
        self.status = self.status.context(context);
        self
    }

    pub(super) fn status(&self) -> &Status {
        &self.status
    }

    pub(super) fn exit_code(&self) -> ExitCode {
        ExitCode::from(if self.is_usage { USAGE } else { FAILED })
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self {
            status,
            is_usage: false,
        }
    }
}

/// The status code and blame nearest to an operating system's error.
fn code(kind: io::ErrorKind) -> (StatusCode, Blame) {
    use io::ErrorKind as Kind;
    match kind {
        Kind::NotFound => (StatusCode::NotFound, Blame::Caller),
        Kind::PermissionDenied | Kind::ReadOnlyFilesystem => {
            (StatusCode::PermissionDenied, Blame::Caller)
        }
        Kind::StorageFull | Kind::QuotaExceeded | Kind::FileTooLarge | Kind::OutOfMemory => {
            (StatusCode::ResourceExhausted, Blame::Host)
        }
        Kind::AlreadyExists
        | Kind::NotADirectory
        | Kind::IsADirectory
        | Kind::InvalidFilename
        | Kind::InvalidInput => (StatusCode::InvalidArgument, Blame::Caller),
        _ => (StatusCode::Unavailable, Blame::Host),
    }
}
