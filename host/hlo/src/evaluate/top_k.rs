//! The largest or smallest elements of rows.

use std::cmp::Ordering;

use super::array::Array;
use super::wide::{Kind, Wide};
use super::{Callee, bug, zeroed};
use callbox_core::values::{Literal, Result, Shape};

/// The first `k` elements of each row when it is sorted, with their indices. Of equal elements, the
/// one with the smaller index comes first.
pub(super) fn top_k(
    shape: &Shape,
    x: &Array<'_>,
    k: usize,
    largest: bool,
    callee: &mut dyn Callee,
) -> Result<Literal> {
    match Kind::of(x.shape.element_type())? {
        Kind::Signed => select(shape, x, k, largest, callee, i64::cmp),
        Kind::Unsigned => select(shape, x, k, largest, callee, u64::cmp),
        Kind::Real => select(shape, x, k, largest, callee, f64::total_cmp),
        Kind::Complex => Err(bug("complex numbers have no order")),
    }
}

fn select<T: Wide>(
    shape: &Shape,
    x: &Array<'_>,
    k: usize,
    largest: bool,
    callee: &mut dyn Callee,
    order: fn(&T, &T) -> Ordering,
) -> Result<Literal> {
    let length = x.dimensions().last().copied().unwrap_or(0);
    let width = x.width();
    let mut values = Vec::new();
    let mut indices = Vec::new();
    // Without rows, nothing is allocated for one: it can be longer than any memory.
    if !x.bytes.is_empty() {
        let mut row = zeroed::<T>(length)?;
        let mut numbers = zeroed::<usize>(length)?;
        for bytes in x.bytes.chunks_exact(length * width) {
            callee.check()?;
            T::decode(x.shape.element_type(), bytes, &mut row)?;
            numbers
                .iter_mut()
                .enumerate()
                .for_each(|(number, to)| *to = number);
            numbers.sort_by(|&a, &b| {
                if largest {
                    order(&row[b], &row[a])
                } else {
                    order(&row[a], &row[b])
                }
            });
            for &number in numbers.iter().take(k) {
                values.extend_from_slice(&bytes[number * width..][..width]);
                indices.extend_from_slice(&(number as i32).to_le_bytes());
            }
        }
    }
    Literal::from_leaves(shape.clone(), vec![values, indices]).map_err(bug)
}
