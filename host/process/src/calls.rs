//! Prepared call sites and the workers that serve them, as instances serve those of the wasm
//! backend.

mod execution;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::buffers::BufferLayout;
use crate::child::{Asking, GRACE, Process};
use crate::exchange::{Loss, Patience};
use crate::message::{Beginning, Request, left};
use crate::module::ProcessModule;
use crate::pool::{Lease, Pool};
use crate::starter::{Recipe, Starter};
use callbox_core::call::batch::check_sizes;
use callbox_core::call::{
    CallBuffers, CallOptions, CallSite, CancelToken, Deadline, DirectCalls, DirectModule,
    Execution, Fuel, FunctionReference, Functions, PreparedCalls,
};
use callbox_core::policy::{Isolation, Policy};
use callbox_core::values::{Blame, Result, Status, StatusCode};

/// The shortest time limit of a worker in deterministic mode, where no clock stops a guest.
const BACKSTOP: Duration = Duration::from_secs(300);

/// The number of stages of a call that is an execution of its own.
const STAGES: usize = 3;

/// One executable's call sites of a module's targets, and its workers.
pub struct Sites {
    module: Arc<ProcessModule>,
    sites: Vec<CallSite>,
    layouts: Vec<BufferLayout>,
    starter: Starter,
    /// The target of each call site, for messages.
    whats: Vec<String>,
    functions: Vec<Arc<FunctionReference>>,
    pool: Arc<Pool>,
    /// The number of executions in progress.
    leases: AtomicUsize,
}

/// The context in which a call or an execution begins.
#[derive(Clone, Copy)]
struct Caller<'a> {
    options: &'a CallOptions,
    functions: Option<&'a Arc<dyn Functions>>,
    /// The caller's deadline.
    end: Option<Instant>,
}

impl<'a> Caller<'a> {
    /// The context of a caller whose deadline counts from now.
    fn new(options: &'a CallOptions, functions: Option<&'a Arc<dyn Functions>>) -> Self {
        Self {
            options,
            functions,
            end: options.deadline.map(Deadline::instant),
        }
    }

    fn patience(&self) -> Patience<'a> {
        Patience {
            until: self.end,
            cancel: self.options.cancel.as_ref(),
        }
    }
}

/// A request to a worker, with its context.
struct Question<'a> {
    request: Request,
    asking: Asking<'a>,
}

impl Sites {
    /// Starts a worker, which prepares the call sites within `options`.
    pub(super) fn new(
        module: Arc<ProcessModule>,
        sites: Vec<CallSite>,
        options: &CallOptions,
        is_alone: bool,
    ) -> Result<Self> {
        let layouts: Vec<_> = sites.iter().map(BufferLayout::of).collect();
        let label = module.label();
        let what = |site: &CallSite| format!("{label}: target {:?}", site.target);
        let whats = sites.iter().map(what).collect();
        let functions = sites.iter().flat_map(|site| site.functions.iter().cloned());
        let functions = functions.collect();
        let pool = Arc::<Pool>::default();
        module.shared.add_pool(&pool);
        let starter = Starter::new(Recipe {
            module: Arc::clone(&module),
            sites: sites.clone(),
            is_alone,
            bytes: layouts.iter().map(BufferLayout::bytes).max().unwrap_or(0),
        });
        let new = Self {
            module,
            sites,
            layouts,
            starter,
            whats,
            functions,
            pool,
            leases: AtomicUsize::new(0),
        };
        // The first worker reports errors of call sites before anything runs.
        let caller = Caller::new(options, None);
        let check = || check_before(options, caller.end, "the module");
        check()?;
        new.pool
            .put(new.starter.start_within(caller.patience(), check)?);
        Ok(new)
    }

    /// Leases a worker for one execution, within the deadline and cancel token of the caller.
    fn lease(&self, caller: Caller<'_>, what: &str) -> Result<(Lease, Share<'_>)> {
        let share = self.share()?;
        // Otherwise an escaped guest could see the data of the next call.
        let is_fresh = self.module.shared.policy.isolation == Isolation::Fresh;
        self.module.shared.check_here()?;
        let check = || check_before(caller.options, caller.end, what);
        let (mut process, late) = match self.pool.take() {
            // An idle worker reports a passed deadline itself.
            Some(idle) => (idle, Ok(())),
            None => (
                self.starter.start_within(caller.patience(), check)?,
                check(),
            ),
        };
        let mut place = || {
            let taken = process.take_place();
            taken.map_err(|status| status.context(self.module.label()))
        };
        if let Err(status) = late.and_then(|()| place()) {
            // The unused worker serves the next call.
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
        if before < most {
            return Ok(share);
        }
        Err(Status::new(
            StatusCode::ResourceExhausted,
            Blame::Caller,
            format!(
                "expected at most {most} instances of a module at one time for one executable, found one more execution"
            ),
        ))
    }

    /// Sends a call with its operands, and copies the results out if it succeeds.
    fn call(
        &self,
        process: &mut Process,
        site: usize,
        question: &Question<'_>,
        operands: &[&[u8]],
        results: &mut [&mut [u8]],
    ) -> Result<()> {
        let asking = question.asking;
        let layout = self.layout(site)?;
        let sizes = layout.operands.iter().copied();
        check_sizes("operand", sizes, operands.len(), |i| operands[i].len())?;
        let sizes = layout.results.iter().copied();
        check_sizes("result", sizes, results.len(), |i| results[i].len())?;
        let written = process.buffers.write_all(0, operands.iter().copied());
        written.map_err(|error| process.lose(Loss::Failed(error), asking.what))?;
        process.ask(&question.request, asking)?;
        let parts = results.iter_mut().map(|bytes| &mut **bytes);
        let read = process.buffers.read_exact(layout.operand_bytes(), parts);
        read.map_err(|error| process.lose(Loss::Failed(error), asking.what))
    }

    fn layout(&self, site: usize) -> Result<&BufferLayout> {
        self.layouts.get(site).ok_or_else(|| {
            Status::invalid_argument(format!(
                "expected a call site below {}, found {site}",
                self.layouts.len()
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
    fn call_within(
        &self,
        site: usize,
        caller: Caller<'_>,
        operands: &[&[u8]],
        results: &mut [&mut [u8]],
    ) -> Result<()> {
        let Caller { options, .. } = caller;
        let what = self.what(site);
        check_before(options, None, what)?;
        let (mut lease, _share) = self.lease(caller, "the module")?;
        let process = lease.process().ok_or_else(lost)?;
        let beginning = beginning(caller);
        let question = Question {
            request: Request::Alone { beginning, site },
            asking: Asking {
                what,
                // A worker reports a passed deadline itself.
                until: self.until(caller.end).map(at_least),
                deadline: self.deadline(options),
                cancel: options.cancel.as_ref(),
                functions: caller.functions,
                callable: self.functions_of(site),
                fuel: options.fuel.as_ref(),
                calls: STAGES,
            },
        };
        self.call(process, site, &question, operands, results)
    }

    /// The deadline of a call: the caller's, or else the limit's.
    fn deadline(&self, options: &CallOptions) -> Option<Deadline> {
        let policy = &self.module.shared.policy;
        // In deterministic mode, fuel replaces the limit of time.
        let limit = policy.limits.deadline.filter(|_| !policy.deterministic);
        options.deadline.or(limit.map(Deadline::After))
    }

    /// The time at which a worker that has not answered is killed: somewhat after the deadline of
    /// the caller or of the limits.
    fn until(&self, end: Option<Instant>) -> Option<Instant> {
        let policy = &self.module.shared.policy;
        let limit = if policy.deterministic {
            // Fuel stops the guest. Only a compromised worker takes as long as this.
            let longer = policy.limits.deadline.map(|limit| limit.saturating_mul(10));
            Some(longer.unwrap_or(BACKSTOP).max(BACKSTOP))
        } else {
            policy.limits.deadline
        };
        let end = end.or_else(|| limit.map(|limit| Deadline::After(limit).instant()));
        end.and_then(|end| end.checked_add(GRACE))
    }
}

/// An execution's share of the limit on instances.
struct Share<'a>(&'a AtomicUsize);

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Fails if the call is cancelled or its deadline has passed before it began, or if the fuel that
/// it shares depends on others.
fn check_before(options: &CallOptions, end: Option<Instant>, what: &str) -> Result<()> {
    let fuel = options.fuel.as_ref().map_or(Ok(()), Fuel::check);
    fuel.map_err(|status| status.context(format_args!("{what} was not called")))?;
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

/// The deadline for a worker. If a start took noticeable time, it has begun and is at `end`.
fn rest(options: &CallOptions, end: Option<Instant>) -> Option<Deadline> {
    match (options.deadline, end) {
        (Some(Deadline::After(duration)), Some(end)) if left(end) + GRACE < duration => {
            let whole = duration;
            Some(Deadline::Begun { end, whole })
        }
        (deadline, _) => deadline,
    }
}

/// `until`, but no sooner than a worker can answer.
fn at_least(until: Instant) -> Instant {
    until.max(Instant::now() + GRACE)
}

/// The options of the caller, for a worker.
fn beginning(caller: Caller<'_>) -> Beginning {
    let depth = caller.functions.map(|functions| functions.depth());
    Beginning::new(caller.options, rest(caller.options, caller.end), depth)
}

fn lost() -> Status {
    Status::internal("a worker was lost that was not asked anything")
}

impl fmt::Debug for Sites {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sites")
            .field("module", &self.module.info().sha256)
            .field("targets", &self.whats)
            .finish_non_exhaustive()
    }
}

impl DirectModule for ProcessModule {
    type Calls = Sites;

    fn prepare_direct(
        module: &Arc<Self>,
        sites: Vec<CallSite>,
        options: &CallOptions,
        in_runs: bool,
    ) -> Result<Sites> {
        Sites::new(Arc::clone(module), sites, options, !in_runs)
    }

    fn policy(&self) -> Option<&Policy> {
        Some(&self.shared.policy)
    }

    fn policy_of_preparation(&self) -> Option<&Policy> {
        // The start of a worker does not count. The worker counts the stage `instantiate` itself.
        None
    }
}

impl DirectCalls for Sites {
    type Run<'a> = Box<dyn Execution + 'a>;

    fn begin_run(&self, options: &CallOptions) -> Result<Self::Run<'_>> {
        let mut execution = self.begin(options, None, &[0])?;
        execution.initialize()?;
        Ok(execution)
    }

    fn call_alone<B: CallBuffers>(
        &self,
        site: usize,
        options: &CallOptions,
        buffers: &mut B,
    ) -> Result<()> {
        let caller = Caller::new(options, None);
        buffers
            .with_slices(&mut |operands, results| self.call_within(site, caller, operands, results))
    }

    fn isolates(&self, _: usize) -> bool {
        self.module.shared.policy.isolation == Isolation::Fresh
    }
}
