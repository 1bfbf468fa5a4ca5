//! Verifies a kernel for one launch: what it can reach, what ends its loops, and who waits for
//! whom.
//!
//! [`verify`] knows the launch: grid, block, shared memory, the lengths of buffers and the values
//! of scalars. It finds which values each register can have (`values`, `solve`, `facts`), and
//! proves what it can. [`crate::fence`] checks the rest when the kernel runs. A refusal names the
//! line, the instruction, the rule, and what would make the kernel pass.
//!
//! A proof holds only for its launch: the launcher must use exactly these numbers, and buffers that
//! are at least as long and as aligned.

mod accesses;
mod comparison;
mod evaluate;
mod facts;
mod flow;
mod loops;
mod range;
mod refusal;
mod rules;
mod solve;
mod ssa;
mod survey;
mod uniform;
mod values;

pub(crate) use self::accesses::{Check, Decision};
pub(crate) use self::flow::Flow;
pub(crate) use self::loops::{Leaving, Look};
pub use self::refusal::{Refusal, Rule};
pub use self::survey::{Open, Survey, Unproved, survey, unknown_launch};
pub(crate) use self::values::Origin;

use self::refusal::{launch_refusal, refusal};
use self::solve::Solution;
use self::uniform::Uniformity;
use self::values::Subject;
use crate::ast::{Address, Base, Function, Module, RegisterId, Variable, VariableId};
use crate::table::{Action, form};
use crate::types::Space;

/// The launch that a kernel is verified for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Blocks in x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y and z.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub shared_bytes: u32,
    /// The kernel's parameters, in order.
    pub params: Vec<Param>,
    /// Whether the kernel may read clocks and wait for time.
    pub has_clock: bool,
}

impl Launch {
    /// The size of a variable. That of dynamic shared memory is the launch's.
    pub(crate) fn variable_bytes(&self, variable: &Variable) -> u64 {
        if is_dynamic(variable) {
            u64::from(self.shared_bytes)
        } else {
            variable_bytes(variable).unwrap_or(0)
        }
    }
}

/// A parameter of a launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Param {
    /// The address of a buffer in global memory.
    Buffer {
        /// Its length.
        bytes: u64,
        /// Whether the kernel may write it.
        writable: bool,
        /// A power of two that divides its address.
        align: u32,
    },
    /// A scalar: its bytes in memory.
    Value(Vec<u8>),
}

/// Limits on a kernel and on the work of the verifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Instructions of a kernel.
    pub instructions: usize,
    /// Blocks of instructions.
    pub blocks: usize,
    /// Registers of a kernel.
    pub registers: usize,
    /// Places where values of registers meet, times the ways into them.
    pub joins: usize,
    /// Blocks of threads in a grid.
    pub grid: u64,
    /// Bytes of shared memory, static and dynamic.
    pub shared_bytes: u64,
    /// Bytes of a thread's local variables.
    pub local_bytes: u64,
    /// Instructions of all threads of a grid. Where there may be more, each block looks at the stop
    /// word as it begins.
    pub grid_instructions: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            instructions: 200_000,
            blocks: 10_000,
            registers: 200_000,
            joins: 1_000_000,
            grid: 1 << 31,
            shared_bytes: 228 << 10,
            local_bytes: 64 << 10,
            // Some 50 ms of a large GPU.
            grid_instructions: 1 << 40,
        }
    }
}

/// What the verifier says about an access.
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
    /// What it does.
    pub action: Action,
    /// How many bytes from its address on it can reach.
    pub bytes: u64,
    /// The parameter that its address comes from, if that is known.
    pub param: Option<usize>,
    /// What the verifier says about it.
    pub verdict: Verdict,
}

/// What ends a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopEnd {
    /// It goes back at most this often.
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
    /// What ends it.
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
    /// Whether each block looks at the stop word as it begins, because the grid may run for long.
    pub blocks_look: bool,
    /// Barriers of the block.
    pub barriers: usize,
    /// Bytes of shared memory, static and dynamic.
    pub shared_bytes: u64,
    pub(crate) function: usize,
    pub(crate) plan: Plan,
}

/// What the fence has to do. Steps are instructions, counted in the body.
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

/// Verifies the kernel of this name.
///
/// # Errors
/// Everything that is refused, in the order of the text.
pub fn verify(
    module: &Module,
    entry: &str,
    launch: &Launch,
    limits: &Limits,
) -> Result<Proof, Vec<Refusal>> {
    examine(module, entry, launch, Open::default(), limits).map_err(|unproved| unproved.refusals)
}

/// Verifies a kernel for every launch that has these numbers where they are not open.
fn examine(
    module: &Module,
    entry: &str,
    launch: &Launch,
    open: Open,
    limits: &Limits,
) -> Result<Proof, Unproved> {
    let always = |refusals| Unproved {
        refusals,
        depends_on_launch: false,
    };
    let index = rules::entry(module, entry).map_err(|refusal| always(vec![refusal]))?;
    let Some((function, body)) = module
        .functions
        .get(index)
        .and_then(|function| Some((function, function.body.as_deref()?)))
    else {
        let reason = format!("kernel `{entry}` has no body");
        return Err(always(vec![launch_refusal(Rule::Module, reason)]));
    };
    let mut refusals = rules::declarations(module, function, launch, open, limits);
    let mut forms = Vec::new();
    for statement in body {
        let crate::ast::Statement::Instruction(instruction) = statement else {
            continue;
        };
        match form(module, function, instruction) {
            Ok(form) => {
                refusals.extend(rules::instruction(
                    module,
                    function,
                    instruction,
                    &form,
                    launch,
                ));
                forms.push(form);
            }
            Err(reason) => refusals.push(refusal(
                instruction,
                Rule::Instruction,
                reason.reason,
                "leave it out, or ask for a grant of the native code",
            )),
        }
        if forms.len() > limits.instructions {
            let reason = format!(
                "it has more than {} instructions (`instructions`)",
                limits.instructions
            );
            refusals.push(launch_refusal(Rule::Size, reason));
        }
        if refusals.len() > 100 {
            break;
        }
    }
    if !refusals.is_empty() {
        return Err(always(refusals));
    }
    let flow = Flow::new(body, forms);
    let too_large = |reason| always(vec![launch_refusal(Rule::Size, reason)]);
    if flow.blocks.len() > limits.blocks {
        return Err(too_large(format!(
            "it has {} blocks of instructions, the limit is {} (`blocks`)",
            flow.blocks.len(),
            limits.blocks
        )));
    }
    let flow = flow.linked();
    let Some(ssa) = ssa::build(function, &flow, limits.joins) else {
        return Err(too_large(format!(
            "its values meet in more than {} places (`joins`)",
            limits.joins
        )));
    };
    let subject = Subject {
        module,
        function,
        launch,
        open,
        limits,
        flow: &flow,
        ssa: &ssa,
    };
    prove(&subject, index).map_err(|refusals| Unproved {
        refusals,
        depends_on_launch: open != Open::default(),
    })
}

fn prove(subject: &Subject<'_>, function: usize) -> Result<Proof, Vec<Refusal>> {
    let flow = subject.flow;
    let solution = Solution::new(subject);
    let uniformity = Uniformity::new(&solution);
    let mut refusals = rules::meetings(&solution, &uniformity);
    let mut blocks = vec![None; flow.steps.len()];
    let mut checks = Vec::new();
    for &block in &flow.order {
        for (step, place) in blocks
            .iter_mut()
            .enumerate()
            .take(flow.blocks[block].end)
            .skip(flow.blocks[block].first)
        {
            *place = Some(block);
            match accesses::plan(&solution, block, step) {
                Ok(found) => checks.extend(found),
                Err(refusal) => refusals.push(refusal),
            }
        }
    }
    checks.sort_by_key(|check| (check.step, check.operand));
    let loops = loops::plan(&solution, &uniformity);
    refusals.extend(loops.refusals);
    if !refusals.is_empty() {
        refusals.sort_by_key(|refusal| refusal.line);
        return Err(refusals);
    }
    let plan = Plan {
        blocks,
        looks: loops.looks,
        zeroed: subject.ssa.zeroed.clone(),
        exits: rules::exits(flow),
        traps: rules::traps(flow),
        bases: bases(subject),
        checks,
    };
    Ok(Proof {
        launch: subject.launch.clone(),
        accesses: plan
            .checks
            .iter()
            .map(|check| accesses::report(subject, check))
            .collect(),
        loops: loops.reports,
        blocks_look: loops.blocks_look,
        barriers: rules::barriers(flow),
        shared_bytes: rules::shared_bytes(subject.module, subject.function, subject.launch),
        function,
        plan,
    })
}

fn bases(subject: &Subject<'_>) -> Vec<Vec<(RegisterId, u32)>> {
    let reads = subject.ssa.reads.iter();
    reads
        .map(|reads| {
            reads
                .iter()
                .map(|(register, value)| (*register, value.0))
                .collect()
        })
        .collect()
}

/// The parameter that an address names, and the offset in it.
fn parameter(function: &Function, address: &Address) -> Option<(usize, usize)> {
    let Base::Variable(VariableId::Function(index)) = address.base else {
        return None;
    };
    let index = index as usize;
    let offset = usize::try_from(address.offset).ok()?;
    (index < function.parameters).then_some((index, offset))
}

/// The size of a variable, if it has one.
pub(crate) fn variable_bytes(variable: &Variable) -> Option<u64> {
    let mut bytes = u64::from(variable.element.bytes()) * u64::from(variable.vector.max(1));
    for dimension in &variable.dimensions {
        bytes = bytes.checked_mul((*dimension)?)?;
    }
    Some(bytes)
}

/// The alignment of a variable: what it declares, or that of its elements.
pub(crate) fn variable_align(variable: &Variable) -> u32 {
    let natural = variable.element.bytes() * u32::from(variable.vector.max(1));
    variable.align.unwrap_or(natural).max(1)
}

/// Whether a variable is dynamic shared memory, whose size is the launch's.
pub(crate) fn is_dynamic(variable: &Variable) -> bool {
    variable.space == Space::Shared && matches!(variable.dimensions.first(), Some(None))
}
