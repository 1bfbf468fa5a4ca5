//! Softmax over rows, apart from the FFI: the same source runs natively, as the baseline of benchmarks.

use crate::real::Real;

/// How many elements are worked on side by side in a long row: a whole number of vector registers for every type and
/// machine, and enough of them to hide how long an addition takes.
const LANES: usize = 16;

/// How many elements are worked on side by side in what is left of a row.
const FEW_LANES: usize = 4;

/// How many elements are added up before the sum goes to one in F64: few enough that rounding does not pile up.
const BLOCK: usize = 64 * LANES;

/// Writes to `y` the softmax of each row of `x`, of `length` elements: `e^(x - max) / sum(e^(x - max))`.
///
/// As `jax.nn.softmax` has it, a row with a NaN or with plus infinity becomes NaN throughout, a row of minus infinities
/// too, and minus infinity in another row becomes zero. `x` and `y` have the same length, a multiple of `length`;
/// what is past the last whole row is left as it is.
pub fn softmax<T: Real>(x: &[T], length: usize, y: &mut [T]) {
    if length == 0 {
        return;
    }
    for (x, y) in x.chunks_exact(length).zip(y.chunks_exact_mut(length)) {
        let max = max(x);
        let sum = exponentials(x, max, y);
        for y in y {
            *y /= sum;
        }
    }
}

/// The greatest element that is a number; minus infinity if there is none.
fn max<T: Real>(x: &[T]) -> T {
    let (many, rest) = x.as_chunks::<LANES>();
    let (few, rest) = rest.as_chunks::<FEW_LANES>();
    let (single, _) = rest.as_chunks::<1>();
    let max = greater(max_of_chunks(many), max_of_chunks(few));
    greater(max, max_of_chunks(single))
}

#[inline]
fn max_of_chunks<T: Real, const N: usize>(x: &[[T; N]]) -> T {
    let mut lanes = [T::NEG_INFINITY; N];
    for x in x {
        for lane in 0..N {
            lanes[lane] = greater(lanes[lane], x[lane]);
        }
    }
    fold(lanes, greater)
}

/// The greater of the two, and `a` where `b` is NaN.
#[inline]
fn greater<T: Real>(a: T, b: T) -> T {
    if b > a { b } else { a }
}

/// Writes `e^(x - max)` to `y`, scaled, and returns the sum, scaled as well.
fn exponentials<T: Real>(x: &[T], max: T, y: &mut [T]) -> T {
    let mut sum = 0.0;
    for (x, y) in x.chunks(BLOCK).zip(y.chunks_mut(BLOCK)) {
        let (many, rest) = x.as_chunks::<LANES>();
        let (few, rest) = rest.as_chunks::<FEW_LANES>();
        let (single, _) = rest.as_chunks::<1>();
        let (many_out, rest) = y.as_chunks_mut::<LANES>();
        let (few_out, rest) = rest.as_chunks_mut::<FEW_LANES>();
        let (single_out, _) = rest.as_chunks_mut::<1>();
        sum += exponentials_of_chunks(many, max, many_out)
            + exponentials_of_chunks(few, max, few_out)
            + exponentials_of_chunks(single, max, single_out);
    }
    T::from_f64(sum)
}

#[inline]
fn exponentials_of_chunks<T: Real, const N: usize>(x: &[[T; N]], max: T, y: &mut [[T; N]]) -> f64 {
    let mut sums = [T::ZERO; N];
    for (x, y) in x.iter().zip(y) {
        for lane in 0..N {
            y[lane] = T::exp_scaled(x[lane] - max);
            sums[lane] += y[lane];
        }
    }
    fold(sums.map(Into::into), |a: f64, b| a + b)
}

/// All lanes in one, by halves.
#[inline]
fn fold<T: Copy, const N: usize>(mut lanes: [T; N], f: impl Fn(T, T) -> T) -> T {
    let mut width = N / 2;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] = f(lanes[lane], lanes[lane + width]);
        }
        width /= 2;
    }
    lanes[0]
}
