//! How times are taken.
//!
//! Several ways to do the same are measured in turns: a round does a batch of each way, so that a clock that rises or a neighbour that wakes meets all
//! of them. Before a batch the device has nothing to do. Two times are taken of a batch: until all of it was *enqueued*, which is what the host pays; and
//! until the device had done *the whole* of it, which is waited for. A batch is short enough for the driver to take it without making the host wait for
//! room. The first rounds load, capture and warm up, and are not counted. What is told is the median over the rounds, with the 10th and the 90th
//! percentile as spread.

use std::time::{Duration, Instant};

use anyhow::Result;

/// Rounds that are not counted.
const WARM_UP: usize = 5;

/// One way to do something.
pub(crate) struct Way<'w> {
    /// What it is called.
    pub(crate) name: String,
    /// The name of the way that it is held against.
    pub(crate) baseline: String,
    /// How many launches one operation is.
    pub(crate) launches: usize,
    /// Operations in a batch.
    pub(crate) batch: usize,
    /// Does it once, without waiting for the device.
    pub(crate) act: Box<dyn FnMut() -> Result<()> + 'w>,
}

/// Times of one launch in nanoseconds, one of each round.
#[derive(Clone, Debug, Default)]
pub(crate) struct Times {
    /// On the host.
    pub(crate) enqueue: Series,
    /// Until the device was done.
    pub(crate) whole: Series,
}

/// Numbers of which the order statistics are told.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series(Vec<f64>);

impl Series {
    /// One more.
    pub(crate) fn push(&mut self, value: f64) {
        let place = self.0.partition_point(|known| *known <= value);
        self.0.insert(place, value);
    }

    /// The median. NaN if there are none.
    pub(crate) fn median(&self) -> f64 {
        let count = self.0.len();
        match (self.0.get(count / 2), count % 2) {
            (None, _) => f64::NAN,
            (Some(upper), 1) => *upper,
            (Some(upper), _) => f64::midpoint(self.0[count / 2 - 1], *upper),
        }
    }

    /// The value that this share of them, between 0 and 1, is not above. NaN if there are none.
    pub(crate) fn quantile(&self, share: f64) -> f64 {
        let last = self.0.len().saturating_sub(1);
        let place = (last as f64 * share).round() as usize;
        self.0.get(place.min(last)).copied().unwrap_or(f64::NAN)
    }
}

/// Measures ways in turns. `wait` waits for the device.
///
/// # Errors
/// The first that an operation or the waiting fails with.
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

/// The median of how long something takes, in milliseconds, as it says itself. The first time is not counted.
///
/// # Errors
/// What it fails with.
pub(crate) fn median_ms(times: usize, mut act: impl FnMut() -> Result<f64>) -> Result<f64> {
    act()?;
    let mut series = Series::default();
    for _ in 0..times {
        series.push(act()?);
    }
    Ok(series.median())
}

/// How long something takes on the host, in milliseconds, with what it gives.
///
/// # Errors
/// What it fails with.
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
        // Four launches of at least 4 ms.
        assert!(times[1].enqueue.median() >= 1e6, "{times:?}");
        assert!(times[1].whole.median() >= times[1].enqueue.median());
    }
}
