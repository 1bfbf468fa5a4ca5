//! How long instructions may take.

use crate::ast::Instruction;
use crate::table::{Form, Opcode, Role};
use crate::types::{Space, Type};

/// The units of an access of global memory.
const GLOBAL: i128 = 64;
/// The units of an access of the memory of a block or a thread, and of meeting other lanes.
const NEAR: i128 = 16;
/// The units of an instruction that is a function of many native ones.
const FUNCTION: i128 = 64;
/// The units of a division of 64 bits, and of a product of matrices of narrow numbers, which newer
/// devices compute by many instructions.
const LONG_FUNCTION: i128 = 160;
/// The units of an arithmetic instruction in F64, which most devices run at a fraction of the rate.
const F64: i128 = 16;
/// The units of an atomic operation, of which a device runs one at a time on one address.
const ATOMIC: i128 = 4096;
/// The units of waiting for memory to be seen by others.
const FENCE: i128 = 1024;
/// The units of a pause, which may last a millisecond.
const PAUSE: i128 = 1 << 18;

/// How long a thread may be at an instruction, in units. A plain one counts 1: a few nanoseconds,
/// where other warps run beside it.
/// `threads` are those of a block.
pub(crate) fn weight(instruction: &Instruction, form: &Form, threads: i128) -> i128 {
    use Opcode as O;
    let is_wide = instruction.kind().is_some_and(|kind| kind.bits() == 64);
    match instruction.opcode {
        // Of the threads of a block that try, one succeeds, and the others try again.
        O::Atom | O::Red if is_loop_in_shared_memory(instruction, form) => {
            ATOMIC.max(threads * threads / 8)
        }
        // Each thread that ends so writes its record by one.
        O::Atom | O::Red | O::Trap | O::Brkpt | O::Call => ATOMIC,
        O::Membar | O::Fence => FENCE,
        O::Nanosleep => PAUSE,
        O::Div | O::Rem if is_wide => LONG_FUNCTION,
        O::Mma | O::Wmma if instruction.kinds().any(|kind| kind.bits() < 8) => LONG_FUNCTION,
        // Some ten native ones.
        O::Bfe | O::Bfi | O::Sad | O::Bfind | O::Clz | O::Cnot if is_wide => NEAR,
        O::Mul | O::Mad | O::Madc if is_wide => NEAR,
        O::Mul24 | O::Mad24 if instruction.has("hi") => NEAR,
        // They wait as a fence does.
        O::Ld | O::St
            if ["acquire", "release", "sc", "mmio"]
                .map(|name| instruction.has(name))
                .contains(&true) =>
        {
            FENCE
        }
        O::Div
        | O::Rem
        | O::Sqrt
        | O::Rcp
        | O::Rsqrt
        | O::Sin
        | O::Cos
        | O::Lg2
        | O::Ex2
        | O::Tanh
        | O::Fns
        | O::Mma => FUNCTION,
        O::Wmma if instruction.has("mma") => FUNCTION,
        O::Bar | O::Barrier | O::Shfl | O::Vote | O::Match | O::Redux => NEAR,
        _ => {
            let spaces = form.roles.iter().filter_map(|role| match role {
                Role::Memory(access) => Some(access.space),
                _ => None,
            });
            // Lanes that read different constants wait for one another.
            let far = |space| matches!(space, Space::Global | Space::Generic | Space::Const);
            let access = spaces.map(|space| if far(space) { GLOBAL } else { NEAR });
            match access.max() {
                Some(units) => units,
                None if instruction.kinds().any(|kind| kind == Type::F64) => F64,
                None => 1,
            }
        }
    }
}

/// Whether assemblers make a loop of compare-and-swap of an atomic operation in shared memory. That
/// has instructions for integers of 32 bits, and for exchanges.
fn is_loop_in_shared_memory(instruction: &Instruction, form: &Form) -> bool {
    let is_near = form.roles.iter().any(|role| match role {
        Role::Memory(access) => access.space != Space::Global,
        _ => false,
    });
    let is_exchange = instruction.has("exch") || instruction.has("cas");
    let is_native = instruction.kind().is_some_and(|kind| match kind {
        Type::B32 | Type::U32 | Type::S32 => true,
        _ => is_exchange && kind.bits() >= 32,
    });
    is_near && !is_native
}
