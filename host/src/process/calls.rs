//! Prepared call sites and the workers that serve them: what [`wasm`](crate::wasm) has of instances, of processes.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::buffers::Places;
use super::child::{Asking, GRACE, Process};
use super::exchange::{Loss, Patience};
use super::message::{Beginning, Request, left};
use super::module::ProcessModule;
use super::pool::{Lease, Pool};
use super::starter::{Recipe, Starter};
use crate::call::{
    CallOptions, CallSite, CancelToken, Deadline, Execution, FunctionReference, Functions,
    PreparedCalls,
};
use crate::policy::Isolation;
use crate::values::{Blame, Result, Status, StatusCode};

/// How long an execution that ends may take things back.
const DELETION: Duration = Duration::from_secs(1);

/// The least that a worker may take in the deterministic mode, where no clock ends a guest.
const BACKSTOP: Duration = Duration::from_secs(300);

/// Stages that a call runs which is an execution of its own.
const STAGES: usize = 3;

/// One executable's call sites of a module's targets, and its workers.
pub(super) struct Sites {
    module: Arc<ProcessModule>,
    sites: Vec<CallSite>,
    places: Vec<Places>,
    starter: Starter,
    /// For messages: the target of each call site.
    whats: Vec<String>,
    functions: Vec<Arc<FunctionReference>>,
    pool: Arc<Pool>,
    /// Executions under way.
    leases: AtomicUsize,
}

/// Who begins a call or an execution.
type Caller<'a> = (
    &'a CallOptions,
    Option<&'a Arc<dyn Functions>>,
    // When it wants it to end.
    Option<Instant>,
);

impl Sites {
    pub(super) fn new(
        module: Arc<ProcessModule>,
        sites: Vec<CallSite>,
        is_alone: bool,
    ) -> Result<Self> {
        let places: Vec<_> = sites.iter().map(Places::of).collect();
        let what = |site: &CallSite| format!("target {:?}", site.target);
        let whats = sites.iter().map(what).collect();
        let functions = sites.iter().flat_map(|site| site.functions.iter().cloned());
        let functions = functions.collect();
        let pool = Arc::<Pool>::default();
        module.shared.add_pool(&pool);
        let starter = Starter::new(Recipe {
            module: Arc::clone(&module),
            sites: sites.clone(),
            is_alone,
            bytes: places.iter().map(Places::bytes).max().unwrap_or(0),
        });
        let new = Self {
            module,
            sites,
            places,
            starter,
            whats,
            functions,
            pool,
            leases: AtomicUsize::new(0),
        };
        // What is wrong with a call site is known before anything runs.
        new.pool.put(new.starter.start()?);
        Ok(new)
    }

    /// A worker for one execution, if there is one before its caller's patience ends.
    fn lease(
        &self,
        options: &CallOptions,
        end: Option<Instant>,
        what: &str,
    ) -> Result<(Lease, Share<'_>)> {
        let share = self.share()?;
        // A worker that served one call would see the next one's data, should its guest have got out.
        let is_fresh = self.module.shared.policy.isolation == Isolation::Fresh;
        self.module.shared.check_here()?;
        let check = || check_before(options, end, what);
        let patience = Patience {
            until: end,
            cancel: options.cancel.as_ref(),
        };
        let (mut process, late) = match self.pool.take() {
            // A worker that is there says itself that there is no time.
            Some(idle) => (idle, Ok(())),
            None => (self.starter.start_within(patience, check)?, check()),
        };
        if let Err(status) = late.and_then(|()| process.take_place()) {
            // It was asked nothing, and serves the next one.
            self.pool.put(process);
            return Err(status);
        }
        let pool = (!is_fresh).then(|| Arc::clone(&self.pool));
        Ok((Lease::new(process, pool), share))
    }

    fn share(&self) -> Result<Share<'_>> {
        let most = self.module.shared.policy.limits.executable_instances;
        let before = self.leases.fetch_add(1, Ordering::Relaxed);
        let share = Share(&self.leases);
        match before < most {
            true => Ok(share),
            false => Err(Status::new(
                StatusCode::ResourceExhausted,
                Blame::Caller,
                format!(
                    "expected at most {most} instances of a module at one time for one executable, found one more execution"
                ),
            )),
        }
    }

    /// Asks for a call, with its buffers, and copies the results out if it succeeds.
    fn call(
        &self,
        (process, site): (&mut Process, usize),
        (request, asking): (&Request, Asking<'_>),
        operands: &[&[u8]],
        results: &mut [&mut [u8]],
    ) -> Result<()> {
        let places = self.places(site)?;
        check(
            "operand",
            &places.operands,
            operands.iter().map(|b| b.len()),
        )?;
        check("result", &places.results, results.iter().map(|b| b.len()))?;
        let written = process.buffers.write_all(0, operands.iter().copied());
        written.map_err(|error| process.lose(Loss::Failed(error), asking.what))?;
        process.ask(request, asking)?;
        let parts = results.iter_mut().map(|bytes| &mut **bytes);
        let read = process.buffers.read_exact(places.operand_bytes(), parts);
        read.map_err(|error| process.lose(Loss::Failed(error), asking.what))
    }

    fn places(&self, site: usize) -> Result<&Places> {
        self.places.get(site).ok_or_else(|| {
            Status::invalid_argument(format!(
                "expected a call site below {}, found {site}",
                self.places.len()
            ))
        })
    }

    fn what(&self, site: usize) -> &str {
        self.whats.get(site).map_or("a target", String::as_str)
    }

    fn functions_of(&self, site: usize) -> &[Arc<FunctionReference>] {
        self.sites.get(site).map_or(&[], |site| &site.functions)
    }

    /// One call as an execution of its own.
    fn call_alone(
        &self,
        site: usize,
        (options, functions, end): Caller<'_>,
        operands: &[&[u8]],
        results: &mut [&mut [u8]],
    ) -> Result<()> {
        let what = self.what(site);
        check_before(options, None, what)?;
        let (mut lease, _share) = self.lease(options, end, "the module")?;
        let process = lease.process().ok_or_else(lost)?;
        let depth = functions.map(|functions| functions.depth());
        let beginning = Beginning::new(options, rest(options, end), depth);
        let request = Request::Alone(beginning, site);
        let asking = Asking {
            what,
            // A worker says itself that there is no time left.
            until: self.until(end).map(at_least),
            deadline: self.deadline(options),
            cancel: options.cancel.as_ref(),
            functions,
            callable: self.functions_of(site),
            fuel: options.fuel.as_ref(),
            calls: STAGES,
        };
        self.call((process, site), (&request, asking), operands, results)
    }

    /// The deadline of a call: its caller's, or the limits'.
    fn deadline(&self, options: &CallOptions) -> Option<Deadline> {
        let policy = &self.module.shared.policy;
        // Fuel takes the place of the limits' time.
        let limit = policy.limits.deadline.filter(|_| !policy.deterministic);
        options.deadline.or(limit.map(Deadline::After))
    }

    /// When a worker is killed that does not answer: some time after the deadline, or the limits' for a call that has none.
    fn until(&self, end: Option<Instant>) -> Option<Instant> {
        let policy = &self.module.shared.policy;
        // A guest ends by its fuel; only a worker that is no longer what it was takes as long as this.
        let limit = match (policy.limits.deadline, policy.deterministic) {
            (limit, false) => limit,
            (limit, true) => {
                let longer = limit.map(|limit| limit.saturating_mul(10));
                Some(longer.unwrap_or(BACKSTOP).max(BACKSTOP))
            }
        };
        let end = end.or_else(|| limit.map(|limit| Deadline::After(limit).instant()));
        end.and_then(|end| end.checked_add(GRACE))
    }
}

/// An execution's part of the limit.
struct Share<'a>(&'a AtomicUsize);

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whether to begin at all: a worker is not asked what it can only refuse.
fn check_before(options: &CallOptions, end: Option<Instant>, what: &str) -> Result<()> {
    let (code, why) = if options
        .cancel
        .as_ref()
        .is_some_and(CancelToken::is_cancelled)
    {
        (StatusCode::Cancelled, "it was cancelled")
    } else if end.is_some_and(|end| Instant::now() >= end) {
        (StatusCode::DeadlineExceeded, "its deadline had passed")
    } else {
        return Ok(());
    };
    let message = format!("{what} was not called: {why}");
    Err(Status::new(code, Blame::Caller, message))
}

/// What a worker is told of the deadline. Where most of a moment has passed, as in a start, it is no longer what the caller said.
fn rest(options: &CallOptions, end: Option<Instant>) -> Option<Deadline> {
    match (options.deadline, end) {
        (Some(Deadline::After(duration)), Some(end)) if left(end) + GRACE < duration => {
            Some(Deadline::At(end))
        }
        (deadline, _) => deadline,
    }
}

/// Not before a worker could say anything.
fn at_least(until: Instant) -> Instant {
    until.max(Instant::now() + GRACE)
}

fn lost() -> Status {
    Status::internal("a worker was lost that was not asked anything")
}

/// Checks that the caller's buffers are as many and as long as the call site says.
fn check(what: &str, sizes: &[usize], lengths: impl ExactSizeIterator<Item = usize>) -> Result<()> {
    if sizes.len() != lengths.len() {
        return Err(Status::invalid_argument(format!(
            "expected {} {what} buffers, found {}",
            sizes.len(),
            lengths.len()
        )));
    }
    for (i, (size, length)) in std::iter::zip(sizes, lengths).enumerate() {
        if *size != length {
            return Err(Status::invalid_argument(format!(
                "{what} {i}: expected {size} bytes, found {length}"
            )));
        }
    }
    Ok(())
}

impl fmt::Debug for Sites {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sites")
            .field("module", &self.module.info().sha256)
            .field("targets", &self.whats)
            .finish_non_exhaustive()
    }
}

impl PreparedCalls for Sites {
    fn begin(
        &self,
        options: &CallOptions,
        functions: Option<&Arc<dyn Functions>>,
        sites: &[usize],
    ) -> Result<Box<dyn Execution + '_>> {
        let mut execution = ProcessExecution {
            sites: self,
            options: options.clone(),
            functions: functions.cloned(),
            end: options.deadline.map(Deadline::instant),
            lease: None,
        };
        if self.module.shared.policy.isolation == Isolation::Executable {
            check_before(options, execution.end, "the module")?;
            execution.lease = Some(self.lease(options, execution.end, "the module")?);
            let depth = functions.map(|functions| functions.depth());
            let beginning = Beginning::new(options, rest(options, execution.end), depth);
            let request = Request::Begin(beginning, sites.to_vec());
            let begun = execution.ask(&request);
            if begun.is_err() {
                // There is nothing to end.
                execution.lease = None;
            }
            begun?;
        }
        Ok(Box::new(execution))
    }
}

/// One execution, with the worker that is set aside for it.
struct ProcessExecution<'a> {
    sites: &'a Sites,
    options: CallOptions,
    functions: Option<Arc<dyn Functions>>,
    /// When the caller wants it to end.
    end: Option<Instant>,
    /// `None` if each call gets a worker of its own.
    lease: Option<(Lease, Share<'a>)>,
}

impl ProcessExecution<'_> {
    /// Asks for what belongs to no call of the execution.
    fn ask(&mut self, request: &Request) -> Result<()> {
        let asking = Asking {
            what: "the module",
            until: self.sites.until(self.end),
            deadline: self.sites.deadline(&self.options),
            cancel: self.options.cancel.as_ref(),
            functions: self.functions.as_ref(),
            callable: &self.sites.functions,
            fuel: self.options.fuel.as_ref(),
            calls: self.sites.sites.len(),
        };
        match self.lease.as_mut().and_then(|(lease, _)| lease.process()) {
            Some(process) => process.ask(request, asking),
            None => Ok(()),
        }
    }
}

impl Execution for ProcessExecution<'_> {
    fn initialize(&mut self) -> Result<()> {
        self.ask(&Request::Initialize)
    }

    fn call(&mut self, site: usize, operands: &[&[u8]], results: &mut [&mut [u8]]) -> Result<()> {
        let sites = self.sites;
        let process = self.lease.as_mut().and_then(|(lease, _)| lease.process());
        // The worker that began this execution is gone after a call that broke it, and with it what its stages left.
        let Some(process) = process else {
            let caller = (&self.options, self.functions.as_ref(), self.end);
            return sites.call_alone(site, caller, operands, results);
        };
        let asking = Asking {
            what: sites.what(site),
            until: sites.until(self.end),
            deadline: self.sites.deadline(&self.options),
            cancel: self.options.cancel.as_ref(),
            functions: self.functions.as_ref(),
            callable: sites.functions_of(site),
            fuel: self.options.fuel.as_ref(),
            calls: 1,
        };
        check_before(&self.options, self.end, asking.what)?;
        let request = Request::Call(site);
        sites.call((process, site), (&request, asking), operands, results)
    }
}

impl Drop for ProcessExecution<'_> {
    /// What the execution's stages left is taken back, however it ended.
    fn drop(&mut self) {
        if let Some(process) = self.lease.as_mut().and_then(|(lease, _)| lease.process()) {
            let until = Some(Instant::now() + DELETION + GRACE);
            // A worker that can't is lost, and its memory with it.
            let _ = process.ask(&Request::End, Asking::plain("the execution's end", until));
        }
    }
}

/// A call site of a target behind the second wall. It can be called from many threads at once: each call has a worker to itself.
#[derive(Debug)]
pub struct ProcessCall {
    sites: Sites,
}

impl ProcessCall {
    pub(super) fn new(sites: Sites) -> Self {
        Self { sites }
    }

    /// Calls the target within the limits' deadline, as [`PreparedCall::call`](crate::wasm::PreparedCall::call) does.
    ///
    /// # Errors
    /// What the target reports or how it failed; INVALID_ARGUMENT if the buffers do not fit the call site; UNAVAILABLE if its process ended.
    pub fn call(&self, operands: &[&[u8]], results: &mut [&mut [u8]]) -> Result<()> {
        self.call_with(&CallOptions::default(), operands, results)
    }

    /// Calls the target.
    ///
    /// # Errors
    /// As for [`ProcessCall::call`], and what `options` brings about.
    pub fn call_with(
        &self,
        options: &CallOptions,
        operands: &[&[u8]],
        results: &mut [&mut [u8]],
    ) -> Result<()> {
        let end = options.deadline.map(Deadline::instant);
        let caller = (options, None, end);
        self.sites.call_alone(0, caller, operands, results)
    }
}
