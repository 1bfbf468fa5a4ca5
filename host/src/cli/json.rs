//! The objects that `--json` prints. Their keys and the order of these are an interface.

use callbox::call::{AttributeSignature, BufferSignature, Signature};
use callbox::{ElementType, Status};
use serde::Serialize;
use serde_json::{Value, json};

use super::failure::Failure;
use super::inspect::Inspected;
use super::output::Finished;
use super::text::is_hidden;

#[derive(Serialize)]
struct Results {
    status: StatusObject,
    results: Vec<ResultObject>,
}

#[derive(Serialize)]
struct StatusObject {
    code: &'static str,
    number: u8,
    message: String,
    recoverable: bool,
    blame: Option<&'static str>,
}

#[derive(Serialize)]
struct ResultObject {
    shape: String,
    file: Option<String>,
}

#[derive(Serialize)]
struct Module {
    status: StatusObject,
    module: Option<Value>,
}

/// `{"status":{...},"results":[...]}`, and a line end.
pub(super) fn results(outcome: Result<&Finished, &Failure>) -> String {
    let result = |shape: String, file: Option<String>| ResultObject { shape, file };
    let results = outcome.map(|finished| {
        let arrays = finished.arrays();
        let arrays = arrays.map(|(shape, _, file)| {
            result(
                shape.to_string(),
                file.map(|path| path.to_string_lossy().into_owned()),
            )
        });
        arrays.collect()
    });
    line(&Results {
        status: status(outcome.err().map(Failure::status)),
        results: results.unwrap_or_default(),
    })
}

/// `{"status":{...},"module":{...}}`, and a line end. `module` is null if it could not be read.
pub(super) fn module(outcome: Result<&Inspected, &Failure>) -> String {
    line(&Module {
        status: status(outcome.err().map(Failure::status)),
        module: outcome.ok().map(module_object),
    })
}

fn status(failure: Option<&Status>) -> StatusObject {
    match failure {
        None => StatusObject {
            code: callbox::StatusCode::Ok.name(),
            number: callbox::StatusCode::Ok.number(),
            message: String::new(),
            recoverable: false,
            blame: None,
        },
        Some(status) => StatusObject {
            code: status.code().name(),
            number: status.code().number(),
            message: status.message().to_owned(),
            recoverable: status.recoverable(),
            blame: Some(status.blame().name()),
        },
    }
}

fn module_object(inspected: &Inspected) -> Value {
    let info = &inspected.info;
    let memory = info
        .memory
        .map(|m| json!({"initial": m.initial, "maximum": m.maximum}));
    let imports = info.imports.iter();
    let imports = imports.map(|i| json!({"module": i.module, "name": i.name, "type": i.ty}));
    let exports = info
        .exports
        .iter()
        .map(|e| json!({"name": e.name, "type": e.ty}));
    json!({
        "size": info.size,
        "sha256": info.sha256,
        "memory": memory,
        "loads": status(inspected.problem.as_ref()),
        "features": inspected.features,
        "imports": imports.collect::<Vec<_>>(),
        "exports": exports.collect::<Vec<_>>(),
        "has_metadata": info.has_metadata,
        "targets": info.targets.iter().map(target).collect::<Vec<_>>(),
    })
}

fn target(target: &Signature) -> Value {
    let buffers = |declared: &[BufferSignature]| declared.iter().map(buffer).collect::<Vec<_>>();
    let attributes =
        |declared: &[AttributeSignature]| declared.iter().map(attribute).collect::<Vec<_>>();
    json!({
        "name": target.name,
        "api_versions": target.api_versions.iter().map(|v| v.name()).collect::<Vec<_>>(),
        "stages": target.stages.iter().map(|s| s.name()).collect::<Vec<_>>(),
        "operands": target.operands.as_deref().map(buffers),
        "remaining_operands": target.remaining_operands,
        "results": target.results.as_deref().map(buffers),
        "remaining_results": target.remaining_results,
        "attributes": target.attributes.as_deref().map(attributes),
        "traits": target.traits,
        "documentation": target.documentation,
    })
}

fn buffer(buffer: &BufferSignature) -> Value {
    let types = buffer.element_types.iter().map(|t| t.lower_name());
    json!({
        "name": buffer.name,
        "element_types": types.collect::<Vec<_>>(),
        "rank": buffer.rank,
        "optional": buffer.optional,
    })
}

fn attribute(attribute: &AttributeSignature) -> Value {
    json!({
        "name": attribute.name,
        "kind": attribute.kind,
        "element_type": attribute.element_type.map(ElementType::lower_name),
        "optional": attribute.optional,
    })
}

/// The object on one line. Characters that could steer a terminal are escaped: they only stand in strings.
fn line(object: &impl Serialize) -> String {
    // Nothing here has keys that are no strings, or values that cannot be written.
    let text = serde_json::to_string(object).unwrap_or_default();
    let mut line = String::with_capacity(text.len() + 1);
    for c in text.chars() {
        match is_hidden(c) {
            true => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    line.push_str(&format!("\\u{unit:04x}"));
                }
            }
            false => line.push(c),
        }
    }
    line.push('\n');
    line
}
