//! Compares actual results with expected ones.
//!
//! With a tolerance of 0 ULPs, elements are equal if their bits are equal or both are NaN; +0 and
//! -0 then differ. With a larger tolerance, a floating-point element, or each part of a complex
//! one, may be that many representable values away; +0 and -0 count as one value, and infinity as
//! the neighbour of the largest finite value. Integers and PRED always compare exactly.

use callbox::{ArrayShape, ElementType};

use crate::element;

/// The number of differing elements that a mismatch describes.
const SHOWN: usize = 8;

/// The difference between two arrays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// The shapes differ.
    Shape {
        /// The expected shape.
        expected: ArrayShape,
        /// The actual shape.
        found: ArrayShape,
    },
    /// The number of bytes does not match the shape.
    Size {
        /// The bytes that the shape takes.
        expected: usize,
        /// The actual number of bytes.
        found: usize,
    },
    /// Elements differ.
    Elements {
        /// The common shape.
        shape: ArrayShape,
        /// The tolerance.
        ulps: u64,
        /// The number of differing elements.
        count: usize,
        /// The first differing elements.
        first: Vec<Element>,
        /// The largest distance.
        farthest: String,
    },
}

/// A differing element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Element {
    /// Its index, such as `[0,1]`.
    pub index: String,
    /// The expected value, with its bits.
    pub expected: String,
    /// The actual value, with its bits.
    pub found: String,
    /// The distance between them.
    pub distance: String,
}

/// Compares the elements of two dense, row-major arrays.
///
/// # Errors
/// The mismatch: the number of differing elements, the first of them, and the largest distance.
pub fn compare(
    expected: (&ArrayShape, &[u8]),
    found: (&ArrayShape, &[u8]),
    ulps: u64,
) -> Result<(), Mismatch> {
    let shape = expected.0;
    if !shape.is_compatible(found.0) {
        return Err(Mismatch::Shape {
            expected: shape.clone(),
            found: found.0.clone(),
        });
    }
    let ty = shape.element_type();
    let width = ty.byte_width();
    if width == 0 {
        return Ok(());
    }
    if let Some(bytes) = [expected.1, found.1]
        .into_iter()
        .find(|bytes| bytes.len() != shape.byte_size())
    {
        return Err(Mismatch::Size {
            expected: shape.byte_size(),
            found: bytes.len(),
        });
    }
    let elements = std::iter::zip(expected.1.chunks_exact(width), found.1.chunks_exact(width));
    let mut count = 0;
    let mut first = Vec::new();
    let mut farthest = Distance::Steps(0);
    for (i, (expected, found)) in elements.enumerate() {
        let distance = distance(ty, expected, found);
        if distance.is_within(ulps) {
            continue;
        }
        count += 1;
        farthest = farthest.max(distance);
        if first.len() < SHOWN {
            first.push(Element {
                index: index(shape, i),
                expected: element::show(ty, expected),
                found: element::show(ty, found),
                distance: distance.to_string(),
            });
        }
    }
    if count == 0 {
        return Ok(());
    }
    Err(Mismatch::Elements {
        shape: shape.clone(),
        ulps,
        count,
        first,
        farthest: farthest.to_string(),
    })
}

/// The distance between two elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Distance {
    /// A number of representable values. 0 means equal bits, or NaN on both sides.
    Steps(u128),
    /// Zeros of opposite sign.
    ZeroSign,
    /// NaN against a number, or types that compare exactly.
    Other,
}

impl Distance {
    fn is_within(self, ulps: u64) -> bool {
        match self {
            Self::Steps(steps) => steps <= u128::from(ulps),
            Self::ZeroSign => ulps > 0,
            Self::Other => false,
        }
    }
}

impl std::fmt::Display for Distance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Steps(steps) => write!(f, "{steps} ULPs apart"),
            Self::ZeroSign => f.write_str("zeros of either sign"),
            Self::Other => f.write_str("not comparable in ULPs"),
        }
    }
}

fn distance(element_type: ElementType, expected: &[u8], found: &[u8]) -> Distance {
    let (part, count) = element::parts(element_type);
    let width = expected.len() / count;
    let parts = std::iter::zip(expected.chunks_exact(width), found.chunks_exact(width));
    let distances = parts.map(|(expected, found)| part_distance(part, expected, found));
    distances.max().unwrap_or(Distance::Steps(0))
}

fn part_distance(element_type: ElementType, expected: &[u8], found: &[u8]) -> Distance {
    if expected == found {
        return Distance::Steps(0);
    }
    if !element_type.is_floating() {
        return Distance::Other;
    }
    match (
        element::ordinal(element_type, expected),
        element::ordinal(element_type, found),
    ) {
        (None, None) => Distance::Steps(0),
        (Some(a), Some(b)) if a == b => Distance::ZeroSign,
        (Some(a), Some(b)) => Distance::Steps(a.abs_diff(b)),
        _ => Distance::Other,
    }
}

/// Formats an element's index, such as `[0,1]`.
fn index(shape: &ArrayShape, element: usize) -> String {
    let mut rest = element;
    let mut numbers: Vec<String> = Vec::new();
    for &dimension in shape.dimensions().iter().rev() {
        numbers.push((rest % dimension).to_string());
        rest /= dimension;
    }
    numbers.reverse();
    format!("[{}]", numbers.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use callbox::Literal;
    use num_complex::Complex;

    /// Describes how two literals differ, and the first differing element.
    fn difference(expected: &Literal, found: &Literal, ulps: u64) -> Option<String> {
        match compare_leaves(expected, found, ulps).err()? {
            Mismatch::Shape { expected, found } => Some(format!("{expected}, {found}")),
            Mismatch::Size { expected, found } => Some(format!("{expected}, {found}")),
            Mismatch::Elements {
                count,
                first,
                farthest,
                ..
            } => {
                let Element {
                    index,
                    expected,
                    found,
                    distance,
                } = &first[0];
                Some(format!(
                    "{count}, at {index}: {expected}, {found}, {distance}; {farthest}"
                ))
            }
        }
    }

    #[track_caller]
    fn check(expected: &Literal, found: &Literal, ulps: u64, message: Option<&str>) {
        assert_eq!(difference(expected, found, ulps).as_deref(), message);
    }

    #[test]
    fn ulps_are_representable_values() {
        let x = Literal::array(&[2, 2], &[1.0_f32, 2.0, f32::MAX, 0.0]).unwrap();
        let above = [1.0 + 2.0 * f32::EPSILON, 2.0, f32::INFINITY, -0.0];
        let y = Literal::array(&[2, 2], &above).unwrap();
        check(&x, &x, 0, None);
        check(&x, &y, 2, None);
        check(
            &x,
            &y,
            1,
            Some("1, at [0,0]: 1 (0x3f800000), 1.0000002 (0x3f800002), 2 ULPs apart; 2 ULPs apart"),
        );
    }

    #[test]
    fn bits_count_when_no_difference_is_allowed() {
        let zeros = |x: f64| Literal::scalar(x);
        check(
            &zeros(0.0),
            &zeros(-0.0),
            0,
            Some(
                "1, at []: 0 (0x0000000000000000), -0 (0x8000000000000000), zeros of either sign; zeros of either sign",
            ),
        );
        check(&zeros(0.0), &zeros(-0.0), 1, None);
        let other_nan = f64::from_bits(f64::NAN.to_bits() | 1);
        check(&zeros(f64::NAN), &zeros(-other_nan), 0, None);
    }

    #[test]
    fn nan_is_never_near_a_number_and_integers_are_exact() {
        let x = Literal::scalar(f32::NAN);
        assert!(compare_leaves(&x, &Literal::scalar(f32::INFINITY), u64::MAX).is_err());
        assert!(
            compare_leaves(&Literal::scalar(1_i32), &Literal::scalar(2_i32), u64::MAX).is_err()
        );
        assert!(compare_leaves(&Literal::scalar(true), &Literal::scalar(false), u64::MAX).is_err());
    }

    #[test]
    fn the_first_elements_that_differ_are_described() {
        let x = Literal::array(&[10], &[0_i32; 10]).unwrap();
        let y = Literal::array(&[10], &[1_i32; 10]).unwrap();
        let Err(Mismatch::Elements { count, first, .. }) = compare_leaves(&x, &y, 0) else {
            panic!("expected elements to differ");
        };
        assert_eq!((count, first.len()), (10, SHOWN));
        assert_eq!(first[7].index, "[7]");
    }

    #[test]
    fn complex_parts_are_compared_one_by_one() {
        let x = Literal::scalar(Complex::new(1.0_f32, 0.0));
        let y = Literal::scalar(Complex::new(1.0 + f32::EPSILON, -0.0));
        assert!(compare_leaves(&x, &y, 1).is_ok());
        assert!(compare_leaves(&x, &y, 0).is_err());
    }

    #[test]
    fn shapes_must_agree() {
        let x = Literal::scalar(1.0_f32);
        check(&x, &Literal::scalar(1.0_f64), 0, Some("f32[], f64[]"));
    }

    fn compare_leaves(x: &Literal, y: &Literal, ulps: u64) -> Result<(), Mismatch> {
        let (x, y) = (x.leaves().next().unwrap(), y.leaves().next().unwrap());
        compare(x, y, ulps)
    }
}
