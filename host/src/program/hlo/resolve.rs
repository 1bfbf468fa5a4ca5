//! Looks names up, and puts instructions in order.

use std::collections::{HashMap, HashSet};

use super::cursor::Name;
use super::graph::{describe_cycle, order};
use super::lower::{Context, opcode};
use super::source::{Diagnostic, Parsed, line_number, shortened};
use super::suggestion::suggestion;
use super::syntax::{Computation, Exports, Module, Operand, Operands, Signature};
use crate::program::instruction::{self, ComputationId, Instruction, InstructionId, Opcode};
use crate::values::Shape;

/// How many bytes attributes may take whose text says one element for many.
pub(super) const MAX_SPLAT_BYTES: usize = 1 << 28;

/// A module whose names have been looked up.
pub(super) struct Resolved<'a> {
    pub(super) name: String,
    pub(super) computations: Vec<instruction::Computation>,
    pub(super) exports: Vec<ComputationId>,
    /// The names of each computation's instructions, for places.
    pub(super) places: Vec<(Name<'a>, Vec<Name<'a>>)>,
}

/// Looks up all names of a module.
pub(super) fn resolve<'a>(text: &str, module: Module<'a>) -> Parsed<Resolved<'a>> {
    let entry = entry(text, &module)?;
    let mut context = Context {
        computations: computations(text, &module)?,
        splat_bytes: MAX_SPLAT_BYTES,
    };
    let exports = match &module.exports {
        Some(exports) => named_exports(exports, &context)?,
        None => vec![ComputationId(number(entry))],
    };
    let mut resolved = Resolved {
        name: module.name.text.to_owned(),
        computations: Vec::with_capacity(module.computations.len()),
        exports,
        places: Vec::with_capacity(module.computations.len()),
    };
    for computation in module.computations {
        let names = computation
            .instructions
            .iter()
            .map(|instruction| instruction.name)
            .collect();
        resolved.places.push((computation.name, names));
        let resolver = Resolver {
            text,
            context: &mut context,
        };
        resolved
            .computations
            .push(resolver.computation(computation)?);
    }
    refuse_recursion(&resolved)?;
    if let Some(signature) = &module.entry_signature {
        check_signature(
            signature,
            &resolved.computations[entry],
            "entry_computation_layout",
        )?;
    }
    Ok(resolved)
}

/// The number of the computation that is marked ENTRY.
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

fn named_exports(exports: &Exports, context: &Context<'_>) -> Parsed<Vec<ComputationId>> {
    let (mut ids, mut seen) = (Vec::new(), HashSet::new());
    for name in exports.names.split(',') {
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

fn refuse_recursion(resolved: &Resolved<'_>) -> Parsed<()> {
    let calls = resolved.computations.iter().map(|computation| {
        let called = computation
            .instructions
            .iter()
            .flat_map(|i| i.opcode.called_computations());
        called.map(ComputationId::index).collect()
    });
    let calls: Vec<_> = calls.collect();
    let cycle = match order(&calls) {
        Ok(_) => return Ok(()),
        Err(cycle) => cycle,
    };
    let name = |index: usize| resolved.places[index].0;
    let cycle_text = describe_cycle(&cycle, |index| name(index).text);
    let at = cycle.first().map_or(0, |first| name(*first).at);
    Err(Diagnostic::invalid(
        at,
        format!("expected computations that do not call themselves, found {cycle_text}"),
    ))
}

fn duplicate(text: &str, what: &str, first: Name<'_>, second: Name<'_>) -> Diagnostic {
    let line = line_number(text, first.at);
    let name = shortened(second.text);
    Diagnostic::invalid(
        second.at,
        format!("expected the name of another {what}, found %{name}, which is in line {line}"),
    )
}

/// The header of a computation, or of the module, says what the instructions say.
fn check_signature(
    signature: &Signature,
    computation: &instruction::Computation,
    what: &str,
) -> Parsed<()> {
    let shape = |id: &InstructionId| &computation.instructions[id.index()].shape;
    let wrong = |message| Err(Diagnostic::invalid(signature.at, message));
    let (expected, found) = (computation.parameters.len(), signature.parameters.len());
    if expected != found {
        let name = shortened(&computation.name);
        return wrong(format!(
            "expected {expected} parameters in the {what} of %{name}, found {found}"
        ));
    }
    let parameters = std::iter::zip(
        computation.parameters.iter().map(shape),
        &signature.parameters,
    );
    for (index, (expected, found)) in parameters.enumerate() {
        if !expected.is_compatible(found) {
            return wrong(format!(
                "expected {expected} for parameter {index} in the {what}, found {found}"
            ));
        }
    }
    let (expected, found) = (shape(&computation.root), &signature.result);
    match expected.is_compatible(found) {
        true => Ok(()),
        false => wrong(format!(
            "expected {expected} for the result in the {what}, found {found}"
        )),
    }
}

/// Looks up the names of one computation.
struct Resolver<'a, 'b> {
    text: &'a str,
    context: &'a mut Context<'b>,
}

impl Resolver<'_, '_> {
    fn computation(self, mut computation: Computation<'_>) -> Parsed<instruction::Computation> {
        let numbers = self.numbers(&computation)?;
        let operands =
            computation
                .instructions
                .iter()
                .map(|instruction| match &instruction.operands {
                    Operands::Instructions(operands) => operands
                        .iter()
                        .map(|operand| look_up(operand, &numbers, &computation))
                        .collect(),
                    Operands::Parameter(_) | Operands::Constant(_) => Ok(Vec::new()),
                });
        let operands = operands.collect::<Parsed<Vec<Vec<usize>>>>()?;
        let mut predecessors = Vec::with_capacity(operands.len());
        for index in 0..computation.instructions.len() {
            let names = computation.instructions[index]
                .attributes
                .instructions("control-predecessors");
            let names = names.map_or_else(Vec::new, |names| names.value);
            let found = names
                .iter()
                .map(|name| look_up_name(*name, &numbers, &computation));
            predecessors.push(found.collect::<Parsed<Vec<usize>>>()?);
        }
        let order = in_order(&computation, &operands, &predecessors)?;
        self.ordered(computation, &order, &operands, &predecessors)
    }

    fn numbers<'a>(&self, computation: &Computation<'a>) -> Parsed<HashMap<&'a str, usize>> {
        let mut numbers = HashMap::with_capacity(computation.instructions.len());
        for (index, instruction) in computation.instructions.iter().enumerate() {
            if let Some(first) = numbers.insert(instruction.name.text, index) {
                let first = computation.instructions[first].name;
                return Err(duplicate(self.text, "instruction", first, instruction.name));
            }
        }
        Ok(numbers)
    }

    /// The computation with its instructions in this order.
    fn ordered(
        self,
        mut computation: Computation<'_>,
        order: &[usize],
        operands: &[Vec<usize>],
        predecessors: &[Vec<usize>],
    ) -> Parsed<instruction::Computation> {
        let mut ids = vec![InstructionId(0); order.len()];
        for (id, index) in order.iter().enumerate() {
            ids[*index] = InstructionId(number(id));
        }
        let to_ids = |indices: &[usize]| indices.iter().map(|index| ids[*index]).collect();
        let shapes = computation
            .instructions
            .iter()
            .map(|instruction| instruction.shape.clone());
        let shapes: Vec<Shape> = shapes.collect();
        let mut instructions = Vec::with_capacity(order.len());
        for &index in order {
            let instruction = &mut computation.instructions[index];
            let of_operands = operands[index].iter().map(|operand| &shapes[*operand]);
            let of_operands: Vec<&Shape> = of_operands.collect();
            instructions.push(Instruction {
                opcode: opcode(instruction, &of_operands, self.context)?,
                name: instruction.name.text.to_owned(),
                shape: instruction.shape.clone(),
                operands: to_ids(&operands[index]),
                control_predecessors: to_ids(&predecessors[index]),
            });
        }
        let resolved = instruction::Computation {
            name: computation.name.text.to_owned(),
            parameters: self.parameters(&computation, &ids, &instructions)?,
            instructions,
            root: ids[computation.root.unwrap_or(order.len() - 1)],
        };
        match &computation.signature {
            Some(signature) => check_signature(signature, &resolved, "header").map(|()| resolved),
            None => Ok(resolved),
        }
    }

    /// The instructions of the parameters, by number.
    fn parameters(
        &self,
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
                    line_number(self.text, first.at)
                ),
                _ => format!(
                    "expected parameter({index}) in computation %{expected}, found parameter({number})"
                ),
            };
            return Err(Diagnostic::invalid(name.at, message));
        }
        Ok(parameters.into_iter().map(|(.., id)| id).collect())
    }
}

/// The number of an operand, whose shape, where it is given, is the instruction's.
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
        let near = suggestion(name.text, numbers.keys().copied(), "%");
        let (found, computation) = (shortened(name.text), shortened(computation.name.text));
        let message =
            format!("expected an instruction of computation %{computation}, found %{found}{near}");
        Diagnostic::invalid(name.at, message)
    })
}

fn in_order(
    computation: &Computation<'_>,
    operands: &[Vec<usize>],
    predecessors: &[Vec<usize>],
) -> Parsed<Vec<usize>> {
    let needs = std::iter::zip(operands, predecessors)
        .map(|(operands, predecessors)| [&operands[..], predecessors].concat());
    let needs: Vec<_> = needs.collect();
    order(&needs).map_err(|cycle| {
        let name = |index: usize| computation.instructions[index].name;
        let cycle_text = describe_cycle(&cycle, |index| name(index).text);
        let at = cycle.first().map_or(0, |first| name(*first).at);
        Diagnostic::invalid(
            at,
            format!("expected instructions that do not need themselves, found {cycle_text}"),
        )
    })
}

/// A text of bounded size has fewer things than this counts.
fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}
