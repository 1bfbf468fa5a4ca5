//! The second wall: modules that run in processes of their own. Linux only.
//!
//! A [`Sandbox`] is to processes what [`wasm::Engine`](crate::wasm::Engine) is to instances. Each executable that calls a module has *workers* of
//! its own: child processes that compile the module and run it with the [`wasm`](crate::wasm) backend, one execution at a time each, under the
//! same policy. So whoever gets out of a WebAssembly memory, say by a bug in the compiler, is in a process that has nothing: a
//! socket to this one, the memory that buffers lie in, its engine's view of its own pages, no other descriptor, no environment, and a
//! seccomp filter that lets it open, connect to, fork and execute nothing.
//!
//! What a worker says is a claim, as a guest's word is. It can answer wrongly, or not at all; it can not make this process
//! read or write anywhere but in the buffers of the call.
//!
//! A worker is a program that calls [`worker_main`] and nothing before it. The command line `callbox` is its own; an embedder names
//! one, which can be its own program with an argument ([`Worker::this_program`]):
//!
//! ```no_run
//! use callbox::process::{Sandbox, SandboxConfig, Worker, worker_main};
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

#[cfg(target_os = "linux")]
mod buffers;
#[cfg(target_os = "linux")]
mod calls;
#[cfg(target_os = "linux")]
mod child;
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
mod site;
#[cfg(target_os = "linux")]
mod spawner;
#[cfg(target_os = "linux")]
mod starter;
#[cfg(target_os = "linux")]
mod wire;
#[cfg(target_os = "linux")]
mod worker;

#[cfg(not(target_os = "linux"))]
mod elsewhere;

mod config;

#[cfg(target_os = "linux")]
pub use self::calls::ProcessCall;
pub use self::config::{SandboxConfig, Worker};
#[cfg(not(target_os = "linux"))]
pub use self::elsewhere::{ProcessCall, ProcessModule, Sandbox, confine, worker_main};
#[cfg(target_os = "linux")]
pub use self::module::ProcessModule;
#[cfg(target_os = "linux")]
pub use self::sandbox::Sandbox;
#[cfg(target_os = "linux")]
pub use self::worker::{confine, worker_main};
