//! Reductions and maps.
//!
//! XLA leaves the order of a reduction open. Here a reduction by one operation is a running sum in the wide type, from
//! the initial value on, in row-major order. A reduction by another computation of scalars combines neighbours, then the
//! neighbouring results, and so on, all of an array's at once, and the initial value with the result: for a computation that is
//! associative, as XLA asks, that is the same. What cannot be computed on arrays is called for element by element.

mod neighbours;

use num_complex::Complex;

use super::array::{Array, Elements, array, repeat};
use super::binary::{maximum, minimum};
use super::elementwise::BLOCK;
use super::movement::transposed;
use super::wide::{Kind, Wide};
use super::{Callee, bug, leaf, lift, share, zeroed};
use crate::program::instruction::{BinaryOperation, Computation, ComputationId, Opcode};
use crate::values::{ArrayShape, ElementType, Literal, Result, Shape};

/// Reduces the first half of the operands, starting from the second half.
pub(super) fn reduce(
    shape: &Shape,
    operands: &[Literal],
    dimensions: &[usize],
    computation: ComputationId,
    callee: &mut dyn Callee,
) -> Result<Literal> {
    let (inputs, initial) = operands.split_at(operands.len() / 2);
    let rows = Rows::of(inputs, dimensions)?;
    let program = callee.program();
    let called = lift::called_by(program, computation)?;
    if let ([x], [first], Some(to)) = (inputs, initial, shape.as_array())
        && let Some(operation) = single_operation(called)
    {
        let (x, first) = (rows.canonical(&array(x)?)?, array(first)?);
        let x = Elements {
            element_type: array(&inputs[0])?.shape.element_type(),
            bytes: &x,
        };
        return leaf(shape, fold(operation, x, &first, rows, to.element_type())?);
    }
    if rows.count == 0 {
        let spread = |first: &Literal| array(first).and_then(|x| repeat(x.bytes, rows.results));
        let leaves = initial.iter().map(spread).collect::<Result<Vec<_>>>()?;
        return Literal::from_leaves(shape.clone(), leaves).map_err(bug);
    }
    let inputs = inputs
        .iter()
        .map(|x| rows.literal(&array(x)?))
        .collect::<Result<Vec<_>>>()?;
    match lift::is_scalar(called, program) {
        true => neighbours::combine(shape, inputs, initial, rows, called, program),
        false => step(shape, &inputs, initial, rows, computation, callee),
    }
}

/// The computation of the operands' elements at each index.
pub(super) fn map(
    shape: &Shape,
    operands: &[Literal],
    computation: ComputationId,
    callee: &mut dyn Callee,
) -> Result<Literal> {
    let count = shape.as_array().map(ArrayShape::element_count);
    let count = count.ok_or_else(|| bug("a map's result is not an array"))?;
    let lines = operands
        .iter()
        .map(|x| line(&array(x)?))
        .collect::<Result<Vec<_>>>()?;
    let program = callee.program();
    let called = lift::called_by(program, computation)?;
    if lift::is_scalar(called, program) {
        return share(shape, &[&lift::run(called, &lines, count, program)?]);
    }
    let mut bytes = Vec::new();
    for i in 0..count {
        let arguments = lines
            .iter()
            .map(|x| element(x, i))
            .collect::<Result<Vec<_>>>()?;
        bytes.extend_from_slice(array(&callee.run(computation, &arguments)?)?.bytes);
    }
    leaf(shape, bytes)
}

/// The operation that a reducer is, if it is nothing but one of its two parameters whose order does not matter.
fn single_operation(computation: &Computation) -> Option<BinaryOperation> {
    let root = computation.instructions.get(computation.root.index())?;
    let Opcode::Binary(operation) = root.opcode else {
        return None;
    };
    let [first, second] = computation.parameters.as_slice() else {
        return None;
    };
    let of_both = root.operands == [*first, *second] || root.operands == [*second, *first];
    let known = matches!(
        operation,
        BinaryOperation::Add
            | BinaryOperation::And
            | BinaryOperation::Maximum
            | BinaryOperation::Minimum
            | BinaryOperation::Multiply
            | BinaryOperation::Or
            | BinaryOperation::Xor
    );
    (of_both && known && first != second).then_some(operation)
}

/// Operands as rows, each of which is reduced to one result.
struct Rows {
    /// The dimensions that stay, then those that vanish.
    order: Vec<usize>,
    /// How many rows there are.
    results: usize,
    /// How many elements each has.
    count: usize,
}

impl Rows {
    fn of(inputs: &[Literal], dimensions: &[usize]) -> Result<Self> {
        let first = inputs
            .first()
            .ok_or_else(|| bug("a reduction has no operands"))?;
        let sizes = array(first)?.dimensions();
        let (kept, vanishing): (Vec<_>, Vec<_>) =
            (0..sizes.len()).partition(|d| !dimensions.contains(d));
        let product = |dimensions: &[usize]| {
            let product = dimensions
                .iter()
                .try_fold(1usize, |n, &d| n.checked_mul(sizes[d]));
            product.ok_or_else(|| bug("a size overflows"))
        };
        Ok(Self {
            results: product(&kept)?,
            count: product(&vanishing)?,
            order: [kept, vanishing].concat(),
        })
    }

    fn canonical<'a>(&self, x: &Array<'a>) -> Result<std::borrow::Cow<'a, [u8]>> {
        transposed(x, &self.order)
    }

    fn literal(&self, x: &Array<'_>) -> Result<Literal> {
        let bytes = self.canonical(x)?.into_owned();
        matrix(x.shape.element_type(), &[self.results, self.count], bytes)
    }
}

fn fold(
    operation: BinaryOperation,
    x: Elements<'_>,
    first: &Array<'_>,
    rows: Rows,
    to: ElementType,
) -> Result<Vec<u8>> {
    use BinaryOperation as B;
    match (Kind::of(to)?, operation) {
        (_, B::Add) if to.is_complex() => folded(x, first, rows, to, Complex::<f64>::add),
        (_, B::Multiply) if to.is_complex() => folded(x, first, rows, to, Complex::<f64>::multiply),
        (Kind::Real, B::Add) => folded(x, first, rows, to, <f64 as Wide>::add),
        (Kind::Real, B::Multiply) => folded(x, first, rows, to, f64::multiply),
        (Kind::Real, B::Maximum) => folded(x, first, rows, to, maximum),
        (Kind::Real, B::Minimum) => folded(x, first, rows, to, minimum),
        (Kind::Signed, _) => integers::<i64>(operation, x, first, rows, to),
        (Kind::Unsigned, _) => integers::<u64>(operation, x, first, rows, to),
        (kind, _) => Err(bug(format_args!(
            "{operation:?} of {kind:?} was not refused"
        ))),
    }
}

fn integers<T>(
    operation: BinaryOperation,
    x: Elements<'_>,
    first: &Array<'_>,
    rows: Rows,
    to: ElementType,
) -> Result<Vec<u8>>
where
    T: Wide
        + Ord
        + std::ops::BitAnd<Output = T>
        + std::ops::BitOr<Output = T>
        + std::ops::BitXor<Output = T>,
{
    use BinaryOperation as B;
    match operation {
        B::Add => folded(x, first, rows, to, T::add),
        B::And => folded(x, first, rows, to, |x: T, y| x & y),
        B::Maximum => folded(x, first, rows, to, T::max),
        B::Minimum => folded(x, first, rows, to, T::min),
        B::Multiply => folded(x, first, rows, to, T::multiply),
        B::Or => folded(x, first, rows, to, |x: T, y| x | y),
        B::Xor => folded(x, first, rows, to, |x: T, y| x ^ y),
        _ => Err(bug(format_args!("{operation:?} does not reduce"))),
    }
}

fn folded<T: Wide>(
    x: Elements<'_>,
    first: &Array<'_>,
    rows: Rows,
    to: ElementType,
    operation: impl Fn(T, T) -> T,
) -> Result<Vec<u8>> {
    let mut initial = [T::default()];
    T::decode(first.shape.element_type(), first.bytes, &mut initial)?;
    let [initial] = initial;
    let mut results = zeroed(rows.results)?;
    let mut block = vec![T::default(); BLOCK.min(x.count())];
    let (mut at, mut row, mut left) = (0, 0, rows.count);
    results.fill(initial);
    while at < x.count() {
        let n = BLOCK.min(x.count() - at);
        T::decode(x.element_type, x.part(at, n)?, &mut block[..n])?;
        at += n;
        let mut rest = &block[..n];
        while let Some(result) = results.get_mut(row).filter(|_| !rest.is_empty()) {
            let (head, tail) = rest.split_at(left.min(rest.len()));
            *result = head.iter().fold(*result, |sum, &x| operation(sum, x));
            (rest, left) = (tail, left - head.len());
            if left == 0 {
                (row, left) = (row + 1, rows.count);
            }
        }
    }
    let mut bytes = zeroed(rows.results * to.byte_width())?;
    T::encode(&results, to, &mut bytes)?;
    Ok(bytes)
}

/// Calls for each element of each row.
fn step(
    shape: &Shape,
    inputs: &[Literal],
    initial: &[Literal],
    rows: Rows,
    computation: ComputationId,
    callee: &mut dyn Callee,
) -> Result<Literal> {
    let mut leaves = vec![Vec::new(); inputs.len()];
    for row in 0..rows.results {
        let mut sums = initial.to_vec();
        for i in row * rows.count..(row + 1) * rows.count {
            let elements = inputs
                .iter()
                .map(|x| element(x, i))
                .collect::<Result<Vec<_>>>()?;
            sums = callee
                .run(computation, &[sums, elements].concat())?
                .into_elements();
        }
        for (leaf, sum) in std::iter::zip(&mut leaves, &sums) {
            leaf.extend_from_slice(array(sum)?.bytes);
        }
    }
    Literal::from_leaves(shape.clone(), leaves).map_err(bug)
}

/// The elements in a row, as many as there are.
fn line(x: &Array<'_>) -> Result<Literal> {
    matrix(
        x.shape.element_type(),
        &[x.shape.element_count()],
        x.bytes.to_vec(),
    )
}

/// The element of this number, as a scalar.
fn element(x: &Literal, index: usize) -> Result<Literal> {
    let x = array(x)?;
    let bytes = x.elements().part(index, 1)?.to_vec();
    matrix(x.shape.element_type(), &[], bytes)
}

fn matrix(element_type: ElementType, dimensions: &[usize], bytes: Vec<u8>) -> Result<Literal> {
    let shape = ArrayShape::new(element_type, dimensions).map_err(bug)?;
    Literal::from_bytes(shape, bytes).map_err(bug)
}

#[cfg(test)]
mod tests;
