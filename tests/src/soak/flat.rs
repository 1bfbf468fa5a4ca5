//! The rule that decides whether a curve is flat.
//!
//! The first quarter of a run is warm-up: pools fill and code is compiled. The rule looks at two
//! figures of the rest: by how much the median of the last quarter exceeds that of the second, and
//! by how much a least-squares line rises over all three quarters. A curve grows if both exceed the
//! allowance. A leak raises both; temporary objects, such as engines that come and go, rarely do.

use serde::Serialize;

/// The allowed growth of a measure: the larger of a share and an absolute amount.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Allowance {
    /// A fraction of the second quarter's median.
    pub share: f64,
    /// An absolute amount, in the measure's unit.
    pub least: f64,
}

/// The figures of a curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Flatness {
    /// The median of the second quarter.
    pub second: f64,
    /// The median of the last quarter.
    pub last: f64,
    /// The rise of the least-squares line over the last three quarters.
    pub rise: f64,
    /// The allowed growth of each figure.
    pub allowed: f64,
}

impl Flatness {
    /// Returns whether the curve does not grow.
    #[must_use]
    pub fn is_flat(&self) -> bool {
        self.last - self.second <= self.allowed || self.rise <= self.allowed
    }
}

/// Judges a curve of times and values. Returns `None` if it has too few points.
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

/// Returns the slope of the least-squares line.
fn slope(curve: &[(f64, f64)]) -> f64 {
    let count = curve.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| curve.iter().map(of).sum::<f64>() / count;
    let (time, value) = (mean(|p| p.0), mean(|p| p.1));
    let both = |&(t, v): &(f64, f64)| (t - time) * (v - value);
    let square = |&(t, _): &(f64, f64)| (t - time) * (t - time);
    let spread: f64 = curve.iter().map(square).sum();
    if spread > 0.0 {
        curve.iter().map(both).sum::<f64>() / spread
    } else {
        0.0
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
        // The line rises by 75 over the last three quarters, and the medians differ by 50.
        let leak = judged(|t| 100.0 + t);
        assert!((leak.rise - 74.25).abs() < 1e-9, "{leak:?}");
        assert!((leak.last - leak.second - 50.0).abs() <= 1.0, "{leak:?}");
        assert!(!leak.is_flat());
        // A small leak, and a leak smaller than the noise.
        assert!(!judged(|t| 40.0 + 0.2 * t).is_flat());
        assert!(!judged(|t| 100.0 + t + 60.0 * (t * 0.9).sin()).is_flat());
        // Steps up that are never taken back.
        assert!(!judged(|t| 100.0 + 10.0 * (t / 20.0).floor()).is_flat());
    }

    #[test]
    fn what_does_not_grow_is_flat() {
        assert!(judged(|_| 0.0).is_flat());
        assert!(judged(|t| 100.0 - t).is_flat());
        // Warm-up only.
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
        // All points at the same time.
        assert!(flatness(&[(1.0, 1.0); 20], ALLOWANCE).is_none_or(|flat| flat.is_flat()));
    }
}
