//! Fourier transforms, computed in `f64`.

use num_complex::Complex;
use rustfft::{Fft, FftDirection, FftPlanner};

use super::array::Array;
use super::wide::Wide;
use super::{bug, zeroed};
use crate::instruction::FftKind;
use callbox_core::values::{ArrayShape, ElementType, Result};

type C = Complex<f64>;

/// Checks whether a transform of many rows goes on.
type Check<'a> = &'a dyn Fn() -> Result<()>;

/// The transforms of the last dimensions of `x`, of which there are as many as `length` has.
pub(super) fn fft(
    x: &Array<'_>,
    kind: FftKind,
    length: &[usize],
    to: &ArrayShape,
    check: Check<'_>,
) -> Result<Vec<u8>> {
    let bytes = zeroed(to.byte_size())?;
    if bytes.is_empty() {
        return Ok(bytes);
    }
    let mut values = zeroed(x.shape.element_count())?;
    C::decode(x.shape.element_type(), x.bytes, &mut values)?;
    let from = x.dimensions();
    let (first, last) = (from.len() - length.len(), from.len() - 1);
    let inverse = matches!(kind, FftKind::Inverse | FftKind::RealInverse);
    let direction = if inverse {
        FftDirection::Inverse
    } else {
        FftDirection::Forward
    };
    let mut planner = FftPlanner::new();
    if kind != FftKind::RealInverse {
        let plan = planner.plan_fft(from[last], direction);
        along(&mut values, from, last, &*plan, check)?;
    }
    if kind == FftKind::RealForward {
        values = rows(&values, from[last], to.dimensions()[last], |row, k| row[k])?;
    }
    let mut dimensions = from.to_vec();
    dimensions[last] = values.len() / from[..last].iter().product::<usize>().max(1);
    for dimension in first..last {
        let plan = planner.plan_fft(dimensions[dimension], direction);
        along(&mut values, &dimensions, dimension, &*plan, check)?;
    }
    if kind == FftKind::RealInverse {
        let whole = to.dimensions()[last];
        // The other half of the spectrum is the conjugate of this one, reversed.
        values = rows(&values, from[last], whole, |row, k| match row.get(k) {
            Some(value) => *value,
            None => row[whole - k].conj(),
        })?;
        dimensions[last] = whole;
        let plan = planner.plan_fft(whole, direction);
        along(&mut values, &dimensions, last, &*plan, check)?;
    }
    if inverse {
        let count: usize = length.iter().product();
        values.iter_mut().for_each(|value| *value /= count as f64);
    }
    encode(&values, to.element_type(), bytes)
}

/// Writes numbers, or their real parts if the type is not complex.
fn encode(values: &[C], element_type: ElementType, mut bytes: Vec<u8>) -> Result<Vec<u8>> {
    if element_type.is_complex() {
        C::encode(values, element_type, &mut bytes)?;
    } else {
        let mut real = zeroed::<f64>(values.len())?;
        let parts = real.iter_mut().zip(values);
        parts.for_each(|(to, value)| *to = value.re);
        f64::encode(&real, element_type, &mut bytes)?;
    }
    Ok(bytes)
}

/// Rows of another length: element `k` of each is `element(row, k)`.
fn rows(
    values: &[C],
    from: usize,
    to: usize,
    element: impl Fn(&[C], usize) -> C,
) -> Result<Vec<C>> {
    let count = values.len() / from.max(1);
    let mut result = zeroed(
        count
            .checked_mul(to)
            .ok_or_else(|| bug("a size overflows"))?,
    )?;
    let pairs = std::iter::zip(result.chunks_exact_mut(to), values.chunks_exact(from));
    for (to, from) in pairs {
        for (k, value) in to.iter_mut().enumerate() {
            *value = element(from, k);
        }
    }
    Ok(result)
}

/// Transforms all lines along a dimension.
fn along(
    values: &mut [C],
    dimensions: &[usize],
    dimension: usize,
    plan: &dyn Fft<f64>,
    check: Check<'_>,
) -> Result<()> {
    let length = dimensions[dimension];
    let step: usize = dimensions[dimension + 1..].iter().product();
    let mut scratch = zeroed(plan.get_inplace_scratch_len())?;
    let mut line = zeroed(length)?;
    for block in values.chunks_exact_mut(length * step) {
        for offset in 0..step {
            check()?;
            for (i, value) in line.iter_mut().enumerate() {
                *value = block[i * step + offset];
            }
            plan.process_with_scratch(&mut line, &mut scratch);
            for (i, value) in line.iter().enumerate() {
                block[i * step + offset] = *value;
            }
        }
    }
    Ok(())
}
