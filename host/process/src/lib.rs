//! The second wall of callbox: modules that run in processes of their own. Linux only.
//!
//! A [`Sandbox`] loads modules like a [`callbox_wasm::Engine`], but runs them in *workers*: child
//! processes that compile the module and run it with the wasm backend under the same policy. A
//! guest that escapes its WebAssembly memory, say through a compiler bug, finds itself in a process
//! with a socket to its parent, the memory of the call's buffers, no other descriptor, no
//! environment, and a seccomp filter that admits no `open`, `connect`, `fork` or `exec`.
//!
//! # Example
//!
//! A worker is a program that calls [`worker_main`] before anything else. An embedder can use its
//! own program with an argument ([`Worker::this_program`]):
//!
//! ```no_run
//! use callbox_process::{Sandbox, SandboxConfig, Worker, worker_main};
//!
//! fn main() -> std::process::ExitCode {
//!     if std::env::args().nth(1).as_deref() == Some("worker") {
//!         return worker_main();
//!     }
//!     let sandbox = Sandbox::new(SandboxConfig::new(Worker::this_program(["worker"])));
//!     // `sandbox.load(..)` gives modules for a registry, as `Engine::load` does.
//!     # drop(sandbox);
//!     std::process::ExitCode::SUCCESS
//! }
//! ```
//!
//! # Design
//!
//! - A worker serves one executable, as an instance does, one execution at a time. It compiles the
//!   module itself, so that compiling is behind the wall too.
//! - Buffers lie in a shared memory file that both processes access by system calls: neither maps
//!   memory that the other can change.
//! - Every message of a worker is untrusted, like the values of a guest. A worker can answer
//!   wrongly or not at all. It cannot make this process access memory outside the buffers of the
//!   call, reserve memory without bound, or wait past a deadline. A worker that breaks the protocol
//!   is killed, and the call fails with INTERNAL.
//! - A killed worker is replaced: later calls of the executable start another.
//!
//! # Features
//!
//! None. On systems other than Linux, every function fails with UNIMPLEMENTED.
//!
//! # Where to go next
//!
//! - [`Sandbox::load`] gives a [`ProcessModule`]. It implements
//!   [`TargetModule`](callbox_core::call::TargetModule), so that a
//!   [`Registry`](callbox_core::Registry) takes it like any other module.
//! - [`ProcessModule::prepare_call`] prepares a single call without a program.
//! - [`CompilerProcess`] compiles modules in another process and runs them in this one.

#[cfg(target_os = "linux")]
mod buffers;
#[cfg(target_os = "linux")]
mod calls;
#[cfg(target_os = "linux")]
mod child;
#[cfg(target_os = "linux")]
mod compiler;
#[cfg(target_os = "linux")]
mod exchange;
#[cfg(target_os = "linux")]
mod message;
#[cfg(target_os = "linux")]
mod module;
#[cfg(target_os = "linux")]
mod pool;
#[cfg(target_os = "linux")]
mod sandbox;
#[cfg(target_os = "linux")]
mod spawner;
#[cfg(target_os = "linux")]
mod starter;
#[cfg(target_os = "linux")]
mod worker;

#[cfg(not(target_os = "linux"))]
mod elsewhere;

mod config;

/// A call site of a target behind the second wall, prepared for calls outside a program.
#[cfg(target_os = "linux")]
pub type ProcessCall = callbox_core::call::PreparedCall<self::calls::Sites>;
#[cfg(target_os = "linux")]
pub use self::compiler::CompilerProcess;
pub use self::config::{SandboxConfig, Worker};
#[cfg(not(target_os = "linux"))]
pub use self::elsewhere::{
    CompilerProcess, ProcessCall, ProcessModule, Sandbox, confine, worker_main,
};
#[cfg(target_os = "linux")]
pub use self::module::ProcessModule;
#[cfg(target_os = "linux")]
pub use self::sandbox::Sandbox;
#[cfg(target_os = "linux")]
pub use self::worker::{confine, confine_compiler, worker_main};
