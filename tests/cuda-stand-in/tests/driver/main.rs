//! The driver API: each test resets the stand-in and has it to itself.

mod calls;
mod captures;
mod cudarc;
mod faults;
mod graphs;
mod misuse;
mod rig;
mod streams;
