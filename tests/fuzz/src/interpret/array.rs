//! Arrays, and their comparison with the executor's results.

use callbox::{ArrayShape, ElementType};
use half::{bf16, f16};

use super::elements::{Element, rounded};

/// An array: its elements' bytes in row-major order.
#[derive(Clone, Debug)]
pub(crate) struct Array {
    pub(crate) shape: ArrayShape,
    pub(crate) bytes: Vec<u8>,
}

/// The allowed deviation of a result.
#[derive(Clone, Debug)]
pub(crate) enum Tolerance {
    /// Equal bytes.
    Bits,
    /// Equal numbers; NaNs may differ. 16-bit types may be 1 ULP off, because they may be rounded
    /// through a wider type.
    Exact,
    /// This many representable values.
    Ulps(i128),
    /// This distance for each element, plus one representable value.
    Near(Vec<f64>),
    /// This distance for each element, plus one representable value. Elements without a distance
    /// are not compared.
    Distance(Vec<Option<f64>>),
    /// For each part of a complex number this share of the element's magnitude, if everything is
    /// finite.
    Relative(f64),
}

impl Array {
    pub(crate) fn new(shape: ArrayShape, bytes: Vec<u8>) -> Self {
        assert_eq!(bytes.len(), shape.byte_size(), "{shape}");
        Self { shape, bytes }
    }

    /// Computes each element from its row-major index, rounded to the element type.
    pub(crate) fn compute(shape: &ArrayShape, f: impl Fn(usize) -> Element) -> Self {
        let t = shape.element_type();
        let bytes = (0..shape.element_count()).flat_map(|i| encode(t, f(i)));
        Self::new(shape.clone(), bytes.collect())
    }

    /// Returns an element's bytes.
    pub(crate) fn raw(&self, i: usize) -> &[u8] {
        let width = self.shape.element_type().byte_width();
        &self.bytes[i * width..(i + 1) * width]
    }

    /// Returns an element.
    pub(crate) fn element(&self, i: usize) -> Element {
        decode(self.shape.element_type(), self.raw(i))
    }

    /// Returns an integer element.
    pub(crate) fn integer(&self, i: usize) -> i128 {
        match self.element(i) {
            Element::Integer(x) => x,
            other => panic!("expected an integer, found {other:?}"),
        }
    }

    /// Returns the row-major position of an index.
    pub(crate) fn number(&self, index: &[usize]) -> usize {
        number(self.shape.dimensions(), index)
    }

    /// Checks elements within the tolerance.
    pub(crate) fn check(&self, found: &[u8], tolerance: &Tolerance) -> Result<(), String> {
        let t = self.shape.element_type();
        assert_eq!(found.len(), self.bytes.len(), "{}", self.shape);
        let width = t.byte_width().max(1);
        for (i, found) in found.chunks(width).enumerate() {
            let expected = self.raw(i);
            let is_right = expected == found
                || match tolerance {
                    Tolerance::Bits => false,
                    Tolerance::Distance(distances) => {
                        distances[i].is_none_or(|distance| is_within(t, expected, found, distance))
                    }
                    _ if t.is_complex() => complex_is_near(t, expected, found, tolerance),
                    Tolerance::Near(bounds) => real_is_near(t, expected, found, 1, bounds[i]),
                    Tolerance::Ulps(ulps) => real_is_near(t, expected, found, *ulps, 0.0),
                    Tolerance::Exact | Tolerance::Relative(_) => {
                        real_is_near(t, expected, found, slack(t), 0.0)
                    }
                };
            if !is_right {
                return Err(format!(
                    "element {i} of {}: expected {:?} ({expected:02x?}), found {:?} ({found:02x?}), with {tolerance:?}",
                    self.shape,
                    decode(t, expected),
                    decode(t, found)
                ));
            }
        }
        Ok(())
    }
}

/// Returns how many representable values a rounding through another type can be off.
fn slack(t: ElementType) -> i128 {
    match t {
        ElementType::F16 | ElementType::Bf16 => 1,
        _ => 0,
    }
}

fn real_is_near(t: ElementType, expected: &[u8], found: &[u8], ulps: i128, bound: f64) -> bool {
    if !t.is_floating() {
        return expected == found;
    }
    match (ordinal(t, expected), ordinal(t, found)) {
        (None, None) => true,
        (Some(a), Some(b)) => {
            let (Element::Real(x), Element::Real(y)) = (decode(t, expected), decode(t, found))
            else {
                return false;
            };
            (a - b).abs() <= ulps.max(slack(t))
                && (ulps > 0 || slack(t) > 0 || x.is_sign_negative() == y.is_sign_negative())
                || (x - y).abs() <= bound
        }
        _ => false,
    }
}

/// Compares numbers, each part of complex ones by itself.
fn is_within(t: ElementType, expected: &[u8], found: &[u8], distance: f64) -> bool {
    let part = if t.is_complex() { part_of(t) } else { t };
    let parts = expected.chunks(part.byte_width());
    parts.zip(found.chunks(part.byte_width())).all(|(x, y)| {
        let (Element::Real(a), Element::Real(b)) = (decode(part, x), decode(part, y)) else {
            return x == y;
        };
        real_is_near(part, x, y, 1, distance) || (a - b).abs() <= distance
    })
}

/// Compares complex numbers. Infinite, NaN and nearly infinite parts are not compared, because
/// implementations differ.
fn complex_is_near(t: ElementType, expected: &[u8], found: &[u8], tolerance: &Tolerance) -> bool {
    let (Element::Complex(a), Element::Complex(b)) = (decode(t, expected), decode(t, found)) else {
        return false;
    };
    let part = part_of(t);
    let half = expected.len() / 2;
    let is_part =
        |of: std::ops::Range<usize>| real_is_near(part, &expected[of.clone()], &found[of], 0, 0.0);
    match tolerance {
        Tolerance::Relative(share) => {
            let size = a.norm();
            // A large share allows for cancellation in the plain formula, which leaves tiny values
            // meaningless.
            let least = if *share < 0.01 { 1e-30 } else { 1e-3 };
            let is_plain = size < 1e30 && size > least;
            !is_plain || (a - b).norm() <= share * size
        }
        _ => is_part(0..half) && is_part(half..2 * half),
    }
}

/// Returns the type of a complex number's parts.
fn part_of(t: ElementType) -> ElementType {
    match t {
        ElementType::C64 => ElementType::F32,
        _ => ElementType::F64,
    }
}

/// Returns a float's position among its type's values. Both zeros have the same position; NaN has
/// none.
fn ordinal(t: ElementType, bytes: &[u8]) -> Option<i128> {
    let Element::Real(x) = decode(t, bytes) else {
        return None;
    };
    let sign = 1_i128 << (t.bit_width() - 1);
    let bits = bytes
        .iter()
        .rev()
        .fold(0, |bits, &byte| bits << 8 | i128::from(byte));
    (!x.is_nan()).then_some(if bits < sign { bits } else { sign - bits })
}

/// Returns the row-major position of an index.
pub(crate) fn number(dimensions: &[usize], index: &[usize]) -> usize {
    assert_eq!(dimensions.len(), index.len());
    let pairs = std::iter::zip(dimensions, index);
    pairs.fold(0, |number, (&size, &i)| {
        assert!(i < size, "{index:?} in {dimensions:?}");
        number * size + i
    })
}

/// Returns all indices in row-major order.
pub(crate) fn indices(dimensions: &[usize]) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    for &size in dimensions {
        let longer = |index: &Vec<usize>| {
            let index = index.clone();
            (0..size).map(move |i| [index.as_slice(), &[i]].concat())
        };
        all = all.iter().flat_map(longer).collect();
    }
    all
}

/// Decodes an element.
pub(crate) fn decode(t: ElementType, bytes: &[u8]) -> Element {
    let word = |bytes: &[u8]| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(word)
    };
    let real = |t: ElementType, bytes: &[u8]| match t {
        ElementType::F16 => f16::from_bits(word(bytes) as u16).to_f64(),
        ElementType::Bf16 => bf16::from_bits(word(bytes) as u16).to_f64(),
        ElementType::F32 => f32::from_bits(word(bytes) as u32).into(),
        ElementType::F64 => f64::from_bits(word(bytes)),
        other => panic!("{other} is not interpreted"),
    };
    if t.is_complex() {
        let (part, half) = (part_of(t), bytes.len() / 2);
        return Element::Complex(num_complex::Complex::new(
            real(part, &bytes[..half]),
            real(part, &bytes[half..]),
        ));
    }
    match t {
        ElementType::Pred => Element::Integer((bytes[0] != 0).into()),
        t if t.is_integral() => rounded(t, Element::Integer(word(bytes).into())),
        t => Element::Real(real(t, bytes)),
    }
}

/// Encodes an element, rounded to its type.
pub(crate) fn encode(t: ElementType, element: Element) -> Vec<u8> {
    let real = |t: ElementType, x: f64| match t {
        ElementType::F16 => f16::from_f64(x).to_le_bytes().to_vec(),
        ElementType::Bf16 => bf16::from_f64(x).to_le_bytes().to_vec(),
        ElementType::F32 => (x as f32).to_le_bytes().to_vec(),
        ElementType::F64 => x.to_le_bytes().to_vec(),
        other => panic!("{other} is not interpreted"),
    };
    match (t, rounded(t, element)) {
        (ElementType::Pred, Element::Integer(x)) => vec![u8::from(x != 0)],
        (t, Element::Integer(x)) => x.to_le_bytes()[..t.byte_width()].to_vec(),
        (t, Element::Real(x)) => real(t, x),
        (t, Element::Complex(z)) => {
            let part = part_of(t);
            [real(part, z.re), real(part, z.im)].concat()
        }
    }
}
