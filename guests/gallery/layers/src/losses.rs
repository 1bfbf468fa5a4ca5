//! Logarithmic softmax, cross-entropy, and the loss of connectionist temporal classification.

mod ctc;

use callbox_guest::{Failure, Operand, ResultBuffer, target};
use gallery::{invalid, last, row_major, sum};

/// Computes `x - log(sum(e^x))` of each row.
#[target(rows)]
fn log_softmax(
    #[dimensions(.., n)] x: &Operand<f32>,
    #[dimensions(.., n)] y: &mut ResultBuffer<f32>,
) -> Result<(), Failure> {
    row_major(&[("x", x.shape()), ("y", y.shape())])?;
    let [columns] = last("x", x.dimensions())?;
    let rows = x.chunks_exact(columns.max(1));
    for (x, y) in rows.zip(y.chunks_exact_mut(columns.max(1))) {
        let total = log_sum(x);
        for (y, x) in y.iter_mut().zip(x) {
            *y = (f64::from(*x) - total) as f32;
        }
    }
    Ok(())
}

/// Computes the cotangent of `x` of `log_softmax` from its result `y` and the cotangent `dy`:
/// `dy - e^y sum(dy)`.
#[target(rows)]
fn log_softmax_grad(
    #[dimensions(.., n)] y: &Operand<f32>,
    #[dimensions(.., n)] dy: &Operand<f32>,
    #[dimensions(.., n)] dx: &mut ResultBuffer<f32>,
) -> Result<(), Failure> {
    row_major(&[("y", y.shape()), ("dy", dy.shape()), ("dx", dx.shape())])?;
    let [columns] = last("y", y.dimensions())?;
    let rows = y.chunks_exact(columns.max(1));
    let rows = rows.zip(dy.chunks_exact(columns.max(1)));
    for ((y, dy), dx) in rows.zip(dx.chunks_exact_mut(columns.max(1))) {
        let total = sum(columns, |i| f64::from(dy[i]));
        for ((dx, y), dy) in dx.iter_mut().zip(y).zip(dy) {
            *dx = (f64::from(*dy) - f64::from(*y).exp() * total) as f32;
        }
    }
    Ok(())
}

/// Computes the cross-entropy of each row: `log(sum(e^logits)) - logits[label]`, or 0 where the
/// label is `ignored`.
#[target(rows)]
fn cross_entropy(
    #[dimensions(.., n)] logits: &Operand<f32>,
    #[dimensions(..)] labels: &Operand<i32>,
    #[dimensions(..)] loss: &mut ResultBuffer<f32>,
    #[attr] ignored: i32,
) -> Result<(), Failure> {
    row_major(&[
        ("logits", logits.shape()),
        ("labels", labels.shape()),
        ("loss", loss.shape()),
    ])?;
    let [columns] = last("logits", logits.dimensions())?;
    for (i, (loss, &label)) in loss.iter_mut().zip(labels.iter()).enumerate() {
        let logits = &logits[i * columns..][..columns];
        *loss = match class(label, ignored, columns)? {
            Some(class) => (log_sum(logits) - f64::from(logits[class])) as f32,
            None => 0.0,
        };
    }
    Ok(())
}

/// Computes the cotangent of `logits` of `cross_entropy`: the softmax less 1 at the label, times
/// `dloss`.
#[target(rows)]
#[derivative_of(cross_entropy)]
fn cross_entropy_grad(
    #[dimensions(.., n)] logits: &Operand<f32>,
    #[dimensions(..)] labels: &Operand<i32>,
    #[dimensions(..)] dloss: &Operand<f32>,
    #[dimensions(.., n)] dlogits: &mut ResultBuffer<f32>,
    #[attr] ignored: i32,
) -> Result<(), Failure> {
    row_major(&[
        ("logits", logits.shape()),
        ("labels", labels.shape()),
        ("dloss", dloss.shape()),
        ("dlogits", dlogits.shape()),
    ])?;
    let [columns] = last("logits", logits.dimensions())?;
    for (i, (&label, &dloss)) in labels.iter().zip(dloss.iter()).enumerate() {
        let logits = &logits[i * columns..][..columns];
        let dlogits = &mut dlogits[i * columns..][..columns];
        let Some(class) = class(label, ignored, columns)? else {
            dlogits.fill(0.0);
            continue;
        };
        let total = log_sum(logits);
        for (j, (dlogit, logit)) in dlogits.iter_mut().zip(logits).enumerate() {
            let softmax = (f64::from(*logit) - total).exp();
            let hit = if j == class { 1.0 } else { 0.0 };
            *dlogit = ((softmax - hit) * f64::from(dloss)) as f32;
        }
    }
    Ok(())
}

/// Returns the logarithm of the sum of the exponentials of a row.
fn log_sum(row: &[f32]) -> f64 {
    let greatest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    // An infinite element decides the sum; subtracting it would make a NaN.
    let shift = if greatest.is_finite() {
        f64::from(greatest)
    } else {
        0.0
    };
    sum(row.len(), |i| (f64::from(row[i]) - shift).exp()).ln() + shift
}

/// Returns the class of a label, or none where the row does not count.
fn class(label: i32, ignored: i32, classes: usize) -> Result<Option<usize>, Failure> {
    if label == ignored {
        return Ok(None);
    }
    match usize::try_from(label) {
        Ok(class) if class < classes => Ok(Some(class)),
        _ => Err(invalid(format!(
            "expected a label from 0 to {} or {ignored}, found {label}",
            classes.saturating_sub(1)
        ))),
    }
}
