//! A stand-in for NVIDIA's driver, for tests on machines without a GPU. Its device name shows that
//! results are not a GPU's.
//!
//! Built as a shared library it is a `libcuda`: the driver API on memory, streams, captures and
//! graphs kept by the `state` module, with kernels executed by the PTX interpreter in [`ptx`].
//! Linked as a Rust library it is the tests' interface to that shared library: see [`StandIn`].
//!
//! # Unsupported
//!
//! Kernels that access other devices' memory, contexts other than primary ones, memory pools,
//! textures, managed memory, cooperative launches, graphs inside captures, and machine code.
//!
//! # Stricter than a real driver
//!
//! - Stream-ordered allocation, and copies from and to pageable memory, are rejected during a
//!   capture.
//! - Other streams cannot access memory before its stream has reached the allocation.
//! - An executable graph cannot be updated to another kernel.
//! - Addresses and handles are never reused.

mod control;
mod driver;
pub mod fenced;
pub mod ptx;
mod state;

pub use self::control::{Leaks, Mode, StandIn};
