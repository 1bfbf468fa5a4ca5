//! Fuel: how much a call may do in the deterministic mode, where no clock is looked at.

use wasmtime::{Caller, Store, Trap};

use super::state::GuestState;
use crate::call::{CallOptions, Fuel};
use crate::policy::Limits;

/// What a call may still take: of its own limit, and of what it shares with the call that it is part of.
#[derive(Debug, Default)]
pub(super) struct FuelLeft {
    limit: u64,
    own: u64,
    shared: Option<Fuel>,
    /// What the store was given.
    given: u64,
}

impl FuelLeft {
    pub(super) fn new(limits: &Limits, options: &CallOptions) -> Self {
        Self {
            limit: limits.fuel,
            own: limits.fuel,
            shared: options.fuel.clone(),
            given: 0,
        }
    }

    /// Another call of the same execution: what the limits give to each call, it gets anew.
    #[inline]
    pub(super) fn begin_next_call(&mut self) {
        self.own = self.limit;
    }

    /// The limit, for a message.
    pub(super) fn limit(&self) -> u64 {
        self.limit
    }
}

/// What a call of an import takes, besides the bytes that it moves.
pub(super) const IMPORT: u64 = 100;

/// Takes this much of what the guest that calls the host may still take, in the deterministic mode: work of the host's is the guest's.
///
/// # Errors
/// The trap of a guest that has no more.
pub(super) fn charge(caller: &mut Caller<'_, GuestState>, units: u64) -> wasmtime::Result<()> {
    if !caller.data().shared.policy.deterministic {
        return Ok(());
    }
    let left = caller.get_fuel()?;
    caller.set_fuel(left.saturating_sub(units))?;
    match left < units {
        true => Err(Trap::OutOfFuel.into()),
        false => Ok(()),
    }
}

/// Gives the store what the call may still take.
pub(super) fn fill(store: &mut Store<GuestState>) -> wasmtime::Result<()> {
    let fuel = &mut store.data_mut().fuel;
    let shared = fuel.shared.as_ref().map_or(u64::MAX, Fuel::left);
    let given = fuel.own.min(shared);
    fuel.given = given;
    store.set_fuel(given)
}

/// Notes what the guest took of it.
pub(super) fn note_used(store: &mut Store<GuestState>) {
    let left = store.get_fuel().unwrap_or(0);
    let fuel = &mut store.data_mut().fuel;
    let used = fuel.given.saturating_sub(left);
    fuel.own = fuel.own.saturating_sub(used);
    if let Some(shared) = &fuel.shared {
        shared.take(used);
    }
}
