//! Rotary position embedding.

use callbox_guest::{Failure, Operand, ResultBuffer, target};
use gallery::{invalid, last, row_major};

/// Rotates the pair of elements `i` and `i + d / 2` of each row of `d` elements by the angle
/// `position base^(-2 i / d)`, as the models of the Llama family do.
///
/// Negated positions undo the rotation, and compute the cotangent of `x` from that of `y`.
#[target(rows)]
fn rotary(
    #[dimensions(.., heads, d)] x: &Operand<f32>,
    #[dimensions(..)] positions: &Operand<i32>,
    #[dimensions(.., heads, d)] y: &mut ResultBuffer<f32>,
    #[attr] base: f32,
) -> Result<(), Failure> {
    row_major(&[
        ("x", x.shape()),
        ("positions", positions.shape()),
        ("y", y.shape()),
    ])?;
    let [heads, d] = last("x", x.dimensions())?;
    if d % 2 == 1 {
        return Err(Failure::invalid_argument(format!(
            "expected rows of an even number of elements, found {d}"
        )));
    }
    if !(base.is_finite() && base > 0.0) {
        return Err(invalid(format!(
            "expected base to be finite and positive, found {base}"
        )));
    }
    let half = d / 2;
    let speeds: Vec<f64> = (0..half)
        .map(|i| f64::from(base).powf(-2.0 * i as f64 / d as f64))
        .collect();
    let mut turns = vec![(0.0, 0.0); half];
    let tokens = (heads * d).max(1);
    let rows = x.chunks_exact(tokens).zip(y.chunks_exact_mut(tokens));
    for ((x, y), &position) in rows.zip(positions.iter()) {
        for (turn, speed) in turns.iter_mut().zip(&speeds) {
            let (sin, cos) = (f64::from(position) * speed).sin_cos();
            *turn = (sin as f32, cos as f32);
        }
        for (x, y) in x.chunks_exact(d).zip(y.chunks_exact_mut(d)) {
            rotate(x, &turns, y);
        }
    }
    Ok(())
}

/// Rotates one row.
fn rotate(x: &[f32], turns: &[(f32, f32)], y: &mut [f32]) {
    let (x0, x1) = x.split_at(turns.len());
    let (y0, y1) = y.split_at_mut(turns.len());
    for (i, (sin, cos)) in turns.iter().enumerate() {
        y0[i] = x0[i] * cos - x1[i] * sin;
        y1[i] = x1[i] * cos + x0[i] * sin;
    }
}
