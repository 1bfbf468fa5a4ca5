//! What a module's grants let it import and do besides the FFI API table, by WASI preview 1.
//!
//! The functions are wasmtime-wasi's. It resolves paths beneath the directories that were granted, and knows of nothing else of the
//! host's: no arguments, no environment, no standard input. What is added here is what its own way of linking leaves open:
//!
//! - A function is linked only if something that is granted takes it ([`functions`]), so that what is not granted is not there to be called.
//! - They run on the thread of the call. wasmtime-wasi's synchronous functions start a thread pool and panic where the caller
//!   runs in tokio.
//! - What a guest misuses is its own failure, with a status. What it exits with, too.
//! - Open files are counted, and what would keep the host waiting, like a FIFO, is not opened ([`files`]).
//! - Standard output and error are lines of the guest's log ([`output`]). Seeded random bytes are the same everywhere ([`random`]).
//!
//! A build without the feature `capabilities` grants none of this, and says so.

#[cfg(not(feature = "capabilities"))]
mod disabled;
#[cfg(feature = "capabilities")]
mod files;
mod functions;
#[cfg(feature = "capabilities")]
mod granted;
#[cfg(feature = "capabilities")]
mod link;
#[cfg(feature = "capabilities")]
mod output;
#[cfg(feature = "capabilities")]
mod random;

#[cfg(not(feature = "capabilities"))]
pub(super) use self::disabled::{Granted, OfInstance, end_output};
pub(super) use self::functions::check_import;
#[cfg(feature = "capabilities")]
pub(super) use self::granted::{Granted, OfInstance};
#[cfg(feature = "capabilities")]
pub(super) use self::output::end_output;
