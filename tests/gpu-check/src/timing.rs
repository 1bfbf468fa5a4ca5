//! Timing of alternatives.
//!
//! Alternatives are measured in turns: each round runs one batch of each, so that changes of clock
//! speed and load affect all of them. The device is idle before a batch. Two times are taken: until
//! the batch was *enqueued*, which is the host's cost, and until the device finished *the whole*
//! batch. Batches are short enough for the driver to queue without blocking. The first rounds load,
//! capture and warm up, and do not count. Reports give the median over the rounds, with the 10th
//! and 90th percentiles.

use std::time::{Duration, Instant};

use anyhow::Result;

/// Rounds that do not count.
const WARM_UP: usize = 5;

/// One of the alternatives.
pub(crate) struct Way<'w> {
    /// The name in the report.
    pub(crate) name: String,
    /// The name of the alternative that it is compared with.
    pub(crate) baseline: String,
    /// Launches per operation.
    pub(crate) launches: usize,
    /// Operations per batch.
    pub(crate) batch: usize,
    /// Performs the operation once, without waiting for the device.
    pub(crate) act: Box<dyn FnMut() -> Result<()> + 'w>,
}

/// Times of one launch in nanoseconds, one per round.
#[derive(Clone, Debug, Default)]
pub(crate) struct Times {
    /// The host's cost.
    pub(crate) enqueue: Series,
    /// Until the device finished.
    pub(crate) whole: Series,
}

/// A series of measurements.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series(Vec<f64>);

impl Series {
    /// Appends a value.
    pub(crate) fn push(&mut self, value: f64) {
        let place = self.0.partition_point(|known| *known <= value);
        self.0.insert(place, value);
    }

    /// Returns the median, or NaN if the series is empty.
    pub(crate) fn median(&self) -> f64 {
        let count = self.0.len();
        match (self.0.get(count / 2), count % 2) {
            (None, _) => f64::NAN,
            (Some(upper), 1) => *upper,
            (Some(upper), _) => f64::midpoint(self.0[count / 2 - 1], *upper),
        }
    }

    /// Returns the quantile for this share between 0 and 1, or NaN if the series is empty.
    pub(crate) fn quantile(&self, share: f64) -> f64 {
        let last = self.0.len().saturating_sub(1);
        let place = (last as f64 * share).round() as usize;
        self.0.get(place.min(last)).copied().unwrap_or(f64::NAN)
    }
}

/// Measures the alternatives in turns. `wait` waits for the device.
///
/// # Errors
/// The first error of an operation or of the wait.
pub(crate) fn in_turns(
    ways: &mut [Way<'_>],
    rounds: usize,
    mut wait: impl FnMut() -> Result<()>,
) -> Result<Vec<Times>> {
    let mut times = vec![Times::default(); ways.len()];
    for round in 0..WARM_UP + rounds {
        for (way, times) in std::iter::zip(&mut *ways, &mut times) {
            wait()?;
            let begun = Instant::now();
            for _ in 0..way.batch {
                (way.act)()?;
            }
            let enqueued = begun.elapsed();
            wait()?;
            let whole = begun.elapsed();
            if round >= WARM_UP {
                let launches = (way.batch * way.launches) as f64;
                let each = |time: Duration| time.as_secs_f64() * 1e9 / launches;
                times.enqueue.push(each(enqueued));
                times.whole.push(each(whole));
            }
        }
    }
    Ok(times)
}

/// Returns the median of the durations that `act` reports, in milliseconds. The first one does not
/// count.
///
/// # Errors
/// The error of `act`.
pub(crate) fn median_ms(times: usize, mut act: impl FnMut() -> Result<f64>) -> Result<f64> {
    act()?;
    let mut series = Series::default();
    for _ in 0..times {
        series.push(act()?);
    }
    Ok(series.median())
}

/// Times a call on the host, in milliseconds, and returns its result too.
///
/// # Errors
/// The error of `act`.
pub(crate) fn once_ms<T>(act: impl FnOnce() -> Result<T>) -> Result<(f64, T)> {
    let begun = Instant::now();
    let given = act()?;
    Ok((begun.elapsed().as_secs_f64() * 1e3, given))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::cell::Cell;

    use super::*;

    fn series(values: &[f64]) -> Series {
        let mut series = Series::default();
        values.iter().for_each(|value| series.push(*value));
        series
    }

    #[test]
    fn medians_and_quantiles() {
        assert!(series(&[]).median().is_nan() && series(&[]).quantile(0.5).is_nan());
        assert_eq!(series(&[3.0]).median(), 3.0);
        assert_eq!(series(&[9.0, 1.0, 2.0]).median(), 2.0);
        assert_eq!(series(&[9.0, 1.0, 2.0, 4.0]).median(), 3.0);
        let tens: Vec<f64> = (0..=10).rev().map(f64::from).collect();
        assert_eq!(series(&tens).quantile(0.1), 1.0);
        assert_eq!(series(&tens).quantile(0.9), 9.0);
    }

    #[test]
    fn ways_take_turns_and_each_time_is_of_one_launch() {
        let order = Cell::new(String::new());
        let note = |letter: char| {
            let mut text = order.take();
            text.push(letter);
            order.set(text);
        };
        let mut ways = [
            Way {
                name: "a".to_owned(),
                baseline: "a".to_owned(),
                launches: 1,
                batch: 2,
                act: Box::new(|| {
                    note('a');
                    Ok(())
                }),
            },
            Way {
                name: "b".to_owned(),
                baseline: "a".to_owned(),
                launches: 4,
                batch: 1,
                act: Box::new(|| {
                    note('b');
                    std::thread::sleep(Duration::from_millis(4));
                    Ok(())
                }),
            },
        ];
        let times = in_turns(&mut ways, 2, || {
            note('.');
            Ok(())
        });
        let times = times.unwrap();
        drop(ways);
        assert_eq!(order.take(), ".aa..b.".repeat(WARM_UP + 2));
        // Four launches take at least 4 ms.
        assert!(times[1].enqueue.median() >= 1e6, "{times:?}");
        assert!(times[1].whole.median() >= times[1].enqueue.median());
    }
}
