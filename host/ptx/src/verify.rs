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
mod doubts;
mod evaluate;
mod facts;
mod flow;
mod launch;
mod loops;
mod meetings;
mod range;
mod refusal;
mod report;
mod rules;
mod solve;
mod ssa;
mod survey;
mod uniform;
mod values;
mod weights;
mod work;

pub(crate) use self::accesses::{Check, Decision};
pub(crate) use self::flow::Flow;
pub use self::launch::{Launch, Limits, Param};
pub(crate) use self::loops::{Leaving, Look};
pub use self::refusal::{Refusal, Rule};
pub(crate) use self::report::Plan;
pub use self::report::{AccessReport, LoopEnd, LoopReport, Proof, Verdict};
pub use self::survey::{Open, Survey, Unproved, survey_within, unknown_launch};
pub(crate) use self::values::Origin;
pub use self::work::Budget;

use std::collections::BTreeSet;

use self::refusal::{launch_refusal, refusal};
use self::solve::Solution;
use self::uniform::Uniformity;
use self::values::Subject;
use crate::ast::{
    Address, Base, Function, Module, Operand, RegisterId, Statement, Variable, VariableId,
};
use crate::table::{Form, form};
use crate::types::Space;

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
    verify_within(module, entry, launch, limits, &Budget::new(u64::MAX))
}

/// [`verify`], within the steps that are left of a budget for several kernels.
///
/// # Errors
/// As for [`verify`]; a refusal of the rule `size` once the budget is spent.
pub fn verify_within(
    module: &Module,
    entry: &str,
    launch: &Launch,
    limits: &Limits,
    budget: &Budget,
) -> Result<Proof, Vec<Refusal>> {
    examine(module, entry, launch, Open::default(), limits, budget)
        .map_err(|unproved| unproved.refusals)
}

/// The refusals after which no more are looked for.
const MOST_REFUSALS: usize = 100;

/// The forms of a kernel's instructions.
///
/// # Errors
/// What the rules refuse, up to a hundred refusals.
fn forms(
    module: &Module,
    function: &Function,
    body: &[Statement],
    launch: &Launch,
    open: Open,
    limits: &Limits,
) -> Result<Vec<Form>, Vec<Refusal>> {
    let mut refusals = rules::declarations(module, function, launch, open, limits);
    let mut forms = Vec::new();
    for statement in body {
        let Statement::Instruction(instruction) = statement else {
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
        if refusals.len() > MOST_REFUSALS {
            break;
        }
    }
    if refusals.is_empty() {
        Ok(forms)
    } else {
        Err(refusals)
    }
}

/// Verifies a kernel for every launch that has these numbers where they are not open.
fn examine(
    module: &Module,
    entry: &str,
    launch: &Launch,
    open: Open,
    limits: &Limits,
    budget: &Budget,
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
    // All variables of the module are printed with each kernel.
    let variables = function.variables.iter().chain(&module.variables);
    let size = body.len() + variables.map(Variable::size).sum::<usize>();
    let work = budget.begin(size, limits.work);
    let too_much_work = || work.reason(limits.work);
    if work.is_spent() {
        return Err(always(vec![launch_refusal(Rule::Size, too_much_work())]));
    }
    let forms = forms(module, function, body, launch, open, limits).map_err(always)?;
    let flow = Flow::new(body, forms);
    let too_large = |reason| {
        let reason = if work.is_spent() {
            too_much_work()
        } else {
            reason
        };
        always(vec![launch_refusal(Rule::Size, reason)])
    };
    if flow.blocks.len() > limits.blocks {
        return Err(too_large(format!(
            "it has {} blocks of instructions, the limit is {} (`blocks`)",
            flow.blocks.len(),
            limits.blocks
        )));
    }
    let Some(flow) = flow.linked(limits.loop_blocks, &work) else {
        return Err(too_large(format!(
            "its loops have more than {} blocks together, where a block counts once for each loop \
             that it is in (`loop_blocks`)",
            limits.loop_blocks
        )));
    };
    let Some(ssa) = ssa::build(function, &flow, limits.joins, &work) else {
        return Err(too_large(format!(
            "its values meet in more than {} places (`joins`)",
            limits.joins
        )));
    };
    let named = named_variables(body);
    let subject = Subject {
        module,
        function,
        launch,
        open,
        limits,
        flow: &flow,
        named: &named,
        ssa: &ssa,
        work: &work,
    };
    let proof = prove(&subject, index);
    let proof = proof.unwrap_or_else(|| {
        let reason = too_much_work();
        Err(vec![launch_refusal(Rule::Size, reason)])
    });
    proof.map_err(|refusals| Unproved {
        refusals,
        depends_on_launch: open != Open::default(),
    })
}

/// `None` if there is too much work.
fn prove(subject: &Subject<'_>, function: usize) -> Option<Result<Proof, Vec<Refusal>>> {
    let flow = subject.flow;
    let solution = Solution::new(subject)?;
    let uniformity = Uniformity::new(&solution)?;
    let mut refusals = meetings::check(&solution, &uniformity);
    let mut blocks = vec![None; flow.steps.len()];
    let mut checks = Vec::new();
    for &block in &flow.order {
        for step in flow.blocks[block].first..flow.blocks[block].end {
            blocks[step] = Some(block);
            match accesses::plan(&solution, block, step) {
                Ok(found) => checks.extend(found),
                Err(refusal) => refusals.push(refusal),
            }
            if refusals.len() > MOST_REFUSALS {
                refusals.sort_by_key(|refusal| refusal.line);
                return Some(Err(refusals));
            }
        }
    }
    if subject.work.is_spent() {
        return None;
    }
    checks.sort_by_key(|check| (check.step, check.operand));
    let loops = loops::plan(&solution, &uniformity, &checks)?;
    refusals.extend(loops.refusals);
    refusals.extend(rules::fence_size(subject, &checks, &loops.looks));
    if !refusals.is_empty() {
        refusals.sort_by_key(|refusal| refusal.line);
        return Some(Err(refusals));
    }
    let plan = Plan {
        blocks,
        looks: loops.looks,
        first_look: loops.first,
        zeroed: subject.ssa.zeroed.clone(),
        named: subject.named.clone(),
        exits: rules::exits(flow),
        traps: rules::traps(flow),
        bases: bases(subject),
        hidden: solution.doubts().steps.iter().copied().collect(),
        checks,
    };
    Some(Ok(Proof {
        launch: subject.launch.clone(),
        accesses: plan
            .checks
            .iter()
            .map(|check| accesses::report(subject, check))
            .collect(),
        loops: loops.reports,
        blocks_look: loops.first.is_some(),
        grid_units: loops.grid,
        barriers: rules::barriers(flow),
        shared_bytes: rules::shared_bytes(subject.module, subject.function, subject.launch),
        global_bytes: rules::global_bytes(subject.module, subject.function),
        function,
        plan,
    }))
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

/// The variables that a body names, parameters included.
fn named_variables(body: &[Statement]) -> BTreeSet<VariableId> {
    let instructions = body.iter().filter_map(|statement| match statement {
        Statement::Instruction(instruction) => Some(instruction),
        Statement::Label(_) => None,
    });
    let operands = instructions.flat_map(|instruction| &instruction.operands);
    let parts = operands.flat_map(Operand::parts);
    let named = parts.filter_map(|part| match part {
        Operand::Variable(variable, _) => Some(*variable),
        Operand::Address(address) => match address.base {
            Base::Variable(variable) => Some(variable),
            Base::Register(_) | Base::Nothing => None,
        },
        _ => None,
    });
    named.collect()
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
