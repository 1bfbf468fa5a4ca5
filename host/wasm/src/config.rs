//! The configuration of an engine: the policy, the log's sink and the cache.

use std::fmt;
use std::sync::Arc;

use callbox_core::call::Threads;
use callbox_core::policy::{LogLevel, Policy};
use callbox_core::values::Status;

#[cfg(feature = "cache")]
use crate::cache::Cache;
use crate::compiler::Compiler;

/// The configuration of an [`Engine`](crate::Engine).
#[derive(Clone, Default)]
pub struct Config {
    /// Limits, grants and isolation of guests.
    pub policy: Policy,
    /// Receives the log messages that the policy grants. Default: `None`, which discards them.
    pub log: Option<LogSink>,
    /// Threads that help with the elements and pieces of large calls. Default: `None`, for a pool
    /// of callbox's own that all engines of the process share, with a thread for each processor
    /// except that of the caller. Its threads start when they are first needed.
    pub threads: Option<Arc<dyn Threads>>,
    /// Keeps compiled modules. Default: `None`, which compiles each module when it is loaded.
    #[cfg(feature = "cache")]
    pub cache: Option<Arc<Cache>>,
    /// Compiles modules in another process. Default: `None`, which compiles them in this one. With
    /// the feature `process`, `callbox::process::CompilerProcess` is such a compiler.
    pub compiler: Option<Arc<dyn Compiler>>,
    /// Receives, once, the reason why `compiler` cannot be used and modules are compiled in this
    /// process. Default: `None`. Each module's
    /// [`compiled_in`](crate::Module::compiled_in) also has the reason.
    pub compile_report: Option<CompileReportSink>,
}

/// A function that receives the reason why modules are compiled in this process.
pub type CompileReportSink = Arc<dyn Fn(&Status) + Send + Sync>;

/// A function that receives guests' log messages.
pub(crate) type LogSink = Arc<dyn Fn(&LogRecord<'_>) + Send + Sync>;

/// A guest's log message.
#[derive(Debug)]
pub struct LogRecord<'a> {
    /// The level that the guest gave.
    pub level: LogLevel,
    /// The guest's text, cut to the limit. Control characters other than line ends and tabs are
    /// replaced.
    pub message: &'a str,
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut config = f.debug_struct("Config");
        config
            .field("policy", &self.policy)
            .field("log", &self.log.is_some())
            .field("threads", &self.threads);
        #[cfg(feature = "cache")]
        config.field("cache", &self.cache);
        config
            .field("compiler", &self.compiler)
            .field("compile_report", &self.compile_report.is_some());
        config.finish()
    }
}
