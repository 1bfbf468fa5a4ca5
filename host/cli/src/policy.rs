//! The policy of a command: a file's, overridden by flags.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use callbox::policy::{Isolation, LogLevel, Policy, Traps};
use callbox::wasm::Config;
#[cfg(feature = "cache")]
use callbox::wasm::{Cache, CacheOptions};
use callbox::{CallOptions, Deadline, Status};
use callbox_package::Trust;

use super::arguments;
use super::backend::{Backend, Wall};
use super::failure::{Failure, Outcome};
use super::lock::Lock;
use super::{interrupt, left_out, output, regular_file, signing};

/// The largest file of a policy that is read.
const MOST_BYTES: usize = 1 << 20;

/// The flags that limit and grant.
#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Policy, of which CUDA has the deadline and the field gpu alone")]
pub(super) struct PolicyArguments {
    /// Load no code but what this lock names, with the digests that it has: see `callbox lock`
    #[arg(long, value_name = "FILE.lock")]
    lock: Option<PathBuf>,

    /// Load no module unless the keys have signed it that these rules ask for: see `callbox sign`
    #[arg(long, value_name = "FILE.json")]
    trust: Option<PathBuf>,

    /// Read the policy from a file: limits, isolation, traps and grants. The flags below override
    /// it; `callbox policy` shows the whole policy
    #[arg(long, value_name = "FILE.json")]
    policy: Option<PathBuf>,

    /// Stop after this long, with DEADLINE_EXCEEDED: 500ms, 10s, 1.5s, 2m. Reading files does not
    /// count. If left out, each custom call may take 10s
    #[arg(long, value_name = "DURATION", value_parser = arguments::duration)]
    deadline: Option<Duration>,

    /// The linear memory that an instance of a module may have, at most 4GiB: 65536, 256MiB. If
    /// left out, 1GiB
    #[arg(long, value_name = "SIZE", value_parser = arguments::size)]
    memory_limit: Option<usize>,

    /// Show the log messages of guests, down to this level: error, warn, info, debug or trace. If
    /// left out, none
    #[arg(long, value_name = "LEVEL", value_parser = level)]
    log: Option<LogLevel>,

    /// What an instance of a module serves: an executable (if left out), or fresh, a single call
    #[arg(long, value_name = "KIND", value_parser = isolation)]
    isolation: Option<Isolation>,

    /// How accesses out of a guest's memory are caught: signals (if left out), or explicit checks
    #[arg(long, value_name = "KIND", value_parser = traps)]
    traps: Option<Traps>,

    /// Compute the same bits on every machine: canonical NaNs, one meaning of relaxed SIMD, fuel in
    /// place of the time limit
    #[arg(long)]
    deterministic: bool,

    /// Run each call of a target that declares itself pure twice, in fresh instances, and compare
    /// the bits of the results
    #[arg(long)]
    check_pure: bool,

    /// What isolates guests from callbox: wasm (if left out), or process, which also runs each
    /// module in processes of its own. Linux only; modules then get no grants but log messages, and
    /// no cache
    #[arg(long, value_name = "WALL", value_parser = wall)]
    isolate: Option<Wall>,

    /// Keep compiled modules in this directory and reuse them. It is created if it does not exist,
    /// and must be private: mode 0700, and no symbolic link. At most 512MiB are kept; damaged
    /// entries are reported and compiled anew
    #[arg(long, value_name = "DIR", value_parser = cache_dir)]
    cache_dir: Option<PathBuf>,
}

impl PolicyArguments {
    /// The backend that loads modules.
    pub(super) fn backend(&self) -> Outcome<Backend> {
        Ok(Backend::new(
            self.isolate.unwrap_or_default(),
            self.config()?,
        )?)
    }

    /// The same with another policy than that of the flags.
    pub(super) fn backend_for(&self, policy: Policy) -> Outcome<Backend> {
        let config = Config {
            policy,
            ..self.config()?
        };
        Ok(Backend::new(self.isolate.unwrap_or_default(), config)?)
    }

    /// The milliseconds of `--deadline`.
    pub(super) fn deadline_ms(&self) -> Option<u64> {
        let time = self.deadline?;
        Some(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
    }

    /// The lock of `--lock`.
    pub(super) fn lock(&self) -> Outcome<Option<Lock>> {
        self.lock.as_deref().map(Lock::read).transpose()
    }

    /// Refuses rules for a folder: building it runs code before there is a module to check.
    pub(super) fn check_folder(&self) -> Outcome<()> {
        let flags = [("--lock", &self.lock), ("--trust", &self.trust)];
        match flags.into_iter().find(|(_, given)| given.is_some()) {
            Some((flag, _)) => Err(Failure::usage(Status::invalid_argument(format!(
                "{flag} is for files, and the native code of a folder runs when it is built: pack \
                 it, and name the package"
            )))),
            None => Ok(()),
        }
    }

    /// The rules of `--trust`.
    pub(super) fn trust(&self) -> Outcome<Option<Trust>> {
        self.trust.as_deref().map(signing::rules).transpose()
    }

    /// The first given flag that concerns wasm guests only.
    pub(super) fn host_flag(&self) -> Option<&'static str> {
        let flags = [
            ("--memory-limit", self.memory_limit.is_some()),
            ("--log", self.log.is_some()),
            ("--isolation", self.isolation.is_some()),
            ("--traps", self.traps.is_some()),
            ("--deterministic", self.deterministic),
            ("--check-pure", self.check_pure),
            ("--isolate", self.isolate.is_some()),
            ("--cache-dir", self.cache_dir.is_some()),
        ];
        let given = flags.into_iter().find(|(_, is_given)| *is_given);
        given.map(|(flag, _)| flag)
    }

    /// The configuration of the backend.
    fn config(&self) -> Outcome<Config> {
        Ok(Config {
            policy: self.read()?,
            log: Some(Arc::new(output::guest_log)),
            threads: None,
            #[cfg(feature = "cache")]
            cache: self.cache(),
            compiler: None,
            compile_report: Some(Arc::new(|status| {
                output::warn(&format!("modules are compiled in this process: {status}"));
            })),
        })
    }

    /// The cache of `--cache-dir`. If it cannot be used, that is reported, and modules are compiled
    /// anew.
    #[cfg(feature = "cache")]
    fn cache(&self) -> Option<Arc<Cache>> {
        let options = CacheOptions {
            report: Some(Arc::new(|report| output::warn(report))),
            ..CacheOptions::default()
        };
        let cache = Cache::open_ambient(self.cache_dir.as_ref()?, options);
        cache
            .inspect_err(|status| output::warn(&format!("the compile cache is not used: {status}")))
            .ok()
            .map(Arc::new)
    }

    /// The policy of `--policy`, without other flags.
    pub(super) fn file(&self) -> Outcome<Policy> {
        read_file(self.policy.as_deref())
    }

    /// The policy.
    pub(super) fn read(&self) -> Outcome<Policy> {
        let mut policy = self.file()?;
        policy.limits.memory_bytes = self.memory_limit.unwrap_or(policy.limits.memory_bytes);
        // Compiling a program runs stages of guests, before the execution's own deadline begins.
        let deadlines = [policy.limits.deadline, self.deadline];
        policy.limits.deadline = deadlines.into_iter().flatten().min();
        policy.isolation = self.isolation.unwrap_or(policy.isolation);
        policy.traps = self.traps.unwrap_or(policy.traps);
        policy.deterministic |= self.deterministic;
        policy.check_pure |= self.check_pure;
        if self.log.is_some() {
            policy.grants.log = self.log;
            policy.targets.values_mut().for_each(|t| t.log = self.log);
        }
        Ok(policy)
    }

    /// The options of a call or an execution.
    pub(super) fn call_options(&self) -> CallOptions {
        CallOptions {
            deadline: self.deadline.map(Deadline::After),
            cancel: Some(interrupt::token()),
            ..CallOptions::default()
        }
    }

    /// The options of a package's cases, whose own deadlines do not lengthen the policy's.
    pub(super) fn case_options(&self) -> Outcome<CallOptions> {
        let options = self.call_options();
        let limit = self.read()?.limits.deadline.map(Deadline::After);
        Ok(CallOptions {
            deadline: options.deadline.or(limit),
            ..options
        })
    }

    /// The options of a call under a policy that its site is first prepared for, with its time
    /// begun. The start of a worker takes from a deadline that was asked for, and not from a
    /// policy's.
    pub(super) fn begun(&self, options: &CallOptions, policy: &Policy) -> CallOptions {
        let wall = self.isolate.unwrap_or_default();
        options.begun_under(matches!(wall, Wall::Wasm).then_some(policy))
    }
}

fn level(text: &str) -> Result<LogLevel, String> {
    LogLevel::from_name(text)
        .ok_or_else(|| format!("expected error, warn, info, debug or trace, found {text:?}"))
}

fn isolation(text: &str) -> Result<Isolation, String> {
    match text {
        "executable" => Ok(Isolation::Executable),
        "fresh" => Ok(Isolation::Fresh),
        _ => Err(format!("expected executable or fresh, found {text:?}")),
    }
}

fn wall(text: &str) -> Result<Wall, String> {
    match text {
        "wasm" => Ok(Wall::Wasm),
        #[cfg(feature = "process")]
        "process" => Ok(Wall::Process),
        #[cfg(not(feature = "process"))]
        "process" => Err(left_out("process")),
        _ => Err(format!("expected wasm or process, found {text:?}")),
    }
}

fn cache_dir(text: &str) -> Result<PathBuf, String> {
    if cfg!(feature = "cache") {
        Ok(text.into())
    } else {
        Err(left_out("cache"))
    }
}

fn traps(text: &str) -> Result<Traps, String> {
    match text {
        "signals" => Ok(Traps::Signals),
        "explicit" => Ok(Traps::Explicit),
        _ => Err(format!("expected signals or explicit, found {text:?}")),
    }
}

/// Show a whole policy
///
/// Prints the default policy, or a file's with its defaults filled in, as JSON for `--policy`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = super::EXIT_CODES)]
pub(super) struct Arguments {
    /// The policy. If left out, the default one
    #[arg(value_name = "FILE.json")]
    policy: Option<PathBuf>,
}

pub(super) fn show(arguments: &Arguments) -> ExitCode {
    let text = read_file(arguments.policy.as_deref()).and_then(|policy| Ok(policy.to_json()?));
    match text {
        Ok(text) => output::emit(&(text + "\n"), ExitCode::SUCCESS),
        Err(failure) => output::complain(&failure),
    }
}

/// Reads the policy of a file; the default one without a file.
pub(super) fn read_file(path: Option<&Path>) -> Outcome<Policy> {
    let Some(path) = path else {
        return Ok(Policy::default());
    };
    let text = regular_file::read(path, MOST_BYTES)?;
    Ok(Policy::from_json(&text).map_err(|status| status.context(path.display()))?)
}
