//! Literals of cases: values, bytes, a generating rule or a file.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use callbox::{ArrayShape, ElementType, Literal};
use serde::Deserialize;
use serde_json::Value;

use crate::{element, npy};

/// The JSON of a literal: `tuple` alone, or `shape` with exactly one of the other keys.
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

/// A rule that computes each element from its index.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Rule {
    /// Element `i` is `i`, converted to the type. Integers wrap.
    Iota,
    /// Element `i` is `i / 8 - 16`. Floating-point types only.
    Ramp,
    /// Element `i` is [`scattered`]: irregular numbers of both signs with a long period.
    Scatter,
}

/// Reads a literal. The files that it names are in `folder`.
///
/// # Errors
/// A malformed literal.
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

/// Makes a literal from its elements in row-major order.
///
/// # Errors
/// A wrong number of elements, or a value that the type does not have.
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

/// Decodes hexadecimal text. White space is ignored.
///
/// # Errors
/// A character that is not a hexadecimal digit, or an odd number of digits.
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
    let (part, count) = element::parts(shape.element_type());
    let parts = 0..shape.element_count() * count;
    let bytes: Option<Vec<_>> = parts.map(|i| of_index(part, rule, i)).collect();
    let has_rule = count == 1 || matches!(rule, Rule::Scatter);
    let bytes = bytes
        .filter(|_| has_rule)
        .with_context(|| format!("expected a shape that the rule fits exactly, found {shape}"))?;
    Ok(Literal::from_bytes(shape.clone(), bytes.concat())?)
}

/// Returns the rule's element at index `i`, if the type has that value.
fn of_index(ty: ElementType, rule: Rule, i: usize) -> Option<Vec<u8>> {
    match rule {
        Rule::Iota if ty.is_integral() => element::encode_integer(ty, wrap(ty, i as i128)),
        Rule::Iota if ty.is_floating() => element::encode_float(ty, i as f64),
        Rule::Ramp if ty.is_floating() => element::encode_float(ty, i as f64 / 8.0 - 16.0),
        Rule::Scatter if ty == ElementType::Pred => Some(vec![(scattered(i) & 1) as u8]),
        Rule::Scatter if ty.is_integral() => element::encode_integer(ty, wrap(ty, scattered(i))),
        Rule::Scatter if ty.is_floating() => element::encode_float(ty, scattered(i) as f64 / 4.0),
        _ => None,
    }
}

/// Returns `37 i` modulo 101, minus 50: a number from -50 to 50.
fn scattered(i: usize) -> i128 {
    (37 * i as i128) % 101 - 50
}

/// Wraps an integer to the type's range.
fn wrap(ty: ElementType, value: i128) -> i128 {
    let modulus = 1 << ty.bit_width();
    let wrapped = value.rem_euclid(modulus);
    let is_negative = ty.is_signed_integral() && wrapped >= modulus / 2;
    if is_negative {
        wrapped - modulus
    } else {
        wrapped
    }
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
        let scatter =
            |ty: &str| literal(&format!(r#"{{"shape": "{ty}", "rule": "scatter"}}"#)).unwrap();
        let floats = scatter("f16[4]").to_vec::<half::f16>().unwrap();
        let floats: Vec<f32> = floats.into_iter().map(f32::from).collect();
        assert_eq!(floats, [-12.5, -3.25, 6.0, -10.0]);
        assert_eq!(
            scatter("s8[4]").to_vec::<i8>().unwrap(),
            [-50, -13, 24, -40]
        );
        assert_eq!(scatter("u8[2]").to_vec::<u8>().unwrap(), [206, 243]);
        assert_eq!(
            scatter("pred[3]").to_vec::<bool>().unwrap(),
            [false, true, false]
        );
        let complex = scatter("c64[2]");
        let parts = scatter("f32[4]");
        assert_eq!(complex.bytes(), parts.bytes());
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
            r#"{"shape": "c64[1]", "rule": "iota"}"#,
            r#"{"shape": "f8e4m3fn[10]", "rule": "scatter"}"#,
            r#"{"shape": "f32[1]", "vales": [1]}"#,
            r#"{"tuple": [], "shape": "f32[1]"}"#,
        ] {
            assert!(literal(text).is_err(), "{text}");
        }
    }
}
