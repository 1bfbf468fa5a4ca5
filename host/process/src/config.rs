//! The configuration of a sandbox.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use callbox_core::policy::Policy;
use callbox_wasm::LogRecord;

/// A function that receives guests' log messages.
pub(super) type LogSink = Arc<dyn Fn(&LogRecord<'_>) + Send + Sync>;

/// The configuration of a [`Sandbox`](super::Sandbox).
#[derive(Clone)]
pub struct SandboxConfig {
    /// The limits and grants of guests. Grants of WASI are refused: workers have neither files nor
    /// clocks nor random bytes.
    pub policy: Policy,
    /// The program that is started as a worker.
    pub worker: Worker,
    /// Receives the log messages that the policy grants. Without a sink they are dropped.
    pub log: Option<LogSink>,
}

impl SandboxConfig {
    /// A configuration with the default policy and without a log sink.
    #[must_use]
    pub fn new(worker: Worker) -> Self {
        Self {
            policy: Policy::default(),
            worker,
            log: None,
        }
    }
}

impl fmt::Debug for SandboxConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SandboxConfig")
            .field("policy", &self.policy)
            .field("worker", &self.worker)
            .field("log", &self.log.is_some())
            .finish()
    }
}

/// A program that calls [`worker_main`](super::worker_main) when it is started with these
/// arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Worker {
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<OsString>,
}

impl Worker {
    /// The program at this path. It must be built with the same version of callbox.
    #[must_use]
    pub fn new<A: Into<OsString>>(
        program: impl Into<PathBuf>,
        arguments: impl IntoIterator<Item = A>,
    ) -> Self {
        Self {
            program: program.into(),
            arguments: arguments.into_iter().map(Into::into).collect(),
        }
    }

    /// The running program itself, even if its file has been replaced.
    #[must_use]
    pub fn this_program<A: Into<OsString>>(arguments: impl IntoIterator<Item = A>) -> Self {
        Self::new("/proc/self/exe", arguments)
    }
}
