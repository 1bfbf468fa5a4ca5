//! Attributes as typed FFI decodes them, with XLA's messages.

use callbox::{
    ArrayShape, Attribute, Blame, Dictionary, ElementType, Literal, NativeType, Result, Status,
    StatusCode,
};

/// A decoded value, or XLA's message for what is wrong with it.
pub(super) type Diagnostic<T> = std::result::Result<T, String>;

/// A failure of the twin itself.
pub(super) fn failure(code: StatusCode, message: impl Into<String>) -> Status {
    Status::new(code, Blame::Guest, message)
}

pub(super) fn invalid_argument(message: impl Into<String>) -> Status {
    failure(StatusCode::InvalidArgument, message)
}

/// The failure of decoding a handler's parameters other than attributes, each with its number and
/// message.
pub(super) fn bad_operands(bad: &[(usize, String)]) -> Status {
    let numbers: Vec<String> = bad.iter().map(|(number, _)| number.to_string()).collect();
    let diagnostics: Vec<&str> = bad.iter().map(|(_, text)| text.as_str()).collect();
    undecoded(
        &format!("operands (bad operands at: {})", numbers.join(", ")),
        &diagnostics.join("\n"),
    )
}

/// The failure of decoding a handler's attributes, each with its name and message.
pub(super) fn bad_attributes(bad: &[(&str, String)]) -> Status {
    let names: Vec<&str> = bad.iter().map(|(name, _)| *name).collect();
    let lines = bad.iter().flat_map(|(name, text)| {
        let lines = text.lines();
        lines.map(move |line| format!("attribute {name}: {line}"))
    });
    let lines: Vec<String> = lines.collect();
    undecoded(
        &format!("attributes (bad attributes: {})", names.join(", ")),
        &lines.join("\n"),
    )
}

fn undecoded(bad: &str, diagnostics: &str) -> Status {
    invalid_argument(format!(
        "[execute] Failed to decode all FFI handler {bad}\nDiagnostics:\n{diagnostics}"
    ))
}

/// The value of the attribute with this name.
pub(super) fn attribute<T>(name: &str, decoded: Diagnostic<T>) -> Result<T> {
    decoded.map_err(|text| bad_attributes(&[(name, text)]))
}

/// The attribute with this name.
pub(super) fn find<'a>(attributes: &'a Dictionary, name: &str) -> Diagnostic<&'a Attribute> {
    attributes
        .get(name)
        .ok_or_else(|| format!("Unexpected attribute: {name}"))
}

fn wrong_kind(expected: &str, found: &Attribute) -> String {
    format!(
        "Wrong attribute type: expected {expected} but got {}",
        found.kind()
    )
}

fn typed(what: &str, expected: ElementType, found: &Literal) -> Diagnostic<()> {
    let shape = found.shape().as_array();
    match shape.map(ArrayShape::element_type) {
        Some(found) if found == expected => Ok(()),
        Some(found) => Err(format!(
            "Wrong {what} data type: expected {} but got {}",
            expected.upper_name(),
            found.upper_name()
        )),
        None => Err(format!("Wrong {what} data type: found a tuple")),
    }
}

pub(super) fn scalar<T: NativeType>(attribute: &Attribute) -> Diagnostic<T> {
    let Attribute::Scalar(literal) = attribute else {
        return Err(wrong_kind("scalar", attribute));
    };
    typed("scalar", T::ELEMENT_TYPE, literal)?;
    elements(literal)?
        .first()
        .copied()
        .ok_or_else(|| "Wrong scalar size: expected 1 element but got 0".to_owned())
}

pub(super) fn array<T: NativeType>(attribute: &Attribute) -> Diagnostic<Vec<T>> {
    let Attribute::Array(literal) = attribute else {
        return Err(wrong_kind("array", attribute));
    };
    typed("array", T::ELEMENT_TYPE, literal)?;
    elements(literal)
}

fn elements<T: NativeType>(literal: &Literal) -> Diagnostic<Vec<T>> {
    literal
        .to_vec()
        .map_err(|status| status.message().to_owned())
}

pub(super) fn text(attribute: &Attribute) -> Diagnostic<&str> {
    let Attribute::String(bytes) = attribute else {
        return Err(wrong_kind("string", attribute));
    };
    std::str::from_utf8(bytes)
        .map_err(|error| format!("Wrong string encoding: expected UTF-8 but got {error}"))
}

pub(super) fn dictionary(attribute: &Attribute) -> Diagnostic<&Dictionary> {
    match attribute {
        Attribute::Dictionary(dictionary) => Ok(dictionary),
        other => Err(wrong_kind("dictionary", other)),
    }
}

pub(super) fn function(attribute: &Attribute) -> Diagnostic<&str> {
    match attribute {
        Attribute::Function(name) => Ok(name),
        other => Err(wrong_kind("function", other)),
    }
}

/// An attribute that a handler looks up itself.
pub(super) fn asked<'a, T>(
    attributes: &'a Dictionary,
    name: &str,
    decode: impl FnOnce(&'a Attribute) -> Diagnostic<T>,
) -> Result<T> {
    find(attributes, name)
        .and_then(decode)
        .map_err(invalid_argument)
}

/// The number of one of an enum's variants.
pub(super) fn variant(found: i64, variants: &[(i64, &str)]) -> Diagnostic<i64> {
    if variants.iter().any(|(number, _)| *number == found) {
        return Ok(found);
    }
    let known: Vec<String> = variants
        .iter()
        .map(|(number, name)| format!("{number} ({name})"))
        .collect();
    Err(format!(
        "Wrong enum value: expected one of {} but got {found}",
        known.join(", ")
    ))
}
