//! What the verifier finds: a proof with its report, or refusals.

use std::fmt;

use super::{Check, Launch, Look};
use crate::ast::RegisterId;
use crate::table::Action;
use crate::types::Space;

/// The rule that a kernel breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// The module, or the kernel's declaration.
    Module,
    /// The launch does not fit the kernel, or exceeds a limit.
    Launch,
    /// An instruction that is refused in kernels without a grant.
    Instruction,
    /// A call, or a branch to a computed place.
    Call,
    /// The time, or the place of a thread on the device.
    Clock,
    /// A parameter is not read as the launch passes it.
    Parameter,
    /// An address that cannot be checked.
    Address,
    /// A barrier or a collective instruction that could wait for ever.
    Barrier,
    /// A loop that could not be stopped.
    UnboundedLoop,
    /// The kernel exceeds a limit of the verifier.
    Size,
}

impl Rule {
    /// Returns the name of the rule in messages and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Module => "module",
            Self::Launch => "launch",
            Self::Instruction => "instruction",
            Self::Call => "call",
            Self::Clock => "clock",
            Self::Parameter => "parameter",
            Self::Address => "address",
            Self::Barrier => "barrier",
            Self::UnboundedLoop => "unbounded-loop",
            Self::Size => "size",
        }
    }
}

/// Why a kernel is not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The line of the PTX text, or 0.
    pub line: u32,
    /// The name of the instruction or directive.
    pub instruction: String,
    /// The rule.
    pub rule: Rule,
    /// The reason, as a sentence about the instruction.
    pub reason: String,
    /// The change that would make the kernel pass.
    pub cure: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            line,
            instruction,
            rule,
            reason,
            cure,
        } = self;
        write!(
            f,
            "line {line}: `{instruction}`: {reason} (rule `{}`): {cure}",
            rule.name()
        )
    }
}

/// The outcome of verifying an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is in range and aligned whenever it runs.
    Proved,
    /// The fence checks it.
    Checked,
    /// It is out of range whenever it runs, and the fence reports it.
    Never,
    /// The fence leaves it out.
    Dropped,
}

/// An access of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessReport {
    /// The line of the PTX text.
    pub line: u32,
    /// The state space.
    pub space: Space,
    /// Whether it reads or writes.
    pub action: Action,
    /// The number of bytes from its address that it can reach.
    pub bytes: u64,
    /// The parameter that its address comes from, if that is known.
    pub param: Option<usize>,
    /// The outcome.
    pub verdict: Verdict,
}

/// The reason for which a loop ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopEnd {
    /// It turns at most this often.
    Proved {
        /// The number of turns.
        turns: u64,
    },
    /// It looks at the stop word.
    StopWord {
        /// Every so many turns.
        every: u32,
    },
}

/// A loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoopReport {
    /// The line of its first instruction.
    pub line: u32,
    /// The reason for which it ends.
    pub end: LoopEnd,
}

/// A kernel that passed, for one launch.
#[derive(Clone, Debug)]
pub struct Proof {
    /// The launch.
    pub launch: Launch,
    /// All accesses, in the order of the text.
    pub accesses: Vec<AccessReport>,
    /// All loops, in the order of the text.
    pub loops: Vec<LoopReport>,
    /// Barriers of the block.
    pub barriers: usize,
    /// Bytes of shared memory, static and dynamic.
    pub shared_bytes: u64,
    pub(crate) function: usize,
    pub(crate) plan: Plan,
}

/// The work of the fence. A step is the index of an instruction in the body.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    pub(crate) checks: Vec<Check>,
    /// The index of the block of each step, if it is reachable.
    pub(crate) blocks: Vec<Option<usize>>,
    pub(crate) looks: Vec<Look>,
    pub(crate) zeroed: Vec<RegisterId>,
    /// Steps that end a thread.
    pub(crate) exits: Vec<usize>,
    /// Traps and failed assertions, which become records.
    pub(crate) traps: Vec<usize>,
    /// The value that each step reads from the base register of its address.
    pub(crate) bases: Vec<Vec<(RegisterId, u32)>>,
}
