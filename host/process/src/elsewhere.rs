//! The API on systems without the second wall: every function fails with UNIMPLEMENTED.

#![allow(
    unsafe_code,
    reason = "an engine's compiler is an unsafe trait, also where there is none"
)]

use std::process::ExitCode;
use std::sync::Arc;

use super::config::{SandboxConfig, Worker};
use callbox_core::call::{CallOptions, CallSite, Platform, PreparedCalls, Signature, TargetModule};
use callbox_core::policy::{Grants, Policy};
use callbox_core::values::{Result, Status};
use callbox_wasm::{Code, CompileJob, Compiler, ModuleFile, ModuleInfo, NotCompiled};

/// A type without values.
#[derive(Clone, Debug)]
enum Nothing {}

/// Has no values on this system.
#[derive(Clone, Debug)]
pub struct Sandbox(Nothing);

/// Has no values on this system.
#[derive(Debug)]
pub struct ProcessModule(Nothing);

/// The prepared call of other systems. No function returns one on this system.
pub type ProcessCall = callbox_wasm::PreparedCall;

/// Has no values on this system.
#[derive(Debug)]
pub enum CompilerProcess {}

// SAFETY: the type has no values, so that no method is ever called.
unsafe impl Compiler for CompilerProcess {
    fn compile(&self, _: &CompileJob<'_>) -> Result<Code, NotCompiled> {
        match *self {}
    }
}

impl CompilerProcess {
    /// Fails: this system has no child processes for guests.
    ///
    /// # Errors
    /// UNIMPLEMENTED.
    pub fn new(_: Worker) -> Result<Self> {
        Err(unimplemented())
    }
}

fn unimplemented() -> Status {
    Status::unimplemented(format!(
        "modules in processes of their own need Linux, and this system is {}",
        std::env::consts::OS
    ))
}

/// Returns a failure: this system has no child processes for guests.
#[must_use]
pub fn worker_main() -> ExitCode {
    ExitCode::FAILURE
}

/// Fails: this system has no child processes for guests.
///
/// # Errors
/// UNIMPLEMENTED.
#[doc(hidden)]
pub fn confine() -> Result<()> {
    Err(unimplemented())
}

/// Fails: this system has no child processes for guests.
///
/// # Errors
/// UNIMPLEMENTED.
#[doc(hidden)]
pub fn confine_compiler() -> Result<()> {
    Err(unimplemented())
}

impl Sandbox {
    /// Fails: this system has no child processes for guests.
    ///
    /// # Errors
    /// UNIMPLEMENTED.
    pub fn new(_: SandboxConfig) -> Result<Self> {
        Err(unimplemented())
    }

    /// Is never called, because no sandbox exists on this system.
    ///
    /// # Errors
    /// None.
    pub fn load(&self, _: &[u8]) -> Result<Arc<ProcessModule>> {
        match self.0 {}
    }

    /// Is never called, because no sandbox exists on this system.
    ///
    /// # Errors
    /// None.
    pub fn load_with(&self, _: &[u8], _: &Grants) -> Result<Arc<ProcessModule>> {
        match self.0 {}
    }

    /// Is never called, because no sandbox exists on this system.
    ///
    /// # Errors
    /// None.
    pub fn load_file(&self, _: &ModuleFile, _: &Grants) -> Result<Arc<ProcessModule>> {
        match self.0 {}
    }

    /// Is never called, because the type has no values.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        match self.0 {}
    }
}

impl ProcessModule {
    /// Is never called, because the type has no values.
    #[must_use]
    pub fn info(&self) -> &ModuleInfo {
        match self.0 {}
    }

    /// Is never called, because the type has no values.
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

    fn prepare(
        self: Arc<Self>,
        _: Vec<CallSite>,
        _: &CallOptions,
    ) -> Result<Box<dyn PreparedCalls>> {
        match self.0 {}
    }
}
