//! Lowers instructions: from an opcode's name and attributes to an [`Opcode`].

use std::collections::HashMap;

use super::attributes::windows::{
    GATHER, SCATTER, convolution, indexed_windows, is_stable, window,
};
use super::attributes::{Attributes, computation, flag, numbers, padding, slice, word};
use super::collectives::collective;
use super::custom_calls::custom_call;
use super::syntax::{Instruction, Operands};
use crate::instruction::{
    BinaryOperation, Comparison, ComparisonOrder, ComputationId, DotDimensions, FftKind,
    FusionKind, Opcode, RandomAlgorithm, Transposition, TriangularSolve, UnaryOperation,
};
use callbox_core::text::{
    AttributeRoom, Cursor, Diagnostic, Name, Parsed, Placed, shortened, suggestion,
};
use callbox_core::values::{ElementType, Shape};

/// The parts of a module that the meaning of an instruction depends on.
pub(super) struct Context<'a> {
    /// The module's computations by name.
    pub(super) computations: HashMap<&'a str, ComputationId>,
    /// What the attributes of all custom calls may still take.
    pub(super) attribute_room: AttributeRoom,
}

impl Context<'_> {
    /// Looks up a computation.
    pub(super) fn computation(&self, name: Name<'_>) -> Parsed<ComputationId> {
        self.computations.get(name.text).copied().ok_or_else(|| {
            let known = self.computations.keys().copied();
            let near = suggestion(name.text, known, |name| format!("%{name}"));
            let found = shortened(name.text);
            Diagnostic::invalid(
                name.at,
                format!("expected a computation, found %{found}{near}"),
            )
        })
    }

    /// Looks up computations.
    pub(super) fn computations(&self, names: &[Name<'_>]) -> Parsed<Vec<ComputationId>> {
        names.iter().map(|name| self.computation(*name)).collect()
    }
}

/// The opcode of an instruction. Takes all of its attributes but `control-predecessors`.
pub(super) fn lower(
    instruction: &mut Instruction<'_>,
    operands: &[&Shape],
    context: &mut Context<'_>,
) -> Parsed<Opcode> {
    let name = instruction.opcode.text;
    if let Some(opcode) = without_attributes(name) {
        return Ok(opcode);
    }
    if let Some(opcode) = collective(instruction, operands)? {
        return Ok(opcode);
    }
    let attributes = &mut instruction.attributes;
    Ok(match name {
        "broadcast" => {
            Opcode::Broadcast(unless_scalar(attributes, operands, "dimensions", numbers)?)
        }
        "call" => Opcode::Call(callee("to_apply", attributes, context)?),
        "cholesky" => Opcode::Cholesky {
            lower: is_set("lower", attributes)?,
        },
        "compare" => compare(attributes, operands)?,
        "concatenate" => Opcode::Concatenate(one_dimension(attributes)?),
        "conditional" => Opcode::Conditional(branches(attributes, operands, context)?),
        "convolution" => Opcode::Convolution(Box::new(convolution(attributes)?)),
        "custom-call" => custom_call(instruction, operands, context)?,
        "dot" => Opcode::Dot(dot_dimensions(attributes)?),
        "dynamic-slice" => {
            Opcode::DynamicSlice(attributes.require("dynamic_slice_sizes", numbers)?.value)
        }
        "fft" => fft(attributes)?,
        "fusion" => fusion(attributes, context)?,
        "gather" => Opcode::Gather {
            windows: indexed_windows(attributes, GATHER)?,
            sizes: attributes.require("slice_sizes", numbers)?.value,
        },
        "get-tuple-element" => {
            Opcode::GetTupleElement(attributes.require("index", Cursor::number)?.value)
        }
        "iota" => Opcode::Iota(attributes.require("iota_dimension", Cursor::number)?.value),
        "map" => map(attributes, context)?,
        "pad" => Opcode::Pad(unless_scalar(attributes, operands, "padding", padding)?),
        "reduce" => Opcode::Reduce {
            computation: callee("to_apply", attributes, context)?,
            dimensions: attributes.require("dimensions", numbers)?.value,
        },
        "reduce-precision" => Opcode::ReducePrecision {
            exponent_bits: attributes.require("exponent_bits", bits)?.value,
            mantissa_bits: attributes.require("mantissa_bits", bits)?.value,
        },
        "reduce-window" => Opcode::ReduceWindow {
            window: window(attributes)?,
            computation: callee("to_apply", attributes, context)?,
        },
        "reverse" => Opcode::Reverse(attributes.require("dimensions", numbers)?.value),
        "rng-bit-generator" => random_bits(attributes)?,
        "scatter" => Opcode::Scatter {
            windows: indexed_windows(attributes, SCATTER)?,
            computation: callee("to_apply", attributes, context)?,
        },
        "select-and-scatter" => Opcode::SelectAndScatter {
            window: window(attributes)?,
            select: callee("select", attributes, context)?,
            scatter: callee("scatter", attributes, context)?,
        },
        "slice" => Opcode::Slice(attributes.require("slice", |c| c.list(slice))?.value),
        "sort" => Opcode::Sort {
            dimension: one_dimension(attributes)?,
            is_stable: is_stable(attributes)?,
            computation: callee("to_apply", attributes, context)?,
        },
        "transpose" => Opcode::Transpose(attributes.require("dimensions", numbers)?.value),
        "topk" => Opcode::TopK {
            k: attributes.require("k", Cursor::number)?.value,
            largest: attributes.require("largest", flag)?.value,
        },
        "triangular-solve" => triangular_solve(attributes)?,
        "while" => Opcode::While {
            condition: callee("condition", attributes, context)?,
            body: callee("body", attributes, context)?,
        },
        _ => constant_or_parameter(instruction)?,
    })
}

/// The opcodes that their names determine.
fn without_attributes(name: &str) -> Option<Opcode> {
    Some(match name {
        "after-all" => Opcode::AfterAll,
        "bitcast" => Opcode::Bitcast,
        "bitcast-convert" => Opcode::BitcastConvert,
        "clamp" => Opcode::Clamp,
        "convert" => Opcode::Convert,
        "copy" => Opcode::Copy,
        "dynamic-update-slice" => Opcode::DynamicUpdateSlice,
        "opt-barrier" => Opcode::OptimizationBarrier,
        "reshape" => Opcode::Reshape,
        "select" => Opcode::Select,
        "tuple" => Opcode::Tuple,
        _ => {
            let unary = UnaryOperation::from_name(name).map(Opcode::Unary);
            return unary.or_else(|| BinaryOperation::from_name(name).map(Opcode::Binary));
        }
    })
}

fn constant_or_parameter(instruction: &mut Instruction<'_>) -> Parsed<Opcode> {
    let Name { text, at } = instruction.opcode;
    match std::mem::replace(&mut instruction.operands, Operands::Parameter(0)) {
        Operands::Constant(literal) => Ok(Opcode::Constant(literal)),
        Operands::Parameter(number) => Ok(Opcode::Parameter(number)),
        Operands::Instructions(_) => {
            let message = format!("instruction {text:?} is not supported");
            Err(Diagnostic::unimplemented(at, message))
        }
    }
}

/// Takes an attribute that is the name of a computation.
fn callee(
    name: &str,
    attributes: &mut Attributes<'_>,
    context: &Context<'_>,
) -> Parsed<ComputationId> {
    context.computation(attributes.require(name, computation)?.value)
}

fn fusion(attributes: &mut Attributes<'_>, context: &Context<'_>) -> Parsed<Opcode> {
    let callee = callee("calls", attributes, context)?;
    let expected = "a kind of fusion such as kLoop";
    let kind = attributes.require("kind", |c| word(c, FusionKind::from_name, expected))?;
    Ok(Opcode::Fusion(kind.value, callee))
}

fn fft(attributes: &mut Attributes<'_>) -> Parsed<Opcode> {
    let expected = "a kind of transform such as RFFT";
    let kind = attributes.require("fft_type", |c| word(c, FftKind::from_name, expected))?;
    Ok(Opcode::Fft {
        kind: kind.value,
        length: attributes.require("fft_length", numbers)?.value,
    })
}

fn random_bits(attributes: &mut Attributes<'_>) -> Parsed<Opcode> {
    let expected = "an algorithm such as rng_philox";
    let read = |c: &mut Cursor<'_>| word(c, RandomAlgorithm::from_name, expected);
    let algorithm = attributes.require("algorithm", read)?;
    Ok(Opcode::RngBitGenerator(algorithm.value))
}

/// XLA prints only the flags that are set.
fn triangular_solve(attributes: &mut Attributes<'_>) -> Parsed<Opcode> {
    let expected = "NO_TRANSPOSE, TRANSPOSE or ADJOINT";
    let transpose = |c: &mut Cursor<'_>| word(c, Transposition::from_name, expected);
    Ok(Opcode::TriangularSolve(TriangularSolve {
        left_side: is_set("left_side", attributes)?,
        lower: is_set("lower", attributes)?,
        unit_diagonal: is_set("unit_diagonal", attributes)?,
        transpose: attributes.require("transpose_a", transpose)?.value,
    }))
}

/// Takes a flag that may be left out, which means false.
fn is_set(name: &str, attributes: &mut Attributes<'_>) -> Parsed<bool> {
    let flag = attributes.take(name, flag)?;
    Ok(flag.is_some_and(|flag| flag.value))
}

/// In XLA a map is always over all dimensions, in order.
fn map(attributes: &mut Attributes<'_>, context: &Context<'_>) -> Parsed<Opcode> {
    let callee = callee("to_apply", attributes, context)?;
    if let Some(Placed { value, at }) = attributes.take("dimensions", numbers)?
        && !value.iter().copied().eq(0..value.len())
    {
        let message = format!("expected all dimensions in order, found {value:?}");
        return Err(Diagnostic::invalid(at, message));
    }
    Ok(Opcode::Map(callee))
}

fn one_dimension(attributes: &mut Attributes<'_>) -> Parsed<usize> {
    let Placed { value, at } = attributes.require("dimensions", numbers)?;
    match value.as_slice() {
        [dimension] => Ok(*dimension),
        more => {
            let message = format!("expected one dimension, found {}", more.len());
            Err(Diagnostic::invalid(at, message))
        }
    }
}

fn bits(cursor: &mut Cursor<'_>) -> Parsed<u32> {
    let at = cursor.at();
    let bits = cursor.number()?;
    u32::try_from(bits)
        .map_err(|_| Diagnostic::invalid(at, format!("expected a number of bits, found {bits}")))
}

/// Takes a list that may be left out if the first operand is a scalar.
fn unless_scalar<'a, T>(
    attributes: &mut Attributes<'a>,
    operands: &[&Shape],
    name: &str,
    read: impl FnOnce(&mut Cursor<'a>) -> Parsed<Vec<T>>,
) -> Parsed<Vec<T>> {
    let first = operands.first().and_then(|shape| shape.as_array());
    if first.is_some_and(|shape| shape.rank() == 0) && !attributes.contains(name) {
        return Ok(Vec::new());
    }
    Ok(attributes.require(name, read)?.value)
}

/// The element type of the first operand, if it is an array.
fn first_element_type(operands: &[&Shape]) -> Option<ElementType> {
    Some(operands.first()?.as_array()?.element_type())
}

fn dot_dimensions(attributes: &mut Attributes<'_>) -> Parsed<DotDimensions> {
    Ok(DotDimensions {
        lhs_batch: attributes.numbers("lhs_batch_dims")?,
        rhs_batch: attributes.numbers("rhs_batch_dims")?,
        lhs_contracting: attributes.numbers("lhs_contracting_dims")?,
        rhs_contracting: attributes.numbers("rhs_contracting_dims")?,
    })
}

/// Reads the direction of a comparison, and the order that `type` names. XLA prints `type` where
/// it is not the default of the operands' element type.
fn compare(attributes: &mut Attributes<'_>, operands: &[&Shape]) -> Parsed<Opcode> {
    let expected = "a direction such as LT";
    let direction = attributes
        .require("direction", |c| word(c, Comparison::from_name, expected))?
        .value;
    let expected = "FLOAT, TOTALORDER, SIGNED or UNSIGNED";
    let known = |name: &str| {
        let applies: fn(ElementType) -> bool = match name {
            "FLOAT" => |t| t.is_floating() || t.is_complex(),
            "TOTALORDER" => ElementType::is_floating,
            "SIGNED" => ElementType::is_signed_integral,
            "UNSIGNED" => |t| t.is_unsigned_integral() || t.is_pred(),
            _ => return None,
        };
        Some((name.to_owned(), applies))
    };
    let Some(Placed { value, at }) = attributes.take("type", |c| word(c, known, expected))? else {
        return Ok(Opcode::Compare(direction, ComparisonOrder::Partial));
    };
    let (name, applies) = value;
    if let Some(element_type) = first_element_type(operands)
        && !applies(element_type)
    {
        let message = format!("expected a type of comparison for {element_type}, found {name}");
        return Err(Diagnostic::invalid(at, message));
    }
    let order = if name == "TOTALORDER" {
        ComparisonOrder::Total
    } else {
        ComparisonOrder::Partial
    };
    Ok(Opcode::Compare(direction, order))
}

/// Reads the branches of a conditional. Those of a predicate have attributes of their own.
fn branches(
    attributes: &mut Attributes<'_>,
    operands: &[&Shape],
    context: &Context<'_>,
) -> Parsed<Vec<ComputationId>> {
    let is_predicate = first_element_type(operands).is_some_and(ElementType::is_pred);
    let has_index = attributes.contains("branch_computations");
    let has_predicate =
        attributes.contains("true_computation") || attributes.contains("false_computation");
    if is_predicate && !has_index {
        let on_true = callee("true_computation", attributes, context)?;
        let on_false = callee("false_computation", attributes, context)?;
        return Ok(vec![on_true, on_false]);
    }
    if !is_predicate && has_index && !has_predicate {
        let branches = attributes.require("branch_computations", |c| c.list(computation))?;
        return context.computations(&branches.value);
    }
    let expected = if is_predicate {
        "true_computation and false_computation alone, for a predicate"
    } else {
        "branch_computations alone, for an index"
    };
    let message = format!("expected {expected}, found other attributes");
    Err(Diagnostic::invalid(attributes.opcode().at, message))
}
