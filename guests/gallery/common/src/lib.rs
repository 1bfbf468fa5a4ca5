//! Checks and sums that the kernels of the gallery share.

use callbox_guest::{Failure, Shape};

/// Checks that the elements of each array lie in row-major order.
///
/// # Errors
/// INVALID_ARGUMENT with the name of the first array of another layout.
pub fn row_major(arrays: &[(&str, Shape<'_>)]) -> Result<(), Failure> {
    match arrays.iter().find(|(_, shape)| !shape.is_row_major()) {
        None => Ok(()),
        Some((name, shape)) => Err(Failure::invalid_argument(format!(
            "expected a row-major layout of {name}, found {shape:?}"
        ))),
    }
}

/// Returns the sizes of the last `N` dimensions.
///
/// # Errors
/// INVALID_ARGUMENT if there are fewer dimensions.
pub fn last<const N: usize>(name: &str, dimensions: &[i64]) -> Result<[usize; N], Failure> {
    dimensions
        .last_chunk::<N>()
        .map(|sizes| sizes.map(|size| size as usize))
        .ok_or_else(|| {
            Failure::invalid_argument(format!(
                "expected {name} to have rank {N} or more, found {dimensions:?}"
            ))
        })
}

/// Returns a failure that a call with other values can avoid.
#[cold]
pub fn invalid(message: String) -> Failure {
    Failure::invalid_argument(message).recoverable()
}

/// Returns the sum of `terms(i)` for `i` below `count`. Eight sums run side by side.
#[inline(always)]
pub fn sum(count: usize, terms: impl Fn(usize) -> f64) -> f64 {
    let mut sums = [0.0; 8];
    let whole = count / 8 * 8;
    for first in (0..whole).step_by(8) {
        for (lane, sum) in sums.iter_mut().enumerate() {
            *sum += terms(first + lane);
        }
    }
    let rest: f64 = (whole..count).map(&terms).sum();
    sums.iter().sum::<f64>() + rest
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_sum_has_each_term_once() {
        for count in [0, 1, 7, 8, 9, 100] {
            let expected = (0..count).sum::<usize>() as f64;
            assert_eq!(super::sum(count, |i| i as f64), expected);
        }
    }

    #[test]
    fn the_last_sizes_are_the_innermost() {
        assert_eq!(super::last::<2>("x", &[5, 2, 3]), Ok([2, 3]));
        assert!(super::last::<2>("x", &[5]).is_err());
    }
}
