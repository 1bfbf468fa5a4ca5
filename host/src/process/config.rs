//! How a sandbox is made.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::policy::Policy;
use crate::wasm::LogRecord;

/// Where a guest's log messages go.
pub(super) type LogSink = Arc<dyn Fn(&LogRecord<'_>) + Send + Sync>;

/// How a [`Sandbox`](super::Sandbox) is made.
#[derive(Clone)]
pub struct SandboxConfig {
    /// What guests may take, do and reach. Nothing of WASI can be granted across this wall.
    pub policy: Policy,
    /// The program that workers are.
    pub worker: Worker,
    /// Where those of guests' log messages go that the policy grants. Without it they are dropped.
    pub log: Option<LogSink>,
}

impl SandboxConfig {
    /// The default policy.
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

/// A program that does nothing but call [`worker_main`](super::worker_main), when it is started so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Worker {
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<OsString>,
}

impl Worker {
    /// The program at this path, started with these arguments. It is of the same version of callbox.
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

    /// This very program, started with these arguments, also if its file was replaced meanwhile.
    #[must_use]
    pub fn this_program<A: Into<OsString>>(arguments: impl IntoIterator<Item = A>) -> Self {
        Self::new("/proc/self/exe", arguments)
    }
}
