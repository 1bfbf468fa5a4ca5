//! Layer normalisation, and softmax with a mask.

use callbox_guest::{Failure, Operand, Pred, ResultBuffer, maths, target};
use gallery::{invalid, last, row_major, sum};

/// Subtracts its mean from each row of `x`, divides the row by the root of its variance plus `eps`,
/// multiplies it by `weight` and adds `bias`.
#[target(rows)]
fn layer_norm(
    #[dimensions(.., n)] x: &Operand<f32>,
    #[dimensions(n)] weight: &Operand<f32, 1>,
    #[dimensions(n)] bias: &Operand<f32, 1>,
    #[dimensions(.., n)] y: &mut ResultBuffer<f32>,
    #[attr] eps: f32,
) -> Result<(), Failure> {
    check_eps(eps)?;
    row_major(&[("x", x.shape()), ("y", y.shape())])?;
    let columns = weight.len().max(1);
    for (x, y) in x.chunks_exact(columns).zip(y.chunks_exact_mut(columns)) {
        let (mean, scale) = moments(x, eps);
        let pairs = x.iter().zip(weight.iter().zip(bias.iter()));
        for (y, (x, (weight, bias))) in y.iter_mut().zip(pairs) {
            let normal = (f64::from(*x) - mean) * scale;
            *y = (normal * f64::from(*weight) + f64::from(*bias)) as f32;
        }
    }
    Ok(())
}

/// Computes the cotangents of the operands of `layer_norm` from the cotangent `dy` of its result.
#[target(pure)]
fn layer_norm_grad(
    #[dimensions(.., n)] x: &Operand<f32>,
    #[dimensions(n)] weight: &Operand<f32, 1>,
    #[dimensions(.., n)] dy: &Operand<f32>,
    #[dimensions(.., n)] dx: &mut ResultBuffer<f32>,
    #[dimensions(n)] dweight: &mut ResultBuffer<f32, 1>,
    #[dimensions(n)] dbias: &mut ResultBuffer<f32, 1>,
    #[attr] eps: f32,
) -> Result<(), Failure> {
    check_eps(eps)?;
    row_major(&[("x", x.shape()), ("dy", dy.shape()), ("dx", dx.shape())])?;
    let columns = weight.len();
    let mut dweights = vec![0.0_f64; columns];
    let mut dbiases = vec![0.0_f64; columns];
    let rows = x.chunks_exact(columns.max(1));
    let rows = rows.zip(dy.chunks_exact(columns.max(1)));
    for ((x, dy), dx) in rows.zip(dx.chunks_exact_mut(columns.max(1))) {
        let (mean, scale) = moments(x, eps);
        let normal = |i: usize| (f64::from(x[i]) - mean) * scale;
        let slope = |i: usize| f64::from(dy[i]) * f64::from(weight[i]);
        let slopes = sum(columns, slope) / columns as f64;
        let products = sum(columns, |i| slope(i) * normal(i)) / columns as f64;
        for (i, dx) in dx.iter_mut().enumerate() {
            *dx = (scale * (slope(i) - slopes - normal(i) * products)) as f32;
            dweights[i] += f64::from(dy[i]) * normal(i);
            dbiases[i] += f64::from(dy[i]);
        }
    }
    for i in 0..columns {
        dweight[i] = dweights[i] as f32;
        dbias[i] = dbiases[i] as f32;
    }
    Ok(())
}

/// Returns the mean of a row, and the reciprocal of the root of its variance plus `eps`.
fn moments(row: &[f32], eps: f32) -> (f64, f64) {
    let count = row.len() as f64;
    let mean = sum(row.len(), |i| f64::from(row[i])) / count;
    let variance = sum(row.len(), |i| (f64::from(row[i]) - mean).powi(2)) / count;
    (mean, 1.0 / (variance + f64::from(eps)).sqrt())
}

fn check_eps(eps: f32) -> Result<(), Failure> {
    if eps.is_finite() && eps >= 0.0 {
        return Ok(());
    }
    Err(invalid(format!(
        "expected eps to be finite and not negative, found {eps}"
    )))
}

/// Computes the softmax over the elements of each row whose `mask` is true. The other elements
/// become 0, and so does a row without such elements.
#[target(rows)]
fn masked_softmax(
    #[dimensions(.., n)] x: &Operand<f32>,
    #[dimensions(.., n)] mask: &Operand<Pred>,
    #[dimensions(.., n)] y: &mut ResultBuffer<f32>,
) -> Result<(), Failure> {
    row_major(&[("x", x.shape()), ("mask", mask.shape()), ("y", y.shape())])?;
    let [columns] = last("x", x.dimensions())?;
    for (y, (x, mask)) in y.iter_mut().zip(x.iter().zip(mask.iter())) {
        *y = if mask.get() { *x } else { f32::NEG_INFINITY };
    }
    maths::softmax_rows_in_place(columns, y);
    let rows = mask.chunks_exact(columns.max(1));
    for (y, mask) in y.chunks_exact_mut(columns.max(1)).zip(rows) {
        if !mask.iter().any(|mask| mask.get()) {
            y.fill(0.0);
        }
    }
    Ok(())
}

/// Computes the cotangent of `x` of `masked_softmax` from its result `y` and the cotangent `dy`:
/// `y (dy - sum(y dy))`.
#[target(rows)]
fn masked_softmax_grad(
    #[dimensions(.., n)] y: &Operand<f32>,
    #[dimensions(.., n)] dy: &Operand<f32>,
    #[dimensions(.., n)] dx: &mut ResultBuffer<f32>,
) -> Result<(), Failure> {
    row_major(&[("y", y.shape()), ("dy", dy.shape()), ("dx", dx.shape())])?;
    let [columns] = last("y", y.dimensions())?;
    let rows = y.chunks_exact(columns.max(1));
    let rows = rows.zip(dy.chunks_exact(columns.max(1)));
    for ((y, dy), dx) in rows.zip(dx.chunks_exact_mut(columns.max(1))) {
        let mean = sum(columns, |i| f64::from(y[i]) * f64::from(dy[i]));
        for ((dx, y), dy) in dx.iter_mut().zip(y).zip(dy) {
            *dx = (f64::from(*y) * (f64::from(*dy) - mean)) as f32;
        }
    }
    Ok(())
}
