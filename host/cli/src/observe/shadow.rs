//! `--shadow`: a share of the calls of a package's native twin also runs as wasm, and the results
//! are compared.
//!
//! Which calls these are is random, so that a twin cannot know. Calls that the twin fails are not
//! compared. Targets that are not pure are left out: a second call of them would have an effect.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use callbox::call::{
    DeviceBuffer, DeviceLeaf, DeviceQueue, Execution, Functions, PreparedCalls, Signature,
    TargetModule,
};
use callbox::values::zeroed;
use callbox::{ArrayShape, Blame, CallOptions, CallSite, Platform, Result, Status, StatusCode};
use callbox_package::Limits;

use super::counters::Counter;
use crate::case::{Tolerance, compare};
use crate::failure::{Failure, Outcome};
use crate::modules::Loader;
use crate::policy::PolicyArguments;
use crate::{output, package};

/// The trait of targets that can be called once more.
const PURE: &str = "pure";

/// How many differences of a command are told.
const MOST_TOLD: u64 = 10;

/// `--shadow`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ShadowArguments {
    /// On CUDA, also run this share of the calls of a package's pure targets as wasm, from 0 to 1,
    /// and compare the results, within the tolerances of the package's cases
    #[arg(long, value_name = "P", value_parser = share)]
    shadow: Option<f64>,

    /// Fail a call whose results differ with INTERNAL. If left out, it is told and counted
    #[arg(long, requires = "shadow")]
    shadow_fails: bool,
}

fn share(text: &str) -> std::result::Result<f64, String> {
    let share = text.parse().ok();
    share
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| format!("expected a share from 0 to 1, found {text:?}"))
}

/// Compares calls.
#[derive(Debug)]
pub(super) struct Shadow {
    share: f64,
    fails: bool,
    /// `None`: as the cases of the package declare.
    tolerance: Option<Tolerance>,
    random: RandomState,
    calls: AtomicU64,
    compared: AtomicU64,
    differing: AtomicU64,
}

impl ShadowArguments {
    pub(super) fn is_given(&self) -> bool {
        self.shadow.is_some()
    }

    /// What the flags ask for, or else the policy.
    pub(super) fn shadow(
        &self,
        policy: Option<callbox::policy::Shadow>,
    ) -> Outcome<Option<Arc<Shadow>>> {
        let Some(share) = self.shadow.or(policy.map(|policy| policy.share())) else {
            return Ok(None);
        };
        let tolerance = policy.and_then(|policy| policy.tolerance());
        let tolerance = tolerance.map(|(rtol, atol)| Tolerance::new(rtol, atol));
        Ok(Some(Arc::new(Shadow {
            share,
            fails: self.shadow_fails || policy.is_some_and(|policy| policy.fails()),
            tolerance: tolerance.transpose().map_err(Status::invalid_argument)?,
            random: RandomState::new(),
            calls: AtomicU64::new(0),
            compared: AtomicU64::new(0),
            differing: AtomicU64::new(0),
        })))
    }
}

impl Shadow {
    /// Whether to compare the next call.
    fn chooses(&self) -> bool {
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        let random = self.random.hash_one(number) as f64 / u64::MAX as f64;
        random < self.share || self.share == 1.0
    }

    /// Whether there was a call that could be compared.
    pub(super) fn has_calls(&self) -> bool {
        self.calls.load(Ordering::Relaxed) > 0
    }

    /// What was compared, for a person.
    pub(super) fn describe(&self) -> String {
        let [calls, compared, differing] =
            [&self.calls, &self.compared, &self.differing].map(|n| n.load(Ordering::Relaxed));
        format!("shadow: {compared} of {calls} calls compared, {differing} differ")
    }

    /// Tells and counts how a call ended as wasm.
    fn report(&self, site: &CallSite, counter: Option<&Counter>, ended: Ended) -> Result<()> {
        let label = site.label();
        let difference = match ended {
            Ended::Unknown(status) => {
                output::warn(&format!("{label}: a call is not compared: {status}"));
                return Ok(());
            }
            Ended::Same => None,
            Ended::Different(difference) => Some(difference),
        };
        self.compared.fetch_add(1, Ordering::Relaxed);
        if let Some(counter) = counter {
            counter.shadowed(difference.is_some());
        }
        let Some(difference) = difference else {
            return Ok(());
        };
        let message = format!("the native twin and the wasm differ: {difference}");
        if self.fails {
            self.differing.fetch_add(1, Ordering::Relaxed);
            return Err(Status::new(StatusCode::Internal, Blame::Guest, message));
        }
        match self.differing.fetch_add(1, Ordering::Relaxed) {
            ..MOST_TOLD => output::warn(&format!("{label}: {message}")),
            MOST_TOLD => output::warn(&"further differences of --shadow are counted alone"),
            _ => {}
        }
        Ok(())
    }
}

/// How a call ended as wasm.
enum Ended {
    Same,
    Different(String),
    /// It was stopped by a limit of its own.
    Unknown(Status),
}

/// The wasm of a target, and how near its results must be.
#[derive(Debug)]
struct Twin {
    module: Arc<dyn TargetModule>,
    tolerance: Tolerance,
}

/// A module of native code, some of whose calls are compared.
pub(super) struct Shadowed {
    module: Arc<dyn TargetModule>,
    shadow: Arc<Shadow>,
    twins: BTreeMap<String, Twin>,
    /// The counter of each target.
    counter: CounterOf,
}

/// The counter of a target, if calls are counted.
pub(super) type CounterOf = Box<dyn Fn(&str) -> Option<Counter> + Send + Sync>;

impl fmt::Debug for Shadowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shadowed")
            .field("module", &self.module)
            .finish_non_exhaustive()
    }
}

impl Shadowed {
    /// The native module of a package, whose wasm is loaded under the policy.
    pub(super) fn new(
        module: Arc<dyn TargetModule>,
        path: &Path,
        shadow: &Arc<Shadow>,
        counter: CounterOf,
        policy: &PolicyArguments,
    ) -> Outcome<Self> {
        let mut loader = Loader::new(policy)?;
        let Some(file) = is_wasm(path).then(|| loader.open(path)).transpose()? else {
            let message = "--shadow, and `shadow` of the policy, are for packages, which have their \
                           targets as wasm, too";
            let status = Status::invalid_argument(message).context(path.display());
            return Err(Failure::usage(status));
        };
        let targets = &file.contents.info().targets;
        let in_file = |status: Status| status.context(path.display());
        let package = callbox_package::read(file.contents.bytes(), &Limits::default());
        let package = package.map_err(in_file)?;
        let tolerances = package::tolerances(&package, targets).map_err(in_file)?;
        let mut twins = BTreeMap::new();
        for name in module.targets().iter().map(|target| &target.name) {
            let target = targets.iter().find(|target| target.name == *name);
            if target.is_some_and(|target| target.has_trait(PURE)) {
                let declared = tolerances.get(name).copied().unwrap_or_default();
                let twin = Twin {
                    module: loader.load(&file, name)?,
                    tolerance: shadow.tolerance.unwrap_or(declared),
                };
                twins.insert(name.clone(), twin);
            }
        }
        if twins.is_empty() {
            let message = "--shadow, and `shadow` of the policy, are for targets of the trait \
                           `pure`, of which it has none";
            return Err(Failure::usage(in_file(Status::invalid_argument(message))));
        }
        Ok(Self {
            module,
            shadow: Arc::clone(shadow),
            twins,
            counter,
        })
    }

    /// The call site as wasm, whose results are of their own memory.
    fn as_wasm(&self, site: &CallSite, options: &CallOptions) -> Option<Prepared> {
        let left_out = |reason: &str| {
            let label = site.label();
            output::warn(&format!("{label}: its calls are not compared: {reason}"));
            None
        };
        let Some(twin) = self.twins.get(&site.target) else {
            return left_out("the target is not of the trait `pure`");
        };
        if !site.functions.is_empty() {
            return left_out("the target can call functions of the program");
        }
        let wasm = CallSite {
            aliasing: Vec::new(),
            ..site.clone()
        };
        match Arc::clone(&twin.module).prepare(vec![wasm], options) {
            Err(status) => left_out(&status.to_string()),
            Ok(calls) => Some(Prepared {
                calls,
                tolerance: twin.tolerance,
            }),
        }
    }
}

fn is_wasm(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension == "wasm")
}

impl TargetModule for Shadowed {
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
        let wasm = sites.iter().map(|site| self.as_wasm(site, options));
        Ok(Box::new(ShadowedCalls {
            wasm: wasm.collect(),
            calls: Arc::clone(&self.module).prepare(sites.clone(), options)?,
            counters: sites
                .iter()
                .map(|site| (self.counter)(&site.target))
                .collect(),
            sites,
            shadow: Arc::clone(&self.shadow),
        }))
    }
}

/// A call site as wasm.
#[derive(Debug)]
struct Prepared {
    calls: Box<dyn PreparedCalls>,
    tolerance: Tolerance,
}

impl Prepared {
    /// Calls the wasm, and compares its results with those of the native code.
    fn compare(
        &self,
        site: &CallSite,
        options: &CallOptions,
        operands: &[&[u8]],
        found: &[&[u8]],
    ) -> Ended {
        let leaves = site.result.leaves();
        match self.call(&leaves, site, options, operands) {
            Ok(expected) => {
                let results = leaves.iter().zip(expected.iter().zip(found)).enumerate();
                for (i, (shape, (expected, found))) in results {
                    if site.is_scratch(i) {
                        continue;
                    }
                    if let Err(difference) =
                        compare(shape, expected, (shape, found), self.tolerance)
                    {
                        return Ended::Different(format!("result {i}: {difference}"));
                    }
                }
                Ended::Same
            }
            Err(status) => match status.code() {
                StatusCode::DeadlineExceeded
                | StatusCode::ResourceExhausted
                | StatusCode::Cancelled
                | StatusCode::Unavailable => Ended::Unknown(status),
                _ => Ended::Different(format!("the wasm fails with {status}")),
            },
        }
    }

    fn call(
        &self,
        leaves: &[&ArrayShape],
        site: &CallSite,
        options: &CallOptions,
        operands: &[&[u8]],
    ) -> Result<Vec<Vec<u8>>> {
        // The native call has taken its own part of the caller's time.
        let options = CallOptions {
            deadline: None,
            ..options.clone()
        };
        let results = leaves.iter().enumerate().map(|(i, leaf)| {
            let is_scratch = site.is_scratch(i);
            zeroed(if is_scratch { 0 } else { leaf.byte_size() })
        });
        let mut results = results.collect::<Result<Vec<_>>>()?;
        let mut buffers: Vec<_> = results.iter_mut().map(Vec::as_mut_slice).collect();
        let mut execution = self.calls.begin(&options, None, &[0])?;
        execution.initialize()?;
        execution.call(0, operands, &mut buffers)?;
        drop(execution);
        Ok(results)
    }
}

#[derive(Debug)]
struct ShadowedCalls {
    calls: Box<dyn PreparedCalls>,
    sites: Vec<CallSite>,
    wasm: Vec<Option<Prepared>>,
    counters: Vec<Option<Counter>>,
    shadow: Arc<Shadow>,
}

impl PreparedCalls for ShadowedCalls {
    fn begin(
        &self,
        options: &CallOptions,
        functions: Option<&Arc<dyn Functions>>,
        sites: &[usize],
    ) -> Result<Box<dyn Execution + '_>> {
        Ok(Box::new(ShadowedExecution {
            execution: self.calls.begin(options, functions, sites)?,
            calls: self,
            options: options.clone(),
        }))
    }
}

struct ShadowedExecution<'a> {
    execution: Box<dyn Execution + 'a>,
    calls: &'a ShadowedCalls,
    options: CallOptions,
}

impl<'a> ShadowedExecution<'a> {
    /// The call site as wasm, if this call is to be compared.
    fn chosen(&self, site: usize) -> Option<&'a Prepared> {
        let wasm = self.calls.wasm.get(site)?.as_ref()?;
        self.calls.shadow.chooses().then_some(wasm)
    }

    fn compare(
        &self,
        site: usize,
        wasm: &Prepared,
        operands: &[&[u8]],
        found: &[&[u8]],
    ) -> Result<()> {
        let calls = self.calls;
        let Some(known) = calls.sites.get(site) else {
            return Ok(());
        };
        let ended = wasm.compare(known, &self.options, operands, found);
        let counter = calls.counters.get(site).and_then(Option::as_ref);
        calls.shadow.report(known, counter, ended)
    }
}

impl Execution for ShadowedExecution<'_> {
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
        self.execution.call(site, operands, results)?;
        let Some(wasm) = self.chosen(site) else {
            return Ok(());
        };
        let found = Vec::from_iter(results.iter().map(|result| &**result));
        self.compare(site, wasm, operands, &found)
    }

    fn enqueue(
        &mut self,
        site: usize,
        queue: &mut dyn DeviceQueue,
        operands: &[DeviceLeaf],
        results: &[DeviceBuffer],
    ) -> Result<()> {
        // Work that is recorded runs later, and more than once.
        let chosen = if queue.keeps_work() {
            None
        } else {
            self.chosen(site)
        };
        let Some(wasm) = chosen else {
            return self.execution.enqueue(site, queue, operands, results);
        };
        // Before the call, which can write results over them.
        let buffers = Vec::from_iter(operands.iter().map(|leaf| Arc::clone(&leaf.buffer)));
        let copied = queue.download(&buffers)?;
        self.execution.enqueue(site, queue, operands, results)?;
        let found = queue.download(results)?;
        let operands = Vec::from_iter(copied.iter().map(Vec::as_slice));
        let found = Vec::from_iter(found.iter().map(Vec::as_slice));
        self.compare(site, wasm, &operands, &found)
    }
}
