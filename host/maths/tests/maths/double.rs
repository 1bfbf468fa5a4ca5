//! Numbers with twice the digits of F64.

/// A number as the sum of two, of which the second is at most half a unit of the first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Double(pub(crate) f64, pub(crate) f64);

impl Double {
    /// The exact sum of two numbers.
    pub(crate) fn sum(a: f64, b: f64) -> Self {
        let s = a + b;
        let b_part = s - a;
        Self(s, (a - (s - b_part)) + (b - b_part))
    }

    /// The exact product of two numbers.
    pub(crate) fn product(a: f64, b: f64) -> Self {
        let p = a * b;
        Self(p, a.mul_add(b, -p))
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        let high = Self::sum(self.0, other.0);
        let low = Self::sum(self.1, other.1);
        let carried = Self::sum(high.0, high.1 + low.0);
        Self::sum(carried.0, carried.1 + low.1)
    }

    pub(crate) fn times(self, other: Self) -> Self {
        let p = Self::product(self.0, other.0);
        Self::sum(p.0, p.1 + (self.0 * other.1 + self.1 * other.0))
    }

    pub(crate) fn negated(self) -> Self {
        Self(-self.0, -self.1)
    }

    pub(crate) fn over(self, other: Self) -> Self {
        let mut quotient = Self(self.0 / other.0, 0.0);
        for _ in 0..2 {
            let rest = self.plus(other.times(quotient).negated());
            quotient = quotient.plus(Self(rest.0 / other.0, 0.0));
        }
        quotient
    }

    pub(crate) fn root(self) -> Self {
        let mut root = Self(self.0.sqrt(), 0.0);
        for _ in 0..2 {
            let rest = self.plus(root.times(root).negated());
            root = root.plus(Self(rest.0 / (2.0 * root.0), 0.0));
        }
        root
    }

    /// The exponential, by Taylor's series of `x / 1024`, which is squared ten times.
    pub(crate) fn exp(self) -> Self {
        let x = Self(self.0 / 1024.0, self.1 / 1024.0);
        let mut sum = Self(1.0, 0.0);
        for n in (1..=20).rev() {
            sum = Self(1.0, 0.0).plus(sum.times(x).over(Self(f64::from(n), 0.0)));
        }
        (0..10).fold(sum, |sum, _| sum.times(sum))
    }
}

impl std::iter::Sum for Double {
    fn sum<I: Iterator<Item = Self>>(terms: I) -> Self {
        terms.fold(Self(0.0, 0.0), Self::plus)
    }
}

/// The difference in units in the last place of the exact number.
pub(crate) fn ulps(found: f64, exact: Double) -> f64 {
    let unit = exact.0.abs().next_up() - exact.0.abs();
    ((found - exact.0) - exact.1).abs() / unit
}
