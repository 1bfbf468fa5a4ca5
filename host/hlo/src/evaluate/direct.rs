//! Operations of F32 that need no wider type. Their bits are those of [`wide`](super::wide): a sum,
//! difference, product, quotient or square root in `f64`, rounded to `f32`, is the one in `f32`.
//!
//! The functions of `callbox-maths` compute in `f64` as well, and on vectors.

use std::iter::zip;

use super::binary::{maximum, minimum};
use super::with_capacity;
use crate::instruction::{BinaryOperation as B, Comparison, UnaryOperation as U};
use callbox_core::values::Result;
use callbox_maths::nearest::{self, Function};

/// The operation on each element of F32, or `None` if it needs the wide type.
pub(super) fn unary(operation: U, x: &[u8]) -> Option<Result<Vec<u8>>> {
    let function = match operation {
        U::Abs => return Some(each(x, f32::abs)),
        U::Negate => return Some(each(x, |x| -x)),
        U::Sqrt => return Some(each(x, f32::sqrt)),
        U::Erf => Function::Erf,
        U::Exponential => Function::Exp,
        U::Log => Function::Log,
        U::Logistic => Function::Sigmoid,
        U::Tanh => Function::Tanh,
        _ => return None,
    };
    Some(each(x, |x| x).map(|mut bytes| {
        nearest::map_bytes(function, bytes.as_chunks_mut().0);
        bytes
    }))
}

/// The operation on each pair of elements of F32, or `None` if it needs the wide type.
pub(super) fn binary(operation: B, x: &[u8], y: &[u8]) -> Option<Result<Vec<u8>>> {
    Some(match operation {
        B::Add => pairs(x, y, |x, y| (x + y).to_le_bytes()),
        B::Divide => pairs(x, y, |x, y| (x / y).to_le_bytes()),
        B::Maximum => pairs(x, y, |x, y| {
            (maximum(x.into(), y.into()) as f32).to_le_bytes()
        }),
        B::Minimum => pairs(x, y, |x, y| {
            (minimum(x.into(), y.into()) as f32).to_le_bytes()
        }),
        B::Multiply => pairs(x, y, |x, y| (x * y).to_le_bytes()),
        B::Subtract => pairs(x, y, |x, y| (x - y).to_le_bytes()),
        _ => return None,
    })
}

/// Compares each pair of elements of F32; gives PRED.
pub(super) fn compare(direction: Comparison, x: &[u8], y: &[u8]) -> Result<Vec<u8>> {
    match direction {
        Comparison::Eq => pairs(x, y, |x, y| [u8::from(x == y)]),
        Comparison::Ne => pairs(x, y, |x, y| [u8::from(x != y)]),
        Comparison::Ge => pairs(x, y, |x, y| [u8::from(x >= y)]),
        Comparison::Gt => pairs(x, y, |x, y| [u8::from(x > y)]),
        Comparison::Le => pairs(x, y, |x, y| [u8::from(x <= y)]),
        Comparison::Lt => pairs(x, y, |x, y| [u8::from(x < y)]),
    }
}

fn each(x: &[u8], f: impl Fn(f32) -> f32) -> Result<Vec<u8>> {
    let x = x.as_chunks().0.iter();
    collect(x.map(|x| f(f32::from_le_bytes(*x)).to_le_bytes()))
}

fn pairs<const N: usize>(x: &[u8], y: &[u8], f: impl Fn(f32, f32) -> [u8; N]) -> Result<Vec<u8>> {
    let pairs = zip(x.as_chunks().0, y.as_chunks().0);
    collect(pairs.map(|(x, y)| f(f32::from_le_bytes(*x), f32::from_le_bytes(*y))))
}

/// The elements' bytes.
fn collect<const N: usize>(elements: impl ExactSizeIterator<Item = [u8; N]>) -> Result<Vec<u8>> {
    let mut out = with_capacity(elements.len())?;
    out.extend(elements);
    Ok(out.into_flattened())
}
