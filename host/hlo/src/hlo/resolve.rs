//! Resolves a module: looks up names, and puts instructions in order.

use std::collections::{HashMap, HashSet};

use super::attributes::CONTROL_PREDECESSORS;
use super::lower::{Context, lower};
use super::syntax::{Computation, Module, Operand, Operands, Signature};
use crate::dependency_order::{dependency_order, describe_cycle};
use crate::instruction::{self, ComputationId, Instruction, InstructionId, Opcode};
use callbox_core::text::{
    AttributeRoom, Diagnostic, Name, Parsed, Placed, line_number, shortened, suggestion,
};
use callbox_core::values::Shape;

/// A module whose names have been looked up.
pub(super) struct Resolved {
    pub(super) name: String,
    pub(super) computations: Vec<instruction::Computation>,
    pub(super) exports: Vec<ComputationId>,
    /// The offset of each instruction in the text, by the numbers of computation and instruction.
    pub(super) offsets: Vec<Vec<usize>>,
}

/// Resolves a module of this text.
pub(super) fn resolve(text: &str, module: Module<'_>) -> Parsed<Resolved> {
    let entry = entry(text, &module)?;
    let mut context = Context {
        computations: computations(text, &module)?,
        attribute_room: AttributeRoom::of_a_program(text.len()),
    };
    let exports = match &module.exports {
        Some(exports) => named_exports(exports, &context)?,
        None => vec![ComputationId(number(entry))],
    };
    let mut resolved = Resolved {
        name: module.name.text.to_owned(),
        computations: Vec::with_capacity(module.computations.len()),
        exports,
        offsets: Vec::with_capacity(module.computations.len()),
    };
    for mut computation in module.computations {
        let numbers = instruction_numbers(text, &computation)?;
        let dependencies = Dependencies::of(&mut computation, &numbers)?;
        let order = dependencies.order(&computation)?;
        let names = order
            .iter()
            .map(|index| computation.instructions[*index].name);
        resolved.offsets.push(names.map(|name| name.at).collect());
        let computation = ordered(text, computation, &order, &dependencies, &mut context)?;
        resolved.computations.push(computation);
    }
    if let Some(signature) = &module.entry_signature {
        let entry = &resolved.computations[entry];
        check_signature(signature, entry, "entry_computation_layout")?;
    }
    Ok(resolved)
}

/// The number of the computation marked ENTRY.
fn entry(text: &str, module: &Module<'_>) -> Parsed<usize> {
    let mut entries = module
        .computations
        .iter()
        .enumerate()
        .filter(|(_, computation)| computation.is_entry);
    match (entries.next(), entries.next()) {
        (Some((entry, _)), None) => Ok(entry),
        (Some((_, first)), Some((_, second))) => {
            let line = line_number(text, first.name.at);
            let message = format!(
                "expected one computation marked ENTRY, found another, after the one in line {line}"
            );
            Err(Diagnostic::invalid(second.name.at, message))
        }
        (None, _) => Err(Diagnostic::invalid(
            module.end,
            "expected a computation marked ENTRY, found none",
        )),
    }
}

fn computations<'a>(text: &str, module: &Module<'a>) -> Parsed<HashMap<&'a str, ComputationId>> {
    let mut numbers = HashMap::new();
    for (index, computation) in module.computations.iter().enumerate() {
        let name = computation.name;
        if let Some(ComputationId(first)) = numbers.insert(name.text, ComputationId(number(index)))
        {
            let first = module.computations[first as usize].name;
            return Err(duplicate(text, "computation", first, name));
        }
    }
    Ok(numbers)
}

fn named_exports(exports: &Placed<String>, context: &Context<'_>) -> Parsed<Vec<ComputationId>> {
    let (mut ids, mut seen) = (Vec::new(), HashSet::new());
    for name in exports.value.split(',') {
        let name = name.trim();
        let id = context.computation(Name {
            text: name.strip_prefix('%').unwrap_or(name),
            at: exports.at,
        })?;
        if !seen.insert(id) {
            let message = format!(
                "expected each computation once, found another %{}",
                shortened(name)
            );
            return Err(Diagnostic::invalid(exports.at, message));
        }
        ids.push(id);
    }
    Ok(ids)
}

fn duplicate(text: &str, what: &str, first: Name<'_>, second: Name<'_>) -> Diagnostic {
    let line = line_number(text, first.at);
    let name = shortened(second.text);
    Diagnostic::invalid(
        second.at,
        format!("expected the name of another {what}, found %{name}, which is in line {line}"),
    )
}

/// Checks that a header agrees with the instructions of its computation.
fn check_signature(
    signature: &Placed<Signature>,
    computation: &instruction::Computation,
    what: &str,
) -> Parsed<()> {
    let shape = |id: &InstructionId| &computation.instructions[id.index()].shape;
    let wrong = |message| Err(Diagnostic::invalid(signature.at, message));
    let declared = &signature.value;
    let (expected, found) = (computation.parameters.len(), declared.parameters.len());
    if expected != found {
        let name = shortened(&computation.name);
        return wrong(format!(
            "expected {expected} parameters in the {what} of %{name}, found {found}"
        ));
    }
    let parameters = std::iter::zip(
        computation.parameters.iter().map(shape),
        &declared.parameters,
    );
    for (index, (expected, found)) in parameters.enumerate() {
        if !expected.is_compatible(found) {
            return wrong(format!(
                "expected {expected} for parameter {index} in the {what}, found {found}"
            ));
        }
    }
    let (expected, found) = (shape(&computation.root), &declared.result);
    if !expected.is_compatible(found) {
        return wrong(format!(
            "expected {expected} for the result in the {what}, found {found}"
        ));
    }
    Ok(())
}

/// The numbers of a computation's instructions by name, in the order of the text.
fn instruction_numbers<'a>(
    text: &str,
    computation: &Computation<'a>,
) -> Parsed<HashMap<&'a str, usize>> {
    let mut numbers = HashMap::with_capacity(computation.instructions.len());
    for (index, instruction) in computation.instructions.iter().enumerate() {
        if let Some(first) = numbers.insert(instruction.name.text, index) {
            let first = computation.instructions[first].name;
            return Err(duplicate(text, "instruction", first, instruction.name));
        }
    }
    Ok(numbers)
}

/// The dependencies of each instruction, as numbers in the order of the text.
struct Dependencies {
    operands: Vec<Vec<usize>>,
    control_predecessors: Vec<Vec<usize>>,
}

impl Dependencies {
    fn of(computation: &mut Computation<'_>, numbers: &HashMap<&str, usize>) -> Parsed<Self> {
        let mut dependencies = Self {
            operands: Vec::with_capacity(numbers.len()),
            control_predecessors: Vec::with_capacity(numbers.len()),
        };
        for index in 0..computation.instructions.len() {
            let attributes = &mut computation.instructions[index].attributes;
            let names = attributes.take(CONTROL_PREDECESSORS, |cursor| {
                cursor.list(|cursor| cursor.name("the name of an instruction"))
            })?;
            let names = names.map_or_else(Vec::new, |names| names.value);
            let operands = match &computation.instructions[index].operands {
                Operands::Instructions(operands) => operands.as_slice(),
                Operands::Parameter(_) | Operands::Constant(_) => &[],
            };
            let operands = operands
                .iter()
                .map(|name| look_up(name, numbers, computation));
            dependencies.operands.push(operands.collect::<Parsed<_>>()?);
            let names = names
                .iter()
                .map(|name| look_up_name(*name, numbers, computation));
            dependencies
                .control_predecessors
                .push(names.collect::<Parsed<_>>()?);
        }
        Ok(dependencies)
    }

    /// The order of the text, as far as the dependencies of each instruction come before it.
    fn order(&self, computation: &Computation<'_>) -> Parsed<Vec<usize>> {
        let all: Vec<_> = std::iter::zip(&self.operands, &self.control_predecessors)
            .map(|(operands, predecessors)| [&operands[..], predecessors].concat())
            .collect();
        dependency_order(&all).map_err(|cycle| {
            let name = |index: usize| computation.instructions[index].name;
            let names = describe_cycle(&cycle, |index| name(index).text);
            let message =
                format!("expected instructions that do not need themselves, found {names}");
            Diagnostic::invalid(cycle.first().map_or(0, |first| name(*first).at), message)
        })
    }
}

/// The computation with its instructions in this order.
fn ordered(
    text: &str,
    mut computation: Computation<'_>,
    order: &[usize],
    dependencies: &Dependencies,
    context: &mut Context<'_>,
) -> Parsed<instruction::Computation> {
    let mut ids = vec![InstructionId(0); order.len()];
    for (id, index) in order.iter().enumerate() {
        ids[*index] = InstructionId(number(id));
    }
    let to_ids = |indices: &[usize]| indices.iter().map(|index| ids[*index]).collect();
    let shapes = computation.instructions.iter().map(|i| i.shape.clone());
    let shapes: Vec<Shape> = shapes.collect();
    let mut instructions = Vec::with_capacity(order.len());
    for &index in order {
        let instruction = &mut computation.instructions[index];
        let operands = &dependencies.operands[index];
        let operand_shapes: Vec<_> = operands.iter().map(|operand| &shapes[*operand]).collect();
        instructions.push(Instruction {
            opcode: lower(instruction, &operand_shapes, context)?,
            name: instruction.name.text.to_owned(),
            shape: instruction.shape.clone(),
            operands: to_ids(operands),
            control_predecessors: to_ids(&dependencies.control_predecessors[index]),
        });
    }
    let resolved = instruction::Computation {
        name: computation.name.text.to_owned(),
        parameters: parameters(text, &computation, &ids, &instructions)?,
        instructions,
        root: ids[computation.root.unwrap_or(order.len() - 1)],
    };
    if let Some(signature) = &computation.signature {
        check_signature(signature, &resolved, "header")?;
    }
    Ok(resolved)
}

/// The instructions of the parameters, by parameter number.
fn parameters(
    text: &str,
    computation: &Computation<'_>,
    ids: &[InstructionId],
    instructions: &[Instruction],
) -> Parsed<Vec<InstructionId>> {
    let parameters = std::iter::zip(&computation.instructions, ids);
    let mut parameters: Vec<_> = parameters
        .filter_map(|(syntax, id)| match instructions[id.index()].opcode {
            Opcode::Parameter(number) => Some((number, syntax.name, *id)),
            _ => None,
        })
        .collect();
    parameters.sort_by_key(|(number, name, _)| (*number, name.at));
    for (index, (number, name, _)) in parameters.iter().enumerate() {
        if *number == index {
            continue;
        }
        let expected = shortened(computation.name.text);
        let message = match parameters.get(index.wrapping_sub(1)) {
            Some((other, first, _)) if other == number => format!(
                "expected one parameter({number}) in computation %{expected}, found another, after %{} in line {}",
                shortened(first.text),
                line_number(text, first.at)
            ),
            _ => format!(
                "expected parameter({index}) in computation %{expected}, found parameter({number})"
            ),
        };
        return Err(Diagnostic::invalid(name.at, message));
    }
    Ok(parameters.into_iter().map(|(.., id)| id).collect())
}

/// The number of an operand. Its shape may be left out, and must otherwise be the instruction's.
fn look_up(
    operand: &Operand<'_>,
    numbers: &HashMap<&str, usize>,
    computation: &Computation<'_>,
) -> Parsed<usize> {
    let index = look_up_name(operand.name, numbers, computation)?;
    let shape = &computation.instructions[index].shape;
    match &operand.shape {
        Some(given) if !given.is_compatible(shape) => {
            let name = shortened(operand.name.text);
            let message = format!("expected %{name} of shape {shape}, found {given}");
            Err(Diagnostic::invalid(operand.name.at, message))
        }
        _ => Ok(index),
    }
}

fn look_up_name(
    name: Name<'_>,
    numbers: &HashMap<&str, usize>,
    computation: &Computation<'_>,
) -> Parsed<usize> {
    numbers.get(name.text).copied().ok_or_else(|| {
        let near = suggestion(name.text, numbers.keys().copied(), |name| {
            format!("%{name}")
        });
        let (found, computation) = (shortened(name.text), shortened(computation.name.text));
        let message =
            format!("expected an instruction of computation %{computation}, found %{found}{near}");
        Diagnostic::invalid(name.at, message)
    })
}

/// An id. The length of the text bounds the number of ids below 2^32.
fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}
