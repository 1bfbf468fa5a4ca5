//! The arena of an instance: where in the guest's memory it is.

use wasmtime::WasmParams;

use super::Instance;
use super::enter::{enter, exhausted};
use crate::frame::{ARENA_ALIGNMENT, abi};
use crate::values::{Blame, Result, Status, StatusCode};
use crate::wasm::claim::{GuestFunction, Returned};
use crate::wasm::module::Module;

impl Instance {
    /// Reserves the arena: from the guest's allocator where it exports one, or else behind its memory's end.
    pub(super) fn reserve(&mut self, module: &Module, size: usize) -> Result<u32> {
        let too_large = |_| {
            exhausted(format!(
                "expected an arena of at most 4 GiB, found {size} bytes"
            ))
        };
        let wanted = u32::try_from(size).map_err(too_large)?;
        let offset = match self.typed_export(module.exports.realloc.as_ref()) {
            Some(realloc) => self.allocate(&realloc, wanted)?,
            None => self.grow(size)?,
        };
        self.check_arena(offset, size)?;
        Ok(offset)
    }

    /// An export, if it is there and a function of this type.
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
            exhausted(format!(
                "{} found no memory for an arena of {size} bytes",
                abi::REALLOC
            ))
        })
    }

    fn grow(&mut self, size: usize) -> Result<u32> {
        let end = self.memory.size(&self.store);
        let behind = |end: usize| {
            // Not at 0, which guests take for no address at all.
            let offset = end.max(ARENA_ALIGNMENT);
            let offset = offset.checked_next_multiple_of(ARENA_ALIGNMENT)?;
            let more = (offset - end).checked_add(size)?;
            Some((u32::try_from(offset).ok()?, more as u64))
        };
        let (offset, more) = end
            .check(behind)
            .map_err(|end| exhausted(format!("expected an arena below 4 GiB, found {end}")))?;
        if self.memory.grow(&mut self.store, more).is_err() {
            let limit = self.store.data().shared.policy.limits.memory_bytes;
            return Err(exhausted(format!(
                "expected memory of {size} bytes more than {end} for the arena: the limit is {limit}, and the module may have its own"
            )));
        }
        Ok(offset)
    }

    /// An arena is where the guest says only if it can be.
    fn check_arena(&mut self, offset: u32, size: usize) -> Result<()> {
        if !(offset as usize).is_multiple_of(ARENA_ALIGNMENT) {
            return Err(Status::new(
                StatusCode::Internal,
                Blame::Guest,
                format!(
                    "expected {} to return a multiple of {ARENA_ALIGNMENT}, found {offset}",
                    abi::REALLOC
                ),
            ));
        }
        self.guest_memory()
            .check("the arena", offset as usize, size)
    }
}
