//! LU and QR factors of matrices, as LAPACK computes and stores them.

use super::linear::{Check, Field};
use callbox_core::values::Result;

/// A matrix of this many rows and columns, row-major.
pub(super) struct Matrix<'a, T> {
    pub(super) values: &'a mut [T],
    pub(super) rows: usize,
    pub(super) columns: usize,
}

impl<T: Field> Matrix<'_, T> {
    fn get(&self, i: usize, j: usize) -> T {
        self.values[i * self.columns + j]
    }

    fn set(&mut self, i: usize, j: usize, value: T) {
        self.values[i * self.columns + j] = value;
    }

    /// `getrf`: replaces the matrix by L, without its diagonal of ones, and U. `pivots` gets the
    /// row, from 1 on, that each row was swapped with. Gives the number of the first pivot that is
    /// 0, or 0.
    pub(super) fn lu(&mut self, pivots: &mut Vec<i32>, check: Check<'_>) -> Result<i32> {
        let mut zero = 0;
        for k in 0..self.rows.min(self.columns) {
            check()?;
            let mut pivot = k;
            for i in k + 1..self.rows {
                if self.get(i, k).size() > self.get(pivot, k).size() {
                    pivot = i;
                }
            }
            pivots.push(pivot as i32 + 1);
            if self.get(pivot, k).size() == 0.0 {
                zero = if zero == 0 { k as i32 + 1 } else { zero };
                continue;
            }
            for j in 0..self.columns {
                let (x, y) = (self.get(k, j), self.get(pivot, j));
                self.set(k, j, y);
                self.set(pivot, j, x);
            }
            for i in k + 1..self.rows {
                let scale = self.get(i, k).over(self.get(k, k));
                self.set(i, k, scale);
                for j in k + 1..self.columns {
                    self.set(i, j, self.get(i, j) - scale * self.get(k, j));
                }
            }
        }
        Ok(zero)
    }

    /// `geqrf`: replaces the matrix by R and, below it, the reflectors without their leading ones.
    /// `scales` gets the reflectors' factors.
    pub(super) fn qr(&mut self, scales: &mut Vec<T>, check: Check<'_>) -> Result<()> {
        for k in 0..self.rows.min(self.columns) {
            check()?;
            let scale = self.reflector(k);
            scales.push(scale);
            let diagonal = self.get(k, k);
            self.set(k, k, T::of_real(1.0));
            for j in k + 1..self.columns {
                self.reflect(k, j, scale.conjugate());
            }
            self.set(k, k, diagonal);
        }
        Ok(())
    }

    /// `orgqr`: replaces reflectors by the first columns of their product.
    pub(super) fn product(&mut self, scales: &[T], check: Check<'_>) -> Result<()> {
        let (zero, one) = (T::of_real(0.0), T::of_real(1.0));
        for j in scales.len()..self.columns {
            for i in 0..self.rows {
                self.set(i, j, if i == j { one } else { zero });
            }
        }
        for (k, &scale) in scales.iter().enumerate().rev() {
            check()?;
            self.set(k, k, one);
            for j in k + 1..self.columns {
                self.reflect(k, j, scale);
            }
            for i in 0..self.rows {
                let value = match i.cmp(&k) {
                    std::cmp::Ordering::Less => zero,
                    std::cmp::Ordering::Equal => one - scale,
                    std::cmp::Ordering::Greater => zero - scale * self.get(i, k),
                };
                self.set(i, k, value);
            }
        }
        Ok(())
    }

    /// `larfg`: the reflector that makes column `k` zero below row `k`. Stores it there, and the
    /// element that is left in row `k`. Gives its scale.
    fn reflector(&mut self, k: usize) -> T {
        let first = self.get(k, k);
        let below = (k + 1..self.rows).map(|i| self.get(i, k));
        let norm = below.fold(0.0, |norm, x| {
            libm::hypot(libm::hypot(norm, x.real()), x.imaginary())
        });
        if norm == 0.0 && first.imaginary() == 0.0 {
            return T::of_real(0.0);
        }
        let length = libm::hypot(libm::hypot(first.real(), first.imaginary()), norm);
        let left = -length.copysign(first.real());
        let scale = (T::of_real(left) - first).over(T::of_real(left));
        let divisor = first - T::of_real(left);
        for i in k + 1..self.rows {
            self.set(i, k, self.get(i, k).over(divisor));
        }
        self.set(k, k, T::of_real(left));
        scale
    }

    /// Applies `1 - scale v v*` to column `j`, where `v` is column `k` from row `k` on.
    fn reflect(&mut self, k: usize, j: usize, scale: T) {
        let product = (k..self.rows).map(|i| self.get(i, k).conjugate() * self.get(i, j));
        let product = product.fold(T::of_real(0.0), |sum, x| sum + x) * scale;
        for i in k..self.rows {
            self.set(i, j, self.get(i, j) - self.get(i, k) * product);
        }
    }
}
