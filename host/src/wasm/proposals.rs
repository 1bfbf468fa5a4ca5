//! Which WebAssembly is allowed: the proposals that are on, and what the engine is laid out for.

use wasmtime::WasmFeatures;

/// How many tables a module may have: what compilers make for indirect calls.
pub(super) const MAX_TABLES: usize = 1;

/// What compilers make of ordinary code today, and no more.
pub(super) fn features() -> WasmFeatures {
    WasmFeatures::FLOATS
        | WasmFeatures::MUTABLE_GLOBAL
        | WasmFeatures::SATURATING_FLOAT_TO_INT
        | WasmFeatures::SIGN_EXTENSION
        | WasmFeatures::MULTI_VALUE
        | WasmFeatures::BULK_MEMORY
        | WasmFeatures::REFERENCE_TYPES
        | WasmFeatures::SIMD
        | WasmFeatures::RELAXED_SIMD
        | WasmFeatures::TAIL_CALL
        | WasmFeatures::EXTENDED_CONST
}
