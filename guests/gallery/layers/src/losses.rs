//! Logarithmic softmax, cross-entropy, and the loss of connectionist temporal classification.

mod ctc;

use callbox_guest::maths::{self, Elementwise, Reduction};
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
        let (shift, total) = exponentials(x, y);
        let log = total.ln() as f32;
        for (y, x) in y.iter_mut().zip(x) {
            *y = (x - shift) - log;
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
        let total = sum(columns, |i| f64::from(dy[i])) as f32;
        maths::map(Elementwise::Exp, y, dx);
        for (dx, dy) in dx.iter_mut().zip(dy) {
            *dx = dy - *dx * total;
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
    let mut row = vec![0.0; columns];
    for (i, (loss, &label)) in loss.iter_mut().zip(labels.iter()).enumerate() {
        let logits = &logits[i * columns..][..columns];
        *loss = match class(label, ignored, columns)? {
            Some(class) => {
                let (shift, total) = exponentials(logits, &mut row);
                (total.ln() + f64::from(shift) - f64::from(logits[class])) as f32
            }
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
        let (_, total) = exponentials(logits, dlogits);
        let at_label = f64::from(dlogits[class]) / total;
        let factor = (f64::from(dloss) / total) as f32;
        dlogits.iter_mut().for_each(|dlogit| *dlogit *= factor);
        dlogits[class] = ((at_label - 1.0) * f64::from(dloss)) as f32;
    }
    Ok(())
}

/// Writes `e^(x - shift)` of each element of a row, and returns the shift and the sum of them.
fn exponentials(row: &[f32], into: &mut [f32]) -> (f32, f64) {
    let mut greatest = [0.0];
    maths::reduce_rows(Reduction::Max, row, &mut greatest);
    // An infinite element decides the sum; subtracting it would make a NaN.
    let shift = if greatest[0].is_finite() {
        greatest[0]
    } else {
        0.0
    };
    for (e, x) in into.iter_mut().zip(row) {
        *e = x - shift;
    }
    maths::map_in_place(Elementwise::Exp, into);
    (shift, sum(into.len(), |i| f64::from(into[i])))
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
