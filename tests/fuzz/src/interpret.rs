//! A reference interpreter of programs, written as simply as possible from XLA's operation
//! semantics and the documentation of callbox's instructions.
//!
//! It works element by element and index by index, in `f64`, in 128-bit integers, or on raw bytes
//! where nothing is computed. It shares no code with the executor except the types of values.
//! [`evaluate`] returns an instruction's result and its tolerance.

mod array;
mod elements;
mod movement;
mod reductions;
mod transforms;
mod windows;

use callbox::program::{ComputationId, Instruction, Opcode, Program};
use callbox::{ElementType, Literal, Shape};

pub(crate) use array::{Array, Tolerance, encode};
pub(crate) use elements::Element;
use elements::{binary, compare, convert, reduce_precision, unary};

/// A value: an array or a tuple. A token is an array without elements.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    /// An array.
    Array(Array),
    /// A tuple.
    Tuple(Vec<Value>),
}

impl Value {
    /// Converts a literal.
    pub(crate) fn of(literal: &Literal) -> Self {
        match literal.shape() {
            Shape::Array(shape) => {
                Self::Array(Array::new(shape.clone(), literal.bytes().unwrap().to_vec()))
            }
            Shape::Tuple(_) => Self::Tuple(
                literal
                    .clone()
                    .into_elements()
                    .iter()
                    .map(Self::of)
                    .collect(),
            ),
        }
    }

    /// Returns the array.
    pub(crate) fn array(&self) -> &Array {
        match self {
            Self::Array(array) => array,
            Self::Tuple(_) => panic!("expected an array, found {self:?}"),
        }
    }

    /// Checks a literal against this value, within the tolerance.
    pub(crate) fn check(&self, found: &Literal, tolerance: &Tolerance) -> Result<(), String> {
        match (self, found.shape()) {
            (Self::Array(array), Shape::Array(_)) => array.check(found.bytes().unwrap(), tolerance),
            (Self::Tuple(values), Shape::Tuple(_)) => {
                let elements = found.clone().into_elements();
                assert_eq!(values.len(), elements.len());
                let mut pairs = std::iter::zip(values, &elements);
                pairs.try_for_each(|(value, element)| value.check(element, tolerance))
            }
            _ => Err(format!("expected {self:?}, found {found:?}")),
        }
    }

    /// Replaces the value's shape by one that differs in layouts only.
    fn with_layouts(self, shape: &Shape) -> Self {
        match (self, shape) {
            (Self::Array(array), Shape::Array(shape)) => {
                Self::Array(Array::new(shape.clone(), array.bytes))
            }
            (Self::Tuple(values), Shape::Tuple(tuple)) => {
                let values = std::iter::zip(values, tuple.elements());
                Self::Tuple(
                    values
                        .map(|(value, shape)| value.with_layouts(shape))
                        .collect(),
                )
            }
            (value, shape) => panic!("expected {shape}, found {value:?}"),
        }
    }
}

/// Runs a computation.
pub(crate) fn run(program: &Program, computation: ComputationId, arguments: &[Value]) -> Value {
    let computation = &program.computations()[computation.index()];
    let mut values: Vec<Value> = Vec::new();
    for instruction in computation.instructions() {
        let operands = instruction
            .operands()
            .iter()
            .map(|id| values[id.index()].clone());
        let operands: Vec<Value> = operands.collect();
        let value = match instruction.opcode() {
            Opcode::Parameter(number) => {
                arguments[*number].clone().with_layouts(instruction.shape())
            }
            _ => evaluate(program, instruction, &operands).0,
        };
        values.push(value);
    }
    values.swap_remove(computation.root().index())
}

/// Evaluates an instruction other than a parameter. Returns its result and the tolerance for it.
pub(crate) fn evaluate(
    program: &Program,
    instruction: &Instruction,
    operands: &[Value],
) -> (Value, Tolerance) {
    let shape = instruction.shape();
    match (instruction.opcode(), shape) {
        (Opcode::Constant(literal), _) => (Value::of(literal), Tolerance::Bits),
        (Opcode::Tuple, _) => (Value::Tuple(operands.to_vec()), Tolerance::Bits),
        (Opcode::OptimizationBarrier, _) => match operands {
            [one] => (one.clone(), Tolerance::Bits),
            _ => (Value::Tuple(operands.to_vec()), Tolerance::Bits),
        },
        (Opcode::GetTupleElement(index), _) => match &operands[0] {
            Value::Tuple(values) => (values[*index].clone(), Tolerance::Bits),
            Value::Array(_) => panic!("an element of an array"),
        },
        (Opcode::Call(callee) | Opcode::Fusion(_, callee), _) => {
            (run(program, *callee, operands), Tolerance::Exact)
        }
        (Opcode::While { condition, body }, _) => {
            let mut state = operands[0].clone();
            while run(program, *condition, std::slice::from_ref(&state))
                .array()
                .bytes[0]
                != 0
            {
                state = run(program, *body, &[state]);
            }
            (state, Tolerance::Exact)
        }
        (Opcode::Conditional(branches), _) => {
            let index = operands[0].array();
            let chosen = match index.shape.element_type() {
                ElementType::Pred => usize::from(index.bytes[0] == 0),
                _ => usize::try_from(index.integer(0))
                    .unwrap_or(usize::MAX)
                    .min(branches.len() - 1),
            };
            let argument = std::slice::from_ref(&operands[chosen + 1]);
            (run(program, branches[chosen], argument), Tolerance::Exact)
        }
        (Opcode::Select, _) => (select(operands), Tolerance::Bits),
        (
            Opcode::Reduce {
                dimensions,
                computation,
            },
            _,
        ) => reductions::reduce(program, shape, operands, dimensions, *computation),
        (
            Opcode::Scatter { .. }
            | Opcode::Sort { .. }
            | Opcode::ReduceWindow { .. }
            | Opcode::TopK { .. }
            | Opcode::RngBitGenerator(_),
            _,
        ) => of_several(program, instruction, operands),
        (_, Shape::Array(_)) => {
            let (array, tolerance) = of_arrays(program, instruction, operands);
            (Value::Array(array), tolerance)
        }
        (opcode, _) => panic!("{opcode:?} does not give a tuple"),
    }
}

/// Evaluates an instruction that may have several results.
fn of_several(
    program: &Program,
    instruction: &Instruction,
    operands: &[Value],
) -> (Value, Tolerance) {
    let shape = instruction.shape();
    let (mut values, tolerance) = match instruction.opcode() {
        Opcode::Scatter {
            windows,
            computation,
        } => (
            windows::scatter(program, operands, windows, *computation),
            Tolerance::Exact,
        ),
        Opcode::Sort {
            dimension,
            computation,
            ..
        } => (
            transforms::sort(program, operands, *dimension, *computation),
            Tolerance::Bits,
        ),
        Opcode::ReduceWindow {
            window,
            computation,
        } => (
            windows::reduce_window(program, shape, operands, window, *computation),
            Tolerance::Exact,
        ),
        Opcode::TopK { k, largest } => (
            transforms::top_k(shape, operands[0].array(), *k, *largest),
            Tolerance::Bits,
        ),
        Opcode::RngBitGenerator(algorithm) => (
            transforms::random_bits(shape, operands[0].array(), *algorithm),
            Tolerance::Bits,
        ),
        other => panic!("{other:?} is not interpreted"),
    };
    let value = match shape {
        Shape::Array(_) => values.swap_remove(0),
        Shape::Tuple(_) => Value::Tuple(values),
    };
    (value.with_layouts(shape), tolerance)
}

/// Evaluates an instruction with array operands and an array result.
fn of_arrays(
    program: &Program,
    instruction: &Instruction,
    operands: &[Value],
) -> (Array, Tolerance) {
    let shape = instruction.shape().as_array().unwrap();
    let x: Vec<&Array> = operands.iter().map(Value::array).collect();
    let each = |f: &dyn Fn(usize) -> elements::Element| Array::compute(shape, f);
    match instruction.opcode() {
        Opcode::AfterAll => (Array::new(shape.clone(), Vec::new()), Tolerance::Bits),
        Opcode::Unary(operation) => {
            let array = each(&|i| unary(*operation, x[0].shape.element_type(), x[0].element(i)));
            (
                array,
                elements::unary_tolerance(*operation, x[0].shape.element_type()),
            )
        }
        Opcode::Binary(operation) => {
            let t = x[0].shape.element_type();
            let array = each(&|i| binary(*operation, t, x[0].element(i), x[1].element(i)));
            (array, elements::binary_tolerance(*operation, t))
        }
        Opcode::Compare(comparison, order) => {
            let array = each(&|i| compare(*comparison, *order, (x[0], x[1]), i));
            (array, Tolerance::Bits)
        }
        Opcode::Clamp => (elements::clamp(shape, [x[0], x[1], x[2]]), Tolerance::Exact),
        Opcode::ReducePrecision {
            exponent_bits,
            mantissa_bits,
        } => {
            let array = each(&|i| reduce_precision(x[0], i, *exponent_bits, *mantissa_bits));
            (array, Tolerance::Exact)
        }
        Opcode::Convert => {
            let (from, to) = (x[0].shape.element_type(), shape.element_type());
            (
                each(&|i| convert(x[0].element(i), to)),
                elements::convert_tolerance(from, to),
            )
        }
        Opcode::Map(callee) => (
            reductions::map(program, shape, &x, *callee),
            Tolerance::Exact,
        ),
        Opcode::Dot(dimensions) => reductions::dot(shape, (x[0], x[1]), dimensions),
        Opcode::Gather { windows, sizes } => (
            windows::gather(shape, (x[0], x[1]), windows, sizes),
            Tolerance::Bits,
        ),
        Opcode::SelectAndScatter {
            window,
            select,
            scatter,
        } => {
            let computations = [*select, *scatter];
            let array = windows::select_and_scatter(program, shape, operands, window, computations);
            (array, Tolerance::Exact)
        }
        Opcode::Convolution(convolution) => windows::convolution(shape, (x[0], x[1]), convolution),
        Opcode::Fft { kind, length } => transforms::fft(shape, x[0], *kind, length),
        Opcode::Cholesky { lower } => transforms::cholesky(shape, x[0], *lower),
        Opcode::TriangularSolve(options) => {
            transforms::triangular_solve(shape, (x[0], x[1]), options)
        }
        opcode => (movement::moved(opcode, shape, &x), Tolerance::Bits),
    }
}

fn select(operands: &[Value]) -> Value {
    let which = operands[0].array();
    let chosen = |i: usize| {
        if which.bytes[i] != 0 {
            &operands[1]
        } else {
            &operands[2]
        }
    };
    if which.shape.rank() == 0 {
        return chosen(0).clone();
    }
    let shape = &operands[1].array().shape;
    let elements = (0..shape.element_count()).map(|i| chosen(i).array().raw(i));
    Value::Array(Array::new(
        shape.clone(),
        elements.collect::<Vec<_>>().concat(),
    ))
}
