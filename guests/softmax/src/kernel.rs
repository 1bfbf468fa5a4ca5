//! Softmax over rows, independent of the FFI.

use callbox_guest::maths::{self, MatrixElement};

/// Writes to `y` the softmax of each row of `x`, of `length` elements:
/// `e^(x - max) / sum(e^(x - max))`. The host computes it.
///
/// Special values are those of `jax.nn.softmax`. A row with a NaN or with plus infinity, and a row
/// of minus infinities, becomes NaN throughout; minus infinity in any other row becomes zero. `x`
/// and `y` have the same length, a multiple of `length`.
pub fn softmax<T: MatrixElement>(x: &[T], length: usize, y: &mut [T]) {
    maths::softmax_rows(x, length, y);
}
