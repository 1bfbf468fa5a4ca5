//! The policy of a command: from a file, with the flags over it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use callbox::policy::{Isolation, LogLevel, Policy, Traps};
use callbox::wasm::{Cache, CacheOptions, Config};
use callbox::{CallOptions, Deadline};

use super::arguments;
use super::backend::{Backend, Wall};
use super::failure::Outcome;
use super::{interrupt, modules, output};

/// A policy's file is not read further than this.
const MOST_BYTES: usize = 1 << 20;

/// The flags about what guests may take, do and reach.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Policy, of which CUDA has the deadline alone")]
pub(super) struct PolicyArguments {
    /// Read the policy from a file: limits, isolation, traps, and what targets may reach. The flags below go over it; `callbox policy`
    /// shows the whole
    #[arg(long, value_name = "FILE.json")]
    policy: Option<PathBuf>,

    /// Stop after this long, with DEADLINE_EXCEEDED: 500ms, 10s, 1.5s, 2m. If left out, each custom call may take 10s
    #[arg(long, value_name = "DURATION", value_parser = arguments::duration)]
    deadline: Option<Duration>,

    /// The linear memory that an instance of a module may have, at most 4GiB: 65536, 256MiB. If left out, 1GiB
    #[arg(long, value_name = "SIZE", value_parser = arguments::size)]
    memory_limit: Option<usize>,

    /// Show the log messages of guests, down to this level: error, warn, info, debug or trace. If left out, none
    #[arg(long, value_name = "LEVEL", value_parser = level)]
    log: Option<LogLevel>,

    /// Whom an instance of a module serves: executable (if left out), or fresh, which gives each call its own
    #[arg(long, value_name = "KIND", value_parser = isolation)]
    isolation: Option<Isolation>,

    /// How guests that reach past their memory are caught: signals (if left out), or explicit checks
    #[arg(long, value_name = "KIND", value_parser = traps)]
    traps: Option<Traps>,

    /// Give the same bits on every machine: canonical NaNs, one meaning of relaxed SIMD, fuel in place of the limit of time
    #[arg(long)]
    deterministic: bool,

    /// Run each call of a target that declares itself pure twice, in fresh instances, and compare the results' bits
    #[arg(long)]
    check_pure: bool,

    /// What keeps guests apart from callbox: wasm (if left out), or process, which runs each module in processes of its own, too. Linux
    /// only; modules then get no grants but log messages, and no cache
    #[arg(long, value_name = "WALL", value_parser = wall)]
    isolate: Option<Wall>,

    /// Keep compiled modules in this directory, and take them from it. It is made if there is none, and must be yours alone: of mode
    /// 0700 and no link. At most 512MiB are kept; what is wrong there is reported and compiled anew
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
}

impl PolicyArguments {
    /// What loads modules.
    pub(super) fn backend(&self) -> Outcome<Backend> {
        Ok(Backend::new(
            self.isolate.unwrap_or_default(),
            self.config()?,
        )?)
    }

    /// The first flag that was given and says something of guests in wasm, to which native targets don't keep.
    pub(super) fn host_flag(&self) -> Option<&'static str> {
        let flags = [
            ("--policy", self.policy.is_some()),
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

    /// How modules are loaded.
    fn config(&self) -> Outcome<Config> {
        Ok(Config {
            policy: self.read()?,
            log: Some(Arc::new(output::guest_log)),
            cache: self.cache(),
        })
    }

    /// The cache, if one was asked for. One that cannot be used is reported, and no reason to do nothing.
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

    /// The policy.
    pub(super) fn read(&self) -> Outcome<Policy> {
        let mut policy = read_file(self.policy.as_deref())?;
        policy.limits.memory_bytes = self.memory_limit.unwrap_or(policy.limits.memory_bytes);
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

    /// How a call or a program is run.
    pub(super) fn call_options(&self) -> CallOptions {
        CallOptions {
            deadline: self.deadline.map(Deadline::After),
            cancel: Some(interrupt::token()),
            ..CallOptions::default()
        }
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
        "process" => Ok(Wall::Process),
        _ => Err(format!("expected wasm or process, found {text:?}")),
    }
}

fn traps(text: &str) -> Result<Traps, String> {
    match text {
        "signals" => Ok(Traps::Signals),
        "explicit" => Ok(Traps::Explicit),
        _ => Err(format!("expected signals or explicit, found {text:?}")),
    }
}

/// Show a policy, whole
///
/// The default one, or a file's with what it leaves out, as JSON: what `--policy` takes.
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
        Err(failure) => {
            output::complain(&failure);
            failure.exit_code()
        }
    }
}

/// The policy of a file, or else the default one.
fn read_file(path: Option<&Path>) -> Outcome<Policy> {
    let Some(path) = path else {
        return Ok(Policy::default());
    };
    let text = modules::read(path, MOST_BYTES)?;
    Ok(Policy::from_json(&text).map_err(|status| status.context(path.display()))?)
}
