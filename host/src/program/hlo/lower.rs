//! From an instruction's attributes to its opcode.

use std::collections::HashMap;

use super::attributes::Placed;
use super::cursor::Name;
use super::custom_calls::custom_call;
use super::opcodes::Operation;
use super::source::{Diagnostic, Parsed, shortened};
use super::suggestion::suggestion;
use super::syntax::{Instruction, Operands};
use crate::program::instruction::{
    Comparison, ComparisonOrder, ComputationId, DotDimensions, FusionKind, Opcode, PaddingDimension,
};
use crate::values::{ElementType, Shape};

/// What an instruction's meaning depends on besides its own text.
pub(super) struct Context<'a> {
    /// The module's computations.
    pub(super) computations: HashMap<&'a str, ComputationId>,
    /// How many more bytes attributes may take whose text says one element for many.
    pub(super) splat_bytes: usize,
}

impl Context<'_> {
    /// The computation of this name.
    pub(super) fn computation(&self, name: Name<'_>) -> Parsed<ComputationId> {
        self.computations.get(name.text).copied().ok_or_else(|| {
            let near = suggestion(name.text, self.computations.keys().copied(), "%");
            let found = shortened(name.text);
            Diagnostic::invalid(
                name.at,
                format!("expected a computation, found %{found}{near}"),
            )
        })
    }

    /// The computations of these names.
    pub(super) fn computations(&self, names: &[Name<'_>]) -> Parsed<Vec<ComputationId>> {
        names.iter().map(|name| self.computation(*name)).collect()
    }
}

/// What an instruction does. Takes the instruction's attributes but `control-predecessors`.
pub(super) fn opcode(
    instruction: &mut Instruction<'_>,
    operands: &[&Shape],
    context: &mut Context<'_>,
) -> Parsed<Opcode> {
    if let Some(opcode) = without_attributes(instruction.operation) {
        return Ok(opcode);
    }
    Ok(match instruction.operation {
        Operation::Broadcast => Opcode::Broadcast(broadcast_dimensions(instruction, operands)?),
        Operation::Compare => compare(instruction, operands)?,
        Operation::Concatenate => Opcode::Concatenate(one_dimension(instruction)?),
        Operation::Conditional => Opcode::Conditional(branches(instruction, operands, context)?),
        Operation::CustomCall => custom_call(instruction, operands, context)?,
        Operation::Dot => Opcode::Dot(dot_dimensions(instruction)),
        Operation::Pad => Opcode::Pad(padding(instruction, operands)?),
        Operation::ReducePrecision => reduce_precision(instruction)?,
        Operation::Reverse => Opcode::Reverse(dimensions(instruction)?),
        Operation::Transpose => Opcode::Transpose(dimensions(instruction)?),
        Operation::Call
        | Operation::Fusion
        | Operation::Map
        | Operation::Reduce
        | Operation::While => calling(instruction, context)?,
        _ => with_one_attribute(instruction)?,
    })
}

/// Opcodes that are all that their instruction says.
fn without_attributes(operation: Operation) -> Option<Opcode> {
    Some(match operation {
        Operation::AfterAll => Opcode::AfterAll,
        Operation::Binary(operation) => Opcode::Binary(operation),
        Operation::Bitcast => Opcode::Bitcast,
        Operation::BitcastConvert => Opcode::BitcastConvert,
        Operation::Clamp => Opcode::Clamp,
        Operation::Convert => Opcode::Convert,
        Operation::Copy => Opcode::Copy,
        Operation::DynamicUpdateSlice => Opcode::DynamicUpdateSlice,
        Operation::OptimizationBarrier => Opcode::OptimizationBarrier,
        Operation::Reshape => Opcode::Reshape,
        Operation::Select => Opcode::Select,
        Operation::Tuple => Opcode::Tuple,
        Operation::Unary(operation) => Opcode::Unary(operation),
        _ => return None,
    })
}

/// Opcodes of one attribute that says what the opcode has, and those of none whose parentheses say it.
fn with_one_attribute(instruction: &mut Instruction<'_>) -> Parsed<Opcode> {
    let at = instruction.opcode;
    let attributes = &mut instruction.attributes;
    Ok(match instruction.operation {
        Operation::DynamicSlice => {
            let sizes = attributes.numbers("dynamic_slice_sizes");
            Opcode::DynamicSlice(required(sizes, "dynamic_slice_sizes", at)?.value)
        }
        Operation::GetTupleElement => {
            Opcode::GetTupleElement(required(attributes.number("index"), "index", at)?.value)
        }
        Operation::Iota => {
            let dimension = attributes.number("iota_dimension");
            Opcode::Iota(required(dimension, "iota_dimension", at)?.value)
        }
        Operation::Slice => Opcode::Slice(required(attributes.slices("slice"), "slice", at)?.value),
        _ => constant_or_parameter(instruction)?,
    })
}

/// An attribute that an instruction does not do without.
pub(super) fn required<T>(
    attribute: Option<Placed<T>>,
    name: &str,
    opcode: Name<'_>,
) -> Parsed<Placed<T>> {
    attribute.ok_or_else(|| {
        let message = format!(
            "expected the attribute {name} of {:?}, found none",
            opcode.text
        );
        Diagnostic::invalid(opcode.at, message)
    })
}

/// An attribute's word as what it stands for.
pub(super) fn named<T: Copy>(
    word: &Placed<&str>,
    from_name: impl Fn(&str) -> Option<T>,
    what: &str,
) -> Parsed<T> {
    from_name(word.value).ok_or_else(|| {
        let found = shortened(word.value);
        Diagnostic::invalid(word.at, format!("expected {what}, found {found:?}"))
    })
}

/// Opcodes that call one computation or two.
fn calling(instruction: &mut Instruction<'_>, context: &Context<'_>) -> Parsed<Opcode> {
    let at = instruction.opcode;
    let operation = instruction.operation;
    let mut callee = |name: &str| {
        let attribute = instruction.attributes.computation(name);
        context.computation(required(attribute, name, at)?.value)
    };
    Ok(match operation {
        Operation::Fusion => {
            let callee = callee("calls")?;
            let kind = required(instruction.attributes.word("kind"), "kind", at)?;
            Opcode::Fusion(
                named(
                    &kind,
                    FusionKind::from_name,
                    "a kind of fusion such as kLoop",
                )?,
                callee,
            )
        }
        Operation::While => Opcode::While {
            condition: callee("condition")?,
            body: callee("body")?,
        },
        Operation::Reduce => Opcode::Reduce {
            computation: callee("to_apply")?,
            dimensions: dimensions(instruction)?,
        },
        Operation::Map => {
            let callee = callee("to_apply")?;
            all_dimensions(instruction)?;
            Opcode::Map(callee)
        }
        _ => Opcode::Call(callee("to_apply")?),
    })
}

fn constant_or_parameter(instruction: &mut Instruction<'_>) -> Parsed<Opcode> {
    let nothing = Operands::Instructions(Vec::new());
    match std::mem::replace(&mut instruction.operands, nothing) {
        Operands::Constant(literal) => Ok(Opcode::Constant(literal)),
        Operands::Parameter(number) => Ok(Opcode::Parameter(number)),
        Operands::Instructions(_) => {
            let message = format!("expected no operands of {:?}", instruction.opcode.text);
            Err(Diagnostic::invalid(instruction.opcode.at, message))
        }
    }
}

fn dimensions(instruction: &mut Instruction<'_>) -> Parsed<Vec<usize>> {
    let dimensions = instruction.attributes.numbers("dimensions");
    Ok(required(dimensions, "dimensions", instruction.opcode)?.value)
}

fn one_dimension(instruction: &mut Instruction<'_>) -> Parsed<usize> {
    let dimensions = instruction.attributes.numbers("dimensions");
    let dimensions = required(dimensions, "dimensions", instruction.opcode)?;
    match dimensions.value.as_slice() {
        [dimension] => Ok(*dimension),
        more => {
            let message = format!("expected one dimension, found {}", more.len());
            Err(Diagnostic::invalid(dimensions.at, message))
        }
    }
}

/// A map goes over all dimensions; XLA knows no other.
fn all_dimensions(instruction: &mut Instruction<'_>) -> Parsed<()> {
    match instruction.attributes.numbers("dimensions") {
        Some(dimensions)
            if !dimensions
                .value
                .iter()
                .copied()
                .eq(0..dimensions.value.len()) =>
        {
            let message = format!(
                "expected all dimensions in order, found {:?}",
                dimensions.value
            );
            Err(Diagnostic::invalid(dimensions.at, message))
        }
        _ => Ok(()),
    }
}

/// Text has no padding of no dimensions, so that a scalar's is left out.
fn padding(
    instruction: &mut Instruction<'_>,
    operands: &[&Shape],
) -> Parsed<Vec<PaddingDimension>> {
    match instruction.attributes.padding("padding") {
        None if is_scalar(operands) => Ok(Vec::new()),
        padding => Ok(required(padding, "padding", instruction.opcode)?.value),
    }
}

/// Whether the first operand is a scalar.
fn is_scalar(operands: &[&Shape]) -> bool {
    let first = operands.first().and_then(|shape| shape.as_array());
    first.is_some_and(|shape| shape.rank() == 0)
}

/// XLA lets the attribute be left out for a scalar.
fn broadcast_dimensions(
    instruction: &mut Instruction<'_>,
    operands: &[&Shape],
) -> Parsed<Vec<usize>> {
    match instruction.attributes.numbers("dimensions") {
        None if is_scalar(operands) => Ok(Vec::new()),
        dimensions => Ok(required(dimensions, "dimensions", instruction.opcode)?.value),
    }
}

fn reduce_precision(instruction: &mut Instruction<'_>) -> Parsed<Opcode> {
    let opcode = instruction.opcode;
    let mut bits = |name: &str| {
        let bits = required(instruction.attributes.number(name), name, opcode)?;
        u32::try_from(bits.value).map_err(|_| {
            Diagnostic::invalid(
                bits.at,
                format!("expected a number of bits, found {}", bits.value),
            )
        })
    };
    Ok(Opcode::ReducePrecision {
        exponent_bits: bits("exponent_bits")?,
        mantissa_bits: bits("mantissa_bits")?,
    })
}

fn dot_dimensions(instruction: &mut Instruction<'_>) -> DotDimensions {
    let mut dimensions = |name: &str| {
        let dimensions = instruction.attributes.numbers(name);
        dimensions.map_or_else(Vec::new, |dimensions| dimensions.value)
    };
    DotDimensions {
        lhs_batch: dimensions("lhs_batch_dims"),
        rhs_batch: dimensions("rhs_batch_dims"),
        lhs_contracting: dimensions("lhs_contracting_dims"),
        rhs_contracting: dimensions("rhs_contracting_dims"),
    }
}

/// The direction, and the order that `type` says. XLA prints `type` where it is not what the operands' type gives.
fn compare(instruction: &mut Instruction<'_>, operands: &[&Shape]) -> Parsed<Opcode> {
    let direction = required(
        instruction.attributes.word("direction"),
        "direction",
        instruction.opcode,
    )?;
    let direction = named(&direction, Comparison::from_name, "a direction such as LT")?;
    let Some(order) = instruction.attributes.word("type") else {
        return Ok(Opcode::Compare(direction, ComparisonOrder::Partial));
    };
    let element_type = operands
        .first()
        .and_then(|shape| shape.as_array())
        .map(|shape| shape.element_type());
    let applies: fn(ElementType) -> bool = match order.value {
        "FLOAT" => |t| t.is_floating() || t.is_complex(),
        "TOTALORDER" => ElementType::is_floating,
        "SIGNED" => ElementType::is_signed_integral,
        "UNSIGNED" => |t| t.is_unsigned_integral() || t.is_pred(),
        other => {
            let found = shortened(other);
            let message =
                format!("expected FLOAT, TOTALORDER, SIGNED or UNSIGNED, found {found:?}");
            return Err(Diagnostic::invalid(order.at, message));
        }
    };
    match element_type {
        Some(element_type) if !applies(element_type) => {
            let message = format!(
                "expected a type of comparison for {element_type}, found {}",
                order.value
            );
            Err(Diagnostic::invalid(order.at, message))
        }
        _ if order.value == "TOTALORDER" => Ok(Opcode::Compare(direction, ComparisonOrder::Total)),
        _ => Ok(Opcode::Compare(direction, ComparisonOrder::Partial)),
    }
}

/// The branches of a conditional. Those of a predicate are named for it, so that their order says nothing.
fn branches(
    instruction: &mut Instruction<'_>,
    operands: &[&Shape],
    context: &Context<'_>,
) -> Parsed<Vec<ComputationId>> {
    let opcode = instruction.opcode;
    let attributes = &mut instruction.attributes;
    let by_index = attributes.computations("branch_computations");
    let by_predicate = (
        attributes.computation("true_computation"),
        attributes.computation("false_computation"),
    );
    let is_predicate = operands
        .first()
        .and_then(|shape| shape.as_array())
        .is_some_and(|shape| shape.element_type().is_pred());
    match (by_index, by_predicate) {
        (Some(branches), (None, None)) if !is_predicate => context.computations(&branches.value),
        (None, (on_true, on_false)) if is_predicate => {
            let on_true = required(on_true, "true_computation", opcode)?;
            let on_false = required(on_false, "false_computation", opcode)?;
            context.computations(&[on_true.value, on_false.value])
        }
        _ => {
            let expected = match is_predicate {
                true => "true_computation and false_computation alone, for a predicate",
                false => "branch_computations alone, for an index",
            };
            Err(Diagnostic::invalid(
                opcode.at,
                format!("expected {expected}, found other attributes"),
            ))
        }
    }
}
