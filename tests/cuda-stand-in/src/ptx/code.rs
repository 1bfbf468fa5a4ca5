//! Decoded instructions.
//!
//! Every operand is a slot of the thread's frame: registers, and also constants, special registers and addresses, which are filled in when a
//! frame is made. So the inner loop has one way to read an operand.

use super::types::{Space, Type};

/// A place in a frame. Values of fewer than 64 bits have zeros above; a predicate is 0 or 1.
pub(super) type Slot = u32;

/// An entry's body or a device function.
pub(super) struct Function {
    pub(super) name: String,
    pub(super) code: Vec<Instruction>,
    /// What a new frame has in its slots: poison in registers, and constants.
    pub(super) template: Vec<u64>,
    /// Slots to fill in that the text does not know.
    pub(super) patches: Vec<(Slot, Patch)>,
    /// Bytes of the parameter block if this is an entry's body. Addresses below it are the launch's parameters.
    pub(super) block_bytes: usize,
    /// Bytes of parameter memory that a frame has of its own.
    pub(super) param_bytes: usize,
    /// Bytes of local memory.
    pub(super) local_bytes: usize,
}

impl Function {
    /// A function that is declared and not defined.
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

/// What a slot holds that is known at a launch, or in a thread.
#[derive(Clone, Debug)]
pub(super) enum Patch {
    Special(Special),
    /// The variable of [`Module::shared`](super::module::Module).
    Shared(usize),
    /// The variable that the driver placed.
    Global(String),
    /// The offset in the frame's local memory.
    Local(u64),
}

/// A special register that does not change while a thread runs.
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

/// An instruction, the predicate that guards it, and where it stands.
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

/// An address: what a slot holds, and a constant.
#[derive(Clone, Copy, Debug)]
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
    Branch {
        target: u32,
    },
    /// `brx.idx`.
    BranchTable {
        index: Slot,
        targets: Box<[u32]>,
    },
    Call(Box<Call>),
    /// `vprintf`, which prints nothing. Where its result goes.
    Print {
        result: Option<u64>,
    },
    /// `__assertfail`. Where its arguments are.
    AssertFail {
        arguments: Box<[u64]>,
    },
    /// `ret`, which in an entry is the thread's end.
    Return,
    Exit,
    Trap,
    Barrier(Box<Barrier>),
    Warp(Box<WarpOperation>),
    /// `%clock` and its like: how many instructions the launch has taken.
    Clock {
        to: Slot,
        bits: u32,
    },
}

/// How a signed value is widened to its register.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extension {
    pub(super) from_bits: u32,
    pub(super) to_bits: u32,
}

/// `atom` and `red`.
pub(super) struct Atomic {
    /// The value from before. `red` has none.
    pub(super) to: Option<Slot>,
    pub(super) address: Address,
    pub(super) bytes: u8,
    pub(super) operands: [Slot; 2],
    /// Memory's value and the operands, to memory's new value.
    pub(super) function: Ternary,
}

/// A call of a device function, with the bytes to copy.
pub(super) struct Call {
    pub(super) function: usize,
    pub(super) arguments: Vec<Copied>,
    pub(super) results: Vec<Copied>,
}

/// Bytes that are copied between the parameter memory of the caller's frame and the callee's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copied {
    pub(super) caller: u64,
    pub(super) callee: u64,
    pub(super) size: usize,
}

/// `bar` and `barrier`.
pub(super) struct Barrier {
    pub(super) id: Slot,
    /// How many threads take part, if not all.
    pub(super) count: Option<Slot>,
    /// `arrive`: the thread does not wait.
    pub(super) only_arrives: bool,
    /// Whether a warp's threads must all be at this instruction.
    pub(super) is_aligned: bool,
    /// `red`: what is made of the predicates, and where it goes.
    pub(super) reduction: Option<(Reduction, Slot, Slot)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reduction {
    Popc,
    And,
    Or,
}

/// What lanes of a warp do together.
pub(super) struct WarpOperation {
    pub(super) kind: WarpKind,
    /// The lanes that take part. `activemask` has none.
    pub(super) mask: Slot,
    pub(super) to: Slot,
    /// `shfl` and `match.all` have a predicate as well.
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
