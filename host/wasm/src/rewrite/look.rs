//! The look at the stop word: the instructions that [`rewrite`](super) inserts.
//!
//! ```text
//! (if (i32.atomic.load8_u $stop (i32.const 7))
//!   (then (i32.atomic.load $stop (i32.const 1)) unreachable))
//! ```
//!
//! - The first load is atomic. Cranelift removes a plain load when no store lies between it and an
//!   earlier one, so that a loop without stores would never see the word change. Cranelift treats
//!   an atomic load as a fence. On x86-64 it is an ordinary load instruction.
//! - The address is a constant within the memory's least size. It needs no bounds check in either
//!   trap mode, and the memory's base stays in a register.
//! - The second load is not aligned and always traps. A guest's own module is validated without the
//!   threads proposal and has no atomic instruction. [`TRAP`] therefore comes from a look and from
//!   nothing else, whatever the guest executes while it is stopped.
//! - A trap is no call. wasmtime's epoch checks call the host, which clobbers registers: Cranelift
//!   then keeps the variables of a loop on the stack. `y = x + a` on 1 MiB took 238 µs with epochs,
//!   97 µs with looks and 90 µs with neither (least of 300 runs, one machine).
//! - In the deterministic mode a look takes three units of fuel.
//! - Every function looks on entry, a leaf without loops included. Calls in a straight line can
//!   otherwise run for seconds. On such a leaf, called in a loop, the look cost at most 10 %.

use wasm_encoder::{BlockType, EntityType, InstructionSink, MemArg, MemoryType};
use wasmtime::Trap;

/// The module and the name of the import. A guest cannot import them: they are not granted.
pub(crate) const IMPORT: (&str, &str) = ("callbox:stop", "word");

/// The index of the stop memory: imported memories come first.
const STOP_MEMORY: u32 = 0;

/// The index of the guest's own memory.
pub(super) const GUEST_MEMORY: u32 = 1;

/// The byte of the memory that is not 0 once the guest is to stop.
pub(crate) const STOP_BYTE: u8 = 7;

/// The trap of a look.
pub(crate) const TRAP: Trap = Trap::HeapMisaligned;

/// Looks at the stop word. The stack stays as it is.
pub(super) fn look(code: &mut InstructionSink<'_>) {
    let access = |align| MemArg {
        offset: 0,
        align,
        memory_index: STOP_MEMORY,
    };
    code.i32_const(i32::from(STOP_BYTE));
    code.i32_atomic_load8_u(access(0)).if_(BlockType::Empty);
    code.i32_const(1).i32_atomic_load(access(2));
    code.unreachable().end();
}

/// The type of the stop memory: one page.
pub(super) fn memory() -> EntityType {
    EntityType::Memory(MemoryType {
        minimum: 1,
        maximum: Some(1),
        memory64: false,
        shared: true,
        page_size_log2: None,
    })
}
