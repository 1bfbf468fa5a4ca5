//! The data of a store: the host's state of an instance.

mod growth;

use std::sync::Arc;
use std::time::{Duration, Instant};

use callbox_core::call::{
    CallOptions, CancelToken, Deadline, FunctionReference, Functions, UserData,
};
use callbox_core::float_mode::FloatMode;
use callbox_core::policy::Grants;
use callbox_core::untrusted_text::quoted;
use callbox_core::values::{Status, StatusCode};

use crate::address_space::{Bytes, Room};
use crate::capabilities::InstanceCapabilities;
use crate::claim::LinearMemory;
use crate::fuel::FuelLeft;
use crate::held_up::{HeldUp, Making};
use crate::instance::Begun;
use crate::interrupt::Interrupt;
use crate::log::GuestLog;
use crate::quota::Share;
use crate::shared::EngineShared;
use crate::stop::Lease;

pub(crate) use self::growth::{NotStarted, RefusedGrowth, TABLE_ELEMENT};

/// The most time that all deleters of an instance have together.
pub(crate) const DELETION: Duration = Duration::from_secs(1);

/// A failure that a guest set through the API table.
#[derive(Debug)]
pub(crate) struct GuestFailure {
    pub(crate) code: StatusCode,
    pub(crate) message: String,
    pub(crate) recoverable: bool,
}

impl GuestFailure {
    /// The message, marked as the guest's.
    pub(crate) fn said(&self) -> String {
        format!("the guest says {}", quoted(&self.message))
    }
}

/// The values that the embedder attached to an execution.
#[derive(Debug, Default)]
pub(crate) struct Attached {
    pub(crate) user_data: Option<Arc<UserData>>,
    /// The running program's functions.
    pub(crate) functions: Option<Arc<dyn Functions>>,
}

/// The data of a store.
pub(crate) struct GuestState {
    pub(crate) shared: Arc<EngineShared>,
    /// `None` for a module without grants other than the log's.
    pub(crate) capabilities: Option<Box<InstanceCapabilities>>,
    /// This instance's share of the executable's quota.
    pub(crate) share: Share,
    /// The current call's fuel, in the deterministic mode.
    pub(crate) fuel: FuelLeft,
    pub(crate) memory: Option<LinearMemory>,
    /// Whether the memory was made: before that, no code of the module runs.
    is_memory_made: bool,
    /// Measures the making of the instance.
    making: Making,
    /// What held up the current call, if its instance was made for it.
    held_up: Option<HeldUp>,
    /// The index of the first helper function (see [`rewrite`](crate::rewrite)), which backtraces
    /// omit.
    pub(crate) helpers_from: u32,
    /// What wasmtime takes beside the memory and the tables.
    pub(crate) record_bytes: u64,
    pub(crate) failure: Option<GuestFailure>,
    /// The floating-point mode of the thread that entered the guest, if it is not WebAssembly's.
    pub(crate) host_mode: Option<FloatMode>,
    pub(crate) interrupt: Interrupt,
    pub(crate) log: GuestLog,
    /// Growth of memory or a table that was refused during the current call.
    pub(crate) growth_refused: Option<RefusedGrowth>,
    /// The bytes that the process lacked when growth was last refused for them.
    pub(crate) missing: Option<Bytes>,
    /// The bytes of the instance's tables.
    table_bytes: usize,
    /// The bytes of address space that are reserved for the memory, where that is limited.
    reserved: u64,
    /// The claim of address space that the guest is about to map.
    pub(crate) room: Room,
    pub(crate) attached: Attached,
    /// The functions that the current call may call back.
    pub(crate) callable: Arc<[Arc<FunctionReference>]>,
    /// The failure of the function that was called back last.
    pub(crate) callee_failure: Option<Status>,
}

impl GuestState {
    pub(crate) fn new(
        shared: Arc<EngineShared>,
        grants: &Grants,
        share: Share,
        watch: Lease,
        making: Making,
    ) -> Self {
        Self {
            log: GuestLog::new(&shared, grants),
            shared,
            capabilities: None,
            share,
            fuel: FuelLeft::default(),
            memory: None,
            is_memory_made: false,
            making,
            held_up: None,
            helpers_from: u32::MAX,
            record_bytes: 0,
            failure: None,
            host_mode: None,
            interrupt: Interrupt::new(watch),
            growth_refused: None,
            missing: None,
            table_bytes: 0,
            reserved: 0,
            room: Room::default(),
            attached: Attached::default(),
            callable: Arc::default(),
            callee_failure: None,
        }
    }

    /// The bytes of address space and of memory that the instance takes.
    pub(crate) fn takes(&self) -> Bytes {
        let memory = self.share.memory_bytes() as u64;
        [self.reserved.max(memory), memory].map(|bytes| bytes.saturating_add(self.record_bytes))
    }

    /// Begins a call or an execution.
    #[inline]
    pub(crate) fn begin(
        &mut self,
        options: &CallOptions,
        functions: Option<&Arc<dyn Functions>>,
        begun: Option<Begun>,
    ) {
        let policy = &self.shared.policy;
        // In the deterministic mode fuel takes the place of the time limit.
        let limit = policy.limits.deadline.filter(|_| !policy.deterministic);
        self.interrupt
            .begin(options, limit, begun.map(|begun| begun.at));
        self.held_up = None;
        self.share.set_helps(options.helps);
        if policy.deterministic {
            let lost = begun.map_or(0, |begun| begun.fuel_lost);
            self.fuel = FuelLeft::new(&policy.limits, options, lost);
        }
        self.log.refill();
        self.attached.user_data.clone_from(&options.user_data);
        self.attached.functions = functions.cloned();
    }

    /// Begins another call of the same execution, with the limits of a single call.
    #[inline]
    pub(crate) fn begin_next_call(&mut self) {
        if self.interrupt.begin_next_call() {
            self.held_up = None;
        }
        self.fuel.begin_next_call();
        self.log.refill();
    }

    /// Prepares to run deleters until `end`, or until `cancel` stops them.
    pub(crate) fn begin_deletion(&mut self, end: Option<Instant>, cancel: Option<CancelToken>) {
        let options = CallOptions {
            deadline: end.map(Deadline::At),
            cancel,
            ..CallOptions::default()
        };
        self.begin(&options, None, None);
        self.clear_callable();
    }

    /// Prepares to run the deleters of an execution, for which its caller waits: its cancel token
    /// holds, its deadline, but at most [`DELETION`] from now, and in the deterministic mode, in
    /// place of that time, what is left of its fuel.
    pub(crate) fn begin_end_of_execution(&mut self) {
        let end = self.interrupt.instant();
        let cancel = self.interrupt.token();
        if self.shared.policy.deterministic {
            let fuel = self.fuel.clone();
            self.begin_deletion(end, cancel);
            self.fuel = fuel;
        } else {
            let most = Instant::now() + DELETION;
            self.begin_deletion(Some(end.map_or(most, |end| end.min(most))), cancel);
        }
    }

    /// The time for the deleters of an instance that is dropped, outside any call.
    pub(crate) fn deletion_time(&self) -> Duration {
        let limit = self.shared.policy.limits.deadline;
        limit.map_or(DELETION, |limit| limit.min(DELETION))
    }

    /// Ends a call or an execution: an idle instance keeps none of the embedder's values alive. Its
    /// cancel token stays until the next call.
    #[inline]
    pub(crate) fn end(&mut self) {
        self.attached = Attached::default();
        self.share.set_helps(false);
    }

    /// Detaches the execution while the guest makes values that outlive it. The caller attaches it
    /// again.
    pub(crate) fn detach_execution(&mut self) -> Attached {
        self.clear_callable();
        std::mem::take(&mut self.attached)
    }

    /// Notes what has held up the call before the guest's code runs.
    pub(crate) fn note_made(&mut self) {
        self.held_up = Some(self.making.held_up());
    }

    /// How long the call was held up, if that is why it is late.
    pub(crate) fn held_up(&self) -> Option<Duration> {
        let whole = self.interrupt.whole();
        let held_up = self.held_up.filter(|held_up| held_up.is_to_blame(whole));
        held_up.map(|held_up| held_up.time)
    }

    fn clear_callable(&mut self) {
        if !self.callable.is_empty() {
            self.callable = Arc::default();
        }
    }
}
