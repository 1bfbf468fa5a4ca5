//! The entry of the host when a guest calls an import: interruption, fuel and memory.

use wasmtime::{Caller, Linker, Trap, WasmRet};

use callbox_core::values::Result;

use crate::claim::{Claim, ImportParameters, LinearMemory};
use crate::failure::invalid;
use crate::memory::GuestMemory;
use crate::state::GuestState;
use callbox_core::float_mode::{FloatMode, ModeSet};

/// The fuel that a call of an import costs, besides a unit for each byte that it moves.
const IMPORT_FUEL: u64 = 100;

/// Defines an import of `N` parameters, each an `i32` to the guest.
///
/// # Errors
/// wasmtime's, if the linker has an import of this name.
pub(crate) fn define<const N: usize, R, E>(
    linker: &mut Linker<GuestState>,
    module: &str,
    name: &'static str,
    serve: impl Fn(Caller<'_, GuestState>, [Claim<u32>; N]) -> Result<R, E> + Send + Sync + 'static,
) -> wasmtime::Result<()>
where
    R: WasmRet + 'static,
    E: Into<wasmtime::Error>,
    [Claim<u32>; N]: ImportParameters,
    wasmtime::Result<R>: WasmRet,
{
    ImportParameters::define(linker, module, name, move |mut caller, parameters| {
        let _mode = enter_host(&mut caller)?;
        serve(caller, parameters).map_err(Into::into)
    })
}

/// Defines an import that computes on the guest's memory, in WebAssembly's floating-point mode,
/// which is that of Rust, too: the thread's own mode could round otherwise.
///
/// # Errors
/// As for [`define`].
#[cfg(feature = "maths")]
pub(crate) fn define_computation<P: ImportParameters>(
    linker: &mut Linker<GuestState>,
    module: &str,
    name: &'static str,
    compute: impl Fn(&mut Caller<'_, GuestState>, P) -> wasmtime::Result<()> + Send + Sync + 'static,
) -> wasmtime::Result<()> {
    P::define(linker, module, name, move |mut caller, parameters| {
        caller.data().interrupt.check()?;
        charge(&mut caller, IMPORT_FUEL)?;
        compute(&mut caller, parameters)
    })
}

/// Begins a call of an import: checks for interruption, and charges the call's fuel. The thread has
/// its own floating-point mode until the returned value is dropped.
///
/// A guest looks at the stop word on function entries and in loops only, and a function may call
/// thousands of imports without a loop.
///
/// # Errors
/// The interruption, or the trap of a guest that has no fuel left.
#[inline]
pub(crate) fn enter_host(caller: &mut Caller<'_, GuestState>) -> wasmtime::Result<Option<ModeSet>> {
    caller.data().interrupt.check()?;
    charge(caller, IMPORT_FUEL)?;
    Ok(caller.data().host_mode.map(FloatMode::set))
}

/// Charges the calling guest for work of the host. Does nothing outside the deterministic mode.
///
/// # Errors
/// The trap of a guest that has too little fuel left.
pub(crate) fn charge(caller: &mut Caller<'_, GuestState>, units: u64) -> wasmtime::Result<()> {
    if !caller.data().shared.policy.deterministic {
        return Ok(());
    }
    let left = caller.get_fuel()?;
    caller.set_fuel(left.saturating_sub(units))?;
    if left < units {
        return Err(Trap::OutOfFuel.into());
    }
    Ok(())
}

/// The exported memory of the calling guest.
///
/// # Errors
/// INVALID_ARGUMENT, blamed on the guest, if it exports none.
pub(crate) fn linear_memory(
    caller: &mut Caller<'_, GuestState>,
    what: &str,
) -> Result<LinearMemory> {
    // While the start function runs, the state does not have the memory yet.
    let known = caller.data().memory;
    known
        .or_else(|| LinearMemory::of_caller(caller))
        .ok_or_else(|| invalid(format!("{what}: expected an exported memory, found none")))
}

/// The bytes of the calling guest's memory.
///
/// # Errors
/// As for [`linear_memory`].
pub(crate) fn memory<'c>(
    caller: &'c mut Caller<'_, GuestState>,
    what: &str,
) -> Result<GuestMemory<'c>> {
    Ok(linear_memory(caller, what)?.borrow(caller))
}
