//! Declared buffers and attributes as JSON: what the section `callbox.targets` of a module and a manifest of native targets have in common.
//!
//! Names are the reader's to check: an untrusted module's are shown otherwise than those of a file that its user wrote.

use serde::Deserialize;

use super::{AttributeSignature, BufferSignature};
use crate::values::ElementType;

/// The most dimensions that an operand or result can be declared with.
const MAX_RANK: usize = 255;

/// The kinds of attributes.
const KINDS: [&str; 5] = ["scalar", "array", "string", "dictionary", "function"];

/// An operand or result.
#[derive(Debug, Deserialize)]
pub(crate) struct Buffer {
    #[serde(default)]
    pub(crate) name: String,
    pub(crate) element_types: Option<Vec<String>>,
    pub(crate) rank: Option<usize>,
    #[serde(default)]
    pub(crate) optional: bool,
}

/// An attribute.
#[derive(Debug, Deserialize)]
pub(crate) struct Attribute {
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) element_type: Option<String>,
    #[serde(default)]
    pub(crate) optional: bool,
}

/// The operands or results, as declared.
///
/// # Errors
/// What was expected and what was found, for a rank that is too large, an element type that is not known, or something optional before
/// something that is not.
pub(crate) fn buffers(declared: Vec<Buffer>) -> Result<Vec<BufferSignature>, String> {
    let declared: Vec<_> = declared.into_iter().map(buffer).collect::<Result<_, _>>()?;
    match declared.is_sorted_by_key(|buffer| buffer.optional) {
        true => Ok(declared),
        false => Err("expected what is optional behind what is not, found it before".to_owned()),
    }
}

fn buffer(declared: Buffer) -> Result<BufferSignature, String> {
    if let Some(rank) = declared.rank.filter(|&rank| rank > MAX_RANK) {
        return Err(format!(
            "expected a rank of at most {MAX_RANK}, found {rank}"
        ));
    }
    let types = declared.element_types.unwrap_or_default();
    Ok(BufferSignature {
        name: declared.name,
        element_types: types
            .iter()
            .map(|name| element_type(name))
            .collect::<Result<_, _>>()?,
        rank: declared.rank,
        optional: declared.optional,
    })
}

/// An attribute, as declared.
///
/// # Errors
/// What was expected and what was found, for a kind or an element type that is not known.
pub(crate) fn attribute(declared: Attribute) -> Result<AttributeSignature, String> {
    if !KINDS.contains(&declared.kind.as_str()) {
        return Err(format!(
            "attribute {:?}: expected the kind scalar, array, string, dictionary or function, found {:?}",
            declared.name, declared.kind
        ));
    }
    Ok(AttributeSignature {
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

fn element_type(name: &str) -> Result<ElementType, String> {
    name.parse()
        .map_err(|status: crate::values::Status| status.message().to_owned())
}
