//! Reductions and maps.
//!
//! XLA leaves the order of a reduction open. A reduction by one operation is a running sum in the
//! wide type, from the initial value on, in row-major order, or that of [`folds`] where rows are
//! long. A reduction by another computation of scalars combines neighbours, then the neighbouring
//! results, and so on, for all elements at once, and finally the initial value with the result; for
//! an associative computation, which XLA requires, this is equivalent. Other computations run
//! element by element.

mod folds;
mod neighbours;

use std::borrow::Cow;

use super::array::{Array, array, once_for_each, repeat_within};
use super::movement::transposed_within;
use super::{Callee, Check, bug, leaf, lift, share};
use crate::instruction::BinaryOperation as B;
use crate::instruction::{Computation, ComputationId, Opcode};
use callbox_core::values::{ArrayShape, ElementType, Literal, Result, Shape};

/// Reduces the first half of the operands. The second half are the initial values.
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
        let (x, first) = (array(x)?, array(first)?);
        let team = callee.team();
        let bytes = folds::fold(operation, &x, &first, dimensions, to.element_type(), team);
        return leaf(shape, bytes?);
    }
    let check = callee.team().check;
    if rows.count == 0 {
        let leaves = initial
            .iter()
            .map(|first| repeat_within(array(first)?.bytes, rows.results, check));
        return Literal::from_leaves(shape.clone(), leaves.collect::<Result<_>>()?).map_err(bug);
    }
    let make = |number: usize| rows.literal(&inputs[number], check);
    let inputs = once_for_each(inputs, make, check)?;
    if lift::is_scalar(called, program) {
        neighbours::combine(shape, inputs, initial, rows, called, program, check)
    } else {
        step(shape, &inputs, initial, rows, computation, callee)
    }
}

/// Applies the computation to the operands' elements at each index.
pub(super) fn map(
    shape: &Shape,
    operands: &[Literal],
    computation: ComputationId,
    callee: &mut dyn Callee,
) -> Result<Literal> {
    let count = shape.as_array().map(ArrayShape::element_count);
    let count = count.ok_or_else(|| bug("a map's result is not an array"))?;
    let check = callee.team().check;
    let lines = operands.iter().map(|x| {
        check.check()?;
        line(x)
    });
    let lines = lines.collect::<Result<Vec<_>>>()?;
    let program = callee.program();
    let called = lift::called_by(program, computation)?;
    if lift::is_scalar(called, program) {
        return share(shape, &[&lift::run(called, &lines, count, program, check)?]);
    }
    let mut bytes = Vec::new();
    for i in 0..count {
        let arguments = collect(&lines, |x| element(x, i))?;
        bytes.extend_from_slice(array(&callee.run(computation, &arguments)?)?.bytes);
    }
    leaf(shape, bytes)
}

/// The operation of a reducer that only applies one commutative operation to its two parameters.
fn single_operation(computation: &Computation) -> Option<B> {
    let root = computation.instructions.get(computation.root.index())?;
    let (Opcode::Binary(operation), [first, second]) = (&root.opcode, &*computation.parameters)
    else {
        return None;
    };
    let is_of_both = root.operands == [*first, *second] || root.operands == [*second, *first];
    let is_commutative = matches!(
        operation,
        B::Add | B::And | B::Maximum | B::Minimum | B::Multiply | B::Or | B::Xor
    );
    (is_of_both && is_commutative).then_some(*operation)
}

/// Operands as matrices, each row of which is reduced to one result.
struct Rows {
    /// The dimensions that remain, then the reduced ones.
    order: Vec<usize>,
    /// The number of rows.
    results: usize,
    /// The number of elements of a row.
    count: usize,
}

impl Rows {
    fn of(inputs: &[Literal], dimensions: &[usize]) -> Result<Self> {
        let first = inputs
            .first()
            .ok_or_else(|| bug("a reduction has no operands"))?;
        let sizes = array(first)?.dimensions();
        let (kept, reduced): (Vec<_>, Vec<_>) =
            (0..sizes.len()).partition(|d| !dimensions.contains(d));
        let product = |dimensions: &[usize]| {
            let mut dimensions = dimensions.iter();
            let product = dimensions.try_fold(1usize, |n, &d| n.checked_mul(sizes[d]));
            product.ok_or_else(|| bug("a size overflows"))
        };
        Ok(Self {
            results: product(&kept)?,
            count: product(&reduced)?,
            order: [kept, reduced].concat(),
        })
    }

    fn literal(&self, x: &Literal, check: &dyn Check) -> Result<Literal> {
        let own = array(x)?;
        let shape = ArrayShape::new(own.shape.element_type(), &[self.results, self.count]);
        let shape = shape.map_err(bug)?;
        match transposed_within(&own, &self.order, check)? {
            Cow::Borrowed(_) => {
                Literal::from_shared_leaves(shape.into(), x.shared_leaves().to_vec())
            }
            Cow::Owned(bytes) => Literal::from_bytes(shape, bytes),
        }
        .map_err(bug)
    }
}

/// Runs the computation for each element of each row.
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
            let elements = collect(inputs, |x| element(x, i))?;
            let arguments = [sums, elements].concat();
            sums = callee.run(computation, &arguments)?.into_elements();
        }
        for (leaf, sum) in std::iter::zip(&mut leaves, &sums) {
            leaf.extend_from_slice(array(sum)?.bytes);
        }
    }
    Literal::from_leaves(shape.clone(), leaves).map_err(bug)
}

/// Applies `make` to the array of each literal.
fn collect(
    literals: &[Literal],
    make: impl Fn(&Array<'_>) -> Result<Literal>,
) -> Result<Vec<Literal>> {
    literals.iter().map(|x| make(&array(x)?)).collect()
}

/// The elements as an array of one dimension, which shares their memory.
fn line(x: &Literal) -> Result<Literal> {
    let shape = array(x)?.shape;
    let line = ArrayShape::new(shape.element_type(), &[shape.element_count()]).map_err(bug)?;
    Literal::from_shared_leaves(line.into(), x.shared_leaves().to_vec()).map_err(bug)
}

/// The element with this number, as a scalar.
fn element(x: &Array<'_>, index: usize) -> Result<Literal> {
    let bytes = x.elements().part(index, 1)?.to_vec();
    new_array(x.shape.element_type(), &[], bytes)
}

fn new_array(element_type: ElementType, dimensions: &[usize], bytes: Vec<u8>) -> Result<Literal> {
    let shape = ArrayShape::new(element_type, dimensions).map_err(bug)?;
    Literal::from_bytes(shape, bytes).map_err(bug)
}

#[cfg(test)]
mod tests;
