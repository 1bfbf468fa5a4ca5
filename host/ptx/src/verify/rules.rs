//! Rules on declarations, launches and single instructions.

use super::flow::Flow;
use super::values::Subject;
use super::{
    Check, Decision, Launch, Limits, Look, Open, Param, Refusal, Rule, is_dynamic, launch_refusal,
    refusal, variable_bytes,
};
use crate::ast::{
    Base, Function, Immediate, Instruction, Linkage, Module, Operand, Variable, VariableId,
};
use crate::table::{Control, Form, Meeting, Opcode, Role};
use crate::types::{Space, Type};

/// The most threads in a block.
pub(crate) const MOST_THREADS: u64 = 1024;
/// The most blocks in each direction of a grid.
pub(crate) const GRID: [u64; 3] = [(1 << 31) - 1, 65_535, 65_535];
/// The most threads in each direction of a block.
pub(crate) const BLOCK: [u32; 3] = [1024, 1024, 64];

/// Finds the kernel of this name.
pub(crate) fn entry(module: &Module, name: &str) -> Result<usize, Refusal> {
    let mut found = module
        .functions
        .iter()
        .enumerate()
        .filter(|(_, one)| one.is_entry && one.name == name);
    match found.next() {
        Some((index, _)) => Ok(index),
        None => Err(launch_refusal(
            Rule::Module,
            format!("there is no kernel `{name}`"),
        )),
    }
}

/// Checks the module's and the kernel's declarations against the launch.
pub(crate) fn declarations(
    module: &Module,
    function: &Function,
    launch: &Launch,
    open: Open,
    limits: &Limits,
) -> Vec<Refusal> {
    let mut found = Vec::new();
    for variable in module.variables.iter().chain(&function.variables) {
        found.extend(declared(variable));
    }
    found.extend(parameters(function, launch));
    found.extend(dimensions(function, launch, open, limits));
    if function.registers.len() > limits.registers {
        let reason = format!(
            "the kernel has {} registers, the limit is {} (`registers`)",
            function.registers.len(),
            limits.registers
        );
        found.push(launch_refusal(Rule::Size, reason));
    }
    if let Some(register) = function
        .registers
        .iter()
        .find(|one| matches!(one.kind.bits(), 4 | 8 | 128))
    {
        let reason = format!(
            "the kernel has registers of type `{}`",
            register.kind.name()
        );
        found.push(launch_refusal(Rule::Instruction, reason));
    }
    let shared = shared_bytes(module, function, launch);
    if shared > limits.shared_bytes {
        let reason = format!(
            "the kernel takes {shared} bytes of shared memory, the limit is {} (`shared_bytes`)",
            limits.shared_bytes
        );
        found.push(launch_refusal(Rule::Launch, reason));
    }
    let local: u64 = sizes(module, function, Space::Local).fold(0, u64::saturating_add);
    if local > limits.local_bytes {
        let reason = format!(
            "a thread takes {local} bytes of local memory, the limit is {} (`local_bytes`)",
            limits.local_bytes
        );
        found.push(launch_refusal(Rule::Launch, reason));
    }
    let global = global_bytes(module, function);
    if global > limits.global_bytes {
        let reason = format!(
            "its variables in global and constant memory take {global} bytes, the limit is {} \
             (`global_bytes`)",
            limits.global_bytes
        );
        found.push(launch_refusal(Rule::Size, reason));
    }
    found
}

/// The instructions of a check, at most.
pub(crate) fn check_size(check: &Check) -> usize {
    const CHECK: usize = 16;
    /// Those for each array that the address may lie in.
    const ARRAY: usize = 4;
    match &check.decision {
        Decision::Checked { within, .. } => CHECK + ARRAY * within.len(),
        Decision::Never => CHECK,
        Decision::Proved | Decision::Dropped => 0,
    }
}

/// Checks the size of the kernel with its fence before it is made.
pub(crate) fn fence_size(
    subject: &Subject<'_>,
    checks: &[Check],
    looks: &[Look],
) -> Option<Refusal> {
    /// The instructions of a look.
    const LOOK: usize = 16;
    let checked: usize = checks.iter().map(check_size).sum();
    let size = subject.flow.steps.len() + checked + LOOK * looks.len();
    let most = subject.limits.fenced_instructions;
    (size > most).then(|| {
        let reason = format!(
            "it has up to {size} instructions with its checks, the limit is {most} \
             (`fenced_instructions`)"
        );
        launch_refusal(Rule::Size, reason)
    })
}

/// The bytes of the module's variables in global and constant memory.
pub(crate) fn global_bytes(module: &Module, function: &Function) -> u64 {
    let sizes = [Space::Global, Space::Const].map(|space| sizes(module, function, space));
    sizes.into_iter().flatten().fold(0, u64::saturating_add)
}

fn sizes<'m>(
    module: &'m Module,
    function: &'m Function,
    space: Space,
) -> impl Iterator<Item = u64> + 'm {
    let all = module.variables.iter().chain(&function.variables);
    all.filter(move |variable| variable.space == space && !is_dynamic(variable))
        .map(|variable| variable_bytes(variable).unwrap_or(u64::MAX))
}

/// The bytes of shared memory that a kernel takes, with what alignment may add.
pub(crate) fn shared_bytes(module: &Module, function: &Function, launch: &Launch) -> u64 {
    let fixed = sizes(module, function, Space::Shared);
    fixed.fold(u64::from(launch.shared_bytes), u64::saturating_add)
}

fn declared(variable: &Variable) -> Option<Refusal> {
    let refused = |reason: String, cure: &str| {
        Some(Refusal {
            line: variable.line.0,
            instruction: variable.space.directive().to_owned(),
            rule: Rule::Module,
            reason,
            cure: cure.to_owned(),
        })
    };
    let name = &variable.name;
    let is_dynamic = is_dynamic(variable);
    match variable.linkage {
        Linkage::Extern if is_dynamic => {}
        Linkage::Extern | Linkage::Weak | Linkage::Common => {
            let reason = format!("variable `{name}` is linked from elsewhere");
            return refused(reason, "define the variable in the module");
        }
        Linkage::Internal | Linkage::Visible => {}
    }
    if !is_dynamic && variable_bytes(variable).is_none() {
        return refused(format!("variable `{name}` has no size"), "give it a size");
    }
    if variable
        .align
        .is_some_and(|align| !align.is_power_of_two() || align > 1 << 16)
    {
        return refused(
            format!("variable `{name}` has a wrong alignment"),
            "align it to a power of two",
        );
    }
    None
}

fn parameters(function: &Function, launch: &Launch) -> Vec<Refusal> {
    let count = function.parameters;
    if function.results != 0 || count != launch.params.len() {
        let reason = format!(
            "the kernel has {count} parameters, and the launch passes {}",
            launch.params.len()
        );
        return vec![launch_refusal(Rule::Launch, reason)];
    }
    let mut found = Vec::new();
    for (index, (variable, param)) in function.variables.iter().zip(&launch.params).enumerate() {
        let size = variable_bytes(variable).unwrap_or(0);
        let (passed, what) = match param {
            Param::Buffer { .. } => (8, "a buffer's address"),
            Param::Value(bytes) => (bytes.len() as u64, "a scalar"),
        };
        let is_struct = !variable.dimensions.is_empty();
        let is_wrong = size != passed || (is_struct && matches!(param, Param::Buffer { .. }));
        let is_aligned = match param {
            Param::Buffer { align, bytes, .. } => align.is_power_of_two() && *bytes < 1 << 62,
            Param::Value(_) => true,
        };
        if is_wrong || !is_aligned || (is_struct && size > 8) {
            found.push(Refusal {
                line: variable.line.0,
                instruction: ".param".to_owned(),
                rule: Rule::Parameter,
                reason: format!(
                    "parameter {index} has {size} bytes, and the launch passes {what} of {passed}"
                ),
                cure: "pass pointers and numbers as parameters of their own, not in structures"
                    .to_owned(),
            });
        }
    }
    found
}

fn dimensions(function: &Function, launch: &Launch, open: Open, limits: &Limits) -> Vec<Refusal> {
    let mut found = Vec::new();
    let mut refuse = |reason: String| found.push(launch_refusal(Rule::Launch, reason));
    let Launch { grid, block, .. } = launch;
    let blocks = grid
        .iter()
        .fold(1_u64, |all, &one| all.saturating_mul(u64::from(one)));
    let threads = block
        .iter()
        .fold(1_u64, |all, &one| all.saturating_mul(u64::from(one)));
    if blocks == 0
        || grid
            .iter()
            .zip(GRID)
            .any(|(&one, most)| u64::from(one) > most)
        || (blocks > limits.grid && !open.grid)
    {
        refuse(format!(
            "a grid of {grid:?} blocks is empty or too large (`grid`)"
        ));
    }
    if threads == 0
        || (threads > MOST_THREADS && !open.block)
        || block.iter().zip(BLOCK).any(|(&one, most)| one > most)
    {
        refuse(format!(
            "a block of {block:?} threads is empty or too large"
        ));
    }
    let own = &function.limits;
    if own.reqntid.is_some_and(|required| required != *block) {
        refuse(format!(
            "the kernel requires blocks of {:?} threads, not {block:?}",
            own.reqntid.unwrap_or_default()
        ));
    }
    let most = own.maxntid.map(|most| {
        most.iter()
            .fold(1_u64, |all, &one| all.saturating_mul(u64::from(one)))
    });
    if most.is_some_and(|most| threads > most && !open.block) {
        refuse(format!(
            "the kernel allows fewer than {threads} threads in a block"
        ));
    }
    found
}

/// Checks where control goes.
fn control(module: &Module, instruction: &Instruction, form: &Form) -> Option<Refusal> {
    let refused = |rule, reason: String, cure: &str| Some(refusal(instruction, rule, reason, cure));
    match form.control {
        Control::Call if !is_assertion(module, instruction) => {
            let name = instruction
                .operands
                .iter()
                .find_map(|operand| match operand {
                    Operand::Function(index) => module.functions.get(*index),
                    _ => None,
                });
            let name = name.map_or("a function", |function| &function.name);
            let reason = format!("it calls `{name}`");
            refused(
                Rule::Call,
                reason,
                "inline the function (`__forceinline__`), and print nothing",
            )
        }
        Control::BranchTable => {
            let reason = "it branches to a place that is computed".to_owned();
            refused(
                Rule::Call,
                reason,
                "compile a `switch` to compares (`-fno-jump-tables`)",
            )
        }
        _ => None,
    }
}

/// Checks the operands that name memory.
fn memory(instruction: &Instruction, form: &Form) -> Option<Refusal> {
    let refused = |rule, reason: String, cure: &str| Some(refusal(instruction, rule, reason, cure));
    for (operand, role) in instruction.operands.iter().zip(&form.roles) {
        let Role::Memory(access) = role else {
            continue;
        };
        if let Operand::Address(address) = operand
            && !address.coordinates.is_empty()
        {
            return refused(
                Rule::Address,
                "it has coordinates".to_owned(),
                "use plain addresses",
            );
        }
        let is_number =
            matches!(operand, Operand::Address(address) if address.base == Base::Nothing);
        if is_number && access.space != Space::Local {
            return refused(
                Rule::Address,
                "its address is a number, which assemblers take for local memory alone".to_owned(),
                "keep the address in a register",
            );
        }
        if access.space == Space::Cluster {
            let reason = "it reaches the shared memory of other blocks".to_owned();
            return refused(Rule::Address, reason, "use `.shared::cta`");
        }
    }
    None
}

/// Checks an instruction for itself.
pub(crate) fn instruction(
    module: &Module,
    function: &Function,
    instruction: &Instruction,
    form: &Form,
    launch: &Launch,
) -> Option<Refusal> {
    let refused = |rule, reason: String, cure: &str| Some(refusal(instruction, rule, reason, cure));
    if form.reads_clock && !launch.has_clock {
        let reason = "it tells the time, or where on the device a thread runs".to_owned();
        return refused(
            Rule::Clock,
            reason,
            "leave it out, or let the policy grant the clock",
        );
    }
    if let Some(refusal) = control(module, instruction, form) {
        return Some(refusal);
    }
    if let Some(number) = misfit(instruction).filter(|_| form.meeting == Meeting::Nothing) {
        let reason = format!("the number {number} does not fit its operand");
        return refused(Rule::Instruction, reason, "write a number that fits");
    }
    if instruction.opcode == Opcode::Mbarrier
        || (instruction.opcode == Opcode::Cp && instruction.has("mbarrier"))
    {
        let reason = "a barrier object in shared memory could wait for ever".to_owned();
        return refused(Rule::Barrier, reason, "use `bar.sync 0`; compile for sm_80");
    }
    if cuts_offset(module, function, instruction) {
        let reason = "the offset of its variable does not fit the variable's address".to_owned();
        return refused(Rule::Address, reason, "add the offset in a register");
    }
    if takes_address_of_parameter(function, instruction) {
        let reason = "it takes the address of a parameter".to_owned();
        return refused(Rule::Parameter, reason, "read parameters by their names");
    }
    if let Some(refusal) = memory(instruction, form) {
        return Some(refusal);
    }
    if instruction.opcode == Opcode::Cvta
        && !instruction.has("global")
        && !instruction.has("local")
        && !instruction.has("const")
    {
        let reason = "generic addresses of this memory are not supported".to_owned();
        return refused(
            Rule::Address,
            reason,
            "name the state space in loads and stores",
        );
    }
    None
}

/// A number that does not fit the types of its instruction, or a distance of a shift that has more
/// than 16 bits. Assemblers cut such numbers: ptxas 13.0 shifts 16 bits by 1 place where PTX says
/// 65,537.
fn misfit(instruction: &Instruction) -> Option<i64> {
    let bits = instruction.kinds().map(Type::bits).max()?;
    let bits = if instruction.has("wide") {
        2 * bits
    } else {
        bits
    };
    let bits = bits.clamp(16, 64);
    let is_shift = matches!(instruction.opcode, Opcode::Shl | Opcode::Shr);
    let misfit = |index: usize, part: &Operand| match part {
        Operand::Immediate(Immediate::Integer(value)) => {
            let number = value.cast_signed();
            let fits = match bits {
                _ if is_shift && index == 2 => *value < 1 << 16,
                64 => true,
                _ => (-(1_i64 << (bits - 1))..1 << bits).contains(&number),
            };
            (!fits).then_some(number)
        }
        _ => None,
    };
    let mut operands = instruction.operands.iter().enumerate();
    operands.find_map(|(index, operand)| {
        let mut parts = operand.parts().iter();
        parts.find_map(|part| misfit(index, part))
    })
}

/// Whether an offset of an address of 64 bits has no place in memory whose addresses have 32: ptxas
/// 13.0 cuts it.
fn cuts_offset(module: &Module, function: &Function, instruction: &Instruction) -> bool {
    let is_wide = instruction.kinds().any(|kind| kind.bits() == 64);
    let parts = instruction.operands.iter().flat_map(Operand::parts);
    let mut offsets = parts.filter_map(|part| match part {
        Operand::Variable(id, offset) => Some((id.find(module, function)?.space, *offset)),
        _ => None,
    });
    is_wide
        && offsets.any(|(space, offset)| space != Space::Global && !(0..1 << 31).contains(&offset))
}

fn takes_address_of_parameter(function: &Function, instruction: &Instruction) -> bool {
    instruction.operands.iter().any(|operand| match operand {
        Operand::Variable(VariableId::Function(index), _) => function
            .variables
            .get(*index as usize)
            .is_some_and(|variable| variable.space == Space::Param),
        _ => false,
    })
}

/// Whether an instruction calls `__assertfail`, which does not return.
fn is_assertion(module: &Module, instruction: &Instruction) -> bool {
    instruction.operands.iter().any(|operand| match operand {
        Operand::Function(index) => module
            .functions
            .get(*index)
            .is_some_and(|function| function.name == "__assertfail" && function.body.is_none()),
        _ => false,
    })
}

/// The steps that end a thread.
pub(crate) fn exits(flow: &Flow<'_>) -> Vec<usize> {
    of_control(flow, |control| {
        matches!(control, Control::Return | Control::Exit)
    })
}

/// The steps that would lose the context, and calls of `__assertfail`.
pub(crate) fn traps(flow: &Flow<'_>) -> Vec<usize> {
    of_control(flow, |control| {
        matches!(control, Control::Trap | Control::Call)
    })
}

fn of_control(flow: &Flow<'_>, holds: impl Fn(Control) -> bool) -> Vec<usize> {
    let steps = flow.steps.iter().enumerate();
    steps
        .filter(|(_, step)| holds(step.form.control))
        .map(|(index, _)| index)
        .collect()
}

/// The number of barriers of the block.
pub(crate) fn barriers(flow: &Flow<'_>) -> usize {
    let steps = flow.steps.iter();
    steps
        .filter(|step| matches!(step.form.meeting, Meeting::Block { .. }))
        .count()
}
