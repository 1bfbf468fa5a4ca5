//! The loss of connectionist temporal classification (Graves and others, 2006).

use callbox_guest::{Failure, Operand, ResultBuffer, target};
use gallery::{invalid, last, row_major};

/// Computes minus the logarithm of the probability that `log_probabilities` of `t` steps spell the
/// labels, with any repetitions and with the class `blank` between them.
///
/// Only the first `steps` steps and the first `count` labels of a sequence count. A sequence that
/// no path spells has the loss infinity.
#[target(rows)]
fn ctc_loss(
    #[dimensions(.., t, c)] log_probabilities: &Operand<f32>,
    #[dimensions(.., s)] labels: &Operand<i32>,
    #[dimensions(..)] steps: &Operand<i32>,
    #[dimensions(..)] count: &Operand<i32>,
    #[dimensions(..)] loss: &mut ResultBuffer<f32>,
    #[attr] blank: i32,
) -> Result<(), Failure> {
    row_major(&[
        ("log_probabilities", log_probabilities.shape()),
        ("labels", labels.shape()),
    ])?;
    let [t, c] = last("log_probabilities", log_probabilities.dimensions())?;
    let [s] = last("labels", labels.dimensions())?;
    for i in 0..loss.len() {
        let sequence = Sequence::new(
            &log_probabilities[i * t * c..][..t * c],
            c,
            &labels[i * s..][..s],
            (steps[i], count[i], blank),
        )?;
        loss[i] = -sequence.log_probability(&sequence.forward()) as f32;
    }
    Ok(())
}

/// Computes the cotangent of `log_probabilities` of `ctc_loss`: minus the probability, given the
/// labels, that a path is in a class at a step, times `dloss`.
///
/// A sequence that no path spells has the gradient 0.
#[target(rows)]
#[derivative_of(ctc_loss)]
fn ctc_loss_grad(
    #[dimensions(.., t, c)] log_probabilities: &Operand<f32>,
    #[dimensions(.., s)] labels: &Operand<i32>,
    #[dimensions(..)] steps: &Operand<i32>,
    #[dimensions(..)] count: &Operand<i32>,
    #[dimensions(..)] dloss: &Operand<f32>,
    #[dimensions(.., t, c)] gradient: &mut ResultBuffer<f32>,
    #[attr] blank: i32,
) -> Result<(), Failure> {
    row_major(&[
        ("log_probabilities", log_probabilities.shape()),
        ("labels", labels.shape()),
        ("gradient", gradient.shape()),
    ])?;
    let [t, c] = last("log_probabilities", log_probabilities.dimensions())?;
    let [s] = last("labels", labels.dimensions())?;
    gradient.fill(0.0);
    for i in 0..dloss.len() {
        let sequence = Sequence::new(
            &log_probabilities[i * t * c..][..t * c],
            c,
            &labels[i * s..][..s],
            (steps[i], count[i], blank),
        )?;
        sequence.differentiate(dloss[i], &mut gradient[i * t * c..][..t * c]);
    }
    Ok(())
}

/// One sequence.
struct Sequence<'a> {
    /// The logarithms of the probabilities of `classes` at each step.
    logs: &'a [f32],
    classes: usize,
    steps: usize,
    /// The classes of the states: the labels, with blanks before, between and after them.
    states: Vec<usize>,
}

impl<'a> Sequence<'a> {
    fn new(
        logs: &'a [f32],
        classes: usize,
        labels: &[i32],
        (steps, count, blank): (i32, i32, i32),
    ) -> Result<Self, Failure> {
        let class = |label: i32| match usize::try_from(label) {
            Ok(class) if class < classes => Ok(class),
            _ => Err(invalid(format!(
                "expected a class below {classes}, found {label}"
            ))),
        };
        let steps = within("steps", steps, logs.len() / classes.max(1))?;
        let count = within("count", count, labels.len())?;
        let blank = class(blank)?;
        let mut states = vec![blank];
        for &label in &labels[..count] {
            states.extend([class(label)?, blank]);
        }
        Ok(Self {
            logs,
            classes,
            steps,
            states,
        })
    }

    /// Returns whether a path may enter a state from the one before the last, past a blank.
    fn may_skip(&self, state: usize) -> bool {
        state >= 2 && state % 2 == 1 && self.states[state] != self.states[state - 2]
    }

    fn log(&self, step: usize, state: usize) -> f64 {
        f64::from(self.logs[step * self.classes + self.states[state]])
    }

    /// Returns for each step and state the logarithm of the probability of all paths that reach it.
    fn forward(&self) -> Vec<f64> {
        let width = self.states.len();
        let mut alpha = vec![f64::NEG_INFINITY; self.steps * width];
        for step in 0..self.steps {
            for state in 0..width {
                let before = |back: usize| alpha[(step - 1) * width + state - back];
                let reached = if step == 0 {
                    if state < 2 { 0.0 } else { f64::NEG_INFINITY }
                } else {
                    let mut reached = before(0);
                    if state >= 1 {
                        reached = log_add(reached, before(1));
                    }
                    if self.may_skip(state) {
                        reached = log_add(reached, before(2));
                    }
                    reached
                };
                alpha[step * width + state] = reached + self.log(step, state);
            }
        }
        alpha
    }

    /// Returns for each step and state the logarithm of the probability of all ways from there to
    /// the end, without the step itself.
    fn backward(&self) -> Vec<f64> {
        let width = self.states.len();
        let mut beta = vec![f64::NEG_INFINITY; self.steps * width];
        for step in (0..self.steps).rev() {
            for state in 0..width {
                let after = |on: usize| {
                    let next = (step + 1) * width + state + on;
                    beta[next] + self.log(step + 1, state + on)
                };
                beta[step * width + state] = if step + 1 == self.steps {
                    if state + 2 >= width {
                        0.0
                    } else {
                        f64::NEG_INFINITY
                    }
                } else {
                    let mut left = after(0);
                    if state + 1 < width {
                        left = log_add(left, after(1));
                    }
                    if state + 2 < width && self.may_skip(state + 2) {
                        left = log_add(left, after(2));
                    }
                    left
                };
            }
        }
        beta
    }

    /// Returns the logarithm of the probability of the labels.
    fn log_probability(&self, alpha: &[f64]) -> f64 {
        let width = self.states.len();
        if self.steps == 0 {
            return if width == 1 { 0.0 } else { f64::NEG_INFINITY };
        }
        let end = &alpha[(self.steps - 1) * width..];
        let last = end[width - 1];
        if width == 1 {
            last
        } else {
            log_add(last, end[width - 2])
        }
    }

    /// Adds the cotangents of the logarithms.
    fn differentiate(&self, dloss: f32, gradient: &mut [f32]) {
        let (alpha, beta) = (self.forward(), self.backward());
        let total = self.log_probability(&alpha);
        if total == f64::NEG_INFINITY {
            return;
        }
        let width = self.states.len();
        let mut slopes = vec![0.0; self.classes];
        for step in 0..self.steps {
            slopes.fill(0.0);
            for (state, &class) in self.states.iter().enumerate() {
                let i = step * width + state;
                slopes[class] += (alpha[i] + beta[i] - total).exp();
            }
            let row = &mut gradient[step * self.classes..][..self.classes];
            for (gradient, slope) in row.iter_mut().zip(&slopes) {
                *gradient = (-slope * f64::from(dloss)) as f32;
            }
        }
    }
}

/// Returns `log(e^a + e^b)`.
fn log_add(a: f64, b: f64) -> f64 {
    let (low, high) = if a < b { (a, b) } else { (b, a) };
    if low == f64::NEG_INFINITY {
        return high;
    }
    high + (low - high).exp().ln_1p()
}

fn within(name: &str, found: i32, most: usize) -> Result<usize, Failure> {
    match usize::try_from(found) {
        Ok(number) if number <= most => Ok(number),
        _ => Err(invalid(format!(
            "expected {name} from 0 to {most}, found {found}"
        ))),
    }
}
