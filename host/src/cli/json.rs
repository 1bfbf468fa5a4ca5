//! The objects that `--json` prints. Their keys and the order of these are an interface.

mod inspected;

use callbox::Status;
use serde::Serialize;
use serde_json::json;

use super::doctor::Report;
use super::failure::Failure;
use super::inspect::{Inspected, Kind};
use super::output::Finished;
use super::text::is_hidden;

#[derive(Serialize)]
struct Results {
    status: StatusObject,
    results: Vec<ResultObject>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<DeviceObject>,
}

#[derive(Serialize)]
struct DeviceObject {
    ordinal: usize,
    name: String,
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

/// `{"status":{...},"results":[...]}`, with `"device":{...}` if the results are a CUDA device's, and a line end.
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
    let device = outcome.ok().and_then(Finished::device);
    line(&Results {
        status: status(outcome.err().map(Failure::status)),
        results: results.unwrap_or_default(),
        device: device.map(|device| DeviceObject {
            ordinal: device.ordinal(),
            name: device.name().to_owned(),
        }),
    })
}

/// `{"status":{...},"module":{...}}`, `manifest` or `library` in place of `module`, and a line end. It is null if it could not be read.
pub(super) fn inspected(kind: Kind, outcome: Result<&Inspected, &Failure>) -> String {
    let status = status(outcome.err().map(Failure::status));
    let object = outcome.ok().map(inspected::object);
    line(&match kind {
        Kind::Module => json!({"status": status, "module": object}),
        Kind::Manifest => json!({"status": status, "manifest": object}),
        Kind::Library => json!({"status": status, "library": object}),
    })
}

/// `{"status":{...},"doctor":{...}}`, and a line end. `doctor` is null for wrong usage.
pub(super) fn doctor(outcome: Result<&Report, &Failure>) -> String {
    let status = status(outcome.err().map(Failure::status));
    line(&json!({"status": status, "doctor": outcome.ok()}))
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
