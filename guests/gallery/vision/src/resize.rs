//! Images of another size.

use callbox_guest::{Failure, Operand, ResultBuffer, target};
use gallery::{last, row_major};

use crate::taps::Taps;

/// Resizes the planes of `x` by bilinear interpolation of the pixels' centres. Pixels beyond an
/// edge are those of the edge. A smaller image is not smoothed first. This is PyTorch's
/// `interpolate(mode="bilinear", align_corners=False)`.
#[target(rows)]
fn resize(
    #[dimensions(.., h, w)] x: &Operand<f32>,
    #[dimensions(.., rows, columns)] y: &mut ResultBuffer<f32>,
) -> Result<(), Failure> {
    row_major(&[("x", x.shape()), ("y", y.shape())])?;
    let (from, to) = (last("x", x.dimensions())?, last("y", y.dimensions())?);
    let taps = taps(from, to)?;
    let planes = x.chunks_exact((from[0] * from[1]).max(1));
    for (x, y) in planes.zip(y.chunks_exact_mut((to[0] * to[1]).max(1))) {
        for (y, taps) in y.iter_mut().zip(&taps) {
            *y = taps.gather(x, &taps.weights);
        }
    }
    Ok(())
}

/// Computes the cotangent of the operand of `resize`.
#[target(rows)]
fn resize_grad(
    #[dimensions(.., rows, columns)] dy: &Operand<f32>,
    #[dimensions(.., h, w)] dx: &mut ResultBuffer<f32>,
) -> Result<(), Failure> {
    row_major(&[("dy", dy.shape()), ("dx", dx.shape())])?;
    let (from, to) = (last("dx", dx.dimensions())?, last("dy", dy.dimensions())?);
    let taps = taps(from, to)?;
    dx.fill(0.0);
    let planes = dy.chunks_exact((to[0] * to[1]).max(1));
    for (dy, dx) in planes.zip(dx.chunks_exact_mut((from[0] * from[1]).max(1))) {
        for (dy, taps) in dy.iter().zip(&taps) {
            taps.scatter(*dy, dx);
        }
    }
    Ok(())
}

/// Returns the taps of each pixel of the new plane.
fn taps(from: [usize; 2], to: [usize; 2]) -> Result<Vec<Taps>, Failure> {
    if from.contains(&0) && !to.contains(&0) {
        return Err(Failure::invalid_argument("expected pixels, found none"));
    }
    let centre =
        |i: usize, axis: usize| (i as f32 + 0.5) * (from[axis] as f32 / to[axis] as f32) - 0.5;
    let rows = 0..to[0];
    let pixels = rows.flat_map(|row| (0..to[1]).map(move |column| (row, column)));
    Ok(pixels
        .map(|(row, column)| Taps::clamped(centre(row, 0), centre(column, 1), from))
        .collect())
}
