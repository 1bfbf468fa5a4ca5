//! Evaluates one instruction on the Host: every opcode but control flow.
//!
//! Literals are dense and row-major whatever their layout. A layout says how an array is handed to
//! a target or read by `bitcast`, nothing else.
//!
//! Arithmetic is done in one of four wide types ([`wide`]) and rounded once: a `bf16` sum is the
//! exact sum, rounded to `bf16`. Results therefore equal XLA's wherever XLA defines one answer
//! (integers, rounding, conversions, NaN and infinities). Where XLA leaves several
//! (transcendental functions, the order of a sum), they are at least as close to the exact answer.
//! Two habits of XLA:CPU are left out on purpose: it flushes subnormal `f32` to zero, and it
//! converts some pairs of types through `f32`, which rounds twice.
//!
//! Long operations share threads ([`teamwork`]), and elementwise instructions that follow each
//! other run together ([`pass`]). Neither depends on the number of threads. F32 does without the
//! wide type where results are the same, or, for `exp`, `log`, `logistic` and `tanh`, as accurate
//! ([`direct`]). Large products and long sums have orders of their own ([`dot`], [`reduce`]).
//!
//! Every instruction computes in the floating-point mode of WebAssembly, whatever the mode of the
//! calling thread: XLA's flush subnormal numbers.
//!
//! Instructions have been verified. A contradiction is reported as a bug of the host.

mod apply;
mod array;
mod binary;
mod compare;
mod complex;
mod convert;
mod convolution;
mod direct;
mod dot;
mod elementwise;
mod factors;
mod fft;
mod indexing;
mod lapack;
mod layout;
mod lift;
mod linear;
mod movement;
mod pass;
mod random;
mod reduce;
mod reduce_precision;
mod sort;
mod strided;
mod teamwork;
mod top_k;
mod unary;
mod wide;
mod windows;

use std::fmt;
use std::ops::Range;

use super::instruction::{ComputationId, Instruction, Opcode, Program};
use callbox_core::float_mode::FloatMode;
use callbox_core::values::{ElementType, Literal, Result, Shape, Status};

use array::{Elements, array, leaf};

pub(crate) use callbox_core::values::{collected, push, with_capacity, zeroed};
pub(crate) use layout::{from_layout, is_row_major, to_layout};
pub(crate) use pass::{Member, Pass, Source, run_pass};
pub(crate) use teamwork::{Check, Team, available as available_threads};

/// Runs the computations that are applied to elements.
pub(crate) trait Callee {
    /// The program of the computations. Computations from scalars to scalars run on whole arrays
    /// without this trait's help.
    fn program(&self) -> &Program;

    /// The threads for a long operation, and whether it goes on.
    fn team(&self) -> Team<'_>;

    /// Checks whether a long operation goes on.
    fn check(&self) -> Result<()> {
        self.team().check.check()
    }

    /// Runs a computation that cannot run on whole arrays.
    fn run(&mut self, id: ComputationId, arguments: &[Literal]) -> Result<Literal>;
}

/// Evaluates a verified instruction for its operands' values. The result has the instruction's
/// shape.
///
/// # Errors
/// The error of an applied computation, or of [`Callee::check`] in a `dot`; RESOURCE_EXHAUSTED if
/// there is no memory for the result;
/// INTERNAL for control flow (parameters, calls, loops, branches), and for instructions that
/// [`super::verify`] refuses.
pub(crate) fn evaluate(
    instruction: &Instruction,
    operands: &[Literal],
    callee: &mut dyn Callee,
) -> Result<Literal> {
    let _mode = FloatMode::WASM.set();
    let shape = &instruction.shape;
    // What an instruction keeps beside its result can be as large as the other dimensions.
    if shape
        .as_array()
        .is_some_and(|to| to.dimensions().contains(&0))
    {
        return leaf(shape, Vec::new());
    }
    match &instruction.opcode {
        Opcode::Reduce {
            dimensions,
            computation,
        } => reduce::reduce(shape, operands, dimensions, *computation, callee),
        Opcode::Map(computation) => reduce::map(shape, operands, *computation, callee),
        Opcode::Scatter {
            windows,
            computation,
        } => indexing::scatter(shape, operands, windows, *computation, callee),
        Opcode::Sort {
            dimension,
            computation,
            ..
        } => sort::sort(shape, operands, *dimension, *computation, callee),
        Opcode::ReduceWindow {
            window,
            computation,
        } => windows::reduce_window(shape, operands, window, *computation, callee),
        Opcode::SelectAndScatter {
            window,
            select,
            scatter,
        } => windows::select_and_scatter(shape, operands, window, [*select, *scatter], callee),
        Opcode::TopK { k, largest } => match operands {
            [x] => top_k::top_k(shape, &array(x)?, *k, *largest, callee),
            _ => Err(unexpected(instruction, operands)),
        },
        Opcode::RngBitGenerator(algorithm) => match operands {
            [state] => random::random_bits(shape, &array(state)?, *algorithm),
            _ => Err(unexpected(instruction, operands)),
        },
        Opcode::CustomCall(call) => lapack::call(call, shape, operands, &|| callee.check()),
        Opcode::Dot(dimensions) => match (operands, shape.as_array()) {
            ([x, y], Some(to)) => {
                let to = to.element_type();
                let team = callee.team();
                leaf(
                    shape,
                    dot::dot(&array(x)?, &array(y)?, dimensions, to, team)?,
                )
            }
            _ => Err(unexpected(instruction, operands)),
        },
        Opcode::Convolution(convolution) => match (operands, shape.as_array()) {
            ([x, kernel], Some(to)) => {
                let arrays = [array(x)?, array(kernel)?];
                let team = callee.team();
                leaf(
                    shape,
                    convolution::convolution(arrays, convolution, to, team)?,
                )
            }
            _ => Err(unexpected(instruction, operands)),
        },
        Opcode::Fft { kind, length } => match (operands, shape.as_array()) {
            ([x], Some(to)) => {
                let check = &|| callee.check();
                leaf(shape, fft::fft(&array(x)?, *kind, length, to, check)?)
            }
            _ => Err(unexpected(instruction, operands)),
        },
        Opcode::Cholesky { lower } => match operands {
            [a] => {
                let check = &|| callee.check();
                leaf(shape, linear::cholesky(&array(a)?, *lower, check)?)
            }
            _ => Err(unexpected(instruction, operands)),
        },
        Opcode::TriangularSolve(solve) => match operands {
            [a, b] => {
                let arrays = [array(a)?, array(b)?];
                let check = &|| callee.check();
                leaf(shape, linear::triangular_solve(arrays, solve, check)?)
            }
            _ => Err(unexpected(instruction, operands)),
        },
        _ => evaluate_alone(instruction, operands),
    }
}

/// [`evaluate`] for operations that apply no computation.
fn evaluate_alone(instruction: &Instruction, operands: &[Literal]) -> Result<Literal> {
    let shape = &instruction.shape;
    match (&instruction.opcode, operands) {
        (Opcode::Constant(literal), []) => share(shape, &[literal]),
        (Opcode::Tuple | Opcode::OptimizationBarrier, _) => share(shape, &Vec::from_iter(operands)),
        (Opcode::GetTupleElement(index), [tuple]) => tuple_element(shape, tuple, *index),
        (Opcode::AfterAll, _) => leaf(shape, Vec::new()),
        (_, [operand]) if keeps_bytes(&instruction.opcode, operand.shape(), shape) => {
            share(shape, &[operand])
        }
        (Opcode::Select, [predicate, on_true, on_false]) => {
            elementwise::select(shape, predicate, on_true, on_false)
        }
        _ => evaluate_array(instruction, operands),
    }
}

/// [`evaluate`] for operations from arrays to one array.
fn evaluate_array(instruction: &Instruction, operands: &[Literal]) -> Result<Literal> {
    let Some(shape) = instruction.shape.as_array() else {
        return Err(unexpected(instruction, operands));
    };
    let arrays = operands.iter().map(array).collect::<Result<Vec<_>>>()?;
    let to = shape.element_type();
    let bytes = match (&instruction.opcode, arrays.as_slice()) {
        (Opcode::Clamp, [low, x, high]) => elementwise::clamp(shape, low, x, high),
        (Opcode::Bitcast, [x]) => {
            layout::bitcast(x, shape).map(|bytes| layout::with_valid_preds(bytes, to))
        }
        (Opcode::Iota(dimension), []) => movement::iota(shape, *dimension),
        (Opcode::Broadcast(dimensions), [x]) => movement::broadcast(x, shape, dimensions),
        (Opcode::Transpose(permutation), [x]) => movement::transpose(x, permutation),
        (Opcode::Reverse(dimensions), [x]) => movement::reverse(x, dimensions),
        (Opcode::Slice(slices), [x]) => movement::slice(x, shape.dimensions(), slices),
        (Opcode::DynamicSlice(sizes), [x, starts @ ..]) => {
            movement::dynamic_slice(x, sizes, starts)
        }
        (Opcode::DynamicUpdateSlice, [x, update, starts @ ..]) => {
            movement::dynamic_update_slice(x, update, starts)
        }
        (Opcode::Concatenate(dimension), _) => movement::concatenate(&arrays, shape, *dimension),
        (Opcode::Pad(padding), [x, value]) => movement::pad(x, value, shape, padding),
        (Opcode::Gather { windows, sizes }, [x, indices]) => {
            indexing::gather(x, indices, windows, sizes, shape)
        }
        (opcode, _) => {
            let elements = Vec::from_iter(arrays.iter().map(array::Array::elements));
            let bytes = evaluate_elements(opcode, &elements, to);
            bytes.unwrap_or_else(|| Err(unexpected(instruction, operands)))
        }
    }?;
    leaf(&instruction.shape, bytes)
}

/// An elementwise operation on operands with the same number of elements, whatever their
/// dimensions. `None` for other operations.
fn evaluate_elements(
    opcode: &Opcode,
    operands: &[Elements<'_>],
    to: ElementType,
) -> Option<Result<Vec<u8>>> {
    Some(match (opcode, operands) {
        (Opcode::Unary(operation), [x]) => unary::unary(*operation, *x, to),
        (Opcode::Binary(operation), [x, y]) => binary::binary(*operation, *x, *y, to),
        (Opcode::Compare(direction, order), [x, y]) => compare::compare(*direction, *order, *x, *y),
        (Opcode::Clamp, [low, x, high]) => elementwise::clamp_elements([*low, *x, *high], to),
        (Opcode::Select, [which, x, y]) => {
            elementwise::chosen(which.bytes, x.bytes, y.bytes, to.byte_width())
        }
        (
            Opcode::ReducePrecision {
                exponent_bits,
                mantissa_bits,
            },
            [x],
        ) => reduce_precision::reduce_precision(*x, *exponent_bits, *mantissa_bits),
        (Opcode::Convert, [x]) => convert::convert(*x, to),
        (Opcode::BitcastConvert, [x]) => Ok(layout::with_valid_preds(x.bytes.to_vec(), to)),
        _ => return None,
    })
}

/// Whether the result has the bytes of the operand.
///
/// `bitcast-convert` does so except to PRED: shape inference refuses types narrower than a byte.
pub(crate) fn keeps_bytes(opcode: &Opcode, operand: &Shape, shape: &Shape) -> bool {
    let (Some(from), Some(to)) = (operand.as_array(), shape.as_array()) else {
        return matches!(opcode, Opcode::Copy);
    };
    let makes_pred = to.element_type().is_pred() && !from.element_type().is_pred();
    match opcode {
        Opcode::Copy | Opcode::Reshape => true,
        Opcode::BitcastConvert => !makes_pred,
        Opcode::Convert => from.element_type() == to.element_type(),
        Opcode::Bitcast => !makes_pred && layout::keeps_bytes(from, to),
        _ => false,
    }
}

/// A value of this shape that shares the operands' leaves.
fn share(shape: &Shape, operands: &[&Literal]) -> Result<Literal> {
    let leaves = operands.iter().flat_map(|x| x.shared_leaves()).cloned();
    Literal::from_shared_leaves(shape.clone(), leaves.collect()).map_err(bug)
}

fn tuple_element(shape: &Shape, tuple: &Literal, index: usize) -> Result<Literal> {
    let leaves = element_leaves(tuple.shape()).nth(index);
    let leaves = leaves.and_then(|range| tuple.shared_leaves().get(range));
    let leaves = leaves.ok_or_else(|| bug("a tuple lacks an element"))?;
    Literal::from_shared_leaves(shape.clone(), leaves.to_vec()).map_err(bug)
}

/// For each element of a tuple, the range of its leaves among those of the tuple.
pub(crate) fn element_leaves(tuple: &Shape) -> impl Iterator<Item = Range<usize>> {
    let elements = tuple.as_tuple().unwrap_or_default().iter();
    elements.scan(0, |next, element| {
        let start = *next;
        *next += element.leaf_count();
        Some(start..*next)
    })
}

fn unexpected(instruction: &Instruction, operands: &[Literal]) -> Status {
    let shapes = Vec::from_iter(operands.iter().map(|x| x.shape().to_string()));
    bug(format_args!(
        "expected an operation on verified operands, found {:?} of ({}) giving {}",
        instruction.opcode,
        shapes.join(", "),
        instruction.shape
    ))
}

/// An INTERNAL error: the host contradicts itself.
fn bug(found: impl fmt::Display) -> Status {
    Status::internal(format!("host bug: {found}"))
}

#[cfg(test)]
mod tests;
