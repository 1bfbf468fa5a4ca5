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
pub(crate) fn weight(instruction: &Instruction, form: &Form) -> i128 {
    use Opcode as O;
    let is_wide = instruction.kind().is_some_and(|kind| kind.bits() == 64);
    match instruction.opcode {
        // Each thread that ends so writes its record by one.
        O::Atom | O::Red | O::Trap | O::Brkpt | O::Call => ATOMIC,
        O::Membar | O::Fence => FENCE,
        O::Nanosleep => PAUSE,
        O::Div | O::Rem if is_wide => LONG_FUNCTION,
        O::Mma | O::Wmma if instruction.kinds().any(|kind| kind.bits() < 8) => LONG_FUNCTION,
        O::Bfe | O::Bfi | O::Sad if is_wide => NEAR,
        O::Mul | O::Mad if is_wide && instruction.has("hi") => NEAR,
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
            let far = |space: Space| matches!(space, Space::Global | Space::Generic);
            let access = spaces.map(|space| if far(space) { GLOBAL } else { NEAR });
            match access.max() {
                Some(units) => units,
                None if instruction.kinds().any(|kind| kind == Type::F64) => F64,
                None => 1,
            }
        }
    }
}
