//! What the host keeps for each instance while a guest runs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::capabilities::OfInstance;
use super::claim::LinearMemory;
use super::fuel::FuelLeft;
use super::interrupt::Interrupt;
use super::quota::Share;
use super::shared::Shared;
use crate::call::{CallOptions, Deadline, FunctionReference, Functions, UserData};
use crate::policy::{Grants, LogLevel};
use crate::values::{Status, StatusCode};

/// How long an instance may take to take back what it made, at most: whoever drops an executable waits for it.
pub(super) const DELETION: Duration = Duration::from_secs(1);

/// A guest's log message.
#[derive(Debug)]
#[non_exhaustive]
pub struct LogRecord<'a> {
    /// How important it is, as the guest says.
    pub level: LogLevel,
    /// The guest's text: cut to the limit, without control characters other than line ends and tabs.
    pub message: &'a str,
}

/// A failure that a guest set through the API table.
#[derive(Debug)]
pub(super) struct GuestFailure {
    pub(super) code: StatusCode,
    pub(super) message: String,
    pub(super) recoverable: bool,
}

/// How long deleters may take at least of an execution that is at its deadline: one that succeeded has things to take back.
const GRACE: Duration = Duration::from_millis(10);

/// What a store has of an execution.
pub(super) struct OfExecution {
    user_data: Option<Arc<UserData>>,
    functions: Option<Arc<dyn Functions>>,
}

/// The store's data.
#[derive(Debug)]
pub(super) struct GuestState {
    pub(super) shared: Arc<Shared>,
    /// What the module may reach.
    pub(super) grants: Arc<Grants>,
    /// What it has of them besides the log.
    pub(super) capabilities: Option<Box<OfInstance>>,
    /// What of the executable's quota this instance has.
    pub(super) share: Share,
    /// What the call under way may still take, in the deterministic mode.
    pub(super) fuel: FuelLeft,
    pub(super) memory: Option<LinearMemory>,
    /// The module's functions from this index on are the host's own, which no backtrace shows.
    pub(super) helpers_from: u32,
    pub(super) failure: Option<GuestFailure>,
    pub(super) interrupt: Interrupt,
    /// Bytes that the call under way may still log.
    pub(super) log_budget: usize,
    /// A limit that memory or a table ran into during the call under way.
    pub(super) growth_refused: Option<String>,
    /// What the embedder attached to the execution.
    pub(super) user_data: Option<Arc<UserData>>,
    /// The running program's functions.
    pub(super) functions: Option<Arc<dyn Functions>>,
    /// Which of them the call under way may call.
    pub(super) callable: Arc<[Arc<FunctionReference>]>,
    /// What the last of them failed with.
    pub(super) callee_failure: Option<Status>,
}

impl GuestState {
    pub(super) fn new(shared: Arc<Shared>, grants: Arc<Grants>, share: Share) -> Self {
        Self {
            shared,
            grants,
            capabilities: None,
            share,
            fuel: FuelLeft::default(),
            memory: None,
            helpers_from: u32::MAX,
            failure: None,
            interrupt: Interrupt::default(),
            log_budget: 0,
            growth_refused: None,
            user_data: None,
            functions: None,
            callable: Arc::default(),
            callee_failure: None,
        }
    }

    /// A call or an execution begins.
    #[inline]
    pub(super) fn begin(&mut self, options: &CallOptions, functions: Option<&Arc<dyn Functions>>) {
        let policy = &self.shared.policy;
        // In the deterministic mode fuel stands for the limit of time.
        let limit = policy.limits.deadline.filter(|_| !policy.deterministic);
        self.interrupt = Interrupt::new(options, limit);
        self.fuel = FuelLeft::new(&policy.limits, options);
        self.log_budget = self.shared.policy.limits.log_bytes;
        self.user_data.clone_from(&options.user_data);
        self.functions = functions.cloned();
    }

    /// Deleters begin: they run for nobody, whatever stopped the call before them, and all of them have [`DELETION`] together, or until
    /// `deadline`.
    pub(super) fn begin_deletion(&mut self, deadline: Option<Instant>) {
        let limit = self.shared.policy.limits.deadline.unwrap_or(DELETION);
        let options = CallOptions {
            deadline: Some(match deadline {
                Some(deadline) => Deadline::At(deadline),
                None => Deadline::After(limit.min(DELETION)),
            }),
            ..CallOptions::default()
        };
        self.begin(&options, None);
        if !self.callable.is_empty() {
            self.callable = Arc::default();
        }
    }

    /// Deleters of an execution's state begin: whoever waits for the execution waits for them, so that its deadline and token hold, too.
    pub(super) fn begin_end_of_execution(&mut self) {
        let now = Instant::now();
        let end = self.interrupt.instant().unwrap_or(now + DELETION);
        let cancel = self.interrupt.take_token();
        self.begin_deletion(Some(end.clamp(now + GRACE, now + DELETION)));
        self.interrupt.give_token(cancel);
    }

    /// Forgets the embedder's things: nobody else's call shows them, and an idle instance keeps none of them alive.
    #[inline]
    pub(super) fn end(&mut self) {
        self.interrupt.forget_token();
        self.user_data = None;
        self.functions = None;
    }

    /// Takes the execution's things away, for what is made for the executable.
    pub(super) fn leave_execution(&mut self) -> OfExecution {
        let of_execution = OfExecution {
            user_data: self.user_data.take(),
            functions: self.functions.take(),
        };
        if !self.callable.is_empty() {
            self.callable = Arc::default();
        }
        of_execution
    }

    /// Gives them back.
    pub(super) fn return_to_execution(&mut self, of_execution: OfExecution) {
        self.user_data = of_execution.user_data;
        self.functions = of_execution.functions;
    }
}

impl GuestState {
    /// Whether something may grow, and a note of it if not.
    fn may_grow(&mut self, what: impl FnOnce() -> String, desired: usize, limit: usize) -> bool {
        let allowed = desired <= limit;
        if !allowed {
            self.growth_refused = Some(format!("{} was refused, the limit is {limit}", what()));
        }
        allowed
    }
}

/// Refuses growth past the limits and remembers that it did: a guest that fails for want of memory says so in its own way.
impl wasmtime::ResourceLimiter for GuestState {
    fn memory_growing(
        &mut self,
        _: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let limit = self.shared.policy.limits.memory_bytes;
        let limit = limit.min(maximum.unwrap_or(usize::MAX));
        if !self.may_grow(|| format!("memory of {desired} bytes"), desired, limit) {
            return Ok(false);
        }
        let together = self.shared.policy.limits.executable_memory_bytes;
        let allowed = self.share.grow(desired, together);
        if !allowed {
            self.growth_refused = Some(format!(
                "memory of {desired} bytes was refused, the limit for all instances of the executable is {together}"
            ));
        }
        Ok(allowed)
    }

    fn memory_grow_failed(&mut self, error: wasmtime::Error) -> wasmtime::Result<()> {
        self.share.shrink_back();
        self.growth_refused = Some(format!("memory could not grow ({error:#})"));
        Ok(())
    }

    fn table_growing(
        &mut self,
        _: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let limit = self.shared.policy.limits.table_elements;
        let limit = limit.min(maximum.unwrap_or(usize::MAX));
        Ok(self.may_grow(|| format!("a table of {desired} elements"), desired, limit))
    }
}
