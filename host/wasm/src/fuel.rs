//! Fuel: the work that a call may do in the deterministic mode, which reads no clock.
//!
//! A start that finds no room, because of what others take, is begun again. What it used does not
//! count, so that the call ends as it would alone, but only up to the call's limit: then the lack
//! is reported.

use callbox_core::call::{CallOptions, Fuel};
use callbox_core::policy::Limits;
use callbox_core::values::Result;

/// The fuel that is left to a call: its own limit, and the fuel of the execution that it belongs
/// to.
#[derive(Clone, Debug, Default)]
pub(crate) struct FuelLeft {
    limit: u64,
    own: u64,
    /// What starts may use that are begun again.
    spare: u64,
    shared: Option<Fuel>,
    /// The fuel given to the store for the current entry into the guest.
    given: u64,
}

impl FuelLeft {
    /// The fuel of a call for which starts that were begun again used this much.
    pub(crate) fn new(limits: &Limits, options: &CallOptions, lost: u64) -> Self {
        Self {
            limit: limits.fuel,
            own: limits.fuel,
            spare: limits.fuel.saturating_sub(lost),
            shared: options.fuel.clone(),
            given: 0,
        }
    }

    /// Resets the limit for the next call of the same execution.
    #[inline]
    pub(crate) fn begin_next_call(&mut self) {
        self.own = self.limit;
        self.spare = self.limit;
    }

    /// Gives back what was used by a start that found no room, as far as there is spare fuel.
    /// Returns whether there is enough.
    pub(crate) fn give_back(&mut self, used: u64) -> bool {
        let spare = self.spare();
        let back = used.min(spare);
        self.own += back;
        if let Some(shared) = &self.shared {
            shared.give_back(back);
        }
        self.take_spare(back);
        used < spare || used == 0
    }

    /// The fuel of the limit that was used.
    pub(crate) fn used(&self) -> u64 {
        self.limit - self.own
    }

    /// What starts used that were begun again.
    pub(crate) fn lost(&self) -> u64 {
        self.limit - self.spare
    }

    /// What starts may still use that are begun again.
    pub(crate) fn spare(&self) -> u64 {
        let shared = self.shared.as_ref().map_or(u64::MAX, Fuel::spare);
        self.spare.min(shared)
    }

    pub(crate) fn take_spare(&mut self, units: u64) {
        self.spare = self.spare.saturating_sub(units);
        if let Some(shared) = &self.shared {
            shared.take_spare(units);
        }
    }

    /// Says that a deleter was refused what others take.
    pub(crate) fn note_lack(&self) {
        self.shared.iter().for_each(Fuel::note_lack);
    }

    /// Checks that what is left does not depend on others.
    ///
    /// # Errors
    /// As for [`Fuel::check`].
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        self.shared.as_ref().map_or(Ok(()), Fuel::check)
    }

    /// The limit, for a message.
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// The fuel to give to the store.
    pub(crate) fn give(&mut self) -> u64 {
        self.given = self
            .own
            .min(self.shared.as_ref().map_or(u64::MAX, Fuel::left));
        self.given
    }

    /// Subtracts the fuel that the guest used. `left` is what remains in the store.
    pub(crate) fn take_back(&mut self, left: u64) {
        let used = self.given.saturating_sub(left);
        self.own = self.own.saturating_sub(used);
        if let Some(shared) = &self.shared {
            shared.take(used);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Uses this much of a call's fuel.
    fn uses(fuel: &mut FuelLeft, used: u64) {
        let given = fuel.give();
        fuel.take_back(given - used);
    }

    #[test]
    fn fuel_is_given_back_to_both_stores_up_to_the_spare_fuel() {
        let limits = Limits {
            fuel: 100,
            ..Limits::default()
        };
        let shared = Fuel::new(50);
        let options = CallOptions {
            fuel: Some(shared.clone()),
            ..CallOptions::default()
        };
        let mut fuel = FuelLeft::new(&limits, &options, 0);
        uses(&mut fuel, 30);
        assert_eq!((fuel.used(), shared.left()), (30, 20));
        assert!(fuel.give_back(30));
        assert_eq!((fuel.used(), shared.left()), (0, 50));
        // Another call of the execution has its own limit, and what is left of the shared store.
        fuel.begin_next_call();
        uses(&mut fuel, 50);
        assert!(!fuel.give_back(50), "20 are spare");
        assert_eq!((fuel.used(), shared.left(), shared.spare()), (30, 20, 0));
    }
}
