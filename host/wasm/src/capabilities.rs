//! Capabilities: the functions of WASI preview 1 that a module's grants allow.
//!
//! The functions are wasmtime-wasi's. It resolves paths beneath the granted directories, and gives
//! no arguments, environment or standard input. This module adds:
//!
//! - A function is linked only if a grant needs it ([`functions`]), in a linker of the module's
//!   own.
//! - Functions run on the thread of the call. wasmtime-wasi's own synchronous linker starts a
//!   thread pool, and panics where the caller runs in tokio.
//! - Misuse and exit codes of a guest become statuses.
//! - Open files are counted. FIFOs and devices are refused: opening one may block for ever, and
//!   nothing interrupts a call in the host ([`files`]).
//! - Standard output and error are lines of the guest's log ([`output`]), and seeded random bytes
//!   are the same on every machine ([`random`]).
//!
//! Nothing is granted by default, not even log messages. A grant belongs to a loaded module rather
//! than to a call: the targets of a module share a memory, so that each can use whatever one of
//! them can. A file whose targets need different grants is loaded once for each.
//!
//! Without the feature `capabilities` nothing is granted, and loading a module with grants fails.

#[cfg(not(feature = "capabilities"))]
mod disabled;
#[cfg(feature = "capabilities")]
mod files;
mod functions;
#[cfg(feature = "capabilities")]
mod instance;
#[cfg(feature = "capabilities")]
mod link;
#[cfg(feature = "capabilities")]
mod module;
#[cfg(feature = "capabilities")]
mod output;
#[cfg(feature = "capabilities")]
mod random;

#[cfg(not(feature = "capabilities"))]
pub(crate) use self::disabled::{InstanceCapabilities, ModuleCapabilities};
pub(crate) use self::functions::check_import;
#[cfg(feature = "capabilities")]
pub(crate) use self::instance::InstanceCapabilities;
#[cfg(feature = "capabilities")]
pub(crate) use self::module::ModuleCapabilities;
