//! The data of a store: the host's state of an instance.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use callbox_core::call::{
    CallOptions, CancelToken, Deadline, FunctionReference, Functions, UserData,
};
use callbox_core::policy::Grants;
use callbox_core::untrusted_text::quoted;
use callbox_core::values::{Status, StatusCode};

use crate::address_space::{AddressSpace, Bytes, Room, Shortage};
use crate::capabilities::InstanceCapabilities;
use crate::claim::LinearMemory;
use crate::failure::{caller_exhausted, exhausted};
use crate::fuel::FuelLeft;
use crate::held_up::{HeldUp, Making};
use crate::instance::Begun;
use crate::interrupt::{Interrupt, Interrupted};
use crate::log::GuestLog;
use crate::quota::Share;
use crate::reclaim::Freeing;
use crate::shared::EngineShared;
use crate::stop::Lease;
use crate::trap::lacks_memory;
use callbox_core::float_mode::FloatMode;

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

/// The bytes of a table's element.
pub(crate) const TABLE_ELEMENT: usize = size_of::<usize>();

/// Growth that was refused. Formatted only if the guest fails because of it: a guest may go on, and
/// try again often.
#[derive(Debug)]
pub(crate) enum RefusedGrowth {
    Memory {
        desired: usize,
        limit: usize,
    },
    Table {
        desired: usize,
        limit: usize,
    },
    /// The limit is that of all instances of the executable, or of all calls outside programs.
    Together {
        desired: usize,
        limit: usize,
        outside_programs: bool,
    },
    Space(Shortage),
    Failed {
        error: String,
        /// Whether the operating system had no memory.
        is_lack: bool,
    },
}

impl RefusedGrowth {
    /// Whether the process lacked what the guest wanted, which is no doing of the guest's.
    pub(crate) fn is_of_process(&self) -> bool {
        matches!(self, Self::Space(_) | Self::Failed { is_lack: true, .. })
    }

    /// Whether it was refused for what others take.
    fn is_for_others(&self) -> bool {
        match self {
            Self::Together { desired, limit, .. } => desired <= limit,
            other => other.is_of_process(),
        }
    }

    /// The status of a call that failed because of it.
    pub(crate) fn status(&self, message: String) -> Status {
        if self.is_of_process() {
            caller_exhausted(message)
        } else {
            exhausted(message)
        }
    }
}

impl fmt::Display for RefusedGrowth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory { desired, limit } => write!(
                f,
                "memory of {desired} bytes was refused, the limit is {limit}"
            ),
            Self::Table { desired, limit } => write!(
                f,
                "a table of {desired} elements was refused, the limit is {limit}"
            ),
            Self::Together {
                desired,
                limit,
                outside_programs,
            } => write!(
                f,
                "memory of {desired} bytes was refused, the limit for all instances {} is {limit}",
                if *outside_programs {
                    "of the module outside programs"
                } else {
                    "of the executable"
                }
            ),
            Self::Space(shortage) => write!(f, "memory was refused: {shortage}"),
            Self::Failed { error, .. } => write!(f, "memory could not grow ({error})"),
        }
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
    }

    /// Detaches the execution while the guest makes values that outlive it. The caller attaches it
    /// again.
    pub(crate) fn detach_execution(&mut self) -> Attached {
        self.clear_callable();
        std::mem::take(&mut self.attached)
    }

    /// Grows the memory within the limit on all instances that count together. Instances that were
    /// stopped count until their memory is freed, so that growth waits for them, for at most half
    /// of the time that is left, and idle ones give way.
    ///
    /// # Errors
    /// The interruption, if the call is stopped while it waits.
    fn grow_together(&mut self, size: usize, limit: usize) -> Result<bool, Interrupted> {
        let deadline = self.interrupt.instant();
        let cancel = self.interrupt.token();
        let end = patience(deadline);
        let mut search = None;
        loop {
            let discarder = &self.shared.discarder;
            let freed = discarder.done();
            if self.share.grow(size, limit) {
                return Ok(true);
            }
            if size > limit || self.share.is_at_once() {
                self.interrupt.check()?;
                return Ok(false);
            }
            let search = search.get_or_insert_with(|| discarder.search());
            let has_found = search.next(
                || self.share.evict_one(),
                || discarder.wait_for_freed(freed, None, end, cancel.as_ref()),
            );
            self.interrupt.check()?;
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Err(Interrupted::Deadline);
            }
            if !has_found || Instant::now() >= end {
                return Ok(false);
            }
        }
    }

    /// Makes room for a memory that grows, or that is made.
    ///
    /// # Errors
    /// The interruption, if the call is stopped while it waits for room.
    fn grow_memory(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> Result<bool, Interrupted> {
        let limits = &self.shared.policy.limits;
        let (limit, together) = (limits.memory_bytes, limits.executable_memory_bytes);
        let limit = limit.min(maximum.unwrap_or(usize::MAX));
        let with_tables = desired.saturating_add(self.table_bytes);
        let refused = if desired > limit {
            RefusedGrowth::Memory { desired, limit }
        } else if !self.grow_together(with_tables, together)? {
            RefusedGrowth::Together {
                desired: with_tables,
                limit: together,
                outside_programs: self.share.is_outside_programs(),
            }
        } else {
            let reserved = self.reserved;
            match self.claim_space(|space| space.reserve_memory(current, desired, reserved))? {
                Ok((reserved, room)) => {
                    (self.reserved, self.room) = (reserved, room);
                    return Ok(true);
                }
                Err(shortage) => {
                    self.share.shrink_back();
                    RefusedGrowth::Space(shortage)
                }
            }
        };
        self.refuse(refused);
        Ok(false)
    }

    /// Notes growth that is refused.
    fn refuse(&mut self, refused: RefusedGrowth) {
        if self.refused_for_others().is_none() {
            self.growth_refused = Some(refused);
        }
    }

    /// Growth that was refused for what others take, in the deterministic mode. What the guest does
    /// then depends on them, so that its call fails, whatever it returns.
    #[inline]
    pub(crate) fn refused_for_others(&self) -> Option<&RefusedGrowth> {
        let refused = self.growth_refused.as_ref()?;
        let decides = self.shared.policy.deterministic && refused.is_for_others();
        decides.then_some(refused)
    }

    /// Claims address space. Where too little is left, waits for instances whose memory is being
    /// freed by then, for at most half of the time that is left: others may take what becomes free,
    /// and the guest may do without.
    ///
    /// # Errors
    /// The interruption, if the call is stopped while it waits.
    fn claim_space<T>(
        &mut self,
        claim: impl Fn(&AddressSpace) -> Result<T, Shortage>,
    ) -> Result<Result<T, Shortage>, Interrupted> {
        // What was claimed before is mapped.
        self.room.is_mapped();
        let shared = &self.shared;
        let deadline = self.interrupt.instant();
        let mut waiting: Option<(Freeing, Instant)> = None;
        loop {
            let outcome = claim(&shared.address_space);
            if outcome.is_ok() || self.share.is_at_once() {
                return Ok(outcome);
            }
            let cancel = self.interrupt.token();
            let is_freed = match &waiting {
                Some((freeing, until)) => freeing.wait(*until, cancel.as_ref()),
                None => {
                    waiting = Some((Freeing::now(), patience(deadline)));
                    // Some may have been freed since.
                    true
                }
            };
            self.interrupt.check()?;
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Err(Interrupted::Deadline);
            }
            if !is_freed {
                self.missing = outcome.as_ref().err().map(|shortage| shortage.missing());
                return Ok(outcome);
            }
        }
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

/// How long growth waits for others: half of the time that is left, so that the guest may do
/// without.
fn patience(deadline: Option<Instant>) -> Instant {
    let now = Instant::now();
    let left = deadline.map(|deadline| deadline.saturating_duration_since(now) / 2);
    now + left.unwrap_or(DELETION).min(DELETION)
}

/// A call was stopped while its instance was made, before any code of the module ran.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NotStarted(pub(crate) Interrupted);

impl fmt::Display for NotStarted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for NotStarted {}

/// Refuses growth past the limits, and notes it: the guest reports the lack of memory in its own
/// way.
impl wasmtime::ResourceLimiter for GuestState {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let grown = self.grow_memory(current, desired, maximum);
        if self.is_memory_made {
            return Ok(grown?);
        }
        // The memory is made before any code of the module runs.
        self.is_memory_made = true;
        self.note_made();
        Ok(grown.map_err(NotStarted)?)
    }

    fn memory_grow_failed(&mut self, error: wasmtime::Error) -> wasmtime::Result<()> {
        self.share.shrink_back();
        self.room.is_mapped();
        self.reserved = 0;
        self.refuse(RefusedGrowth::Failed {
            error: format!("{error:#}"),
            is_lack: lacks_memory(&error),
        });
        Ok(())
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let limit = self.shared.policy.limits.table_elements;
        let limit = limit.min(maximum.unwrap_or(usize::MAX));
        if desired > limit {
            self.refuse(RefusedGrowth::Table { desired, limit });
            return Ok(false);
        }
        // A table counts with the memory.
        let more = desired.saturating_sub(current) * TABLE_ELEMENT;
        let size = self.share.memory_bytes() + more;
        let together = self.shared.policy.limits.executable_memory_bytes;
        if !self.grow_together(size, together)? {
            self.refuse(RefusedGrowth::Together {
                desired: size,
                limit: together,
                outside_programs: self.share.is_outside_programs(),
            });
            return Ok(false);
        }
        match self.claim_space(|space| space.claim_memory(more as u64))? {
            Ok(room) => self.room = room,
            Err(shortage) => {
                self.share.shrink_back();
                self.refuse(RefusedGrowth::Space(shortage));
                return Ok(false);
            }
        }
        self.table_bytes += more;
        Ok(true)
    }
}
