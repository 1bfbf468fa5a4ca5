//! Fuel: the work that a call may do in the deterministic mode, which reads no clock.

use callbox_core::call::{CallOptions, Fuel};
use callbox_core::policy::Limits;

/// The fuel that is left to a call: its own limit, and the fuel of the execution that it belongs
/// to.
#[derive(Clone, Debug, Default)]
pub(crate) struct FuelLeft {
    limit: u64,
    own: u64,
    shared: Option<Fuel>,
    /// The fuel given to the store for the current entry into the guest.
    given: u64,
    /// The fuel of the limit that was used in vain, for what others take.
    lost: u64,
}

impl FuelLeft {
    pub(crate) fn new(limits: &Limits, options: &CallOptions) -> Self {
        Self {
            limit: limits.fuel,
            own: limits.fuel,
            shared: options.fuel.clone(),
            given: 0,
            lost: 0,
        }
    }

    /// Resets the limit for the next call of the same execution.
    #[inline]
    pub(crate) fn begin_next_call(&mut self) {
        self.own = self.limit;
        self.lost = 0;
    }

    /// Subtracts what starts that were refused used before.
    pub(crate) fn without(mut self, used: u64) -> Self {
        self.own = self.own.saturating_sub(used);
        self.lost = used;
        self
    }

    /// Notes that a start was refused, which had used fuel.
    pub(crate) fn lose_start(&self) {
        if let Some(shared) = &self.shared {
            shared.lose(self.used().saturating_sub(self.lost));
        }
    }

    /// Notes what starts lost in a function that was called back.
    pub(crate) fn lose_in_function(&mut self, function: &Fuel) {
        let lost = function.lost();
        self.lost += lost;
        if let Some(shared) = &self.shared {
            shared.lose(lost);
        }
    }

    /// Whether a part of the fuel that has been spent was lost by starts that were refused.
    pub(crate) fn was_lost(&self) -> bool {
        match &self.shared {
            Some(shared) if self.own > 0 => shared.left() == 0 && shared.lost() > 0,
            _ => self.own == 0 && self.lost > 0,
        }
    }

    /// The fuel that was used of the limit.
    pub(crate) fn used(&self) -> u64 {
        self.limit - self.own
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
