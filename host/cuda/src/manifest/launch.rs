//! Parses a launch.

use callbox_core::call::Signature;
use callbox_core::values::{ElementType, Result};

use super::document::{Field, quoted};
use super::target::expression;
use super::{Image, Launch, Parameter};
use crate::expression::{Expression, Kind, PARAMETER_TYPES, kinds, nearest};

/// The units of a launch, beside those of its expressions.
const UNITS: usize = 16;

/// The longest name of a kernel, in bytes.
const MAX_ENTRY: usize = 1024;

/// Parses a launch of a target that has this many scratch buffers.
pub(super) fn read(
    place: &Field<'_>,
    signature: &Signature,
    scratch: usize,
    images: &[Image],
) -> Result<Launch> {
    place.count(UNITS)?;
    let object = place.object(&[
        "image",
        "entry",
        "when",
        "parameters",
        "grid",
        "block",
        "shared_memory",
    ])?;
    let when = object.find("when");
    let when = when.map(|place| expression(&place, signature, &[Kind::Boolean]));
    let shared_memory = object.find("shared_memory");
    let shared_memory = shared_memory.map(|place| expression(&place, signature, &[Kind::Integer]));
    let parameters = object.field("parameters")?.list()?;
    let parameters = parameters
        .iter()
        .map(|place| parameter(place, signature, scratch));
    Ok(Launch {
        image: image(&object.field("image")?, images)?,
        entry: entry(&object.field("entry")?)?,
        when: when.transpose()?,
        parameters: parameters.collect::<Result<_>>()?,
        grid: extent(&object.field("grid")?, signature)?,
        block: extent(&object.field("block")?, signature)?,
        shared_memory: shared_memory.transpose()?,
    })
}

fn image(place: &Field<'_>, images: &[Image]) -> Result<usize> {
    let name = place.string()?;
    let found = images.iter().position(|image| image.name == name);
    found.ok_or_else(|| {
        let known = images.iter().map(|image| image.name.as_str());
        place.wrong(format!(
            "expected the name of one of the {} images, found {}{}",
            images.len(),
            quoted(name),
            nearest(name, known)
        ))
    })
}

/// Parses a kernel's name, which is an identifier of PTX.
fn entry(place: &Field<'_>) -> Result<String> {
    let name = place.string()?;
    let begins = name.starts_with(|c: char| c.is_ascii_alphabetic())
        || (name.starts_with(['_', '$', '%']) && name.len() > 1);
    let follows = |(i, byte): (usize, u8)| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$') || (i == 0 && byte == b'%')
    };
    if begins && name.len() <= MAX_ENTRY && name.bytes().enumerate().all(follows) {
        Ok(name.to_owned())
    } else {
        Err(place.wrong(format!(
            "expected a kernel's name, of at most {MAX_ENTRY} letters, digits, _ and $, found {}",
            quoted(name)
        )))
    }
}

/// Parses the size of a grid or block in one to three directions.
fn extent(place: &Field<'_>, signature: &Signature) -> Result<Vec<Expression>> {
    let sizes = place.list()?;
    if !(1..=3).contains(&sizes.len()) {
        let found = sizes.len();
        return Err(place.wrong(format!("expected 1 to 3 sizes, found {found}")));
    }
    sizes
        .iter()
        .map(|place| expression(place, signature, &[Kind::Integer]))
        .collect()
}

fn parameter(place: &Field<'_>, signature: &Signature, scratch: usize) -> Result<Parameter> {
    let object = place.object(&["operand", "result", "scratch", "value", "type"])?;
    let found = ["operand", "result", "scratch", "value"].map(|name| object.find(name));
    let ty = object.find("type");
    match (found, ty) {
        ([Some(operand), None, None, None], None) => {
            let declared = signature.operands.as_ref().map(Vec::len);
            let most = declared.filter(|_| !signature.remaining_operands);
            index(&operand, most, "operands").map(Parameter::Operand)
        }
        ([None, Some(result), None, None], None) => {
            let declared = signature.results.as_ref().map(Vec::len);
            let most = declared.filter(|_| !signature.remaining_results);
            index(&result, most, "results").map(Parameter::Result)
        }
        ([None, None, Some(buffer), None], None) => {
            index(&buffer, Some(scratch), "scratch buffers").map(Parameter::Scratch)
        }
        ([None, None, None, Some(value)], Some(ty)) => {
            let ty = parameter_type(&ty)?;
            let expression = expression(&value, signature, kinds(ty))?;
            Ok(Parameter::Value(expression, ty))
        }
        _ => Err(place.wrong(
            "expected one of the fields operand, result and scratch, or value with type, found others",
        )),
    }
}

/// Parses a number below `count`, if that is known.
fn index(place: &Field<'_>, count: Option<usize>, what: &str) -> Result<usize> {
    let index = place.index()?;
    match count {
        Some(count) if index >= count => Err(place.wrong(format!(
            "expected one of the {count} {what} that are declared, found {index}"
        ))),
        _ => Ok(index),
    }
}

fn parameter_type(place: &Field<'_>) -> Result<ElementType> {
    let name = place.string()?;
    let found = PARAMETER_TYPES.into_iter().find(|t| t.lower_name() == name);
    found.ok_or_else(|| {
        let known = PARAMETER_TYPES.map(ElementType::lower_name);
        let expected = known.join(", ");
        place.wrong(format!(
            "expected one of {expected}, found {}",
            quoted(name)
        ))
    })
}
