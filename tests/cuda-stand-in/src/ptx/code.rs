//! Decoded instructions.
//!
//! Every operand is a slot of the thread's frame. Constants, special registers and addresses have
//! slots as well, filled in when a frame is created, so that the interpreter's loop reads all
//! operands alike.

use super::matrix::MatrixOperation;
use super::types::{Space, Type};

/// An index into a frame. Values narrower than 64 bits are zero-extended; a predicate is 0 or 1.
pub(super) type Slot = u32;

/// An entry's body or a device function.
pub(super) struct Function {
    pub(super) name: String,
    pub(super) code: Vec<Instruction>,
    /// The initial slots of a frame: poison in registers, and constants.
    pub(super) template: Vec<u64>,
    /// Slots whose values are known only at a launch.
    pub(super) patches: Vec<(Slot, Patch)>,
    /// The size of the parameter block, for an entry's body. Smaller addresses are the launch's
    /// parameters.
    pub(super) block_bytes: usize,
    /// The size of a frame's own parameter memory.
    pub(super) param_bytes: usize,
    /// The size of local memory.
    pub(super) local_bytes: usize,
}

impl Function {
    /// Makes a function that is declared and not defined.
    pub(super) fn without_body(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            code: Vec::new(),
            template: Vec::new(),
            patches: Vec::new(),
            block_bytes: 0,
            param_bytes: 0,
            local_bytes: 0,
        }
    }
}

/// A slot value that is known at a launch, or in a thread.
#[derive(Clone, Debug)]
pub(super) enum Patch {
    Special(Special),
    /// The address of this variable of [`Module::shared`](super::module::Module).
    Shared(usize),
    /// The address of this global variable.
    Global(String),
    /// The address at this offset of the frame's local memory.
    Local(u64),
}

/// A special register that is constant while a thread runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Special {
    /// `%tid`, by dimension.
    Thread(usize),
    /// `%ntid`.
    BlockSize(usize),
    /// `%ctaid`.
    Block(usize),
    /// `%nctaid`.
    GridSize(usize),
    Lane,
    Warp,
    Warps,
    LanesEqual,
    LanesBelow,
    LanesUpTo,
    LanesAbove,
    LanesFrom,
    DynamicShared,
    TotalShared,
    Zero,
    One,
}

pub(super) type Unary = Box<dyn Fn(u64) -> u64 + Send + Sync>;
pub(super) type Binary = Box<dyn Fn(u64, u64) -> u64 + Send + Sync>;
pub(super) type Ternary = Box<dyn Fn(u64, u64, u64) -> u64 + Send + Sync>;
pub(super) type Many = Box<dyn Fn(&[u64], &mut [u64]) + Send + Sync>;

/// An instruction with its guard and its source line.
pub(super) struct Instruction {
    pub(super) guard: Option<Guard>,
    pub(super) operation: Operation,
    pub(super) line: u32,
}

/// `@%p` or `@!%p`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guard {
    pub(super) slot: Slot,
    pub(super) wanted: bool,
}

/// An address: the value of a slot plus a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) space: Space,
    pub(super) base: Slot,
    pub(super) offset: u64,
}

pub(super) enum Operation {
    Nothing,
    Move {
        to: Slot,
        from: Slot,
    },
    Unary {
        to: Slot,
        from: Slot,
        function: Unary,
    },
    Binary {
        to: Slot,
        from: [Slot; 2],
        function: Binary,
    },
    Ternary {
        to: Slot,
        from: [Slot; 3],
        function: Ternary,
    },
    Many {
        to: Box<[Slot]>,
        from: Box<[Slot]>,
        function: Many,
    },
    Load {
        to: Slot,
        address: Address,
        bytes: u8,
        sign: Option<Extension>,
    },
    LoadVector {
        to: Box<[Slot]>,
        address: Address,
        bytes: u8,
        sign: Option<Extension>,
    },
    Store {
        from: Slot,
        address: Address,
        bytes: u8,
    },
    StoreVector {
        from: Box<[Slot]>,
        address: Address,
        bytes: u8,
    },
    Atomic(Box<Atomic>),
    CopyAsync(Box<CopyAsync>),
    /// `mma` and others.
    Matrix(Box<MatrixOperation>),
    Branch {
        target: u32,
    },
    /// `brx.idx`.
    BranchTable {
        index: Slot,
        targets: Box<[u32]>,
    },
    Call(Box<Call>),
    /// `vprintf`, which prints nothing, with the slot for its result.
    Print {
        result: Option<u64>,
    },
    /// `__assertfail`, with the places of its arguments.
    AssertFail {
        arguments: Box<[u64]>,
    },
    /// `ret`, which ends the thread in an entry.
    Return,
    Exit,
    Trap,
    Barrier(Box<Barrier>),
    Warp(Box<WarpOperation>),
    /// `%clock` and similar registers: the number of instructions that the launch has executed.
    Clock {
        to: Slot,
        bits: u32,
    },
}

/// How a signed value is extended to its register.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extension {
    pub(super) from_bits: u32,
    pub(super) to_bits: u32,
}

/// `atom` and `red`.
pub(super) struct Atomic {
    /// The old value, if the instruction returns it. `red` does not.
    pub(super) to: Option<Slot>,
    pub(super) address: Address,
    pub(super) bytes: u8,
    pub(super) operands: [Slot; 2],
    /// Computes memory's new value from the old value and the operands.
    pub(super) function: Ternary,
}

/// `cp.async`. The copy happens at once, which the instruction allows.
pub(super) struct CopyAsync {
    /// In shared memory.
    pub(super) to: Address,
    /// In global memory.
    pub(super) from: Address,
    /// 4, 8 or 16.
    pub(super) bytes: u8,
    /// The number of bytes that are read. The rest are zeros.
    pub(super) source_bytes: Option<Slot>,
    /// A predicate: nothing is read if it is true.
    pub(super) ignores_source: Option<Slot>,
}

/// A call of a device function, with the bytes to copy.
pub(super) struct Call {
    pub(super) function: usize,
    pub(super) arguments: Vec<Copied>,
    pub(super) results: Vec<Copied>,
}

/// Bytes copied between the parameter memory of the caller's frame and the callee's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copied {
    pub(super) caller: u64,
    pub(super) callee: u64,
    pub(super) size: usize,
}

/// `bar` and `barrier`.
pub(super) struct Barrier {
    pub(super) id: Slot,
    /// The number of participating threads, if not all.
    pub(super) count: Option<Slot>,
    /// `arrive`: the thread does not wait.
    pub(super) only_arrives: bool,
    /// Whether all threads of a warp must be at this instruction.
    pub(super) is_aligned: bool,
    /// `red`: the reduction of the predicates, and its slots.
    pub(super) reduction: Option<(Reduction, Slot, Slot)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reduction {
    Popc,
    And,
    Or,
}

/// A collective operation of a warp's lanes.
pub(super) struct WarpOperation {
    pub(super) kind: WarpKind,
    /// The participating lanes. `activemask` has none.
    pub(super) mask: Slot,
    pub(super) to: Slot,
    /// The predicate result of `shfl` and `match.all`.
    pub(super) predicate: Option<Slot>,
    pub(super) from: [Slot; 3],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WarpKind {
    /// `bar.warp.sync`
    Sync,
    ActiveMask,
    VoteAll,
    VoteAny,
    VoteUniform,
    Ballot,
    ShuffleUp,
    ShuffleDown,
    ShuffleXor,
    ShuffleIndex,
    MatchAny,
    MatchAll,
    /// `redux.sync`
    Reduce(LaneReduction, Type),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LaneReduction {
    Add,
    Min,
    Max,
    And,
    Or,
    Xor,
}
