//! The policy of a command: from a file, with the flags over it.

use std::path::PathBuf;
use std::time::Duration;

use callbox::policy::{Isolation, LogLevel, Policy, Traps};
use callbox::{CallOptions, Deadline};

use super::arguments;
use super::failure::Outcome;
use super::{interrupt, modules};

/// A policy's file is not read further than this.
const MOST_BYTES: usize = 1 << 20;

/// The flags about what guests may take, do and reach.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Policy")]
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
}

impl PolicyArguments {
    /// The policy.
    pub(super) fn read(&self) -> Outcome<Policy> {
        let mut policy = match &self.policy {
            Some(path) => {
                let text = modules::read(path, MOST_BYTES)?;
                Policy::from_json(&text).map_err(|status| status.context(path.display()))?
            }
            None => Policy::default(),
        };
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

fn traps(text: &str) -> Result<Traps, String> {
    match text {
        "signals" => Ok(Traps::Signals),
        "explicit" => Ok(Traps::Explicit),
        _ => Err(format!("expected signals or explicit, found {text:?}")),
    }
}
