//! The rule by which a curve is flat.
//!
//! The first quarter of a run is warm-up: pools fill and code is compiled. Of the rest, two figures are taken: by how much the median of
//! the last quarter is above that of the second, and by how much a straight line through all of it rises from its beginning to its end. A
//! curve grows if both are more than is allowed. A leak is in both; what comes and goes, like an engine that is made and dropped, seldom is.

use serde::Serialize;

/// How much a measure may grow: so much of its own size, but in any case this much.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Allowance {
    /// A part of the second quarter's median.
    pub share: f64,
    /// In the measure's unit.
    pub least: f64,
}

/// What the rule says of a curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Flatness {
    /// The second quarter's median.
    pub second: f64,
    /// The last quarter's median.
    pub last: f64,
    /// How much the line of least squares rises in the last three quarters.
    pub rise: f64,
    /// By how much both may grow.
    pub allowed: f64,
}

impl Flatness {
    /// Whether the curve does not grow.
    #[must_use]
    pub fn is_flat(&self) -> bool {
        self.last - self.second <= self.allowed || self.rise <= self.allowed
    }
}

/// Judges a curve of times and values. `None` if it has too few points for quarters to mean anything.
#[must_use]
pub fn flatness(curve: &[(f64, f64)], allowance: Allowance) -> Option<Flatness> {
    const LEAST: usize = 16;
    let (begin, end) = (curve.first()?.0, curve.last()?.0);
    if curve.len() < LEAST {
        return None;
    }
    let quarter = (end - begin) / 4.0;
    let from = |time: f64| {
        let at = curve.partition_point(|&(t, _)| t < time);
        &curve[at..]
    };
    let warm = from(begin + quarter);
    let second = &warm[..warm.partition_point(|&(t, _)| t < begin + 2.0 * quarter)];
    let last = from(begin + 3.0 * quarter);
    let second = median(second)?;
    Some(Flatness {
        second,
        last: median(last)?,
        rise: slope(warm) * 3.0 * quarter,
        allowed: (allowance.share * second).max(allowance.least),
    })
}

fn median(curve: &[(f64, f64)]) -> Option<f64> {
    let mut values: Vec<f64> = curve.iter().map(|&(_, value)| value).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// The slope of the line of least squares.
fn slope(curve: &[(f64, f64)]) -> f64 {
    let count = curve.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| curve.iter().map(of).sum::<f64>() / count;
    let (time, value) = (mean(|p| p.0), mean(|p| p.1));
    let both = |&(t, v): &(f64, f64)| (t - time) * (v - value);
    let square = |&(t, _): &(f64, f64)| (t - time) * (t - time);
    let spread: f64 = curve.iter().map(square).sum();
    match spread > 0.0 {
        true => curve.iter().map(both).sum::<f64>() / spread,
        false => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOWANCE: Allowance = Allowance {
        share: 0.1,
        least: 5.0,
    };

    fn judged(value: impl Fn(f64) -> f64) -> Flatness {
        let curve: Vec<_> = (0..100_u8).map(f64::from).map(|t| (t, value(t))).collect();
        flatness(&curve, ALLOWANCE).unwrap()
    }

    #[test]
    fn a_leak_is_seen() {
        // In the last three quarters the line rises by 75, and from median to median it is 50.
        let leak = judged(|t| 100.0 + t);
        assert!((leak.rise - 74.25).abs() < 1e-9, "{leak:?}");
        assert!((leak.last - leak.second - 50.0).abs() <= 1.0, "{leak:?}");
        assert!(!leak.is_flat());
        // A small one, and one under noise that is larger than it.
        assert!(!judged(|t| 40.0 + 0.2 * t).is_flat());
        assert!(!judged(|t| 100.0 + t + 60.0 * (t * 0.9).sin()).is_flat());
        // Steps that are never taken back.
        assert!(!judged(|t| 100.0 + 10.0 * (t / 20.0).floor()).is_flat());
    }

    #[test]
    fn what_does_not_grow_is_flat() {
        assert!(judged(|_| 0.0).is_flat());
        assert!(judged(|t| 100.0 - t).is_flat());
        // Warm-up, and what comes and goes.
        assert!(judged(|t| if t < 24.0 { t * 100.0 } else { 2400.0 }).is_flat());
        assert!(judged(|t| 100.0 + 40.0 * (t * 0.7).sin()).is_flat());
        assert!(judged(|t| if t % 10.0 < 2.0 { 400.0 } else { 100.0 }).is_flat());
        // One spike at the very end.
        assert!(judged(|t| if t > 98.0 { 1000.0 } else { 100.0 }).is_flat());
    }

    #[test]
    fn a_few_points_say_nothing() {
        assert_eq!(flatness(&[], ALLOWANCE), None);
        let few: Vec<_> = (0..15_u8).map(|t| (f64::from(t), 1.0)).collect();
        assert_eq!(flatness(&few, ALLOWANCE), None);
        // All at one time.
        assert!(flatness(&[(1.0, 1.0); 20], ALLOWANCE).is_none_or(|flat| flat.is_flat()));
    }
}
