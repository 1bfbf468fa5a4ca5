//! Results of a call that share memory with operands.

use std::collections::{HashMap, HashSet};

use super::{Alias, CallSite};
use crate::values::{ArrayShape, Result, Shape, ShapeIndex, Status};

/// Returns, for each result leaf, the operand leaf that it shares memory with, both by number in
/// preorder.
///
/// # Errors
/// INVALID_ARGUMENT if the aliasing names a missing leaf, the same leaf twice, or leaves of
/// different shapes.
pub fn resolve_aliases(site: &CallSite, result_leaves: usize) -> Result<Vec<Option<usize>>> {
    let mut aliases = vec![None; result_leaves];
    if site.aliasing.is_empty() {
        return Ok(aliases);
    }
    let results = leaves_by_index(std::slice::from_ref(&site.result));
    let operands = leaves_by_index(&site.operands);
    let mut taken = HashSet::new();
    for alias in &site.aliasing {
        let &(result, result_shape) = results
            .get(&(0, alias.result_index.clone()))
            .ok_or_else(|| wrong_alias(alias, "an index of an array in the result"))?;
        let &(operand, operand_shape) = operands
            .get(&(alias.operand, alias.operand_index.clone()))
            .ok_or_else(|| wrong_alias(alias, "an index of an array in an operand"))?;
        if !result_shape.is_compatible(operand_shape)
            || result_shape.layout_or_default() != operand_shape.layout_or_default()
        {
            let what = format!(
                "a result and an operand of one shape, not {result_shape} and {operand_shape}"
            );
            return Err(wrong_alias(alias, &what));
        }
        if aliases[result].is_some() || !taken.insert(operand) {
            return Err(wrong_alias(alias, "each result and each operand once"));
        }
        aliases[result] = Some(operand);
    }
    Ok(aliases)
}

/// Leaves by the number of the operand and their index in it: the number among all leaves in
/// preorder, and the shape.
type Leaves<'a> = HashMap<(usize, ShapeIndex), (usize, &'a ArrayShape)>;

fn leaves_by_index(shapes: &[Shape]) -> Leaves<'_> {
    let mut leaves = Leaves::new();
    let mut pending: Vec<_> = shapes
        .iter()
        .enumerate()
        .rev()
        .map(|(position, shape)| (position, ShapeIndex::new(), shape))
        .collect();
    while let Some((position, index, shape)) = pending.pop() {
        match shape {
            Shape::Array(array) => {
                let number = leaves.len();
                leaves.insert((position, index), (number, array));
            }
            Shape::Tuple(tuple) => {
                for (i, element) in tuple.elements().iter().enumerate().rev() {
                    pending.push((position, [index.as_slice(), &[i]].concat(), element));
                }
            }
        }
    }
    leaves
}

fn wrong_alias(alias: &Alias, expected: &str) -> Status {
    let path = |index: &[usize]| {
        let numbers: Vec<_> = index.iter().map(usize::to_string).collect();
        format!("{{{}}}", numbers.join(","))
    };
    Status::invalid_argument(format!(
        "expected output_to_operand_aliasing to name {expected}, found {}: ({}, {})",
        path(&alias.result_index),
        alias.operand,
        path(&alias.operand_index)
    ))
}
