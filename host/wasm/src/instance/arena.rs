//! Reserves the arena in an instance's memory.
//!
//! The guest's allocator provides the arena where the guest exports one: an allocator may claim
//! memory that the host grows behind its back. The guest SDK serves a small arena from the module's
//! own data, because growing memory takes longer than the rest of a fresh instance's start.

use wasmtime::WasmParams;

use callbox_core::values::Result;

use super::Instance;
use super::enter::{check_growth, enter, not_called};
use crate::claim::{GuestFunction, Returned};
use crate::failure::{exhausted, status};
use crate::frame::{ARENA_ALIGNMENT, abi};
use crate::interrupt::Interrupted;
use crate::module::Module;
use crate::state::RefusedGrowth;

impl Instance {
    /// Reserves the arena by the guest's allocator, or else past the end of its memory.
    pub(super) fn reserve(&mut self, module: &Module, size: usize) -> Result<u32> {
        let wanted = u32::try_from(size).map_err(|_| {
            exhausted(format!(
                "expected an arena of at most 4 GiB, found {size} bytes"
            ))
        })?;
        let offset = match self.typed_export(module.exports.realloc.as_ref()) {
            Some(realloc) => self.allocate(&realloc, wanted)?,
            None => self.grow(size)?,
        };
        self.check_arena(offset, size)?;
        Ok(offset)
    }

    /// An export that was looked up before, if it is a function of this type.
    pub(super) fn typed_export<P: WasmParams, R: Returned>(
        &mut self,
        export: Option<&wasmtime::ModuleExport>,
    ) -> Option<GuestFunction<P, R>> {
        self.exports.function_at(&mut self.store, export?)
    }

    fn allocate(
        &mut self,
        realloc: &GuestFunction<(u32, u32, u32, u32), u32>,
        size: u32,
    ) -> Result<u32> {
        let arguments = (0, 0, ARENA_ALIGNMENT as u32, size);
        let offset = enter(
            &mut self.store,
            &mut self.healthy,
            realloc,
            arguments,
            abi::REALLOC,
        )?;
        let found = offset.check(|offset| (offset != 0).then_some(offset));
        found.map_err(|_| {
            let none = format!(
                "{} found no memory for an arena of {size} bytes",
                abi::REALLOC
            );
            match self.store.data_mut().growth_refused.take() {
                Some(refused) => refused.status(format!("{none}: {refused}")),
                None => exhausted(none),
            }
        })
    }

    fn grow(&mut self, size: usize) -> Result<u32> {
        let end = self.memory.size(&self.store);
        let behind = |end: usize| {
            // Never at 0, which guests take for the null pointer.
            let offset = end
                .max(ARENA_ALIGNMENT)
                .checked_next_multiple_of(ARENA_ALIGNMENT)?;
            let more = (offset - end).checked_add(size)?;
            Some((u32::try_from(offset).ok()?, more as u64))
        };
        let (offset, more) = end
            .check(behind)
            .map_err(|end| exhausted(format!("expected an arena below 4 GiB, found {end}")))?;
        self.memory.grow(&mut self.store, more).map_err(|error| {
            if let Some(interrupted) = error.downcast_ref::<Interrupted>() {
                return not_called(*interrupted, "the module");
            }
            let state = self.store.data_mut();
            if let Err(status) = check_growth(state, "the arena") {
                return status;
            }
            let is_known = |refused: &RefusedGrowth| {
                refused.is_of_process() || matches!(refused, RefusedGrowth::Together { .. })
            };
            if let Some(refused) = state.growth_refused.take().filter(is_known) {
                let message = format!("no memory for an arena of {size} bytes: {refused}");
                return refused.status(message);
            }
            let limit = state.shared.policy.limits.memory_bytes;
            exhausted(format!("expected memory of {size} bytes more than {end} for the arena: the limit is {limit}, and the module may have its own"))
        })?;
        Ok(offset)
    }

    /// Checks that an arena at this offset is aligned and in bounds.
    fn check_arena(&mut self, offset: u32, size: usize) -> Result<()> {
        if !(offset as usize).is_multiple_of(ARENA_ALIGNMENT) {
            return Err(status!(
                Internal,
                Guest,
                "expected {} to return a multiple of {ARENA_ALIGNMENT}, found {offset}",
                abi::REALLOC
            ));
        }
        self.guest_memory()
            .check("the arena", offset as usize, size)
    }
}
