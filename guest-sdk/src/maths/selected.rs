//! Functions of one element that become vectors in loops, where those of the standard library call
//! a function for each element.

/// A floating-point number that [`max`], [`min`] and [`round`] take: [`f32`] or [`f64`].
///
/// ```
/// use callbox_guest::maths::{self, Real};
///
/// fn relu<T: Real + Default>(x: T) -> T {
///     maths::max(x, T::default())
/// }
///
/// assert_eq!((relu(-1.0_f32), relu(2.0_f64)), (0.0, 2.0));
/// ```
pub trait Real: Copy + PartialOrd + super::sealed::Sealed {
    #[doc(hidden)]
    fn rounded(self) -> Self;
}

macro_rules! reals {
    ($($type:ident: $whole:literal;)*) => {$(
        impl Real for $type {
            #[inline]
            fn rounded(self) -> Self {
                // From here on all numbers are whole, so that a sum with it is rounded to a whole
                // number, of two to the even one.
                const WHOLE: $type = $whole;
                let size = self.abs();
                let even = (size + WHOLE) - WHOLE;
                let rounded = if size - even == 0.5 { even + 1.0 } else { even };
                if size < WHOLE { rounded.copysign(self) } else { self }
            }
        }
    )*};
}

reals! {
    f32: 8_388_608.0;
    f64: 4_503_599_627_370_496.0;
}

/// The greater number, as `f32::max` has it: of a NaN and a number the number. Of zeros with
/// different signs it is the second.
///
/// ```
/// use callbox_guest::maths;
///
/// assert_eq!(maths::max(1.0_f32, 2.0), 2.0);
/// assert_eq!(maths::max(f32::NAN, 2.0), 2.0);
/// ```
#[inline]
#[must_use]
pub fn max<T: Real>(a: T, b: T) -> T {
    let greater = if a > b { a } else { b };
    if is_nan(b) { a } else { greater }
}

/// The smaller number, as `f32::min` has it: of a NaN and a number the number. Of zeros with
/// different signs it is the second.
///
/// ```
/// use callbox_guest::maths;
///
/// assert_eq!(maths::min(1.0_f32, 2.0), 1.0);
/// assert_eq!(maths::min(2.0, f64::NAN), 2.0);
/// ```
#[inline]
#[must_use]
pub fn min<T: Real>(a: T, b: T) -> T {
    let smaller = if a < b { a } else { b };
    if is_nan(b) { a } else { smaller }
}

/// The nearest whole number, and of two the one farther from zero, as `f32::round` has it.
///
/// ```
/// use callbox_guest::maths;
///
/// assert_eq!([0.5_f32, -2.5, 0.499].map(maths::round), [1.0, -3.0, 0.0]);
/// ```
#[inline]
#[must_use]
pub fn round<T: Real>(x: T) -> T {
    x.rounded()
}

#[allow(
    clippy::eq_op,
    reason = "a NaN is the one number that differs from itself"
)]
#[inline]
fn is_nan<T: Real>(x: T) -> bool {
    x != x
}
