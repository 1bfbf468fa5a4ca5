//! What `--record` and `--stats` see of the calls of a command.
//!
//! [`Observer::module`] puts a module between a program and a module, which passes every call on.

mod counters;
mod recorder;

use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use callbox::call::{
    DeviceBuffer, DeviceLeaf, DeviceQueue, Execution, Functions, PreparedCalls, Signature,
    TargetModule,
};
use callbox::{CallOptions, CallSite, Platform, Result, Status};

use self::counters::{Counter, Counters};
use self::recorder::Recorder;
use super::failure::{Failure, Outcome};
use super::modules::OpenedFile;
use super::output;
use super::platform::PlatformArguments;
use super::policy::PolicyArguments;

/// `--stats`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct StatsArguments {
    /// Count the calls of each target, their time, bytes and failures in this file: JSON, or for
    /// FILE.prom the text that Prometheus reads. It is written at the end, of failures too
    #[arg(long, value_name = "FILE.json|FILE.prom", value_parser = counters::path)]
    stats: Option<PathBuf>,
}

/// `--record` of programs.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct RecordArguments {
    /// Write each call of a target that fails to a file in this folder: the module, the operands,
    /// the attributes, the policy and how the call ended. `callbox replay` repeats it
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,

    /// Also write each N-th call, whether it fails or not. A folder gets at most 100 files of a
    /// program
    #[arg(long, value_name = "N", requires = "record")]
    record_every: Option<NonZeroU64>,
}

/// Records and counts calls.
#[derive(Debug, Default)]
pub(super) struct Observer {
    recorder: Option<Recorder>,
    counters: Option<Counters>,
}

impl Observer {
    /// The observer of a command. `has_user_data` is for calls that a capsule cannot carry.
    pub(super) fn new(
        stats: &StatsArguments,
        record: &RecordArguments,
        platform: &PlatformArguments,
        policy: &PolicyArguments,
        has_user_data: bool,
    ) -> Outcome<Arc<Self>> {
        let flags = [
            ("--record", record.record.is_some()),
            ("--stats", stats.stats.is_some()),
        ];
        for (flag, is_given) in flags {
            if is_given && platform.platform != Platform::Host {
                return Err(Failure::usage(Status::unimplemented(format!(
                    "{flag} is for calls on Host alone, expected no --platform CUDA"
                ))));
            }
        }
        if record.record.is_some() && has_user_data {
            return Err(Failure::usage(Status::unimplemented(
                "a capsule does not carry user data, expected no --user-data with --record",
            )));
        }
        let recorder = record.record.as_deref();
        let recorder = recorder.map(|folder| Recorder::new(folder, record.record_every, policy));
        Ok(Arc::new(Self {
            recorder: recorder.transpose()?,
            counters: stats.stats.clone().map(Counters::new),
        }))
    }

    /// A module that passes calls on to `module`, of a file, and observes them.
    pub(super) fn module(
        self: &Arc<Self>,
        module: Arc<dyn TargetModule>,
        file: &Arc<OpenedFile>,
    ) -> Arc<dyn TargetModule> {
        if self.recorder.is_none() && self.counters.is_none() {
            return module;
        }
        Arc::new(Observed {
            module,
            file: Arc::clone(file),
            observer: Arc::clone(self),
        })
    }

    /// Writes the counters at the end of a command. If the command failed, its failure is told.
    pub(super) fn finish<T>(&self, outcome: Outcome<T>) -> Outcome<T> {
        let written = self.counters.as_ref().map_or(Ok(()), Counters::write);
        match (outcome, written) {
            (Ok(_), Err(failure)) => Err(failure),
            (Err(failure), Err(unwritten)) => {
                let status = unwritten.status();
                output::warn(&format!("the counters are not written: {status}"));
                Err(failure)
            }
            (outcome, Ok(())) => outcome,
        }
    }
}

/// A module whose calls are observed.
#[derive(Debug)]
struct Observed {
    module: Arc<dyn TargetModule>,
    file: Arc<OpenedFile>,
    observer: Arc<Observer>,
}

impl TargetModule for Observed {
    fn identity(&self) -> &str {
        self.module.identity()
    }

    fn platform(&self) -> Platform {
        self.module.platform()
    }

    fn targets(&self) -> &[Signature] {
        self.module.targets()
    }

    fn prepare(
        self: Arc<Self>,
        sites: Vec<CallSite>,
        options: &CallOptions,
    ) -> Result<Box<dyn PreparedCalls>> {
        let known = sites.clone();
        let calls = Arc::clone(&self.module).prepare(sites, options)?;
        let counter = |site: &CallSite| {
            let counters = self.observer.counters.as_ref()?;
            Some(counters.of(&self.file, &site.target))
        };
        Ok(Box::new(ObservedCalls {
            counters: known.iter().map(counter).collect(),
            calls,
            sites: known,
            module: self,
        }))
    }
}

#[derive(Debug)]
struct ObservedCalls {
    calls: Box<dyn PreparedCalls>,
    sites: Vec<CallSite>,
    counters: Vec<Option<Counter>>,
    module: Arc<Observed>,
}

impl PreparedCalls for ObservedCalls {
    fn begin(
        &self,
        options: &CallOptions,
        functions: Option<&Arc<dyn Functions>>,
        sites: &[usize],
    ) -> Result<Box<dyn Execution + '_>> {
        Ok(Box::new(ObservedExecution {
            execution: self.calls.begin(options, functions, sites)?,
            calls: self,
        }))
    }
}

struct ObservedExecution<'a> {
    execution: Box<dyn Execution + 'a>,
    calls: &'a ObservedCalls,
}

impl Execution for ObservedExecution<'_> {
    fn initialize(&mut self) -> Result<()> {
        self.execution.initialize()
    }

    fn initialize_on(&mut self, queue: &mut dyn DeviceQueue) -> Result<()> {
        self.execution.initialize_on(queue)
    }

    fn is_broken(&mut self) -> bool {
        self.execution.is_broken()
    }

    fn call(&mut self, site: usize, operands: &[&[u8]], results: &mut [&mut [u8]]) -> Result<()> {
        let begin = Instant::now();
        let outcome = self.execution.call(site, operands, results);
        let time = begin.elapsed();
        let calls = self.calls;
        if let Some(Some(counter)) = calls.counters.get(site) {
            counter.count(time, operands, results, &outcome);
        }
        let recorder = calls.module.observer.recorder.as_ref();
        if let (Some(recorder), Some(site)) = (recorder, calls.sites.get(site)) {
            recorder.observe(&calls.module.file, site, operands, results, &outcome);
        }
        outcome
    }

    fn enqueue(
        &mut self,
        site: usize,
        queue: &mut dyn DeviceQueue,
        operands: &[DeviceLeaf],
        results: &[DeviceBuffer],
    ) -> Result<()> {
        self.execution.enqueue(site, queue, operands, results)
    }
}
