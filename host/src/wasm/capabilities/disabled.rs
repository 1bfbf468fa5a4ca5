//! A build without the feature `capabilities`.

use std::sync::Arc;

use super::super::shared::Shared;
use super::super::state::GuestState;
use crate::policy::{Grants, Policy};
use crate::values::{Blame, Result, Status, StatusCode};

/// What is granted to a module: nothing.
#[derive(Debug)]
pub(in crate::wasm) struct Granted;

/// What an instance has of it: nothing.
#[derive(Debug)]
pub(in crate::wasm) struct OfInstance;

impl Granted {
    /// # Errors
    /// UNIMPLEMENTED, the caller's doing, if something is granted: leaving it out in silence would look like the guest's failure.
    pub(in crate::wasm) fn open(_: &Policy, grants: &Grants) -> Result<Self> {
        match grants.any_wasi() {
            false => Ok(Self),
            true => Err(Status::new(
                StatusCode::Unimplemented,
                Blame::Caller,
                "expected no grants of directories, clock or randomness, for this build has no capabilities, found some",
            )),
        }
    }

    pub(in crate::wasm) fn link(
        &self,
        linker: &wasmtime::Linker<GuestState>,
        module: &wasmtime::Module,
    ) -> wasmtime::Result<wasmtime::InstancePre<GuestState>> {
        linker.instantiate_pre(module)
    }

    pub(in crate::wasm) fn for_instance(&self, _: &Arc<Shared>) -> Option<Box<OfInstance>> {
        None
    }
}

/// A call ends. There is no output.
#[inline]
pub(in crate::wasm) fn end_output(_: &mut GuestState) {}
