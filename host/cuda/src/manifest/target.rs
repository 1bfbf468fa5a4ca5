//! Parses a target: its declaration, its checks and its scratch memory.

use callbox_core::call::{
    ApiVersion, AttributeSignature, BufferSignature, Signature, Stage, signature::json,
};
use callbox_core::json::Limited;
use callbox_core::values::{Result, StatusCode};
use serde_json::{Map, Value};

use super::document::{Field, Object, quoted};
use super::{Check, Image, KernelTarget, Message, launch};
use crate::expression::{Expression, Kind, nearest};

/// The longest documentation, in bytes.
const MAX_DOCUMENTATION: usize = 64 << 10;

/// The most scratch buffers of a target.
const MAX_SCRATCH: usize = 64;

/// The conventions that can call kernels. The JAX FFI proposal passes host functions, which a
/// kernel cannot call.
const API_VERSIONS: [ApiVersion; 4] = [
    ApiVersion::TypedFfi,
    ApiVersion::Original,
    ApiVersion::StatusReturning,
    ApiVersion::StatusReturningUnified,
];

pub(super) fn read(place: &Field<'_>, images: &[Image]) -> Result<KernelTarget> {
    let object = place.object(&[
        "name",
        "doc",
        "api_versions",
        "traits",
        "operands",
        "remaining_operands",
        "results",
        "remaining_results",
        "attributes",
        "checks",
        "scratch",
        "launches",
    ])?;
    let signature = signature(&object)?
        .with_implied_traits()
        .map_err(|message| place.wrong(message))?;
    let checks = object.elements("checks")?.into_iter();
    let checks = checks.map(|place| check(&place, &signature));
    let checks = checks.collect::<Result<_>>()?;
    let scratch = object.elements("scratch")?;
    if scratch.len() > MAX_SCRATCH {
        return Err(object.place().wrong(format!(
            "expected at most {MAX_SCRATCH} scratch buffers, found {}",
            scratch.len()
        )));
    }
    let scratch: Vec<_> = scratch
        .iter()
        .map(|place| expression(place, &signature, &[Kind::Integer]))
        .collect::<Result<_>>()?;
    let launches = object.field("launches")?.list()?;
    let launches = launches
        .iter()
        .map(|place| launch::read(place, &signature, scratch.len(), images))
        .collect::<Result<_>>()?;
    Ok(KernelTarget {
        signature,
        launches,
        checks,
        scratch,
    })
}

/// Parses an expression of one of these kinds.
pub(super) fn expression(
    place: &Field<'_>,
    signature: &Signature,
    kinds: &[Kind],
) -> Result<Expression> {
    Expression::parse(place.expressions()?, signature, kinds).map_err(|status| place.blame(&status))
}

fn signature(object: &Object<'_>) -> Result<Signature> {
    let documentation = object.find("doc").map_or(Ok(""), |place| place.string())?;
    let mut api_versions = Vec::new();
    for place in object.elements("api_versions")? {
        let version = api_version(&place)?;
        if api_versions.contains(&version) {
            return Err(place.wrong(format!("expected {version} once, found it again")));
        }
        api_versions.push(version);
    }
    if api_versions.is_empty() {
        api_versions.push(ApiVersion::TypedFfi);
    }
    let traits = object.elements("traits")?;
    let attributes = object.find("attributes");
    let attributes = attributes.map(|place| self::attributes(&place));
    Ok(Signature {
        name: object.field("name")?.name()?.to_owned(),
        api_versions,
        stages: vec![Stage::Execute],
        operands: buffers(object, "operands")?,
        remaining_operands: object.flag("remaining_operands")?,
        results: buffers(object, "results")?,
        remaining_results: object.flag("remaining_results")?,
        attributes: attributes.transpose()?,
        documentation: callbox_core::untrusted_text::sanitize(
            documentation.as_bytes(),
            documentation.len(),
            MAX_DOCUMENTATION,
        ),
        traits: traits
            .iter()
            .map(|place| place.name().map(str::to_owned))
            .collect::<Result<_>>()?,
        derivative_of: None,
    })
}

fn api_version(place: &Field<'_>) -> Result<ApiVersion> {
    let name = place.string()?;
    let found = API_VERSIONS
        .into_iter()
        .find(|version| version.name() == name);
    found.ok_or_else(|| {
        let known = API_VERSIONS.map(ApiVersion::name);
        place.wrong(format!(
            "expected one of {}, found {}{}",
            known.join(", "),
            quoted(name),
            nearest(name, known.into_iter())
        ))
    })
}

fn buffers(object: &Object<'_>, field: &str) -> Result<Option<Vec<BufferSignature>>> {
    let Some(place) = object.find(field) else {
        return Ok(None);
    };
    let mut declared = Vec::new();
    for place in place.list()? {
        let read = buffer(&place)?;
        // One at a time, so that an error is reported at its place.
        let mut buffer = json::buffers(vec![read]).map_err(|message| place.wrong(message))?;
        declared.append(&mut buffer);
    }
    if declared.is_sorted_by_key(|buffer| buffer.optional) {
        Ok(Some(declared))
    } else {
        Err(place.wrong("expected what is optional behind what is not, found it before"))
    }
}

fn buffer(place: &Field<'_>) -> Result<json::Buffer> {
    let object = place.object(&["name", "element_types", "rank", "dimensions", "optional"])?;
    let element_types = object.find("element_types").map(|place| strings(&place));
    let rank = object.find("rank").map(|place| place.index());
    let dimensions = object.find("dimensions").map(|place| dimensions(&place));
    let name = object.find("name").map(|place| place.name());
    Ok(json::Buffer {
        name: name.transpose()?.unwrap_or_default().to_owned(),
        element_types: element_types.transpose()?.map(Limited::from),
        rank: rank.transpose()?,
        dimensions: dimensions.transpose()?,
        optional: object.flag("optional")?,
    })
}

/// Parses sizes, symbols and a leading `..`.
fn dimensions(place: &Field<'_>) -> Result<Vec<Value>> {
    let entries = place.list()?.into_iter();
    entries
        .map(|place| match place.string() {
            Ok(_) => Ok(Value::from(place.expressions()?)),
            Err(_) => place
                .index()
                .map(Value::from)
                .map_err(|_| place.unexpected("a size of 0 or more, a symbol or \"..\"")),
        })
        .collect()
}

fn strings(place: &Field<'_>) -> Result<Vec<String>> {
    let strings = place.list()?.into_iter();
    strings
        .map(|place| place.string().map(str::to_owned))
        .collect()
}

fn attributes(place: &Field<'_>) -> Result<Vec<AttributeSignature>> {
    let mut declared: Vec<AttributeSignature> = Vec::new();
    for place in place.list()? {
        let object = place.object(&[
            "name",
            "kind",
            "element_type",
            "fields",
            "variants",
            "optional",
        ])?;
        let element_type = object.find("element_type").map(|place| place.string());
        let fields = object.find("fields").map(|place| attributes(&place));
        let variants = object.find("variants").map(|place| variants(&place));
        let attribute = json::Attribute {
            name: object.field("name")?.name()?.to_owned(),
            kind: object.field("kind")?.string()?.to_owned(),
            element_type: element_type.transpose()?.map(str::to_owned),
            // The fields' own places are in their errors.
            fields: fields.is_some().then(Vec::new),
            variants: variants.transpose()?,
            optional: object.flag("optional")?,
        };
        let mut attribute = json::attribute(attribute).map_err(|message| place.wrong(message))?;
        attribute.fields = fields.transpose()?;
        if declared.iter().any(|other| other.name == attribute.name) {
            return Err(place.wrong(format!(
                "expected each name once, found {:?} again",
                attribute.name
            )));
        }
        declared.push(attribute);
    }
    Ok(declared)
}

/// Parses the numbers of an enum's variants, by name.
fn variants(place: &Field<'_>) -> Result<Map<String, Value>> {
    let entries = place.entries()?.into_iter();
    entries
        .map(|(name, number)| Ok((name.to_owned(), number.integer()?.into())))
        .collect()
}

fn check(place: &Field<'_>, signature: &Signature) -> Result<Check> {
    let object = place.object(&["require", "code", "message", "recoverable"])?;
    let code = object.find("code").map(|place| code(&place));
    let message = object.field("message")?;
    let recoverable = object.find("recoverable").map(|place| place.boolean());
    Ok(Check {
        recoverable: recoverable.transpose()?.unwrap_or(false),
        require: expression(&object.field("require")?, signature, &[Kind::Boolean])?,
        code: code.transpose()?.unwrap_or(StatusCode::InvalidArgument),
        message: Message::parse(message.expressions()?, signature)
            .map_err(|status| message.blame(&status))?,
    })
}

fn code(place: &Field<'_>) -> Result<StatusCode> {
    let name = place.string()?;
    match StatusCode::from_name(name) {
        Some(code) if code != StatusCode::Ok => Ok(code),
        _ => {
            let known = StatusCode::ALL.into_iter().filter(|c| *c != StatusCode::Ok);
            Err(place.wrong(format!(
                "expected the name of a failure such as INVALID_ARGUMENT, found {}{}",
                quoted(name),
                nearest(name, known.map(StatusCode::name))
            )))
        }
    }
}
