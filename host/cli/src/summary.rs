//! The summary of an array: first elements, least, greatest and mean.

use std::fmt::Display;

use callbox::{ArrayShape, ElementType, Literal, Result};
use num_complex::Complex;

use super::convert::convert;

/// The most elements that are shown.
const SHOWN: usize = 8;

/// The number of elements that are decoded at a time.
const CHUNK: usize = 1 << 16;

/// Describes an array on one or two lines.
pub(super) fn lines(shape: &ArrayShape, bytes: &[u8]) -> Result<Vec<String>> {
    let element_type = shape.element_type();
    if element_type == ElementType::Token {
        return Ok(Vec::new());
    }
    if bytes.is_empty() {
        return Ok(vec!["no elements".to_owned()]);
    }
    let width = element_type.byte_width();
    let first = decode(element_type, &bytes[..bytes.len().min(SHOWN * width)])?;
    let more = if shape.element_count() > SHOWN {
        ", ..."
    } else {
        ""
    };
    let mut lines = vec![first.texts(element_type).join(", ") + more];
    if shape.rank() > 0 {
        let mut statistics = Statistics::default();
        for chunk in bytes.chunks(CHUNK * width) {
            statistics.add(&decode(element_type, chunk)?);
        }
        lines.push(statistics.text(element_type));
    }
    Ok(lines)
}

/// Elements, widened to a type that holds all values of their type.
pub(super) enum Values {
    Truths(Vec<bool>),
    Integers(Vec<i128>),
    Reals(Vec<f64>),
    Complexes(Vec<Complex<f64>>),
}

/// Decodes at least one element.
pub(super) fn decode(element_type: ElementType, bytes: &[u8]) -> Result<Values> {
    let count = bytes.len() / element_type.byte_width();
    let shape = ArrayShape::new(element_type, &[count])?;
    let array = Literal::from_bytes(shape, bytes.to_vec())?;
    Ok(match element_type {
        ElementType::Pred => Values::Truths(array.to_vec()?),
        ElementType::C64 => {
            let values = array.to_vec::<Complex<f32>>()?.into_iter();
            let wide = |z: Complex<f32>| Complex::new(z.re.into(), z.im.into());
            Values::Complexes(values.map(wide).collect())
        }
        ElementType::C128 => Values::Complexes(array.to_vec()?),
        _ if element_type.is_signed_integral() => {
            let values = convert(array, ElementType::S64)?.to_vec::<i64>()?;
            Values::Integers(values.into_iter().map(i128::from).collect())
        }
        _ if element_type.is_unsigned_integral() => {
            let values = convert(array, ElementType::U64)?.to_vec::<u64>()?;
            Values::Integers(values.into_iter().map(i128::from).collect())
        }
        _ => Values::Reals(convert(array, ElementType::F64)?.to_vec()?),
    })
}

impl Values {
    /// Each element for a person.
    pub(super) fn texts(&self, element_type: ElementType) -> Vec<String> {
        fn each<T: Copy>(values: &[T], text: impl Fn(T) -> String) -> Vec<String> {
            values.iter().map(|&value| text(value)).collect()
        }
        match self {
            Self::Truths(values) => each(values, |x| x.to_string()),
            Self::Integers(values) => each(values, |x| x.to_string()),
            Self::Reals(values) => each(values, |x| real(x, element_type)),
            Self::Complexes(values) => each(values, |z| complex(z, element_type)),
        }
    }
}

/// Statistics of the elements so far. Integer sums are exact: 128 bits do not overflow.
#[derive(Default)]
struct Statistics {
    count: usize,
    /// The number of true values.
    true_count: usize,
    integers: Option<(i128, i128)>,
    integer_sum: i128,
    /// The range of real numbers, or of the magnitudes of complex ones.
    reals: Option<(f64, f64)>,
    sum: Complex<f64>,
    nan_count: usize,
}

impl Statistics {
    fn add(&mut self, values: &Values) {
        match values {
            Values::Truths(values) => {
                self.count += values.len();
                self.true_count += values.iter().filter(|&&x| x).count();
            }
            Values::Integers(values) => {
                self.count += values.len();
                for &x in values {
                    let (least, greatest) = self.integers.unwrap_or((x, x));
                    self.integers = Some((least.min(x), greatest.max(x)));
                    self.integer_sum += x;
                }
            }
            Values::Reals(values) => values.iter().for_each(|&x| self.number(x, x.into())),
            Values::Complexes(values) => values.iter().for_each(|&z| self.number(z.norm(), z)),
        }
    }

    /// Adds a number. `size` orders it among the others.
    fn number(&mut self, size: f64, value: Complex<f64>) {
        self.count += 1;
        if value.is_nan() {
            self.nan_count += 1;
            return;
        }
        let (least, greatest) = self.reals.unwrap_or((size, size));
        self.reals = Some((least.min(size), greatest.max(size)));
        self.sum += value;
    }

    fn text(&self, element_type: ElementType) -> String {
        if element_type.is_pred() {
            return format!("true: {} of {}", self.true_count, self.count);
        }
        if let Some((least, greatest)) = self.integers {
            let mean = self.integer_sum as f64 / self.count as f64;
            return range("", least, greatest, format!("{mean:?}"));
        }
        let Some((least, greatest)) = self.reals else {
            return "all NaN".to_owned();
        };
        let mean = self.sum / (self.count - self.nan_count) as f64;
        let (least, greatest) = (real(least, element_type), real(greatest, element_type));
        let text = if element_type.is_complex() {
            range("magnitude ", least, greatest, complex(mean, element_type))
        } else {
            range("", least, greatest, real(mean.re, element_type))
        };
        match self.nan_count {
            0 => text,
            nan => format!("{text} (without NaN: {nan} of {})", self.count),
        }
    }
}

fn range(of: &str, least: impl Display, greatest: impl Display, mean: String) -> String {
    format!("{of}min {least}, {of}max {greatest}, mean {mean}")
}

/// The shortest digits that identify a number of its type, or of F32 for narrower types.
fn real(x: f64, element_type: ElementType) -> String {
    match element_type {
        ElementType::F64 | ElementType::C128 => format!("{x:?}"),
        _ => format!("{:?}", x as f32),
    }
}

fn complex(z: Complex<f64>, element_type: ElementType) -> String {
    let sign = if z.im.is_sign_negative() { '-' } else { '+' };
    let (re, im) = (real(z.re, element_type), real(z.im.abs(), element_type));
    format!("{re}{sign}{im}i")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use callbox::NativeType;
    use half::bf16;

    fn check<T: NativeType>(elements: &[T], expected: &[&str]) {
        let array = Literal::array(&[elements.len()], elements).unwrap();
        let shape = array.shape().as_array().unwrap();
        assert_eq!(lines(shape, array.bytes().unwrap()).unwrap(), expected);
    }

    #[test]
    fn numbers_are_described() {
        check(
            &[0.1f32, -2.0, 1e30],
            &["0.1, -2.0, 1e30", "min -2.0, max 1e30, mean 3.3333334e29"],
        );
        check(
            &[0.1f64, 0.2],
            &["0.1, 0.2", "min 0.1, max 0.2, mean 0.15000000000000002"],
        );
        check(
            &[bf16::from_f32(0.1)],
            &[
                "0.100097656",
                "min 0.100097656, max 0.100097656, mean 0.100097656",
            ],
        );
        check(
            &[i64::MAX, i64::MAX - 1],
            &[
                "9223372036854775807, 9223372036854775806",
                "min 9223372036854775806, max 9223372036854775807, mean 9.223372036854776e18",
            ],
        );
        check(
            &[u64::MAX],
            &[
                "18446744073709551615",
                "min 18446744073709551615, max 18446744073709551615, mean 1.8446744073709552e19",
            ],
        );
        check(
            &[1u8, 2, 3, 4, 5, 6, 7, 8, 9],
            &["1, 2, 3, 4, 5, 6, 7, 8, ...", "min 1, max 9, mean 5.0"],
        );
        check::<f32>(&[], &["no elements"]);
    }

    #[test]
    fn other_kinds_are_described() {
        check(&[true, false, true], &["true, false, true", "true: 2 of 3"]);
        check(
            &[f32::NAN, 1.0, f32::INFINITY],
            &[
                "NaN, 1.0, inf",
                "min 1.0, max inf, mean inf (without NaN: 1 of 3)",
            ],
        );
        check(&[f64::NAN], &["NaN", "all NaN"]);
        check(
            &[Complex::new(3.0f32, -4.0), Complex::new(0.0, 0.0)],
            &[
                "3.0-4.0i, 0.0+0.0i",
                "magnitude min 0.0, magnitude max 5.0, mean 1.5-2.0i",
            ],
        );
        let scalar = Literal::scalar(2.5f32);
        let shape = scalar.shape().as_array().unwrap();
        assert_eq!(lines(shape, scalar.bytes().unwrap()).unwrap(), ["2.5"]);
        // F8E4M3FN: 1.75 * 2^8, the greatest.
        let shape = ArrayShape::new(ElementType::F8e4m3fn, &[2]).unwrap();
        let expected = [
            "448.0, NaN",
            "min 448.0, max 448.0, mean 448.0 (without NaN: 1 of 2)",
        ];
        assert_eq!(lines(&shape, &[0x7e, 0x7f]).unwrap(), expected);
        assert!(
            lines(&ArrayShape::scalar(ElementType::Token), &[])
                .unwrap()
                .is_empty()
        );
    }

    #[test]
    fn all_chunks_count() {
        let elements: Vec<i32> = (0..CHUNK as i32 + 2).collect();
        let array = Literal::array(&[elements.len()], &elements).unwrap();
        let shape = array.shape().as_array().unwrap();
        let lines = lines(shape, array.bytes().unwrap()).unwrap();
        assert_eq!(lines[1], "min 0, max 65537, mean 32768.5");
    }
}
