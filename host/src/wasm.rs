//! The Host platform: targets in untrusted WebAssembly modules, run in wasmtime.
//!
//! An [`Engine`] holds what modules share: compiler settings, its [`Policy`](crate::policy::Policy), the ticker behind deadlines. [`Engine::load`] turns the bytes of a
//! stranger's module into a [`Module`], or says what is wrong with it. A module's targets are called through a program's
//! [`Executable`](crate::program::Executable), or one by one through [`Module::prepare_call`].
//!
//! What a guest can do to the host is bounded here and nowhere else: it imports only the FFI API table, each limit has
//! a status, and every value that the host reads back passes one checked type.

mod api;
mod bulk;
#[cfg(feature = "cache")]
mod cache;
mod callback;
mod capabilities;
mod claim;
mod compile;
mod discard;
mod engine;
mod execution;
mod fork;
mod fuel;
mod inspect;
mod instance;
mod interrupt;
mod mapped;
mod memory;
mod metadata;
mod module;
mod outside;
mod pool;
mod prepared;
mod proposals;
mod purity;
mod quota;
mod shared;
mod site;
mod state;
mod text;
mod ticker;
mod trap;
mod version;

#[cfg(feature = "cache")]
pub use cache::{Cache, CacheOptions, CacheOutcome, CacheProblem, CacheReport, CacheReportSink};
#[cfg(all(feature = "process", target_os = "linux"))]
pub(crate) use callback::shown_to_guest;
#[cfg(feature = "fault-injection")]
#[doc(hidden)]
pub use claim::faults;
pub use engine::{Config, Engine};
pub use inspect::{ModuleInfo, inspect, needed_features};
pub use mapped::{MappedCall, Mapping};
pub use module::Module;
pub use outside::{ExportedFunction, ImportedItem, MemoryBounds};
pub use prepared::PreparedCall;
pub use state::LogRecord;
#[cfg(all(feature = "process", target_os = "linux"))]
pub(crate) use text::clean_message;
#[cfg(any(feature = "cuda", all(feature = "process", target_os = "linux")))]
pub(crate) use text::sanitize;
