//! Operations that combine elements.

use callbox::program::{BinaryOperation, ComputationId, DotDimensions, Opcode, Program};
use callbox::{ArrayShape, ElementType, Shape};
use num_complex::Complex;

use super::array::{Array, Tolerance, indices};
use super::elements::{Element, binary, rounded};
use super::{Value, run};

/// Reduces arrays with a computation, in row-major order. Floating-point sums and products
/// accumulate in 64 bits and are rounded at the end, as the executor documents.
pub(crate) fn reduce(
    program: &Program,
    shape: &Shape,
    operands: &[Value],
    dimensions: &[usize],
    computation: ComputationId,
) -> (Value, Tolerance) {
    let (inputs, initial) = operands.split_at(operands.len() / 2);
    let inputs: Vec<&Array> = inputs.iter().map(Value::array).collect();
    if let ([x], Some(operation)) = (&inputs[..], wide(program, computation, inputs[0])) {
        let shape = shape.as_array().unwrap();
        let (array, tolerance) = reduce_wide(shape, x, initial[0].array(), dimensions, operation);
        return (Value::Array(array), tolerance);
    }
    let shapes = shape.leaves();
    let mut results: Vec<Vec<Vec<u8>>> = shapes
        .iter()
        .zip(initial)
        .map(|(shape, first)| vec![first.array().bytes.clone(); shape.element_count()])
        .collect();
    let kept_shape = shapes[0];
    for (i, index) in indices(inputs[0].shape.dimensions()).iter().enumerate() {
        let to = super::array::number(kept_shape.dimensions(), &kept(index, dimensions));
        let scalar = |x: &Array, bytes: Vec<u8>| {
            Value::Array(Array::new(
                ArrayShape::scalar(x.shape.element_type()),
                bytes,
            ))
        };
        let so_far = inputs
            .iter()
            .zip(&results)
            .map(|(x, result)| scalar(x, result[to].clone()));
        let elements = inputs.iter().map(|x| scalar(x, x.raw(i).to_vec()));
        let arguments: Vec<Value> = so_far.chain(elements).collect();
        let combined = match run(program, computation, &arguments) {
            Value::Tuple(values) => values,
            one => vec![one],
        };
        for (result, value) in results.iter_mut().zip(combined) {
            result[to] = value.array().bytes.clone();
        }
    }
    let arrays = shapes.iter().zip(results);
    let mut arrays: Vec<Value> = arrays
        .map(|(shape, elements)| Value::Array(Array::new((*shape).clone(), elements.concat())))
        .collect();
    match shape {
        Shape::Array(_) => (arrays.swap_remove(0), Tolerance::Exact),
        Shape::Tuple(_) => (Value::Tuple(arrays), Tolerance::Exact),
    }
}

/// Returns the index without these dimensions.
fn kept(index: &[usize], dimensions: &[usize]) -> Vec<usize> {
    let kept = index
        .iter()
        .enumerate()
        .filter(|(d, _)| !dimensions.contains(d));
    kept.map(|(_, &i)| i).collect()
}

/// Returns the operation, if the computation is a floating-point sum or product of its parameters.
fn wide(program: &Program, computation: ComputationId, x: &Array) -> Option<BinaryOperation> {
    let computation = &program.computations()[computation.index()];
    let root = &computation.instructions()[computation.root().index()];
    match root.opcode() {
        Opcode::Binary(operation @ (BinaryOperation::Add | BinaryOperation::Multiply))
            if computation.instructions().len() == 3
                && !x.shape.element_type().is_integral()
                && !x.shape.element_type().is_pred() =>
        {
            Some(*operation)
        }
        _ => None,
    }
}

fn reduce_wide(
    shape: &ArrayShape,
    x: &Array,
    first: &Array,
    dimensions: &[usize],
    operation: BinaryOperation,
) -> (Array, Tolerance) {
    let t = shape.element_type();
    let mut results = vec![first.element(0); shape.element_count()];
    let mut sizes = vec![size(first.element(0)); shape.element_count()];
    for (i, index) in indices(x.shape.dimensions()).iter().enumerate() {
        let to = super::array::number(shape.dimensions(), &kept(index, dimensions));
        results[to] = binary(operation, t, results[to], x.element(i));
        sizes[to] = match operation {
            BinaryOperation::Add => sizes[to] + size(x.element(i)),
            _ => size(results[to]),
        };
    }
    let count = x.shape.element_count();
    (
        Array::compute(shape, |i| results[i]),
        near(t, count, &sizes),
    )
}

/// Returns the tolerance of sums of `count` terms with these total magnitudes.
pub(super) fn near(t: ElementType, count: usize, sizes: &[f64]) -> Tolerance {
    if t.is_complex() {
        return Tolerance::Relative(1e-4);
    }
    let bound = |size: &f64| {
        let bound = size * count as f64 * f64::EPSILON;
        if bound.is_finite() {
            bound
        } else {
            f64::INFINITY
        }
    };
    Tolerance::Near(sizes.iter().map(bound).collect())
}

pub(super) fn size(x: Element) -> f64 {
    match x {
        Element::Integer(_) => 0.0,
        Element::Real(x) => x.abs(),
        Element::Complex(x) => x.norm(),
    }
}

/// Applies a computation to the operands' elements at each index.
pub(crate) fn map(
    program: &Program,
    shape: &ArrayShape,
    x: &[&Array],
    computation: ComputationId,
) -> Array {
    let element = |i: usize| {
        let scalar = |x: &&Array| {
            Value::Array(Array::new(
                ArrayShape::scalar(x.shape.element_type()),
                x.raw(i).to_vec(),
            ))
        };
        let arguments: Vec<Value> = x.iter().map(scalar).collect();
        run(program, computation, &arguments).array().bytes.clone()
    };
    let bytes = (0..shape.element_count()).flat_map(element).collect();
    Array::new(shape.clone(), bytes)
}

/// Computes a dot product: for each index of the batch and of both operands' remaining dimensions,
/// the sum of products over the contracted dimensions.
pub(crate) fn dot(
    shape: &ArrayShape,
    (lhs, rhs): (&Array, &Array),
    d: &DotDimensions,
) -> (Array, Tolerance) {
    let t = shape.element_type();
    let contracted: Vec<usize> = d
        .lhs_contracting
        .iter()
        .map(|&i| lhs.shape.dimensions()[i])
        .collect();
    let terms = indices(&contracted);
    let mut sizes = Vec::new();
    let mut sums = Vec::new();
    for index in indices(shape.dimensions()) {
        let (mut sum, mut total) = (zero(t), 0.0);
        for term in &terms {
            let x = lhs.element(lhs.number(&side(
                &index,
                term,
                lhs,
                (&d.lhs_batch, &d.lhs_contracting),
                d.lhs_batch.len(),
            )));
            let lhs_free = lhs.shape.rank() - d.lhs_batch.len() - d.lhs_contracting.len();
            let y = rhs.element(rhs.number(&side(
                &index,
                term,
                rhs,
                (&d.rhs_batch, &d.rhs_contracting),
                d.lhs_batch.len() + lhs_free,
            )));
            let product = binary(BinaryOperation::Multiply, t, widened(t, x), widened(t, y));
            total += size(product);
            // Integers wrap at each step; floats are rounded at the end.
            sum = rounded(t, binary(BinaryOperation::Add, t, sum, rounded(t, product)));
        }
        sums.push(sum);
        sizes.push(total);
    }
    (
        Array::compute(shape, |i| sums[i]),
        near(t, terms.len(), &sizes),
    )
}

/// Builds an operand's index: its batch dimensions from the start of the result's index, its
/// contracted dimensions from the term's, the others from position `free` on.
fn side(
    index: &[usize],
    term: &[usize],
    x: &Array,
    (batch, contracting): (&[usize], &[usize]),
    mut free: usize,
) -> Vec<usize> {
    let place = |dimensions: &[usize], d: usize| dimensions.iter().position(|&other| other == d);
    let dimension = |d: usize| {
        if let Some(i) = place(batch, d) {
            return index[i];
        }
        if let Some(i) = place(contracting, d) {
            return term[i];
        }
        free += 1;
        index[free - 1]
    };
    (0..x.shape.rank()).map(dimension).collect()
}

pub(super) fn zero(t: ElementType) -> Element {
    widened(t, Element::Integer(0))
}

/// Converts an element to another type without rounding.
fn widened(t: ElementType, x: Element) -> Element {
    match x {
        Element::Integer(x) if t.is_floating() => Element::Real(x as f64),
        Element::Integer(x) if t.is_complex() => Element::Complex(Complex::new(x as f64, 0.0)),
        Element::Real(x) if t.is_complex() => Element::Complex(Complex::new(x, 0.0)),
        other => other,
    }
}
