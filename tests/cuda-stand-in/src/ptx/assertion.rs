//! The message of a failed `assert`.

use super::FaultKind;
use super::spaces::{Reach, Trouble};
use super::types::Space;

/// Describes a call of `__assertfail(condition, file, line, function, size)`.
pub(super) fn failed(arguments: &[u64], reach: &Reach<'_>) -> Trouble {
    let text = match arguments {
        &[condition, file, line, function, ..] => {
            let mut bytes = [0; 4];
            let line = match reach.load(Space::Param, line, &mut bytes) {
                Ok(()) => u32::from_le_bytes(bytes),
                Err(_) => 0,
            };
            let [condition, file, function] = [condition, file, function].map(|at| text(at, reach));
            format!("assertion `{condition}` failed in {function} ({file}:{line})")
        }
        _ => "an assertion failed".to_owned(),
    };
    Trouble {
        kind: FaultKind::Assert,
        text,
    }
}

/// Reads the C string that a parameter points to, as far as it is readable.
fn text(parameter: u64, reach: &Reach<'_>) -> String {
    let mut bytes = [0; 8];
    let mut text = Vec::new();
    if reach.load(Space::Param, parameter, &mut bytes).is_ok() {
        let start = u64::from_le_bytes(bytes);
        for at in 0..256 {
            let mut byte = [0];
            let loaded = reach.load(Space::Generic, start.wrapping_add(at), &mut byte);
            if loaded.is_err() || byte[0] == 0 {
                break;
            }
            text.push(byte[0]);
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}
