//! Targets that use every part of typed FFI, each one part: what the conformance cases in `tests/cases/typed` call.

mod attributes;
mod buffers;
mod context;
mod stages;
