//! Discrete Fourier transforms of rows.
//!
//! A length whose prime factors are 2, 3 and 5 is transformed by Stockham's algorithm: one pass
//! over the row for each factor, from one buffer to the other, which leaves the results in order.
//! Other lengths become a convolution (Bluestein's algorithm), which takes two such transforms of a
//! power of two for each row. All machines compute the same terms in the same order.

mod pass;
mod plan;

use std::fmt;

pub use callbox_abi::Transform;

use self::plan::{Buffer, Plan};
use crate::rows::{Element, Work};

/// The most points of a transform.
pub const MOST_POINTS: usize = 1 << 16;

/// Why rows cannot be transformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong(pub usize);

impl fmt::Display for TooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = self.0;
        write!(
            f,
            "expected a transform of at most {MOST_POINTS} points, found {found}"
        )
    }
}

impl std::error::Error for TooLong {}

/// Transforms of one length.
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    transform: Transform,
    points: usize,
}

impl Rows {
    /// Transforms of `points` points.
    ///
    /// # Errors
    /// [`TooLong`] for more than [`MOST_POINTS`].
    pub fn new(transform: Transform, points: usize) -> Result<Self, TooLong> {
        if points > MOST_POINTS {
            return Err(TooLong(points));
        }
        Ok(Self { transform, points })
    }

    /// The numbers of a row of the operand, two for each complex one.
    #[must_use]
    pub fn columns_of_x(self) -> usize {
        match self.transform {
            Transform::Forward | Transform::Inverse => 2 * self.points,
            Transform::RealForward => self.points,
            Transform::RealInverse => self.half(),
        }
    }

    /// The numbers of a row of the result, two for each complex one.
    #[must_use]
    pub fn columns_of_y(self) -> usize {
        match self.transform {
            Transform::Forward | Transform::Inverse => 2 * self.points,
            Transform::RealForward => self.half(),
            Transform::RealInverse => self.points,
        }
    }

    /// The numbers of the points that determine a transform of real numbers.
    fn half(self) -> usize {
        if self.points == 0 {
            0
        } else {
            2 * (self.points / 2 + 1)
        }
    }

    /// Transforms each row of `x` to a row of `y`, as far as both go.
    ///
    /// # Errors
    /// The error of `pause`.
    pub fn transform<T: Element, E>(
        self,
        x: &[T],
        y: &mut [T],
        pause: &mut dyn FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        if self.points == 0 {
            return Ok(());
        }
        let mut work = Work::default();
        let pause: &mut dyn FnMut(usize) -> Result<(), E> =
            &mut |elements| work.did(elements, pause);
        let mut plan = Plan::new(self.points, pause)?;
        let mut row = Buffer::zeros(self.points);
        let rows = x.chunks_exact(self.columns_of_x());
        for (x, y) in rows.zip(y.chunks_exact_mut(self.columns_of_y())) {
            self.read(x, &mut row);
            pause(self.points)?;
            plan.run(&mut row, pause)?;
            self.write(&row, y);
            pause(self.points)?;
        }
        Ok(())
    }

    /// Reads a row. An inverse transform is a forward one whose real and imaginary parts are
    /// exchanged.
    fn read<T: Element>(self, x: &[T], row: &mut Buffer<T>) {
        let Buffer { re, im } = row;
        match self.transform {
            Transform::Forward => split(x, re, im),
            Transform::Inverse => split(x, im, re),
            Transform::RealForward => {
                re.copy_from_slice(x);
                im.fill(T::ZERO);
            }
            Transform::RealInverse => {
                let known = x.len() / 2;
                split(x, &mut im[..known], &mut re[..known]);
                // The points that are their own conjugates are real.
                re[0] = T::ZERO;
                if self.points.is_multiple_of(2) {
                    re[known - 1] = T::ZERO;
                }
                for point in known..self.points {
                    im[point] = im[self.points - point];
                    re[point] = T::ZERO - re[self.points - point];
                }
            }
        }
    }

    fn write<T: Element>(self, row: &Buffer<T>, y: &mut [T]) {
        let factor = T::from_f64(1.0 / self.points as f64);
        let Buffer { re, im } = row;
        match self.transform {
            Transform::Forward | Transform::RealForward => join(re, im, y, |x| x),
            Transform::Inverse => join(im, re, y, |x| x * factor),
            Transform::RealInverse => {
                for (y, x) in y.iter_mut().zip(im) {
                    *y = (*x * factor).canonical();
                }
            }
        }
    }
}

/// Splits complex numbers into their parts.
fn split<T: Copy>(x: &[T], re: &mut [T], im: &mut [T]) {
    for ((x, re), im) in x.as_chunks::<2>().0.iter().zip(re).zip(im) {
        [*re, *im] = *x;
    }
}

/// Joins the parts of complex numbers, as far as `y` goes.
fn join<T: Element>(re: &[T], im: &[T], y: &mut [T], scale: impl Fn(T) -> T) {
    for ((y, re), im) in y.as_chunks_mut::<2>().0.iter_mut().zip(re).zip(im) {
        *y = [scale(*re).canonical(), scale(*im).canonical()];
    }
}
