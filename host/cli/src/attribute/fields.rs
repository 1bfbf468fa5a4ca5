//! JSON values that take the types that the target declares, dictionaries field by field.

use callbox::call::AttributeSignature;
use callbox::{Attribute, Dictionary, Status};
use serde_json::{Map, Value};

use super::attribute;

/// The attribute, or field of an attribute, with this path, such as `range.lo`.
pub(super) fn typed(
    path: &str,
    value: &Value,
    declared: Option<&AttributeSignature>,
) -> callbox::Result<Attribute> {
    let fields = declared.and_then(|declared| declared.fields.as_deref());
    if let (Value::Object(members), Some(fields)) = (value, fields) {
        return dictionary(path, members, fields).map(Attribute::Dictionary);
    }
    let element_type = declared.and_then(|declared| declared.element_type);
    let element_type = element_type.filter(|_| !value.is_object());
    attribute(value, element_type).map_err(|message| {
        let status = Status::invalid_argument(message);
        match element_type {
            Some(t) => status.context(format!("{}, which the target declares as {t}", the(path))),
            None => status.context(the(path)),
        }
    })
}

/// A dictionary whose fields the target declares.
fn dictionary(
    path: &str,
    members: &Map<String, Value>,
    declared: &[AttributeSignature],
) -> callbox::Result<Dictionary> {
    check_names(members, declared)
        .map_err(|message| Status::invalid_argument(message).context(the(path)))?;
    let fields = members.iter().map(|(name, value)| {
        let declared = declared.iter().find(|field| field.name == *name);
        let path = format!("{path}.{name}");
        let field = typed(&path, value, declared)?;
        match declared {
            Some(declared) if field.kind() != declared.kind => {
                Err(Status::invalid_argument(format!(
                    "expected the kind {}, found {}",
                    declared.kind,
                    field.kind()
                ))
                .context(the(&path)))
            }
            _ => Ok((name.clone(), field)),
        }
    });
    fields.collect()
}

fn check_names(
    members: &Map<String, Value>,
    declared: &[AttributeSignature],
) -> Result<(), String> {
    let is_declared = |name: &str| declared.iter().any(|field| field.name == name);
    let unknown = members.keys().find(|name| !is_declared(name));
    let missing = declared
        .iter()
        .find(|field| !field.optional && !members.contains_key(&field.name));
    let found = match (unknown, missing) {
        (Some(unknown), _) => format!("another `{unknown}`"),
        (None, Some(missing)) => format!("no `{}`", missing.name),
        (None, None) => return Ok(()),
    };
    let names: Vec<_> = declared.iter().map(|f| format!("`{}`", f.name)).collect();
    let names = if names.is_empty() {
        "no fields".to_owned()
    } else {
        format!("the fields {}", names.join(", "))
    };
    Err(format!("expected {names}, found {found}"))
}

fn the(path: &str) -> String {
    format!("the attribute `{path}`")
}
