//! Each access of memory: proved, or how it is checked when the kernel runs.

mod search;

use self::search::{Found, Target, find};
use super::range::Range;
use super::solve::Solution;
use super::ssa::{Definition, ValueId};
use super::values::{Contents, Origin, Subject};
use super::{AccessReport, Param, Refusal, Rule, Verdict, parameter};
use crate::ast::{Address, Base, Immediate, Instruction, Operand, VariableId};
use crate::table::{Access, Action, Bytes, Opcode, Role};
use crate::types::Space;

/// The outcome for one memory operand, and the comparisons that its fence makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Check {
    pub(crate) step: usize,
    /// The index of the operand.
    pub(crate) operand: usize,
    pub(crate) access: Access,
    pub(crate) bytes: u64,
    pub(crate) decision: Decision,
    /// The origin that the fault names.
    pub(crate) origin: Option<Origin>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    Proved,
    /// It must lie in one of these, and be aligned if that is not proved.
    Checked {
        within: Vec<Origin>,
        is_aligned: bool,
    },
    /// No address would be right.
    Never,
    /// The instruction is left out: hints, and arguments of calls that are not made.
    Dropped,
}

/// Decides about the memory operands of a step.
pub(crate) fn plan(
    solution: &Solution<'_>,
    block: usize,
    step: usize,
) -> Result<Vec<Check>, Refusal> {
    let subject = solution.subject;
    let mut found = Vec::new();
    let one = &subject.flow.steps[step];
    for (operand, role) in one.form.roles.iter().enumerate() {
        if let Role::Memory(access) = role {
            let decided = decide(solution, block, step, operand, *access).map_err(
                |(rule, reason, cure)| super::refusal(one.instruction, rule, reason, cure),
            )?;
            found.push(decided);
        }
    }
    Ok(found)
}

type Reason = (Rule, String, &'static str);

fn address_of(instruction: &Instruction, operand: usize) -> Result<&Address, Reason> {
    match instruction.operands.get(operand) {
        Some(Operand::Address(address)) => Ok(address),
        _ => Err((
            Rule::Instruction,
            "its address is missing".into(),
            "write it in brackets",
        )),
    }
}

/// The width of an address. Where it would be wanted in 64 bits, half of one is no address.
fn address_bits(subject: &Subject<'_>, address: &Address, access: Access) -> Result<u32, Reason> {
    let bits = match address.base {
        Base::Register(register) => subject
            .function
            .registers
            .get(register.0 as usize)
            .map_or(64, |one| one.kind.bits()),
        _ => 64,
    };
    if bits != 64 && !(bits == 32 && matches!(access.space, Space::Shared | Space::Local)) {
        let reason = format!("its address is a register of {bits} bits");
        return Err((Rule::Address, reason, "use a register of 64 bits"));
    }
    Ok(bits)
}

fn decide(
    solution: &Solution<'_>,
    block: usize,
    step: usize,
    operand: usize,
    access: Access,
) -> Result<Check, Reason> {
    let subject = solution.subject;
    let instruction = subject.flow.steps[step].instruction;
    let address = address_of(instruction, operand)?;
    let mut check = Check {
        step,
        operand,
        access,
        bytes: 0,
        decision: Decision::Dropped,
        origin: None,
    };
    if access.action == Action::Prefetch {
        return Ok(check);
    }
    if access.space == Space::Param {
        check.decision = param(subject, instruction.opcode, address, access)?;
        return Ok(check);
    }
    check.bytes = bytes(solution, step, access)?;
    let bits = address_bits(subject, address, access)?;
    let target = Target {
        address,
        bits,
        access,
        bytes: check.bytes,
    };
    let Found {
        origin,
        within,
        proofs,
        is_impossible,
    } = find(solution, block, step, &target)?;
    check.origin = origin;
    if is_impossible {
        // Should control come here nevertheless, nothing is accessed.
        check.decision = Decision::Never;
        return Ok(check);
    }
    if access.is_collective && within.is_empty() {
        let reason = format!(
            "nothing of {} bytes, aligned to {}, is there for it",
            check.bytes, access.align
        );
        return Err((
            Rule::Address,
            reason,
            "make the variable larger, and align it",
        ));
    }
    check.decision = match proofs {
        _ if within.is_empty() => Decision::Never,
        (true, true) => Decision::Proved,
        (_, is_aligned) => Decision::Checked { within, is_aligned },
    };
    Ok(check)
}

/// The predicates that hold if a copy of a chosen size copies anything: `selp size, 16, 0, p`.
fn size_conditions(subject: &Subject<'_>, step: usize, access: Access) -> Vec<(ValueId, bool)> {
    let Bytes::Operand(index) = access.bytes else {
        return Vec::new();
    };
    let register = |operand: Option<&Operand>| match operand {
        Some(Operand::Register(register)) => Some(*register),
        _ => None,
    };
    let mut found = Vec::new();
    let (mut at, mut operand) = (
        step,
        subject.flow.steps[step].instruction.operands.get(index),
    );
    for _ in 0..8 {
        let Some(value) = register(operand).and_then(|register| subject.read(at, register)) else {
            break;
        };
        let Definition::Result {
            step: from,
            slot: 0,
        } = subject.ssa.values[value.at()].definition
        else {
            break;
        };
        let instruction = subject.flow.steps[from].instruction;
        let operands = &instruction.operands;
        let otherwise = operands.get(2);
        let is_zero = matches!(otherwise, Some(Operand::Immediate(Immediate::Integer(0))));
        let condition = register(operands.get(3)).and_then(|register| subject.read(from, register));
        let (Opcode::Selp, true, Some(condition)) = (instruction.opcode, is_zero, condition) else {
            break;
        };
        found.push((condition, true));
        (at, operand) = (from, operands.get(1));
    }
    found
}

/// The contents of an address, its offset included.
fn contents(
    solution: &Solution<'_>,
    step: usize,
    address: &Address,
    bits: u32,
    mut of: impl FnMut(ValueId) -> Contents,
) -> Contents {
    let subject = solution.subject;
    let base = match address.base {
        Base::Register(register) => {
            subject.operand(step, Some(&Operand::Register(register)), bits, &mut of)
        }
        Base::Variable(variable) => Contents {
            origin: Some(Origin::Variable(variable)),
            range: Range::constant(bits, 0),
        },
        Base::Nothing => Contents::full(bits),
    };
    Contents {
        origin: base.origin,
        range: base.range.add(Range::constant(bits, address.offset as u64)),
    }
}

/// Whether an access of this space can be meant for something.
fn fits(subject: &Subject<'_>, origin: Origin, space: Space) -> bool {
    match origin {
        Origin::Buffer(_) => matches!(space, Space::Global | Space::Generic),
        Origin::Variable(variable) => subject.variable(variable).is_some_and(|variable| {
            variable.space == space || (variable.space == Space::Global && space == Space::Generic)
        }),
    }
}

/// Whether an access is in range, and aligned.
fn prove(
    subject: &Subject<'_>,
    origin: Origin,
    range: Range,
    offset: i64,
    access: Access,
    bytes: u64,
) -> (bool, bool) {
    let (length, align) = match origin {
        Origin::Buffer(index) => match subject.launch.params.get(index) {
            Some(Param::Buffer { align, .. }) if subject.open.params => (0, *align),
            Some(Param::Buffer { bytes, align, .. }) => (*bytes, *align),
            _ => return (false, false),
        },
        Origin::Variable(variable) => (
            subject.variable_bytes(variable),
            subject.variable(variable).map_or(1, super::variable_align),
        ),
    };
    // A full range says nothing, whatever its ends are.
    // A register of 32 bits must not wrap before the offset is added: what adds it may be wider.
    let is_inside = !range.is_full()
        && range.low >= 0
        && (range.bits == 64 || range.low >= i128::from(offset))
        && range
            .high
            .checked_add(i128::from(bytes))
            .is_some_and(|end| end <= i128::from(length));
    let needed = access.align.trailing_zeros();
    let (known, residue) = range.low_bits();
    let is_aligned =
        align >= access.align && known >= needed && residue & (u64::from(access.align) - 1) == 0;
    (is_inside, is_aligned)
}

/// The alignment of a row of `wmma`, in bits.
const ROW_ALIGN_BITS: u64 = 128;

/// The number of bytes that an access can reach.
fn bytes(solution: &Solution<'_>, step: usize, access: Access) -> Result<u64, Reason> {
    match access.bytes {
        Bytes::Constant(bytes) => Ok(u64::from(bytes)),
        Bytes::Operand(index) => copied_bytes(solution, step, index, access),
        Bytes::Rows {
            rows,
            bytes,
            element,
            stride,
        } => {
            let stride = match stride {
                None => u64::from(bytes),
                Some(index) => {
                    let subject = solution.subject;
                    let operand = subject.flow.steps[step].instruction.operands.get(index);
                    let contents =
                        subject.operand(step, operand, 32, &mut |value| solution.contents(value));
                    let number = contents
                        .as_number()
                        .value()
                        .filter(|stride| *stride < 1 << 28);
                    let Some(stride) = number else {
                        return Err((
                            Rule::Address,
                            "the distance of its rows is not known before the launch".into(),
                            "make the distance a constant or a scalar parameter",
                        ));
                    };
                    // Rows lie in memory without gaps between elements of less than a byte.
                    let kind = subject.flow.steps[step].instruction.kind();
                    let bits = kind.map_or(0, |kind| u64::from(kind.bits()));
                    if !(stride * bits).is_multiple_of(ROW_ALIGN_BITS) {
                        return Err((
                            Rule::Address,
                            "the distance of its rows is no multiple of 16 bytes".into(),
                            "pad the rows",
                        ));
                    }
                    stride * u64::from(element)
                }
            };
            Ok(u64::from(rows.saturating_sub(1)) * stride + u64::from(bytes))
        }
    }
}

/// The number of bytes that `cp.async` writes, which is its alignment. It must not be told to read
/// more than that: the result would be undefined.
fn copied_bytes(
    solution: &Solution<'_>,
    step: usize,
    index: usize,
    access: Access,
) -> Result<u64, Reason> {
    let subject = solution.subject;
    let operand = subject.flow.steps[step].instruction.operands.get(index);
    let size = subject.operand(step, operand, 32, &mut |value| solution.contents(value));
    let written = u64::from(access.align);
    if size.as_number().unsigned().1 <= i128::from(written) {
        return Ok(written);
    }
    let reason = format!("it may be told to read more than the {written} bytes that it writes");
    let cure = "choose the number with `selp` from that and 0, or bound it with `min`";
    Err((Rule::Address, reason, cure))
}

/// Parameters are read at constant offsets. Arguments of calls are dropped with the calls.
fn param(
    subject: &Subject<'_>,
    opcode: Opcode,
    address: &Address,
    access: Access,
) -> Result<Decision, Reason> {
    let Base::Variable(VariableId::Function(index)) = address.base else {
        let reason = "its address is not the name of a parameter".to_owned();
        return Err((Rule::Parameter, reason, "read parameters by their names"));
    };
    let is_own = subject
        .function
        .variables
        .get(index as usize)
        .is_some_and(|_| (index as usize) < subject.function.parameters);
    if opcode == Opcode::St && !is_own {
        return Ok(Decision::Dropped);
    }
    let Some((index, offset)) =
        parameter(subject.function, address).filter(|_| access.action == Action::Load)
    else {
        let reason = "it does not read a parameter of the kernel".to_owned();
        return Err((Rule::Parameter, reason, "read parameters by their names"));
    };
    let size = match subject.launch.params.get(index) {
        Some(Param::Value(bytes)) => bytes.len(),
        _ => 8,
    };
    let bytes = match access.bytes {
        Bytes::Constant(bytes) => bytes as usize,
        _ => usize::MAX,
    };
    // Assemblers cut the place of a wide load to its alignment.
    let declared = subject.function.variables.get(index);
    let is_aligned = offset.is_multiple_of(access.align.max(1) as usize)
        && declared.is_some_and(|variable| super::variable_align(variable) >= access.align);
    if !is_aligned || offset.checked_add(bytes).is_none_or(|end| end > size) {
        let reason = format!(
            "it reads {bytes} bytes at {offset} of a parameter of {size} bytes, or the parameter is not aligned to that"
        );
        return Err((
            Rule::Parameter,
            reason,
            "stay inside the parameter, and align it to what is read",
        ));
    }
    Ok(Decision::Proved)
}

/// Describes an access for the report.
pub(crate) fn report(subject: &Subject<'_>, check: &Check) -> AccessReport {
    let instruction = subject.flow.steps[check.step].instruction;
    AccessReport {
        line: instruction.line.0,
        space: check.access.space,
        action: check.access.action,
        bytes: check.bytes,
        param: check.origin.and_then(Origin::param),
        verdict: match &check.decision {
            Decision::Proved => Verdict::Proved,
            Decision::Checked { .. } => Verdict::Checked,
            Decision::Never => Verdict::Never,
            Decision::Dropped => Verdict::Dropped,
        },
    }
}
