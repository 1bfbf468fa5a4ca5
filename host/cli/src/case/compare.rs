//! Compares the results of a case with the expected ones.

use callbox::{ArrayShape, ElementType, Literal, Result};
use num_complex::Complex;

use crate::summary::{Values, decode};

/// How many elements are decoded at a time.
const CHUNK: usize = 1 << 16;

/// How far floating-point elements may be from the expected ones, as in NumPy's `allclose`: by
/// `atol + rtol * |expected|`. Other elements must be equal.
///
/// Without a tolerance (the default), values must be equal.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tolerance {
    rtol: f64,
    atol: f64,
}

impl Tolerance {
    /// # Errors
    /// A value is negative, infinite or NaN.
    pub fn new(rtol: f64, atol: f64) -> Result<Self, String> {
        for (key, value) in [("rtol", rtol), ("atol", atol)] {
            if !(value.is_finite() && value >= 0.0) {
                return Err(format!("expected `{key}` of at least 0, found {value}"));
            }
        }
        Ok(Self { rtol, atol })
    }

    /// A tolerance that is as wide as each of these. Without any, values must be equal.
    pub(crate) fn widest(tolerances: impl Iterator<Item = Self>) -> Self {
        tolerances.fold(Self::default(), |widest, one| Self {
            rtol: widest.rtol.max(one.rtol),
            atol: widest.atol.max(one.atol),
        })
    }

    /// Without a tolerance, zeros of opposite sign differ. NaN equals NaN.
    fn accepts(self, expected: f64, found: f64) -> bool {
        if expected.to_bits() == found.to_bits() || expected.is_nan() && found.is_nan() {
            return true;
        }
        let is_exact = self.rtol == 0.0 && self.atol == 0.0;
        let most = self.atol + self.rtol * expected.abs();
        // Infinities and NaN are near nothing else: their difference is not finite.
        !is_exact && (expected == found || expected.is_finite() && (found - expected).abs() <= most)
    }
}

/// Compares two arrays, in row-major order.
///
/// # Errors
/// How many elements differ, and the first of them.
pub fn compare(
    shape: &ArrayShape,
    expected: &[u8],
    found: (&ArrayShape, &[u8]),
    tolerance: Tolerance,
) -> Result<(), String> {
    let (found_shape, found) = found;
    if !shape.is_compatible(found_shape) || expected.len() != found.len() {
        return Err(format!("expected {shape}, found {found_shape}"));
    }
    let width = shape.element_type().byte_width();
    if shape.element_type() == ElementType::Token || width == 0 {
        return Ok(());
    }
    let mut differences = Differences::default();
    let chunks = std::iter::zip(expected.chunks(CHUNK * width), found.chunks(CHUNK * width));
    for (chunk, (expected, found)) in chunks.enumerate() {
        let add = differences.add(shape, chunk * CHUNK, expected, found, tolerance);
        add.map_err(|status| status.message().to_owned())?;
    }
    match differences.first {
        None => Ok(()),
        Some(first) => Err(format!(
            "{} of {} elements differ, the first at {first}",
            differences.count,
            shape.element_count()
        )),
    }
}

#[derive(Default)]
struct Differences {
    count: usize,
    /// The first difference, for a person.
    first: Option<String>,
}

impl Differences {
    /// Adds the differences of a chunk that begins with the element `start`.
    fn add(
        &mut self,
        shape: &ArrayShape,
        start: usize,
        expected: &[u8],
        found: &[u8],
        tolerance: Tolerance,
    ) -> Result<()> {
        if expected == found {
            return Ok(());
        }
        let element_type = shape.element_type();
        let pair = (
            decode(element_type, expected)?,
            decode(element_type, found)?,
        );
        let near = |x, y| tolerance.accepts(x, y);
        let near_complex =
            |x: &Complex<f64>, y: &Complex<f64>| near(x.re, y.re) && near(x.im, y.im);
        let (count, first) = match &pair {
            (Values::Truths(x), Values::Truths(y)) => differing(x, y, |x, y| x == y),
            (Values::Integers(x), Values::Integers(y)) => differing(x, y, |x, y| x == y),
            (Values::Reals(x), Values::Reals(y)) => differing(x, y, |&x, &y| near(x, y)),
            (Values::Complexes(x), Values::Complexes(y)) => differing(x, y, near_complex),
            // Both have the same element type.
            _ => (0, None),
        };
        self.count += count;
        if let (None, Some(at)) = (&self.first, first) {
            let width = element_type.byte_width();
            let text = |bytes: &[u8]| -> Result<String> {
                let element = &bytes[at * width..(at + 1) * width];
                let texts = decode(element_type, element)?.texts(element_type);
                Ok(texts.concat())
            };
            self.first = Some(format!(
                "{}: expected {}, found {}",
                index(shape, start + at),
                text(expected)?,
                text(found)?
            ));
        }
        Ok(())
    }
}

/// How many elements differ, and the first of them.
fn differing<T>(x: &[T], y: &[T], is_equal: impl Fn(&T, &T) -> bool) -> (usize, Option<usize>) {
    let mut differing = std::iter::zip(x, y)
        .enumerate()
        .filter(|(_, (x, y))| !is_equal(x, y));
    let first = differing.next().map(|(at, _)| at);
    (differing.count() + usize::from(first.is_some()), first)
}

/// The index of an element, such as `[0,1]`.
fn index(shape: &ArrayShape, element: usize) -> String {
    let mut rest = element;
    let mut numbers = Vec::new();
    for &dimension in shape.dimensions().iter().rev() {
        numbers.push((rest % dimension).to_string());
        rest /= dimension;
    }
    numbers.reverse();
    format!("[{}]", numbers.join(","))
}

/// Compares the arrays of a result with the expected ones.
///
/// # Errors
/// The first result that differs, and how.
pub(super) fn compare_results(
    expected: &[Literal],
    found: &Literal,
    tolerance: Tolerance,
) -> Result<(), String> {
    let expected: Vec<_> = expected.iter().flat_map(Literal::leaves).collect();
    let found: Vec<_> = found.leaves().collect();
    if expected.len() != found.len() {
        return Err(format!(
            "expected {} results, found {}",
            expected.len(),
            found.len()
        ));
    }
    for (number, ((shape, bytes), found)) in std::iter::zip(expected, found).enumerate() {
        compare(shape, bytes, found, tolerance)
            .map_err(|difference| format!("result {number}: {difference}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tolerances_are_those_of_allclose() {
        let exact = Tolerance {
            rtol: 0.0,
            atol: 0.0,
        };
        let near = Tolerance {
            rtol: 0.1,
            atol: 0.5,
        };
        for (expected, found, is_exact, is_near) in [
            (1.0, 1.0, true, true),
            (10.0, 11.5, false, true),
            (10.0, 11.6, false, false),
            (0.0, -0.0, false, true),
            (f64::NAN, -f64::NAN, true, true),
            (f64::NAN, 0.0, false, false),
            (0.0, f64::NAN, false, false),
            (f64::INFINITY, f64::INFINITY, true, true),
            (f64::INFINITY, f64::MAX, false, false),
            (f64::INFINITY, f64::NEG_INFINITY, false, false),
            (1.0, f64::INFINITY, false, false),
        ] {
            assert_eq!(
                exact.accepts(expected, found),
                is_exact,
                "{expected} {found}"
            );
            assert_eq!(near.accepts(expected, found), is_near, "{expected} {found}");
        }
        for wrong in [-1.0, f64::NAN, f64::INFINITY] {
            assert!(Tolerance::new(wrong, 0.0).is_err(), "{wrong}");
            assert!(Tolerance::new(0.0, wrong).is_err(), "{wrong}");
        }
    }
}
