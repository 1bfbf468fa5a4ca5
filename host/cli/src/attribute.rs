//! Attributes on the command line: `NAME=VALUE[:TYPE]`, where VALUE is JSON, MLIR's text, or an
//! array in a file.

mod fields;
mod other;

use callbox::call::AttributeSignature;
use callbox::{ArrayShape, Attribute, Dictionary, ElementType, Literal, Status};
use serde_json::Value;

use crate::arrays::ArrayFile;
use crate::convert::convert;
use crate::failure::Outcome;

/// An attribute as the command line has it.
#[derive(Clone, Debug)]
pub(super) struct AttributeArgument {
    pub(super) name: String,
    value: AttributeValue,
}

#[derive(Clone, Debug)]
enum AttributeValue {
    Json(Value, Option<ElementType>),
    Mlir(Attribute),
    File(ArrayFile),
}

impl AttributeArgument {
    /// The attribute. Without types of its own, it has those that the target declares, and so have
    /// the fields of a dictionary.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if the declared type does not have the value; a file that cannot be read.
    pub(super) fn typed(&self, declared: Option<&AttributeSignature>) -> Outcome<Attribute> {
        let context = || format!("the attribute `{}`", self.name);
        match &self.value {
            AttributeValue::Json(value, None) => Ok(fields::typed(&self.name, value, declared)?),
            AttributeValue::Json(value, own_type) => {
                let typed = attribute(value, *own_type).map_err(Status::invalid_argument);
                Ok(typed.map_err(|status| status.context(context()))?)
            }
            AttributeValue::Mlir(attribute) => Ok(attribute.clone()),
            AttributeValue::File(file) => {
                let element_type = declared.and_then(|declared| declared.element_type);
                let read = file.read(element_type).map(of_literal);
                read.map_err(|failure| failure.context(context()))
            }
        }
    }
}

/// Reads `NAME=VALUE[:TYPE]`.
pub(super) fn parse(text: &str) -> Result<AttributeArgument, String> {
    let split = text.split_once('=').filter(|(name, _)| !name.is_empty());
    let (name, value) =
        split.ok_or_else(|| format!("expected NAME=VALUE or NAME=VALUE:TYPE, found {text:?}"))?;
    let value = match value.strip_prefix('@') {
        Some(file) => AttributeValue::File(other::file(file)?),
        None => json(value).or_else(|message| {
            let attribute = other::mlir(value).ok_or(message)?;
            Ok::<_, String>(AttributeValue::Mlir(attribute))
        })?,
    };
    Ok(AttributeArgument {
        name: name.to_owned(),
        value,
    })
}

fn json(text: &str) -> Result<AttributeValue, String> {
    let (value, element_type) = typed_json(text)?;
    attribute(&value, element_type)?;
    Ok(AttributeValue::Json(value, element_type))
}

/// Reads `VALUE` or `VALUE:TYPE`, where VALUE is JSON.
fn typed_json(text: &str) -> Result<(Value, Option<ElementType>), String> {
    let (json, element_type) = split_type(text);
    let value = serde_json::from_str(json).map_err(|error| wrong_json(json, &error))?;
    Ok((value, element_type))
}

/// An array written on the command line in JSON: a list, nested lists, or one element.
#[derive(Clone, Debug)]
pub(super) struct ListArgument {
    value: Value,
    element_type: Option<ElementType>,
}

impl ListArgument {
    /// Reads `[1,2,3]` or `[1,2,3]:TYPE`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (value, element_type) = typed_json(text)?;
        Ok(Self {
            value,
            element_type,
        })
    }

    /// Reads a number or a truth value, alone or followed by `:TYPE`. Other texts name files.
    pub(super) fn scalar(text: &str) -> Option<Self> {
        let list = Self::parse(text).ok()?;
        matches!(list.value, Value::Bool(_) | Value::Number(_)).then_some(list)
    }

    /// The array. Without a type of its own, it has the expected one.
    pub(super) fn literal(&self, expected: Option<ElementType>) -> callbox::Result<Literal> {
        let element_type = match self.element_type.or(expected) {
            Some(element_type) => Ok(element_type),
            None => default_type(&self.value),
        };
        let literal = element_type.and_then(|element_type| array(&self.value, element_type));
        literal.map_err(Status::invalid_argument)
    }
}

/// Splits the value from its type. A colon that no type's name follows belongs to the value.
fn split_type(text: &str) -> (&str, Option<ElementType>) {
    let split = text.rsplit_once(':');
    let typed = split.and_then(|(json, name)| Some((json, type_named(name.trim())?)));
    typed.map_or((text, None), |(json, element_type)| {
        (json, Some(element_type))
    })
}

/// The element type of this name: XLA's, or MLIR's.
pub(super) fn type_named(name: &str) -> Option<ElementType> {
    let named = |name: &str| name.parse().ok().filter(|&t| t != ElementType::Token);
    let digits = |prefix| {
        name.strip_prefix(prefix)
            .filter(|rest| rest.starts_with(char::is_numeric))
    };
    match name {
        "i1" | "bool" => return Some(ElementType::Pred),
        "complex<f32>" => return Some(ElementType::C64),
        "complex<f64>" => return Some(ElementType::C128),
        _ => {}
    }
    let signed = digits("si")
        .or_else(|| digits("i"))
        .map(|bits| format!("s{bits}"));
    let other = signed.or_else(|| digits("ui").map(|bits| format!("u{bits}")));
    named(other.as_deref().unwrap_or(name))
}

fn wrong_json(text: &str, error: &serde_json::Error) -> String {
    let typed = text.rsplit_once(':');
    let is_json = |text: &str| serde_json::from_str::<Value>(text).is_ok();
    match typed.filter(|(json, _)| is_json(json)) {
        Some((_, name)) => format!("expected a type such as f32 or i64, found {name:?}"),
        None if is_json(&format!("\"{text}\"")) => {
            format!("expected JSON, found {text:?}; a string has quotes: \"{text}\"")
        }
        None => format!("expected JSON, found {text:?}: {error}"),
    }
}

/// The attribute of a JSON value.
pub(super) fn attribute(
    value: &Value,
    element_type: Option<ElementType>,
) -> Result<Attribute, String> {
    let untyped = |attribute| match element_type {
        None => Ok(attribute),
        Some(t) => Err(format!(
            "expected a number or a list of type {t}, found {}",
            kind(value)
        )),
    };
    match value {
        Value::Object(members) => {
            let members = members.iter().map(|(name, value)| {
                let value = attribute(value, None).map_err(|error| format!("{name}: {error}"))?;
                Ok((name.clone(), value))
            });
            untyped(Attribute::Dictionary(
                members.collect::<Result<Dictionary, String>>()?,
            ))
        }
        Value::String(text) if element_type.is_none() => Ok(text.as_str().into()),
        Value::Null => Err("expected a value, found null".to_owned()),
        _ => {
            let element_type = match element_type {
                Some(element_type) => element_type,
                None => default_type(value)?,
            };
            let literal = array(value, element_type)?;
            Ok(of_literal(literal))
        }
    }
}

/// The attribute of an array, or of a scalar if its rank is 0.
fn of_literal(literal: Literal) -> Attribute {
    match literal.shape().as_array().map_or(0, ArrayShape::rank) {
        0 => Attribute::Scalar(literal),
        _ => Attribute::Array(literal),
    }
}

/// The type that JAX chooses for a number, a truth value or a list of them.
fn default_type(value: &Value) -> Result<ElementType, String> {
    match value {
        Value::Bool(_) => Ok(ElementType::Pred),
        Value::Number(number) if number.is_f64() => Ok(ElementType::F64),
        Value::Number(_) => Ok(ElementType::S64),
        Value::Array(items) => {
            let types = items
                .iter()
                .map(default_type)
                .collect::<Result<Vec<_>, _>>()?;
            match types.as_slice() {
                [] => Err("expected the type of an empty list, as in []:f32".to_owned()),
                [first, rest @ ..] if rest.iter().all(|t| t == first) => Ok(*first),
                types if types.contains(&ElementType::Pred) => {
                    Err("expected a list of one type, found truth values and numbers".to_owned())
                }
                _ => Ok(ElementType::F64),
            }
        }
        other => Err(format!(
            "expected a number or a truth value in a list, found {}",
            kind(other)
        )),
    }
}

/// The array of a nested list.
fn array(value: &Value, element_type: ElementType) -> Result<Literal, String> {
    let dimensions = dimensions(value, element_type);
    let mut elements = Vec::new();
    flatten(value, &dimensions, &mut elements)?;
    let shape = ArrayShape::new(element_type, &dimensions).map_err(|s| s.message().to_owned())?;
    literal(shape, &elements)
}

/// The array with these elements, in row-major order.
pub(super) fn literal(shape: ArrayShape, elements: &[&Value]) -> Result<Literal, String> {
    let element_type = shape.element_type();
    let bytes = match element_type {
        ElementType::Pred => each(elements, |value| value.as_bool().map(|b| vec![u8::from(b)]))
            .ok_or_else(|| expected(element_type, elements))?,
        _ if element_type.is_integral() => integers(elements, element_type)?,
        _ => floats(elements, element_type)?,
    };
    Literal::from_bytes(shape, bytes).map_err(|status| status.message().to_owned())
}

/// The lengths of the first list on each level. A complex number is itself a list.
fn dimensions(value: &Value, element_type: ElementType) -> Vec<usize> {
    let mut dimensions = Vec::new();
    let mut next = Some(value);
    while let Some(Value::Array(items)) = next {
        if element_type.is_complex() && !items.iter().any(Value::is_array) && !items.is_empty() {
            break;
        }
        dimensions.push(items.len());
        next = items.first();
    }
    dimensions
}

fn flatten<'a>(
    value: &'a Value,
    dimensions: &[usize],
    elements: &mut Vec<&'a Value>,
) -> Result<(), String> {
    let Some((&length, inner)) = dimensions.split_first() else {
        elements.push(value);
        return Ok(());
    };
    match value {
        Value::Array(items) if items.len() == length => items
            .iter()
            .try_for_each(|item| flatten(item, inner, elements)),
        Value::Array(items) => Err(format!(
            "expected a list of {length}, as before it, found one of {}",
            items.len()
        )),
        other => Err(format!(
            "expected a list of {length}, as before it, found {other}"
        )),
    }
}

/// The bytes of all elements, or `None` if an element has none.
fn each(elements: &[&Value], bytes: impl Fn(&Value) -> Option<Vec<u8>>) -> Option<Vec<u8>> {
    let bytes = elements
        .iter()
        .map(|&value| bytes(value))
        .collect::<Option<Vec<_>>>()?;
    Some(bytes.concat())
}

fn integers(elements: &[&Value], element_type: ElementType) -> Result<Vec<u8>, String> {
    let bits = element_type.bit_width();
    let (least, most) = if element_type.is_signed_integral() {
        (-(1_i128 << (bits - 1)), (1_i128 << (bits - 1)) - 1)
    } else {
        (0, (1_i128 << bits) - 1)
    };
    let mut bytes = Vec::new();
    for value in elements {
        let integer = value
            .as_i64()
            .map(i128::from)
            .or_else(|| value.as_u64().map(i128::from));
        let integer = integer.filter(|integer| (least..=most).contains(integer));
        let integer = integer.ok_or_else(|| {
            format!("expected a value of {element_type} from {least} to {most}, found {value}")
        })?;
        bytes.extend_from_slice(&integer.to_le_bytes()[..element_type.byte_width()]);
    }
    Ok(bytes)
}

fn floats(elements: &[&Value], element_type: ElementType) -> Result<Vec<u8>, String> {
    // The type of a number's parts.
    let part_type = match element_type {
        ElementType::C64 => ElementType::F32,
        ElementType::C128 => ElementType::F64,
        // Conversion would silently saturate numbers out of range.
        ElementType::F4e2m1fn => {
            return Err(format!(
                "attributes of type {element_type} are not supported"
            ));
        }
        other => other,
    };
    let parts = if element_type.is_complex() {
        complex_parts(elements, element_type)?
    } else {
        elements.to_vec()
    };
    let wide = parts
        .iter()
        .map(|value| float(value))
        .collect::<Option<Vec<_>>>();
    let wide = wide.ok_or_else(|| expected(element_type, &parts))?;
    let (narrow, lost) = narrow(&wide, part_type).map_err(|s| s.message().to_owned())?;
    match lost {
        Some(at) => Err(expected(element_type, &parts[at..=at])),
        None => Ok(narrow.bytes().unwrap_or_default().to_vec()),
    }
}

/// Real and imaginary parts, in turn.
fn complex_parts<'a>(
    elements: &[&'a Value],
    element_type: ElementType,
) -> Result<Vec<&'a Value>, String> {
    let pairs = elements.iter().map(|&value| match value {
        Value::Array(pair) if pair.len() == 2 => Ok(pair),
        _ => Err(format!(
            "expected a value of {element_type} as [RE,IM], found {value}"
        )),
    });
    Ok(pairs
        .collect::<Result<Vec<_>, _>>()?
        .into_iter()
        .flatten()
        .collect())
}

/// Converts numbers, and finds the first that the type lacks: it became an infinity or a NaN.
fn narrow(wide: &[f64], element_type: ElementType) -> callbox::Result<(Literal, Option<usize>)> {
    let narrow = convert(Literal::array(&[wide.len()], wide)?, element_type)?;
    let back = convert(narrow.clone(), ElementType::F64)?.to_vec::<f64>()?;
    let is_lost = |x: f64, y: f64| x.is_nan() != y.is_nan() || x.is_infinite() != y.is_infinite();
    let lost = std::iter::zip(wide, back).position(|(&x, y)| is_lost(x, y));
    Ok((narrow, lost))
}

fn float(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => match text.as_str() {
            "nan" => Some(f64::NAN),
            "inf" => Some(f64::INFINITY),
            "-inf" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    }
}

fn expected(element_type: ElementType, found: &[&Value]) -> String {
    let wrong = found.iter().find(|value| {
        if element_type.is_pred() {
            !value.is_boolean()
        } else {
            float(value).is_none()
        }
    });
    let found = wrong
        .or(found.first())
        .map_or_else(String::new, |value| value.to_string());
    format!("expected a value of {element_type}, found {found}")
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests;
