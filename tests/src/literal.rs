//! Literals as cases write them: values, bytes, a rule or a file.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use callbox::{ArrayShape, ElementType, Literal};
use serde::Deserialize;
use serde_json::Value;

use crate::{element, npy};

/// A literal's JSON. `tuple` stands alone; of the others, `shape` and one more are there.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LiteralText {
    shape: Option<String>,
    values: Option<Vec<Value>>,
    hex: Option<String>,
    rule: Option<Rule>,
    file: Option<String>,
    tuple: Option<Vec<LiteralText>>,
}

/// How elements are made from their number.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Rule {
    /// Element `i` is `i`, converted to the type: integers wrap.
    Iota,
    /// Element `i` is `i / 8 - 16`, for floating-point types.
    Ramp,
}

/// Reads a literal. Files lie in `folder`.
///
/// # Errors
/// What is wrong with it.
pub fn read(text: LiteralText, folder: &Path) -> Result<Literal> {
    if let Some(elements) = text.tuple {
        ensure!(
            text.shape.is_none()
                && text.values.is_none()
                && text.hex.is_none()
                && text.rule.is_none()
                && text.file.is_none(),
            "expected nothing beside tuple"
        );
        let elements = elements.into_iter().map(|element| read(element, folder));
        return Ok(Literal::tuple(elements.collect::<Result<_>>()?)?);
    }
    let shape = text.shape.context("expected a shape")?;
    let shape: ArrayShape = shape.parse().with_context(|| format!("shape {shape:?}"))?;
    match (text.values, text.hex, text.rule, text.file) {
        (Some(values), None, None, None) => of_values(&shape, &values),
        (None, Some(hex), None, None) => Ok(Literal::from_bytes(shape, bytes_of_hex(&hex)?)?),
        (None, None, Some(rule), None) => of_rule(&shape, rule),
        (None, None, None, Some(file)) => {
            let path = folder.join(&file);
            npy::read(&path, &shape).with_context(|| format!("cannot read {file}"))
        }
        _ => bail!("expected exactly one of values, hex, rule and file"),
    }
}

/// A literal of these elements, in row-major order.
///
/// # Errors
/// A wrong number of elements, or one that the type lacks.
pub fn of_values(shape: &ArrayShape, values: &[Value]) -> Result<Literal> {
    ensure!(
        values.len() == shape.element_count() || shape.element_type() == ElementType::Token,
        "expected {} values for {shape}, found {}",
        shape.element_count(),
        values.len()
    );
    let elements = values
        .iter()
        .enumerate()
        .map(|(i, value)| {
            element::encode(shape.element_type(), value).with_context(|| format!("value {i}"))
        })
        .collect::<Result<Vec<_>>>()?;
    Ok(Literal::from_bytes(shape.clone(), elements.concat())?)
}

/// Bytes in hexadecimal. Blanks between them are left out.
///
/// # Errors
/// What is not a digit, and an odd number of them.
pub fn bytes_of_hex(text: &str) -> Result<Vec<u8>> {
    let digits: Vec<u32> = text
        .chars()
        .filter(|c| !c.is_whitespace())
        .map(|c| {
            c.to_digit(16)
                .with_context(|| format!("expected a hexadecimal digit, found {c:?}"))
        })
        .collect::<Result<_>>()?;
    ensure!(
        digits.len().is_multiple_of(2),
        "expected two digits for each byte, found {} digits",
        digits.len()
    );
    Ok(digits
        .chunks_exact(2)
        .map(|pair| (pair[0] << 4 | pair[1]) as u8)
        .collect())
}

fn of_rule(shape: &ArrayShape, rule: Rule) -> Result<Literal> {
    let element_type = shape.element_type();
    let element = |i: usize| -> Option<Vec<u8>> {
        match rule {
            Rule::Iota if element_type.is_integral() => {
                let bits = element_type.bit_width();
                let wrapped = i as i128 & ((1 << bits) - 1);
                let is_negative = element_type.is_signed_integral() && wrapped >> (bits - 1) != 0;
                element::encode_integer(
                    element_type,
                    if is_negative {
                        wrapped - (1 << bits)
                    } else {
                        wrapped
                    },
                )
            }
            Rule::Iota if element_type.is_floating() => {
                element::encode_float(element_type, i as f64)
            }
            Rule::Ramp if element_type.is_floating() => {
                element::encode_float(element_type, i as f64 / 8.0 - 16.0)
            }
            _ => None,
        }
    };
    let elements: Option<Vec<_>> = (0..shape.element_count()).map(element).collect();
    let elements = elements
        .with_context(|| format!("expected a shape that the rule fits exactly, found {shape}"))?;
    Ok(Literal::from_bytes(shape.clone(), elements.concat())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn literal(text: &str) -> Result<Literal> {
        read(serde_json::from_str(text)?, Path::new("."))
    }

    #[test]
    fn every_form_is_read() {
        let x = literal(r#"{"shape": "s16[2]", "values": [1, -2]}"#).unwrap();
        assert_eq!(x.to_vec::<i16>().unwrap(), [1, -2]);
        assert_eq!(
            x,
            literal(r#"{"shape": "s16[2]", "hex": "0100 feff"}"#).unwrap()
        );
        let ramp = literal(r#"{"shape": "f32[3]", "rule": "ramp"}"#).unwrap();
        assert_eq!(ramp.to_vec::<f32>().unwrap(), [-16.0, -15.875, -15.75]);
        let iota = literal(r#"{"shape": "s8[130]", "rule": "iota"}"#).unwrap();
        assert_eq!(iota.to_vec::<i8>().unwrap()[126..], [126, 127, -128, -127]);
        let tuple =
            literal(r#"{"tuple": [{"shape": "u8[]", "values": [7]}, {"tuple": []}]}"#).unwrap();
        assert_eq!(tuple.shape().to_string(), "(u8[], ())");
        let token = literal(r#"{"shape": "token[]", "values": []}"#).unwrap();
        assert_eq!(token.bytes(), Some(&[][..]));
    }

    #[test]
    fn wrong_literals_are_refused() {
        for text in [
            r#"{"shape": "f32[2]", "values": [1]}"#,
            r#"{"shape": "f32[1]", "values": [1], "hex": "00000000"}"#,
            r#"{"shape": "f32[1]"}"#,
            r#"{"values": [1]}"#,
            r#"{"shape": "f32[1]", "hex": "0000000"}"#,
            r#"{"shape": "f32[1]", "hex": "0000000g"}"#,
            r#"{"shape": "f32[1]", "rule": "random"}"#,
            r#"{"shape": "s32[1]", "rule": "ramp"}"#,
            r#"{"shape": "f16[4098]", "rule": "iota"}"#,
            r#"{"shape": "f32[1]", "vales": [1]}"#,
            r#"{"tuple": [], "shape": "f32[1]"}"#,
        ] {
            assert!(literal(text).is_err(), "{text}");
        }
    }
}
