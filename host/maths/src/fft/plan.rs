//! What transforms of one length need besides their row: roots of unity, and buffers.

use std::f64::consts::PI;

use super::pass::{Pass, pass};
use crate::PIECE;
use crate::rows::Real;

/// Complex numbers, as two arrays.
pub(super) struct Buffer<T> {
    pub(super) re: Vec<T>,
    pub(super) im: Vec<T>,
}

impl<T: Real> Buffer<T> {
    pub(super) fn zeros(length: usize) -> Self {
        let zeros = || vec![T::ZERO; length];
        Self {
            re: zeros(),
            im: zeros(),
        }
    }

    /// Multiplies each number by one of another buffer.
    fn multiply(&mut self, other: &Self) {
        let others = other.re.iter().zip(&other.im);
        for ((re, im), (a, b)) in self.re.iter_mut().zip(&mut self.im).zip(others) {
            (*re, *im) = (*re * *a - *im * *b, *re * *b + *im * *a);
        }
    }
}

/// The roots of unity `e^(-2 pi i k / n)`: the product of one of few roots near 1 and one of few
/// that are far apart, each of them computed in F64.
struct Roots {
    order: usize,
    near: Vec<[f64; 2]>,
    far: Vec<[f64; 2]>,
}

/// The roots near 1.
const NEAR: usize = 256;

impl Roots {
    fn new(order: usize) -> Self {
        let root = |k: usize| {
            // An angle of at most an eighth turn, and the quarters beside it.
            let eighths = 8 * k / order;
            let quarters = eighths.div_ceil(2);
            let rest = 4 * k as i64 - (quarters * order) as i64;
            let angle = -PI / 2.0 * rest as f64 / order as f64;
            let (sin, cos) = (libm::sin(angle), libm::cos(angle));
            match quarters % 4 {
                0 => [cos, sin],
                1 => [sin, -cos],
                2 => [-cos, -sin],
                _ => [-sin, cos],
            }
        };
        Self {
            order,
            near: (0..NEAR.min(order)).map(root).collect(),
            far: (0..order.div_ceil(NEAR)).map(|k| root(k * NEAR)).collect(),
        }
    }

    /// The root with this number, modulo the order.
    fn get(&self, number: usize) -> [f64; 2] {
        let number = number % self.order;
        let ([a, b], [c, d]) = (self.far[number / NEAR], self.near[number % NEAR]);
        [a * c - b * d, a * d + b * c]
    }
}

/// Transforms of one length.
pub(super) struct Plan<T> {
    passes: Vec<Pass<T>>,
    other: Buffer<T>,
    convolution: Option<Box<Convolution<T>>>,
}

impl<T: Real> Plan<T> {
    pub(super) fn new<E>(
        points: usize,
        pause: &mut dyn FnMut(usize) -> Result<(), E>,
    ) -> Result<Self, E> {
        let Some(factors) = factors(points) else {
            return Ok(Self {
                passes: Vec::new(),
                other: Buffer::zeros(0),
                convolution: Some(Box::new(Convolution::new(points, pause)?)),
            });
        };
        let roots = Roots::new(points);
        let mut passes = Vec::with_capacity(factors.len());
        let mut stride = 1;
        for factor in factors {
            let groups = points / stride / factor;
            let mut twiddles = Buffer::zeros(0);
            for group in 0..groups {
                for k in 1..factor {
                    let [re, im] = roots.get(group * k * stride);
                    twiddles.re.push(T::from_f64(re));
                    twiddles.im.push(T::from_f64(im));
                }
                pause(factor)?;
            }
            passes.push(Pass {
                factor,
                stride,
                groups,
                twiddles: [twiddles.re, twiddles.im],
            });
            stride *= factor;
        }
        Ok(Self {
            passes,
            other: Buffer::zeros(points),
            convolution: None,
        })
    }

    /// Replaces the row by its transform.
    pub(super) fn run<E>(
        &mut self,
        row: &mut Buffer<T>,
        pause: &mut dyn FnMut(usize) -> Result<(), E>,
    ) -> Result<(), E> {
        if let Some(convolution) = &mut self.convolution {
            return convolution.run(row, pause);
        }
        for step in &self.passes {
            // A piece of a pass takes some PIECE numbers.
            let most = (PIECE / step.stride / step.factor).max(1);
            for first in (0..step.groups).step_by(most) {
                let groups = first..step.groups.min(first + most);
                let numbers = groups.len() * step.stride * step.factor;
                pass(step, groups, row, &mut self.other);
                pause(2 * numbers)?;
            }
            std::mem::swap(row, &mut self.other);
        }
        Ok(())
    }
}

/// The factors 4, 2, 3 and 5 of a length that has no others.
fn factors(mut length: usize) -> Option<Vec<usize>> {
    let mut factors = Vec::new();
    for factor in [4, 2, 3, 5] {
        while length.is_multiple_of(factor) {
            factors.push(factor);
            length /= factor;
        }
    }
    (length == 1).then_some(factors)
}

/// A transform of any length `n` as a convolution: `jk = (j^2 + k^2 - (k - j)^2) / 2`.
///
/// The row is multiplied by the chirp `e^(-pi i k^2 / n)`, convolved with its conjugate, and
/// multiplied by the chirp again.
struct Convolution<T> {
    chirp: Buffer<T>,
    /// The transform of the chirp's conjugate, divided by its length.
    spectrum: Buffer<T>,
    padded: Buffer<T>,
    plan: Plan<T>,
}

impl<T: Real> Convolution<T> {
    fn new<E>(points: usize, pause: &mut dyn FnMut(usize) -> Result<(), E>) -> Result<Self, E> {
        let length = (2 * points - 1).next_power_of_two();
        let mut plan = Plan::new(length, pause)?;
        let roots = Roots::new(2 * points);
        let mut chirp = Buffer::zeros(points);
        let mut spectrum = Buffer::zeros(length);
        let scale = 1.0 / length as f64;
        for k in 0..points {
            let [re, im] = roots.get(k * k);
            (chirp.re[k], chirp.im[k]) = (T::from_f64(re), T::from_f64(im));
            for place in [k, (length - k) % length] {
                spectrum.re[place] = T::from_f64(re * scale);
                spectrum.im[place] = T::from_f64(-im * scale);
            }
            pause(2)?;
        }
        plan.run(&mut spectrum, pause)?;
        Ok(Self {
            chirp,
            spectrum,
            padded: Buffer::zeros(length),
            plan,
        })
    }

    fn run<E>(
        &mut self,
        row: &mut Buffer<T>,
        pause: &mut dyn FnMut(usize) -> Result<(), E>,
    ) -> Result<(), E> {
        let (points, padded) = (row.re.len(), &mut self.padded);
        row.multiply(&self.chirp);
        for (padded, row) in [(&mut padded.re, &row.re), (&mut padded.im, &row.im)] {
            padded[..points].copy_from_slice(row);
            padded[points..].fill(T::ZERO);
        }
        pause(2 * padded.re.len())?;
        self.plan.run(padded, pause)?;
        padded.multiply(&self.spectrum);
        pause(2 * padded.re.len())?;
        // The inverse transform, by exchanging the parts.
        std::mem::swap(&mut padded.re, &mut padded.im);
        self.plan.run(padded, pause)?;
        row.re.copy_from_slice(&padded.im[..points]);
        row.im.copy_from_slice(&padded.re[..points]);
        row.multiply(&self.chirp);
        pause(2 * points)
    }
}
