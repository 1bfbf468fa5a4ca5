//! Counts of values.

use callbox_guest::{Failure, Operand, ResultBuffer, target};
use gallery::invalid;

/// Counts how often each number from 0 on occurs in `x`.
#[target(pure)]
fn bincount(
    #[dimensions(n)] x: &Operand<i32, 1>,
    #[dimensions(k)] counts: &mut ResultBuffer<i32, 1>,
) -> Result<(), Failure> {
    counts.fill(0);
    let length = counts.len();
    for (i, &x) in x.iter().enumerate() {
        let place = usize::try_from(x).ok();
        let Some(count) = place.and_then(|place| counts.get_mut(place)) else {
            return Err(invalid(format!(
                "expected numbers from 0 to {}, found {x} at {i}",
                length.saturating_sub(1)
            )));
        };
        *count += 1;
    }
    Ok(())
}

/// Counts the elements of `x` in equally wide bins from `low` to `high`. The last bin includes
/// `high`. Elements outside, and NaN, do not count.
#[target(pure)]
fn histogram(
    #[dimensions(n)] x: &Operand<f32, 1>,
    #[dimensions(k)] counts: &mut ResultBuffer<i32, 1>,
    #[attr] low: f32,
    #[attr] high: f32,
) -> Result<(), Failure> {
    if !(low.is_finite() && high.is_finite() && low < high) {
        return Err(invalid(format!(
            "expected finite bounds with low below high, found {low} and {high}"
        )));
    }
    counts.fill(0);
    let Some(last) = counts.len().checked_sub(1) else {
        return Ok(());
    };
    let (first, width) = (f64::from(low), f64::from(high) - f64::from(low));
    for &x in x.iter().filter(|x| (low..=high).contains(x)) {
        let place = (f64::from(x) - first) / width * (last + 1) as f64;
        counts[(place as usize).min(last)] += 1;
    }
    Ok(())
}
