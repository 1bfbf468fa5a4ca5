//! The interpreter: kernels and single instructions of PTX, on memory of their own.

mod arithmetic;
mod comparisons;
mod device_memory;
mod faults;
mod floats;
mod flow;
mod halves;
mod integers;
mod kernels;
mod matrices;
mod triton;
