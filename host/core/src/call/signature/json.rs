//! Declared buffers and attributes as JSON, in the section `callbox.targets` of a module and in
//! manifests of native targets.
//!
//! Callers check names: those of untrusted modules are displayed differently from those in a file
//! that the user wrote.

use callbox_abi::UnknownName;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::dimensions::{Declared, extent};
use super::expression::{self, MAX_TEXT, Parsed};
use super::{AttributeSignature, BufferSignature, Dimension};
use crate::json::{Entries, Flat, Limited};
use crate::text::shortened;
use crate::values::ElementType;

/// The most dimensions that a declaration can have.
const MAX_RANK: usize = 255;

/// The most operands or results that a declaration can have.
pub const MAX_BUFFERS: usize = 1024;

/// The most attributes that a declaration can have. Each call site is compared with all of them.
pub const MAX_ATTRIBUTES: usize = 1024;

/// The most types that a buffer can have: as many as there are.
const MAX_TYPES: usize = ElementType::ALL.len();

/// The kinds of attributes.
const KINDS: [&str; 5] = ["scalar", "array", "string", "dictionary", "function"];

/// The declaration of an operand or result.
#[derive(Debug, Deserialize)]
pub struct Buffer {
    /// The name, for messages.
    #[serde(default)]
    pub name: String,
    /// The names of the allowed element types.
    pub element_types: Option<Limited<String, MAX_TYPES>>,
    /// The rank.
    pub rank: Option<usize>,
    /// Sizes, symbols and a leading `..`.
    #[serde(default, deserialize_with = "flat_list")]
    pub dimensions: Option<Vec<Value>>,
    /// Whether it can be left out.
    #[serde(default)]
    pub optional: bool,
}

/// The declaration of an attribute.
#[derive(Debug, Deserialize)]
pub struct Attribute {
    /// The name.
    pub name: String,
    /// One of `scalar`, `array`, `string`, `dictionary` and `function`.
    pub kind: String,
    /// The element type of a scalar or array.
    pub element_type: Option<String>,
    /// The fields of a dictionary.
    pub fields: Option<Vec<Self>>,
    /// The numbers of an enum's variants, by name.
    #[serde(default, deserialize_with = "flat_map")]
    pub variants: Option<Map<String, Value>>,
    /// Whether it can be left out.
    #[serde(default)]
    pub optional: bool,
}

/// Reads a list of values that are not to be lists or objects.
fn flat_list<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<Value>>, D::Error> {
    let list = Option::<Vec<Flat>>::deserialize(deserializer)?;
    Ok(list.map(|list| list.into_iter().map(|flat| flat.0).collect()))
}

/// Reads an object of such values, in the order of the text.
fn flat_map<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Map<String, Value>>, D::Error> {
    let map = Option::<Entries<Flat>>::deserialize(deserializer)?;
    Ok(map.map(|Entries(map)| map.into_iter().map(|(name, flat)| (name, flat.0)).collect()))
}

/// Validates the declared operands or results.
///
/// # Errors
/// A message, if a rank is too large or contradicts the dimensions, a dimension or element type is
/// malformed, or an optional buffer precedes a required one.
pub fn buffers(declared: Vec<Buffer>) -> Result<Vec<BufferSignature>, String> {
    let declared: Vec<_> = declared.into_iter().map(buffer).collect::<Result<_, _>>()?;
    if declared.is_sorted_by_key(|buffer| buffer.optional) {
        Ok(declared)
    } else {
        Err("an optional buffer precedes a required one".to_owned())
    }
}

/// The operands or results that a JSON list declares.
#[cfg(test)]
pub(super) fn read(text: &str) -> Result<Vec<BufferSignature>, String> {
    buffers(serde_json::from_str(text).map_err(|error| error.to_string())?)
}

fn buffer(declared: Buffer) -> Result<BufferSignature, String> {
    if let Some(rank) = declared.rank.filter(|&rank| rank > MAX_RANK) {
        return Err(format!(
            "expected a rank of at most {MAX_RANK}, found {rank}"
        ));
    }
    let dimensions = declared.dimensions.map(dimensions).transpose()?;
    let rank = rank(declared.rank, dimensions.as_deref())?;
    let types = declared.element_types.unwrap_or_default();
    Ok(BufferSignature {
        name: declared.name,
        element_types: element_types(types)?,
        rank,
        dimensions,
        optional: declared.optional,
    })
}

/// The rank that the dimensions determine, or else the declared one.
fn rank(
    declared: Option<usize>,
    dimensions: Option<&[Dimension]>,
) -> Result<Option<usize>, String> {
    let Some(dimensions) = dimensions else {
        return Ok(declared);
    };
    let (least, takes_more) = extent(dimensions);
    let agrees = declared.is_none_or(|rank| rank == least || takes_more && rank > least);
    match (declared, agrees) {
        (Some(rank), false) => Err(format!(
            "expected the rank that the dimensions {} have, found {rank}",
            Declared(dimensions)
        )),
        (_, _) if takes_more => Ok(declared),
        (_, _) => Ok(Some(least)),
    }
}

fn dimensions(declared: Vec<Value>) -> Result<Vec<Dimension>, String> {
    if declared.len() > MAX_RANK {
        return Err(format!(
            "expected at most {MAX_RANK} dimensions, found {}",
            declared.len()
        ));
    }
    let dimensions = declared.iter().enumerate();
    dimensions.map(|(i, value)| dimension(i, value)).collect()
}

fn dimension(position: usize, value: &Value) -> Result<Dimension, String> {
    let found = match value {
        Value::String(text) if text == ".." && position == 0 => return Ok(Dimension::Any),
        Value::String(text) if text == ".." => {
            return Err(format!(
                "expected \"..\" as the first of the dimensions alone, found it as number {position}"
            ));
        }
        Value::String(text) if is_symbol(text) => return Ok(Dimension::Symbol(text.clone())),
        Value::Number(number) => match number.as_u64().map(usize::try_from) {
            Some(Ok(size)) => return Ok(Dimension::Size(size)),
            _ => number.to_string(),
        },
        Value::String(text) if text.len() > MAX_TEXT => {
            format!("a text of {} bytes", text.len())
        }
        Value::String(text) => match expression::parse(text) {
            Ok(Parsed::Size(size)) => return Ok(Dimension::Size(size)),
            Ok(Parsed::Expression(expression)) => return Ok(Dimension::Expression(expression)),
            Err(reason) => format!("{text:?}, {reason}"),
        },
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    };
    Err(format!(
        "expected each of the dimensions to be a size, a symbol of at most {MAX_TEXT} letters, digits and underscores that begins with no digit, an expression such as \"n/2\", or \"..\", found {found}"
    ))
}

fn is_symbol(text: &str) -> bool {
    text.len() <= MAX_TEXT
        && text.starts_with(|c: char| c == '_' || c.is_ascii_alphabetic())
        && text.chars().all(|c| c == '_' || c.is_ascii_alphanumeric())
}

/// Validates a declared attribute.
///
/// # Errors
/// A message, if the kind or the element type is unknown, if another kind than a dictionary has
/// fields, or another kind than a scalar has variants.
pub fn attribute(declared: Attribute) -> Result<AttributeSignature, String> {
    if !KINDS.contains(&declared.kind.as_str()) {
        return Err(format!(
            "attribute {:?}: expected the kind scalar, array, string, dictionary or function, found {:?}",
            declared.name,
            shortened(&declared.kind)
        ));
    }
    if declared.fields.is_some() && declared.kind != "dictionary" {
        return Err(format!(
            "attribute {:?}: expected fields of the kind dictionary alone, found them beside {:?}",
            declared.name, declared.kind
        ));
    }
    let variants = declared
        .variants
        .map(|variants| variants_of(&declared.name, &declared.kind, variants));
    let fields = declared
        .fields
        .map(|fields| fields.into_iter().map(attribute).collect::<Result<_, _>>());
    Ok(AttributeSignature {
        fields: fields.transpose()?,
        variants: variants.transpose()?,
        element_type: declared
            .element_type
            .as_deref()
            .map(element_type)
            .transpose()?,
        name: declared.name,
        kind: declared.kind,
        optional: declared.optional,
    })
}

/// The variants of an enum, which are scalars.
fn variants_of(
    name: &str,
    kind: &str,
    variants: Map<String, Value>,
) -> Result<Vec<(String, i128)>, String> {
    if kind != "scalar" {
        return Err(format!(
            "attribute {name:?}: expected variants of the kind scalar alone, found them beside {kind:?}"
        ));
    }
    let number = |value: &Value| {
        let signed = value.as_i64().map(i128::from);
        signed.or(value.as_u64().map(i128::from))
    };
    let variants = variants.into_iter();
    variants
        .map(|(variant, value)| match number(&value) {
            Some(number) => Ok((variant, number)),
            None => Err(format!(
                "attribute {name:?}: expected an integer of 64 bits for the variant {variant:?}, found another value"
            )),
        })
        .collect()
}

fn element_types(names: Limited<String, MAX_TYPES>) -> Result<Vec<ElementType>, String> {
    let names = names.within().map_err(|found| {
        format!("expected each of {MAX_TYPES} element types at most once, found {found} names")
    })?;
    let mut types = Vec::with_capacity(names.len());
    for name in &names {
        let ty = element_type(name)?;
        if types.contains(&ty) {
            return Err(format!(
                "expected the element type {ty} once, found it again"
            ));
        }
        types.push(ty);
    }
    Ok(types)
}

fn element_type(name: &str) -> Result<ElementType, String> {
    name.parse().map_err(|error: UnknownName| error.to_string())
}
