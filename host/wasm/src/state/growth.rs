//! The growth of memories and tables: the limits that it keeps, and the guest's refusals.

use std::fmt;
use std::time::{Duration, Instant};

use callbox_core::values::Status;

use super::{DELETION, GuestState};
use crate::address_space::{AddressSpace, Shortage};
use crate::failure::{caller_exhausted, exhausted};
use crate::interrupt::Interrupted;
use crate::reclaim::Freeing;
use crate::search::{LONGEST, Patience};
use crate::trap::lacks_memory;

/// How often growth looks again for an idle instance: others may have used and given back each
/// while it looked.
const LOOKS: u32 = 3;

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

/// A call was stopped while its instance was made, before any code of the module ran.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NotStarted(pub(crate) Interrupted);

impl fmt::Display for NotStarted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for NotStarted {}

impl GuestState {
    /// Grows the memory within the limit on all instances that count together. Instances that were
    /// stopped count until their memory is freed, so that growth waits for them, and those that
    /// help with calls until they have done their part or are stopped. It takes at most half of the
    /// time that is left. Idle ones give way.
    ///
    /// # Errors
    /// The interruption, if the call is stopped while it waits.
    fn grow_together(&mut self, size: usize, limit: usize) -> Result<bool, Interrupted> {
        let deadline = self.interrupt.instant();
        let cancel = self.interrupt.token();
        let mut patience = Patience::new(DELETION, |most| within(deadline, most));
        let (mut search, mut waits, mut looks) = (None, None, 0);
        let mut is_over = false;
        loop {
            let discarder = &self.shared.discarder;
            let freed = discarder.done();
            let gives_way = self.share.helps() && discarder.is_awaited(self.share.together());
            if !gives_way && self.share.grow(size, limit) {
                return Ok(true);
            }
            if size > limit || self.share.helps() {
                self.interrupt.check()?;
                return Ok(false);
            }
            if is_over {
                return Ok(false);
            }
            let together = self.share.together();
            // Before the search: those that end during it are seen to.
            let is_beside_helpers = discarder.has_helper(together);
            let end = patience.end(is_beside_helpers);
            let search = search.get_or_insert_with(|| discarder.search());
            // Until it has room: no thread that begins to help takes it.
            waits.get_or_insert_with(|| discarder.call_waits(together));
            let has_found = search.next(
                || discarder.evict(self.share.pools(), || self.share.evict_one()),
                || {
                    let (wanted, cancel) = ((None, Some(together)), cancel.as_ref());
                    if is_beside_helpers {
                        discarder.wait(freed, wanted, end, cancel)
                    } else {
                        discarder.wait_for_freed(freed, wanted, end, cancel)
                    }
                },
            );
            self.interrupt.check()?;
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Err(Interrupted::Deadline);
            }
            if !has_found {
                if looks == LOOKS {
                    return Ok(false);
                }
                looks += 1;
            }
            // Before the next attempt, which is the last one then.
            is_over = patience.is_over(discarder, is_beside_helpers);
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
        if self.refused_for_others().is_some() {
            // Its call fails, whatever it does.
            return Ok(false);
        }
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

    /// Ends a part that a thread helps with, once growth was refused for what others take: the
    /// calling thread makes it again. In the deterministic mode the guest goes on, since wasmtime
    /// would not tell what fuel it used.
    fn check_helps_on(&self) -> wasmtime::Result<()> {
        if self.share.helps() && self.refused_for_others().is_some() {
            return Err(wasmtime::Error::msg("no room for a thread that helps"));
        }
        Ok(())
    }

    /// Growth that was refused for what others take, in the deterministic mode or where the thread
    /// helps with a call. What the guest does then depends on them, so that its call fails,
    /// whatever it returns.
    #[inline]
    pub(crate) fn refused_for_others(&self) -> Option<&RefusedGrowth> {
        let refused = self.growth_refused.as_ref()?;
        let decides = self.shared.policy.deterministic || self.share.helps();
        (decides && refused.is_for_others()).then_some(refused)
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
            if outcome.is_ok() || self.share.helps() {
                return Ok(outcome);
            }
            let cancel = self.interrupt.token();
            let is_freed = match &waiting {
                Some((freeing, until)) => freeing.wait(*until, cancel.as_ref()),
                None => {
                    waiting = Some((Freeing::now(), within(deadline, LONGEST)));
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
}

/// When growth no longer waits for others: after half of the time that is left, so that the guest
/// may do without, but at most this long.
fn within(deadline: Option<Instant>, most: Duration) -> Instant {
    let now = Instant::now();
    let left = deadline.map(|deadline| deadline.saturating_duration_since(now) / 2);
    now + left.unwrap_or(most).min(most)
}

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
            self.check_helps_on()?;
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
        self.check_helps_on()
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
            self.check_helps_on()?;
            return Ok(false);
        }
        match self.claim_space(|space| space.claim_memory(more as u64))? {
            Ok(room) => self.room = room,
            Err(shortage) => {
                self.share.shrink_back();
                self.refuse(RefusedGrowth::Space(shortage));
                self.check_helps_on()?;
                return Ok(false);
            }
        }
        self.table_bytes += more;
        Ok(true)
    }
}
