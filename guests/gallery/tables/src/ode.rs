//! Steps of ordinary differential equations, by the classical Runge-Kutta method of order four
//! (Kutta, 1901).

use callbox_guest::{Failure, Operand, ResultBuffer, target};
use gallery::{invalid, last, row_major};

/// The most steps of a call.
const MOST_STEPS: i32 = 1_000_000;

/// Makes `steps` steps of size `step` of `x' = a x`, for each row of `x`.
#[target(rows)]
fn linear_ode(
    #[dimensions(.., n)] x: &Operand<f64>,
    #[dimensions(n, n)] a: &Operand<f64, 2>,
    #[dimensions(.., n)] y: &mut ResultBuffer<f64>,
    #[attr] step: f64,
    #[attr] steps: i32,
) -> Result<(), Failure> {
    row_major(&[("x", x.shape()), ("a", a.shape()), ("y", y.shape())])?;
    let [n] = last("x", x.dimensions())?;
    let steps = count(steps)?;
    let slope = |x: &[f64], slope: &mut [f64]| {
        for (slope, row) in slope.iter_mut().zip(a.chunks_exact(n.max(1))) {
            *slope = row.iter().zip(x).map(|(a, x)| a * x).sum();
        }
    };
    let mut scratch = Scratch::new(n);
    y.copy_from_slice(x);
    for row in y.chunks_exact_mut(n.max(1)) {
        (0..steps).for_each(|_| scratch.step(row, step, slope));
    }
    Ok(())
}

/// Makes `steps` steps of size `step` of Lotka's and Volterra's equations for prey `p` and
/// predators `q`: `p' = alpha p - beta p q` and `q' = delta p q - gamma q`. A row is `[p, q]`.
#[target(rows)]
fn lotka_volterra(
    #[dimensions(.., 2)] x: &Operand<f64>,
    #[dimensions(.., 2)] y: &mut ResultBuffer<f64>,
    #[attr] alpha: f64,
    #[attr] beta: f64,
    #[attr] gamma: f64,
    #[attr] delta: f64,
    #[attr] step: f64,
    #[attr] steps: i32,
) -> Result<(), Failure> {
    row_major(&[("x", x.shape()), ("y", y.shape())])?;
    let steps = count(steps)?;
    let slope = |x: &[f64], slope: &mut [f64]| {
        if let (&[p, q], [dp, dq]) = (x, slope) {
            (*dp, *dq) = (alpha * p - beta * p * q, delta * p * q - gamma * q);
        }
    };
    let mut scratch = Scratch::new(2);
    y.copy_from_slice(x);
    for row in y.chunks_exact_mut(2) {
        (0..steps).for_each(|_| scratch.step(row, step, slope));
    }
    Ok(())
}

fn count(steps: i32) -> Result<i32, Failure> {
    if (0..=MOST_STEPS).contains(&steps) {
        return Ok(steps);
    }
    Err(invalid(format!(
        "expected steps from 0 to {MOST_STEPS}, found {steps}"
    )))
}

/// The arrays of a step.
struct Scratch {
    /// Where the slope is taken.
    place: Vec<f64>,
    slope: Vec<f64>,
    /// The weighted sum of the slopes.
    sum: Vec<f64>,
}

impl Scratch {
    fn new(n: usize) -> Self {
        let zeros = || vec![0.0; n];
        Self {
            place: zeros(),
            slope: zeros(),
            sum: zeros(),
        }
    }

    fn step(&mut self, x: &mut [f64], step: f64, slope: impl Fn(&[f64], &mut [f64])) {
        self.place.copy_from_slice(x);
        self.sum.fill(0.0);
        // The weight of each slope, and how far along it the next one is taken.
        for (weight, ahead) in [(1.0, 0.5), (2.0, 0.5), (2.0, 1.0), (1.0, 0.0)] {
            slope(&self.place, &mut self.slope);
            for (i, &slope) in self.slope.iter().enumerate() {
                self.sum[i] += weight * slope;
                self.place[i] = x[i] + ahead * step * slope;
            }
        }
        for (x, sum) in x.iter_mut().zip(&self.sum) {
            *x += step / 6.0 * sum;
        }
    }
}
