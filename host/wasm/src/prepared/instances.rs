//! Instances for the calls of an executable: idle ones, new ones, and the wait for room.

use std::sync::Arc;
use std::thread;
use std::time::Instant;

use super::Sites;
use crate::discard::Helping;
use crate::failure::caller_exhausted;
use crate::held_up::Making;
use crate::instance::{Begun, Caller, Instance, Purpose, Refused, check_stack, not_called};
use crate::interrupt::Interrupted;
use crate::places::Turn;
use crate::pool::Lease;
use crate::quota::Share;
use crate::reclaim::Reclaim;
use crate::search::Patience;
use crate::shared::Evict;
use crate::state::DELETION;
use callbox_core::call::{CallOptions, CancelToken, Deadline, Fuel};
use callbox_core::values::{Result, Status};

impl Sites {
    /// The lease's instance, or a new one in its place.
    #[inline]
    pub(crate) fn instance<'i>(
        &self,
        lease: &'i mut Lease<'_>,
        caller: Caller<'_>,
    ) -> Result<&'i mut Instance> {
        match lease.instance() {
            Some(instance) => {
                instance.begin(caller);
                Ok(instance)
            }
            none => Ok(none.insert(self.new_instance(caller)?)),
        }
    }

    /// Marks a thread that helps with a call.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED, blamed on the caller, if another call needs the room more, or if this
    /// thread's stack is too small for a guest.
    pub(crate) fn helping(&self, options: &CallOptions) -> Result<Helping> {
        let shared = &self.module.shared;
        check_stack(shared.policy.limits.stack_bytes, "the module")?;
        let token = options.cancel.clone().unwrap_or_default();
        let helping = shared
            .discarder
            .helping(token, Arc::clone(self.quota.together()));
        if helping.is_awaited() {
            return Err(caller_exhausted("another call waits for room"));
        }
        Ok(helping)
    }

    /// Makes an instance, and notes the time that this waited among the delays of the call.
    pub(super) fn new_instance(&self, caller: Caller<'_>) -> Result<Instance> {
        let Some(delays) = &caller.options.delays else {
            return self.make_or_wait(caller);
        };
        let making = Making::begin(None);
        let made = self.make_or_wait(caller);
        delays.add(making.held_up().time);
        made
    }

    /// Makes an instance. If there is no room, waits for instances that are being taken back, and
    /// evicts idle ones, one by one, but not for a call that helps with another.
    fn make_or_wait(&self, caller: Caller<'_>) -> Result<Instance> {
        let shared = &self.module.shared;
        // Eviction would not help.
        check_stack(shared.policy.limits.stack_bytes, "the module")?;
        let fuel = caller.options.fuel.as_ref();
        fuel.map_or(Ok(()), Fuel::check)
            .map_err(|status| status.context("the module was not called"))?;
        let (seen, reclaim) = (shared.discarder.done(), Reclaim::new());
        match self.try_new_instance(None, caller) {
            Err(refused) if refused.status.is_lack() && !caller.options.helps => {
                // What it takes until then is part of the call's time.
                let at = reclaim.begun();
                let options = CallOptions {
                    deadline: caller.options.deadline.map(|time| time.begun_at(at)),
                    ..caller.options.clone()
                };
                let caller = Caller {
                    options: &options,
                    begun: Some(Begun {
                        at,
                        fuel_lost: refused.fuel_lost,
                    }),
                    ..caller
                };
                self.wait_for_instance(caller, (seen, reclaim), refused)
            }
            outcome => outcome.map_err(|refused| refused.status),
        }
    }

    /// The status of a call that was stopped while it waited.
    fn stopped(&self, interrupted: Interrupted) -> Status {
        not_called(interrupted, "the module").context(&self.module.label)
    }

    /// Evicts an idle instance whose room this executable can have.
    fn evict_one(&self) -> bool {
        let shared = &self.module.shared;
        let limits = &shared.policy.limits;
        if !self.quota.has_room(limits) {
            // Evicting others does not help an executable that has reached its own limit.
            return self.pool.evict_one().is_some();
        }
        // Growth has evicted all that count towards the limit on memory.
        self.quota.has_memory(self.module.least_memory(), limits) && shared.pools.evict_one()
    }

    /// A call that has been stopped `now`, while it waited, reports that, not the lack of room.
    fn check_not_stopped(
        &self,
        now: Instant,
        end: Option<Instant>,
        cancel: Option<&CancelToken>,
    ) -> Result<()> {
        if cancel.is_some_and(CancelToken::is_cancelled) {
            return Err(self.stopped(Interrupted::Cancelled));
        }
        if end.is_some_and(|end| now >= end) {
            return Err(self.stopped(Interrupted::Deadline));
        }
        Ok(())
    }

    fn try_new_instance(
        &self,
        turn: Option<Turn>,
        caller: Caller<'_>,
    ) -> Result<Instance, Refused> {
        self.make(self.share()?, turn, caller)
    }

    fn share(&self) -> Result<Share> {
        self.quota.share(&self.module.shared.policy.limits)
    }

    fn make(
        &self,
        share: Share,
        turn: Option<Turn>,
        caller: Caller<'_>,
    ) -> Result<Instance, Refused> {
        let purpose = Purpose {
            arena_size: self.arena_size,
            sites: self.sites.len(),
        };
        Instance::new(&self.module, purpose, share, turn, caller)
    }

    /// Waits for room, and makes an instance. `seen` is the number of instances that had been taken
    /// back, and `reclaim` began, before the attempt that was `refused`.
    fn wait_for_instance(
        &self,
        mut caller: Caller<'_>,
        (mut seen, mut reclaim): (u64, Reclaim),
        mut refused: Refused,
    ) -> Result<Instance> {
        let shared = &self.module.shared;
        let limits = &shared.policy.limits;
        let limit = limits.deadline.filter(|_| !shared.policy.deterministic);
        let of_limit = || caller.begun?.at.checked_add(limit?);
        let own = caller.options.deadline.map(Deadline::instant);
        let own = own.or_else(of_limit);
        let now = Instant::now();
        let within = |most| own.map_or(now + most, |own| own.min(now + most));
        let mut patience = Patience::new(DELETION, within);
        let cancel = caller.options.cancel.as_ref();
        let (mut looks, mut search) = (0, None);
        loop {
            let discarder = &shared.discarder;
            let end = patience.end(false);
            if refused.lacks_fuel {
                return Err(refused.status);
            }
            if refused.is_being_freed {
                discarder.wait_for_all(end, cancel);
                seen += 1;
                reclaim.leave_out_own();
            }
            let turn = refused.turn.as_ref();
            // Others than those of the executable do not help it past its own limit.
            let least = self.module.least_memory();
            let fits = self.quota.has_room(limits) && self.quota.has_memory(least, limits);
            let own_limit = (!fits).then(|| self.quota.together());
            let wanted = (turn, own_limit);
            let has_room = turn.is_some_and(Turn::has_place)
                || match refused.missing {
                    Some(missing) => reclaim.make_room(missing, end, cancel),
                    None => {
                        let search = search.get_or_insert_with(|| discarder.search());
                        let wait = || discarder.wait_for_freed(seen, wanted, end, cancel);
                        let evict = || discarder.evict(&shared.pools, || self.evict_one());
                        search.next(evict, wait)
                    }
                }
                // A guest may hold an instance that helps for as long as its deadline lasts.
                || discarder.wait(seen, wanted, end, cancel);
            let now = Instant::now();
            self.check_not_stopped(now, own, cancel)?;
            if !has_room {
                if refused.turn.is_some() && shared.places.is_one_given() {
                    thread::yield_now();
                } else if looks == LOOKS || refused.missing.is_some() && now < end {
                    return Err(refused.status);
                } else {
                    looks += 1;
                }
            }
            // Before the next attempt, which is the last one then.
            let is_over = patience.is_over(discarder, false);
            seen = shared.discarder.done();
            reclaim.begin();
            if let Some(begun) = &mut caller.begun {
                // Each attempt counts those before it, too.
                begun.fuel_lost = begun.fuel_lost.max(refused.fuel_lost);
            }
            let turn = refused.turn.take();
            let turn = turn.or_else(|| refused.place.take().map(Turn::with));
            match self.try_new_instance(turn, caller) {
                Err(next) if next.status.is_lack() => {
                    self.check_not_stopped(Instant::now(), own, cancel)?;
                    if is_over {
                        return Err(next.status);
                    }
                    refused = next;
                }
                outcome => return outcome.map_err(|refused| refused.status),
            }
        }
    }
}

/// How often a call looks again for an idle instance that it can have in place of a new one: others
/// may have used and given back each while it looked.
const LOOKS: u32 = 8;
