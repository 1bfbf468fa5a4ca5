//! What `--record` and `--stats` see of the calls of a command.
//!
//! [`Observer::module`] puts a module between a program and a module, which passes every call on.

mod counters;
mod recorder;
#[cfg_attr(not(feature = "cuda"), path = "observe/shadow_left_out.rs")]
mod shadow;

use std::num::NonZeroU64;
#[cfg(feature = "cuda")]
use std::path::Path;
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
use self::shadow::Shadow;
pub(super) use self::shadow::ShadowArguments;
#[cfg(feature = "cuda")]
use self::shadow::Shadowed;
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
    shadow: Option<Arc<Shadow>>,
}

/// What counters call code.
#[derive(Clone, Debug)]
struct CodeName {
    file: String,
    sha256: String,
}

impl Observer {
    /// The observer of a command. `has_user_data` is for calls that a capsule cannot carry.
    pub(super) fn new(
        stats: &StatsArguments,
        record: &RecordArguments,
        shadow: &ShadowArguments,
        platform: &PlatformArguments,
        policy: &PolicyArguments,
        has_user_data: bool,
    ) -> Outcome<Arc<Self>> {
        if record.record.is_some() && platform.platform != Platform::Host {
            return Err(Failure::usage(Status::unimplemented(
                "--record is for calls on Host alone, expected no --platform CUDA",
            )));
        }
        platform.takes(Platform::Cuda, "--shadow", shadow.is_given())?;
        if record.record.is_some() && has_user_data {
            return Err(Failure::usage(Status::unimplemented(
                "a capsule does not carry user data, expected no --user-data with --record",
            )));
        }
        let is_cuda = platform.platform == Platform::Cuda;
        let of_policy = is_cuda.then(|| policy.file()).transpose()?;
        let recorder = record.record.as_deref();
        let recorder = recorder.map(|folder| Recorder::new(folder, record.record_every, policy));
        Ok(Arc::new(Self {
            recorder: recorder.transpose()?,
            counters: stats.stats.clone().map(Counters::new),
            shadow: shadow.shadow(of_policy.and_then(|policy| policy.shadow))?,
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
            code: CodeName {
                file: file.name(),
                sha256: file.contents.info().sha256.clone(),
            },
            file: Some(Arc::clone(file)),
            observer: Arc::clone(self),
        })
    }

    /// The same for native code of a file.
    #[cfg(feature = "cuda")]
    pub(super) fn native_module(
        self: &Arc<Self>,
        mut module: Arc<dyn TargetModule>,
        path: &Path,
        policy: &PolicyArguments,
    ) -> Outcome<Arc<dyn TargetModule>> {
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        let sha256 = module.identity().rsplit(':').next().unwrap_or_default();
        let code = CodeName {
            file: file.into_owned(),
            // What follows is the number of a device.
            sha256: sha256.split(' ').next().unwrap_or_default().to_owned(),
        };
        if let Some(shadow) = &self.shadow {
            let (observer, known, platform) = (Arc::clone(self), code.clone(), module.platform());
            let counter = move |target: &str| {
                let counters = observer.counters.as_ref()?;
                Some(counters.of(&known, platform, target))
            };
            let shadowed = Shadowed::new(module, path, shadow, Box::new(counter), policy)?;
            module = Arc::new(shadowed);
        }
        if self.counters.is_none() {
            return Ok(module);
        }
        Ok(Arc::new(Observed {
            module,
            code,
            file: None,
            observer: Arc::clone(self),
        }))
    }

    /// Writes the counters at the end of a command. If the command failed, its failure is told.
    pub(super) fn finish<T>(&self, outcome: Outcome<T>) -> Outcome<T> {
        if let Some(shadow) = self.shadow.as_ref().filter(|shadow| shadow.has_calls()) {
            output::note(&shadow.describe());
        }
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
    code: CodeName,
    /// The file of a module, which native code has not.
    file: Option<Arc<OpenedFile>>,
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
            Some(counters.of(&self.code, self.platform(), &site.target))
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
            let bytes_in = operands.iter().map(|bytes| bytes.len()).sum();
            let bytes_out = results.iter().map(|bytes| bytes.len()).sum();
            counter.count(time, bytes_in, bytes_out, &outcome);
        }
        let recorder = calls.module.observer.recorder.as_ref();
        let site = calls.sites.get(site);
        if let (Some(recorder), Some(site), Some(file)) = (recorder, site, &calls.module.file) {
            recorder.observe(file, site, operands, results, &outcome);
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
        let begin = Instant::now();
        let outcome = self.execution.enqueue(site, queue, operands, results);
        let time = begin.elapsed();
        if let Some(Some(counter)) = self.calls.counters.get(site) {
            let bytes_in = operands.iter().map(|leaf| leaf.buffer.size()).sum();
            let bytes_out = results.iter().map(|result| result.size()).sum();
            counter.count(time, bytes_in, bytes_out, &outcome);
        }
        outcome
    }
}
