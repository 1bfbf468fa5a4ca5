//! The arena of an instance: where in the guest's memory it is.

use wasmtime::TypedFunc;

use super::Instance;
use super::enter::{enter, exhausted};
use crate::frame::{ARENA_ALIGNMENT, abi};
use crate::values::{Blame, Result, Status, StatusCode};
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
    pub(super) fn typed_export<P: wasmtime::WasmParams, R: wasmtime::WasmResults>(
        &mut self,
        export: Option<&wasmtime::ModuleExport>,
    ) -> Option<TypedFunc<P, R>> {
        let export = self.instance.get_module_export(&mut self.store, export?)?;
        export.into_func()?.typed(&self.store).ok()
    }

    fn allocate(
        &mut self,
        realloc: &TypedFunc<(u32, u32, u32, u32), u32>,
        size: u32,
    ) -> Result<u32> {
        let arguments = (0, 0, ARENA_ALIGNMENT as u32, size);
        match enter(
            &mut self.store,
            &mut self.healthy,
            realloc,
            arguments,
            abi::REALLOC,
        )? {
            0 => Err(exhausted(format!(
                "{} found no memory for an arena of {size} bytes",
                abi::REALLOC
            ))),
            offset => Ok(offset),
        }
    }

    fn grow(&mut self, size: usize) -> Result<u32> {
        let page = self.memory.page_size(&self.store);
        let end = self.memory.data_size(&self.store);
        // Not at 0, which guests take for no address at all.
        let offset = end.max(ARENA_ALIGNMENT).next_multiple_of(ARENA_ALIGNMENT);
        let pages = ((offset - end + size) as u64).div_ceil(page);
        if self.memory.grow(&mut self.store, pages).is_err() {
            let limit = self.store.data().shared.policy.limits.memory_bytes;
            return Err(exhausted(format!(
                "expected memory of {size} bytes more than {end} for the arena: the limit is {limit}, and the module may have its own"
            )));
        }
        u32::try_from(offset)
            .map_err(|_| exhausted(format!("expected an arena below 4 GiB, found {offset}")))
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
            .read("the arena", offset as usize, size)?;
        Ok(())
    }
}
