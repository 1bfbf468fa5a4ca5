//! Targets that each use one part of typed FFI, for the conformance cases in `tests/cases/typed`.

mod attributes;
mod buffers;
mod context;
mod random;
mod stages;
