//! Arrays and attributes in the JSON of a case.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;

use callbox::{ArrayShape, Attribute, ElementType, Literal, Result, Status};
use callbox_core::json;
use callbox_core::untrusted_text::{formatted, shown_name};
use callbox_package::Package;
use serde::Deserialize;
use serde_json::Value;

use super::{MOST_ARRAYS, parsed, too_large};
use crate::attribute::{attribute, literal, type_named};
use crate::convert::convert;
use crate::files::{ReadError, npy};
use crate::package::wrong;
use crate::text::name;

/// An array: a shape, with exactly one of the other keys.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LiteralText {
    shape: String,
    /// The elements in row-major order.
    values: Option<Vec<Value>>,
    /// The elements' little-endian bytes in row-major order.
    hex: Option<String>,
    /// A .npy file of the package, beside the case.
    file: Option<String>,
}

/// The arrays of a package's cases.
pub(in super::super) struct Arrays<'a, 'p> {
    package: &'a Package<'p>,
    /// The bytes that further arrays may have.
    left: usize,
    /// The arrays of files that were read as elements of a type, which cases share.
    files: BTreeMap<(String, ElementType), Literal>,
}

impl<'a, 'p> Arrays<'a, 'p> {
    pub(in super::super) fn new(package: &'a Package<'p>) -> Self {
        Self {
            package,
            left: MOST_ARRAYS,
            files: BTreeMap::new(),
        }
    }

    /// Reads arrays of a case in a folder of the package. Messages call each by `what` and its
    /// number.
    pub(super) fn read(
        &mut self,
        folder: &str,
        what: &str,
        texts: &[LiteralText],
    ) -> Result<Vec<Literal>> {
        let arrays = texts.iter().enumerate().map(|(number, text)| {
            let in_array = |status: Status| status.context(format_args!("{what} {number}"));
            let shape: ArrayShape = parsed(&text.shape).map_err(wrong).map_err(in_array)?;
            // Several arrays can name one file, so that the package's size is no bound.
            self.charge(shape.byte_size()).map_err(in_array)?;
            self.read_one(folder, shape, text)
                .map_err(wrong)
                .map_err(in_array)
        });
        arrays.collect()
    }

    /// Counts bytes of arrays.
    pub(super) fn charge(&mut self, bytes: usize) -> Result<()> {
        self.left = self.left.checked_sub(bytes).ok_or_else(|| {
            too_large(format!(
                "expected cases whose arrays have at most {MOST_ARRAYS} bytes in all, found more"
            ))
        })?;
        Ok(())
    }

    fn read_one(
        &mut self,
        folder: &str,
        shape: ArrayShape,
        text: &LiteralText,
    ) -> Result<Literal, String> {
        match (&text.values, &text.hex, &text.file) {
            (Some(values), None, None) => of_values(shape, values),
            (None, Some(hex), None) => {
                let digits: String = hex.split_ascii_whitespace().collect();
                let bytes = hex::decode(digits).map_err(|error| error.to_string())?;
                Literal::from_bytes(shape, bytes).map_err(|status| status.message().to_owned())
            }
            (None, None, Some(file)) => self.of_file(folder, file, &shape),
            _ => Err("expected exactly one of `values`, `hex` and `file`".to_owned()),
        }
    }

    fn of_file(&mut self, folder: &str, file: &str, shape: &ArrayShape) -> Result<Literal, String> {
        let path = format!("{folder}/{file}");
        let array = match self.files.entry((path.clone(), shape.element_type())) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let bytes = self
                    .package
                    .file(&path)
                    .ok_or_else(|| format!("the package has no file \"{}\"", name(&path)))?;
                let array = npy::read(bytes, Some(shape.element_type()));
                place.insert(array.map_err(|error| match error {
                    ReadError::Io(error) => format!("{path}: {error}"),
                    ReadError::Status(status) => format!("{path}: {}", status.message()),
                })?)
            }
        };
        match array.shape().as_array() {
            Some(found) if found.is_compatible(shape) => Ok(array.clone()),
            _ => Err(format!("{path}: expected {shape}, found {}", array.shape())),
        }
    }
}

/// The operand of a benchmark, of at most the bytes that a package's arrays may have.
pub(super) fn filled(shape: ArrayShape) -> Result<Literal, String> {
    if shape.byte_size() > MOST_ARRAYS {
        return Err(format!("expected at most {MOST_ARRAYS} bytes of {shape}"));
    }
    let element_type = shape.element_type();
    let literal = |numbers: Vec<f64>| {
        let wide = Literal::array(shape.dimensions(), &numbers)?;
        convert(wide, element_type)
    };
    let steps = 0..shape.element_count() as u64;
    // A multiplicative congruence gives numbers without a pattern that a kernel could profit from.
    let scattered = steps.map(|i| i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40);
    let numbers = if element_type.is_pred() || element_type.is_integral() {
        let most = if element_type.is_pred() { 2 } else { 7 };
        scattered.map(|bits| (bits % most) as f64).collect()
    } else {
        scattered
            .map(|bits| bits as f64 / f64::from(1 << 24))
            .collect()
    };
    literal(numbers).map_err(|status: Status| status.message().to_owned())
}

fn of_values(shape: ArrayShape, values: &[Value]) -> Result<Literal, String> {
    if shape.element_type() == ElementType::Token {
        return Err("expected an array, found a token".to_owned());
    }
    if values.len() != shape.element_count() {
        return Err(format!(
            "expected {} values for {shape}, found {}",
            shape.element_count(),
            values.len()
        ));
    }
    let values: Vec<&Value> = values.iter().collect();
    literal(shape, &values)
}

/// The most levels of dictionaries in an attribute.
const MOST_LEVELS: usize = 16;

/// Checks that the values of a case do not take too much memory: some ten thousand objects, which
/// the attributes keep, or half a million numbers.
pub(super) fn check_memory(text: &[u8]) -> Result<(), String> {
    const OBJECT: usize = 4096;
    const MOST: usize = 40 << 20;
    json::check_memory(text, OBJECT, MOST)
}

/// A message that quotes a part of a case.
fn shown(message: fmt::Arguments<'_>) -> String {
    /// More than a status shows.
    const MOST: usize = 16 << 10;
    name(&formatted(message, MOST))
}

/// An attribute: its type, and a value of it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AttributeText {
    /// An element type, a shape, `string` or `dictionary`.
    #[serde(rename = "type")]
    kind: String,
    value: Value,
}

impl AttributeText {
    pub(super) fn read(self) -> Result<Attribute, String> {
        self.read_within(MOST_LEVELS)
    }

    /// Reads an attribute of at most this many levels of dictionaries.
    fn read_within(self, levels: usize) -> Result<Attribute, String> {
        match (self.kind.as_str(), self.value) {
            ("string", Value::String(text)) => Ok(text.as_str().into()),
            ("dictionary", value @ Value::Object(_)) => {
                let levels = levels.checked_sub(1).ok_or_else(|| {
                    format!("expected at most {MOST_LEVELS} levels of dictionaries, found more")
                })?;
                // By value: each member's own value is moved out of it.
                let members = BTreeMap::<String, Self>::deserialize(value);
                let members = members.map_err(|error| shown(format_args!("{error}")))?;
                let members = members.into_iter().map(|(key, member)| {
                    let value = member.read_within(levels);
                    let value = value.map_err(|error| format!("{}: {error}", shown_name(&key)))?;
                    Ok((key, value))
                });
                Ok(Attribute::Dictionary(
                    members.collect::<Result<_, String>>()?,
                ))
            }
            (kind @ ("string" | "dictionary"), other) => {
                Err(shown(format_args!("expected a {kind}, found {other}")))
            }
            (kind, Value::Array(values)) if kind.contains('[') => {
                Ok(Attribute::Array(of_values(parsed(kind)?, &values)?))
            }
            (kind, value) => {
                let element_type = type_named(kind);
                let element_type = element_type.ok_or_else(|| {
                    format!(
                        "expected a type such as f32, found \"{}\"",
                        shown_name(kind)
                    )
                })?;
                attribute(&value, Some(element_type))
            }
        }
    }
}
