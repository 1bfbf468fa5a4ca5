//! Reads the call sites that `call` and `ffi_call` cases describe.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};
use callbox::call::{Alias, CallSite};
use callbox::{Attribute, Dictionary, Shape, StaticInfo};

use super::text::{AliasText, AttributeText, CallText, FfiCallText, StaticInfoText};
use super::{FfiCall, Step};
use crate::literal;
use crate::module::ModuleSource;

/// Reads a call. Operand shapes default to those of the first step's operands.
pub(super) fn read(
    call: CallText,
    first: &Step,
    folder: &Path,
) -> Result<(ModuleSource, CallSite)> {
    let operands = match &call.operands {
        Some(shapes) => shapes
            .iter()
            .map(|text| shape(text))
            .collect::<Result<_>>()?,
        None => first
            .operands
            .iter()
            .map(|operand| operand.shape().clone())
            .collect(),
    };
    let mut results: Vec<Shape> = call
        .results
        .iter()
        .map(|text| shape(text))
        .collect::<Result<_>>()?;
    let result = match results.len() {
        1 => results.remove(0),
        _ => Shape::tuple(results)?,
    };
    let mut site =
        CallSite::new(&call.target, operands, result).with_attributes(attributes(call.attributes)?);
    if let Some(version) = &call.api_version {
        site.api_version = version.parse()?;
    }
    site.opaque = call.opaque.read().context("opaque")?;
    site.static_info = call.static_info.map(static_info).transpose()?;
    site.scratch = call.scratch;
    let literal = call.literal.map(|text| literal::read(text, folder));
    site.literal = literal.transpose().context("literal")?;
    site.aliasing = call.aliasing.into_iter().map(alias).collect();
    Ok((ModuleSource::read(call.module, folder)?, site))
}

fn shape(text: &str) -> Result<Shape> {
    text.parse()
        .with_context(|| format!("expected a shape, found {text:?}"))
}

/// Reads an FFI call.
pub(super) fn read_ffi_call(call: FfiCallText, folder: &Path) -> Result<FfiCall> {
    Ok(FfiCall {
        module: ModuleSource::read(call.module, folder)?,
        function: call.function,
        platform: call.platform,
        static_info: call.static_info.map(static_info).transpose()?,
        result: shape(&call.result)?,
        in_axes: call.vmap,
    })
}

fn static_info(text: StaticInfoText) -> Result<StaticInfo> {
    Ok(match text {
        StaticInfoText::Value { value } => StaticInfo::Value(value.read()?),
        StaticInfoText::Reference {
            constructor,
            destructor,
            argument,
        } => StaticInfo::Reference {
            constructor,
            destructor,
            argument: argument.read()?,
        },
    })
}

fn alias(text: AliasText) -> Alias {
    Alias {
        result_index: text.result,
        operand: text.operand,
        operand_index: text.operand_index,
    }
}

fn attributes(texts: BTreeMap<String, AttributeText>) -> Result<Dictionary> {
    let attribute = |(name, text): (String, AttributeText)| {
        let value = attribute(text).with_context(|| format!("attribute {name}"))?;
        Ok((name, value))
    };
    texts.into_iter().map(attribute).collect()
}

/// Reads an attribute: a scalar for an element type (`f32`), an array for a shape (`f32[3]`,
/// `f32[]`).
fn attribute(text: AttributeText) -> Result<Attribute> {
    match (text.ty.as_str(), text.value) {
        ("string", serde_json::Value::String(value)) => Ok(Attribute::String(value.into_bytes())),
        ("dictionary", value) => {
            let entries: BTreeMap<String, AttributeText> = serde_json::from_value(value)?;
            Ok(Attribute::Dictionary(attributes(entries)?))
        }
        (shape, value) if shape.contains('[') => {
            let serde_json::Value::Array(values) = value else {
                bail!("expected an array of values for {shape}, found {value}");
            };
            Ok(Attribute::array(literal::of_values(
                &shape.parse()?,
                &values,
            )?)?)
        }
        (element_type, value) => {
            let element_type = element_type
                .parse()
                .context("expected string, dictionary, an element type or a shape")?;
            let shape = callbox::ArrayShape::scalar(element_type);
            Ok(Attribute::Scalar(literal::of_values(&shape, &[value])?))
        }
    }
}
