//! A build without the feature `capabilities`: nothing is granted.

use std::sync::Arc;

use callbox_core::policy::{Grants, Policy};
use callbox_core::values::Result;

use crate::failure::status;
use crate::log::GuestLog;
use crate::shared::EngineShared;

/// The capabilities of a module: none.
#[derive(Debug)]
pub(crate) struct ModuleCapabilities;

/// The capabilities of an instance: none.
#[derive(Debug)]
pub(crate) struct InstanceCapabilities;

impl ModuleCapabilities {
    /// # Errors
    /// UNIMPLEMENTED, blamed on the caller, for grants. Ignoring them would look like a failure of
    /// the guest.
    pub(crate) fn open(_: &Policy, grants: &Grants) -> Result<Self> {
        if grants.any_wasi() {
            return Err(status!(
                Unimplemented,
                Caller,
                "expected no grants of directories, clock or randomness, for this build has no capabilities, found some"
            ));
        }
        Ok(Self)
    }

    pub(crate) fn linker<T: 'static>(
        &self,
        linker: &Arc<wasmtime::Linker<T>>,
    ) -> wasmtime::Result<Arc<wasmtime::Linker<T>>> {
        Ok(Arc::clone(linker))
    }

    pub(crate) fn for_instance(&self, _: &Arc<EngineShared>) -> Option<Box<InstanceCapabilities>> {
        None
    }
}

impl InstanceCapabilities {
    #[inline]
    pub(crate) fn end_output(&mut self, _: &mut GuestLog) {}

    pub(crate) fn may_be_idle(&self) -> bool {
        true
    }
}
