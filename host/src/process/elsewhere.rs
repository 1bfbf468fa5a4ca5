//! Where there is no second wall: everything says so.

use std::process::ExitCode;
use std::sync::Arc;

use super::config::SandboxConfig;
use crate::call::{CallOptions, CallSite, Platform, PreparedCalls, Signature, TargetModule};
use crate::policy::{Grants, Policy};
use crate::values::{Result, Status};
use crate::wasm::ModuleInfo;

/// What none of has been made.
#[derive(Clone, Debug)]
enum Nothing {}

/// There is none on this system.
#[derive(Clone, Debug)]
pub struct Sandbox(Nothing);

/// There is none on this system.
#[derive(Debug)]
pub struct ProcessModule(Nothing);

/// There is none on this system.
#[derive(Debug)]
pub struct ProcessCall(Nothing);

fn unimplemented() -> Status {
    Status::unimplemented(format!(
        "expected Linux for modules in processes of their own, found {}",
        std::env::consts::OS
    ))
}

/// Fails.
#[must_use]
pub fn worker_main() -> ExitCode {
    ExitCode::FAILURE
}

/// Fails.
///
/// # Errors
/// UNIMPLEMENTED.
#[doc(hidden)]
pub fn confine() -> Result<()> {
    Err(unimplemented())
}

impl Sandbox {
    /// Fails.
    ///
    /// # Errors
    /// UNIMPLEMENTED.
    pub fn new(_: SandboxConfig) -> Result<Self> {
        Err(unimplemented())
    }

    /// There is none to load into.
    ///
    /// # Errors
    /// None.
    pub fn load(&self, _: &[u8]) -> Result<Arc<ProcessModule>> {
        match self.0 {}
    }

    /// There is none to load into.
    ///
    /// # Errors
    /// None.
    pub fn load_with(&self, _: &[u8], _: &Grants) -> Result<Arc<ProcessModule>> {
        match self.0 {}
    }

    /// There is none.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        match self.0 {}
    }
}

impl ProcessModule {
    /// There is none.
    #[must_use]
    pub fn info(&self) -> &ModuleInfo {
        match self.0 {}
    }

    /// There is none.
    ///
    /// # Errors
    /// None.
    pub fn prepare_call(self: &Arc<Self>, _: CallSite) -> Result<ProcessCall> {
        match self.0 {}
    }
}

impl TargetModule for ProcessModule {
    fn identity(&self) -> &str {
        match self.0 {}
    }

    fn platform(&self) -> Platform {
        match self.0 {}
    }

    fn targets(&self) -> &[Signature] {
        match self.0 {}
    }

    fn prepare(self: Arc<Self>, _: Vec<CallSite>) -> Result<Box<dyn PreparedCalls>> {
        match self.0 {}
    }
}

impl ProcessCall {
    /// There is none.
    ///
    /// # Errors
    /// None.
    pub fn call(&self, _: &[&[u8]], _: &mut [&mut [u8]]) -> Result<()> {
        match self.0 {}
    }

    /// There is none.
    ///
    /// # Errors
    /// None.
    pub fn call_with(&self, _: &CallOptions, _: &[&[u8]], _: &mut [&mut [u8]]) -> Result<()> {
        match self.0 {}
    }
}
