//! What the verifier finds: a proof with its report, or refusals.

use std::collections::BTreeSet;

use super::{Check, Launch, Leaving, Look};
use crate::ast::{RegisterId, VariableId};
use crate::table::Action;
use crate::types::Space;

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

/// A loop, and why it ends.
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
    /// The launch that the proof holds for.
    pub launch: Launch,
    /// All accesses, in the order of the text.
    pub accesses: Vec<AccessReport>,
    /// All loops, in the order of the text.
    pub loops: Vec<LoopReport>,
    /// Whether each block looks at the stop word as it begins, because the grid may run for long.
    pub blocks_look: bool,
    /// The units of work of all threads of the grid ([`Limits::grid_instructions`]) that no stop
    /// ends. 0 if each block looks.
    ///
    /// [`Limits::grid_instructions`]: super::Limits::grid_instructions
    pub grid_units: u64,
    /// Barriers of the block.
    pub barriers: usize,
    /// Bytes of shared memory, static and dynamic.
    pub shared_bytes: u64,
    /// Bytes of variables in global and constant memory.
    pub global_bytes: u64,
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
    /// Who leaves together at the look of each block as it begins.
    pub(crate) first_look: Option<Leaving>,
    pub(crate) zeroed: Vec<RegisterId>,
    /// The variables that the body names.
    pub(crate) named: BTreeSet<VariableId>,
    /// Steps that end a thread, sorted.
    pub(crate) exits: Vec<usize>,
    /// Traps and failed assertions, which become records. Sorted.
    pub(crate) traps: Vec<usize>,
    /// The value that each step reads from the base register of its address.
    pub(crate) bases: Vec<Vec<(RegisterId, u32)>>,
    /// Comparisons that an assembler must not count the turns of a loop by. Sorted.
    pub(crate) hidden: Vec<usize>,
}
