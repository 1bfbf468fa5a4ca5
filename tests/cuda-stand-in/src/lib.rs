//! A stand-in for NVIDIA's driver, for tests on machines without a GPU. What it gives is never a GPU's result, and says so.
//!
//! Built as a shared library it is a `libcuda`: the driver API over memory, streams, captures and graphs kept by the `state` module, with
//! kernels run by the PTX interpreter in [`ptx`]. Linked as a Rust library it is the tests' way to that shared library: see [`StandIn`].
//!
//! What it does not have: kernels that reach other devices' memory, contexts other than primary ones, memory pools, textures, managed memory,
//! cooperative launches, graphs inside captures, machine code. Where it is stricter than a real driver: allocation in a stream and copies from
//! and to pageable memory are refused under capture, memory of a stream is not there for others until its stream has come to it, an executable
//! graph does not take over another kernel, and addresses and handles are never given twice.

mod control;
mod driver;
pub mod ptx;
mod state;

pub use self::control::{Leaks, Mode, StandIn};
