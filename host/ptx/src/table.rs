//! The table of instructions: opcodes, their modifiers, and what each operand is to them.
//!
//! The reader refuses an opcode or a modifier that the table does not have, so a tree has only
//! known ones. [`form`] describes what one instruction does, or says why kernels without a grant
//! must not have it.
//!
//! - Registers that it reads and writes: [`Role::Read`], [`Role::Write`] and [`Role::Update`] of
//!   each operand. The elements of a vector and the parts of a pair have the operand's role. The
//!   registers in an address, and the guard, are always read.
//! - Memory: [`Role::Memory`] has the state space, what happens, the number of bytes, and the
//!   alignment. Of collective accesses, such as `ldmatrix`, no lane can be left out.
//! - Control: [`Form::control`].
//! - Threads that it waits for: [`Form::meeting`].
//! - Time: [`Form::reads_clock`], and [`crate::special::Special::told`] for special registers.
//! - Refusals: textures, tensor memory, clusters and others are a [`Refusal`].
//!
//! Registers are typed by their declarations. The type of an operation is among the modifiers:
//! [`Instruction::kind`](crate::ast::Instruction::kind).

mod forms;
mod matrices;
mod memory;
mod opcodes;
mod rows;

use crate::types::Space;

pub use self::forms::form;
pub(crate) use self::forms::refused;
pub use self::opcodes::Opcode;
pub use self::rows::is_hint;
pub(crate) use self::rows::modifier;

/// A part of an instruction's name behind its opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Modifier {
    /// A name of the table, without its point: `global`, `v4`, `L1::evict_last`.
    Name(&'static str),
    /// The shape of a matrix, such as `m16n8k16`.
    Shape([u16; 3]),
}

/// What an instruction does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Form {
    /// The role of each operand, in order.
    pub roles: Vec<Role>,
    /// Where control goes.
    pub control: Control,
    /// The threads or work that the instruction waits for.
    pub meeting: Meeting,
    /// Whether the result depends on time.
    pub reads_clock: bool,
}

/// The role of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Registers that are written.
    Write,
    /// A value that is read.
    Read,
    /// Registers that are read and written: the accumulators of `wgmma`.
    Update,
    /// A value that must be an immediate.
    Constant,
    /// Memory, in brackets.
    Memory(Access),
    /// The label or labels of a branch.
    Target,
    /// The function of a call.
    Function,
    /// The results of a call, which it writes to `.param` variables.
    Results,
    /// The arguments of a call, which it reads from `.param` variables.
    Arguments,
}

/// An access of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The state space that the instruction names. If it names none and the address is a variable,
    /// the variable's space.
    pub space: Space,
    /// Whether it is read or written.
    pub action: Action,
    /// The number of bytes from the address.
    pub bytes: Bytes,
    /// The address must be a multiple of this, or the context is lost.
    pub align: u32,
    /// All lanes of the warp access memory together, each by its own address. A lane cannot be left
    /// out by a guard.
    pub is_collective: bool,
}

/// What an access does to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Reads it.
    Load,
    /// Writes it.
    Store,
    /// Reads and writes it: `atom`, `red`, `mbarrier`.
    Update,
    /// Hints at an access that follows.
    Prefetch,
}

/// The size of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bytes {
    /// A number that the instruction says.
    Constant(u32),
    /// The value of the operand at this index.
    Operand(usize),
    /// Rows that lie a stride apart, which the operand at this index gives in elements: the matrix
    /// of `wmma.load` and `wmma.store`.
    Rows {
        /// The number of rows.
        rows: u32,
        /// The number of bytes of a row.
        bytes: u32,
        /// The number of bytes of an element.
        element: u32,
        /// The index of the operand. Without one, the rows are adjacent.
        stride: Option<usize>,
    },
}

/// Where control goes after an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// To the next instruction.
    Next,
    /// To a label, or with a guard perhaps to the next instruction.
    Branch,
    /// To one of several labels.
    BranchTable,
    /// Into a function and back.
    Call,
    /// Out of the function: in an entry, the thread ends.
    Return,
    /// The thread ends.
    Exit,
    /// `trap` and `brkpt`: the context is lost.
    Trap,
}

/// Whom an instruction waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meeting {
    /// It waits for no other thread.
    Nothing,
    /// The lanes of the warp that its mask operand, at this index, names.
    Lanes {
        /// The index of the operand.
        mask: usize,
    },
    /// All lanes of the warp: `ldmatrix`, `mma`.
    Warp,
    /// All threads of the block, or as many as an operand says. The barrier's number is the operand
    /// at this index.
    Block {
        /// The index of the operand. Without one, it is barrier 0.
        barrier: Option<usize>,
        /// The index of the number of threads.
        count: Option<usize>,
        /// `arrive`: counts the thread, which goes on.
        is_arrival: bool,
    },
    /// Asynchronous work of this thread, which ends without others: `cp.async.wait_group`.
    OwnWork,
}

/// The reason for which kernels without a grant must not have an instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The reason, which follows the instruction's name: "a texture is read through a handle ...".
    pub reason: String,
}
