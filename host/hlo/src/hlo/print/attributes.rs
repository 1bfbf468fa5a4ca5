//! Prints the attributes of instructions.

use super::custom_calls::custom_call;
use super::{Printer, list, numbers, windows};
use crate::hlo::attributes::windows::{GATHER, SCATTER};
use crate::instruction::{
    Comparison, ComparisonOrder, Computation, ComputationId, DotDimensions, Instruction, Opcode,
    PaddingDimension, SliceDimension,
};
use callbox_core::values::{ElementType, Shape};

/// Appends an instruction's attributes other than `control-predecessors`.
pub(super) fn attributes(
    printer: &Printer<'_>,
    computation: &Computation,
    instruction: &Instruction,
    text: &mut String,
) {
    let first = instruction.operands.first();
    let first = first.and_then(|id| computation.instructions[id.index()].shape.as_array());
    let element_type = first.map(|shape| shape.element_type());
    let attributes = match &instruction.opcode {
        Opcode::CustomCall(call) => return custom_call(printer, call, text),
        Opcode::Compare(direction, order) => compare(*direction, *order, element_type),
        Opcode::Dot(dimensions) => dot(dimensions),
        Opcode::Map(callee) => map(printer, *callee, &instruction.shape),
        Opcode::Conditional(branches) => conditional(printer, branches, element_type),
        opcode => calling(printer, opcode).unwrap_or_else(|| plain(opcode)),
    };
    *text += &attributes;
}

/// The attributes of opcodes that call computations.
fn calling(printer: &Printer<'_>, opcode: &Opcode) -> Option<String> {
    let name = |id: &ComputationId| printer.computation(*id);
    Some(match opcode {
        Opcode::Call(callee) => format!(", to_apply={}", name(callee)),
        Opcode::Fusion(kind, callee) => format!(", kind={kind}, calls={}", name(callee)),
        Opcode::While { condition, body } => {
            format!(", condition={}, body={}", name(condition), name(body))
        }
        Opcode::Reduce {
            dimensions,
            computation,
        } => {
            let dimensions = numbers(dimensions);
            format!(", dimensions={dimensions}, to_apply={}", name(computation))
        }
        Opcode::Scatter {
            windows,
            computation,
        } => format!(
            "{}, to_apply={}",
            windows::indexed_windows(windows, SCATTER),
            name(computation)
        ),
        Opcode::Sort {
            dimension,
            is_stable,
            computation,
        } => {
            let stable = if *is_stable { ", is_stable=true" } else { "" };
            let callee = name(computation);
            format!(", dimensions={{{dimension}}}{stable}, to_apply={callee}")
        }
        Opcode::ReduceWindow {
            window,
            computation,
        } => format!(
            "{}, to_apply={}",
            windows::window(window),
            name(computation)
        ),
        Opcode::SelectAndScatter {
            window,
            select,
            scatter,
        } => format!(
            "{}, select={}, scatter={}",
            windows::window(window),
            name(select),
            name(scatter)
        ),
        _ => return None,
    })
}

/// The attributes of opcodes that call nothing.
fn plain(opcode: &Opcode) -> String {
    match opcode {
        Opcode::GetTupleElement(index) => format!(", index={index}"),
        Opcode::Iota(dimension) => format!(", iota_dimension={dimension}"),
        Opcode::Concatenate(dimension) => format!(", dimensions={{{dimension}}}"),
        Opcode::Broadcast(dimensions)
        | Opcode::Transpose(dimensions)
        | Opcode::Reverse(dimensions) => format!(", dimensions={}", numbers(dimensions)),
        Opcode::DynamicSlice(sizes) => format!(", dynamic_slice_sizes={}", numbers(sizes)),
        Opcode::Slice(slices) => {
            let slices = list(slices.iter().map(slice));
            format!(", slice={{{slices}}}")
        }
        // HLO text has no padding of no dimensions.
        Opcode::Pad(dimensions) if dimensions.is_empty() => String::new(),
        Opcode::Pad(dimensions) => {
            let dimensions = dimensions.iter().map(padding);
            format!(", padding={}", dimensions.collect::<Vec<_>>().join("x"))
        }
        Opcode::Gather { windows, sizes } => format!(
            "{}, slice_sizes={}",
            windows::indexed_windows(windows, GATHER),
            numbers(sizes)
        ),
        Opcode::Convolution(convolution) => windows::convolution(convolution),
        Opcode::TopK { k, largest } => format!(", k={k}, largest={largest}"),
        Opcode::Fft { kind, length } => {
            format!(", fft_type={kind}, fft_length={}", numbers(length))
        }
        Opcode::Cholesky { lower } => flags(&[("lower", *lower)]),
        Opcode::TriangularSolve(solve) => format!(
            "{}, transpose_a={}",
            flags(&[
                ("left_side", solve.left_side),
                ("lower", solve.lower),
                ("unit_diagonal", solve.unit_diagonal),
            ]),
            solve.transpose
        ),
        Opcode::RngBitGenerator(algorithm) => format!(", algorithm={algorithm}"),
        Opcode::ReducePrecision {
            exponent_bits,
            mantissa_bits,
        } => format!(", exponent_bits={exponent_bits}, mantissa_bits={mantissa_bits}"),
        _ => String::new(),
    }
}

/// The flags that are set, as XLA prints them.
fn flags(flags: &[(&str, bool)]) -> String {
    let set = flags.iter().filter(|(_, is_set)| *is_set);
    set.map(|(name, _)| format!(", {name}=true")).collect()
}

fn slice(dimension: &SliceDimension) -> String {
    let SliceDimension {
        start,
        limit,
        stride,
    } = dimension;
    match stride {
        1 => format!("[{start}:{limit}]"),
        _ => format!("[{start}:{limit}:{stride}]"),
    }
}

fn padding(dimension: &PaddingDimension) -> String {
    let PaddingDimension {
        low,
        high,
        interior,
    } = dimension;
    match interior {
        0 => format!("{low}_{high}"),
        _ => format!("{low}_{high}_{interior}"),
    }
}

/// Only floating-point types have a total order besides the partial one.
fn compare(
    direction: Comparison,
    order: ComparisonOrder,
    element_type: Option<ElementType>,
) -> String {
    let has_orders = element_type.is_some_and(ElementType::is_floating);
    match order {
        ComparisonOrder::Total if has_orders => format!(", direction={direction}, type=TOTALORDER"),
        _ => format!(", direction={direction}"),
    }
}

fn dot(dimensions: &DotDimensions) -> String {
    let named = [
        ("lhs_batch_dims", &dimensions.lhs_batch),
        ("lhs_contracting_dims", &dimensions.lhs_contracting),
        ("rhs_batch_dims", &dimensions.rhs_batch),
        ("rhs_contracting_dims", &dimensions.rhs_contracting),
    ];
    let named = named.into_iter().filter(|(_, dims)| !dims.is_empty());
    named
        .map(|(name, dims)| format!(", {name}={}", numbers(dims)))
        .collect()
}

fn map(printer: &Printer<'_>, callee: ComputationId, shape: &Shape) -> String {
    let rank = shape.as_array().map_or(0, |array| array.rank());
    let dimensions = numbers(&Vec::from_iter(0..rank));
    let callee = printer.computation(callee);
    format!(", dimensions={dimensions}, to_apply={callee}")
}

fn conditional(
    printer: &Printer<'_>,
    branches: &[ComputationId],
    element_type: Option<ElementType>,
) -> String {
    let is_predicate = element_type.is_some_and(ElementType::is_pred);
    let names = branches.iter().map(|id| printer.computation(*id));
    match (is_predicate, branches) {
        (true, [on_true, on_false]) => {
            let on_true = printer.computation(*on_true);
            let on_false = printer.computation(*on_false);
            format!(", true_computation={on_true}, false_computation={on_false}")
        }
        _ => format!(", branch_computations={{{}}}", list(names)),
    }
}
