//! The objects that `--json` prints. Their keys, in this order, are a stable interface.

mod inspected;

use callbox::Status;
use callbox_core::untrusted_text::is_hidden;
use serde::ser::{Serialize, SerializeMap, Serializer};

use super::doctor::Report;
use super::failure::Failure;
use super::inspect::{Inspected, Kind};
use super::output::{DeviceName, Finished};
#[cfg(feature = "cuda")]
use super::ptx::PtxReport;

#[derive(serde::Serialize)]
struct Results<'a> {
    status: StatusObject,
    results: Vec<ResultObject>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<&'a DeviceName>,
}

#[derive(serde::Serialize)]
struct StatusObject {
    code: &'static str,
    number: u8,
    message: String,
    recoverable: bool,
    blame: Option<&'static str>,
}

#[derive(serde::Serialize)]
struct ResultObject {
    shape: String,
    file: Option<String>,
}

/// `{"status":{...},"results":[...]}` and a line end, with `"device":{...}` for results of a CUDA
/// device.
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
        device,
    })
}

/// `{"status":{...},"module":{...}}` and a line end, with `manifest`, `library` or `ptx` in
/// place of `module` for those. The object is null if the file could not be read.
pub(super) fn inspected(kind: Kind, outcome: Result<&Inspected, &Failure>) -> String {
    let key = match kind {
        Kind::Module => "module",
        Kind::Manifest => "manifest",
        Kind::Library => "library",
        Kind::Ptx => "ptx",
    };
    keyed(key, outcome.ok(), outcome.err().map(Failure::status))
}

/// `{"status":{...},"ptx":{...}}` and a line end. `ptx` is null if the file could not be read.
#[cfg(feature = "cuda")]
pub(super) fn ptx(report: Option<&PtxReport>, failure: Option<&Failure>) -> String {
    keyed("ptx", report, failure.map(Failure::status))
}

/// `{"status":{...},"doctor":{...}}` and a line end. `doctor` is null for wrong usage.
pub(super) fn doctor(outcome: Result<&Report, &Failure>) -> String {
    command("doctor", outcome)
}

/// `{"status":{...},KEY:{...}}` and a line end, for a command with one object. It is null if the
/// command failed before it had one.
pub(super) fn command<T: Serialize>(key: &'static str, outcome: Result<&T, &Failure>) -> String {
    keyed(key, outcome.ok(), outcome.err().map(Failure::status))
}

/// The same for a command that fails after it has its object.
pub(super) fn checked<T: Serialize>(
    key: &'static str,
    object: &T,
    failure: Option<&Failure>,
) -> String {
    keyed(key, Some(object), failure.map(Failure::status))
}

/// `{"status":{...},KEY:OBJECT}`, written as it is read: a tree of the values would take some
/// thirty times the text of metadata that an untrusted file has.
struct Keyed<'a, T> {
    key: &'static str,
    object: Option<&'a T>,
    status: StatusObject,
}

impl<T: Serialize> Serialize for Keyed<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry("status", &self.status)?;
        map.serialize_entry(self.key, &self.object)?;
        map.end()
    }
}

fn keyed<T: Serialize>(key: &'static str, object: Option<&T>, failure: Option<&Status>) -> String {
    line(&Keyed {
        key,
        object,
        status: status(failure),
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

/// The object on one line. Characters that could control a terminal only occur in strings, and are
/// escaped.
fn line(object: &impl Serialize) -> String {
    // All keys are strings, so that this does not fail.
    let text = serde_json::to_string(object).unwrap_or_default();
    let mut line = String::with_capacity(text.len() + 1);
    for c in text.chars() {
        if is_hidden(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                line.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            line.push(c);
        }
    }
    line.push('\n');
    line
}
