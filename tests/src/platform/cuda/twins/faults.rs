//! Twins of `guests/faults/src/lib.rs` that fail on the host with a status.

use callbox::cuda::{CudaCall, CudaTarget};
use callbox::{Result, StatusCode};

use super::twin;
use super::words::{asked, failure, invalid_argument, scalar, text};

pub(super) fn twins() -> Vec<(&'static str, CudaTarget)> {
    vec![
        twin("fail", fail),
        twin("non_utf8_message", |_| {
            let message = String::from_utf8_lossy(b"not UTF-8: \xff\xfe \xc3( end");
            Err(invalid_argument(message))
        }),
    ]
}

fn fail(call: &mut CudaCall<'_>) -> Result<()> {
    let all = call.attributes();
    let code = asked(all, "code", scalar::<i32>)?;
    let message = asked(all, "message", text)?;
    let recoverable = all.contains_key("recoverable") && asked(all, "recoverable", scalar::<bool>)?;
    let code = u32::try_from(code).ok().and_then(StatusCode::from_number);
    let Some(code) = code.filter(|code| *code != StatusCode::Ok) else {
        return Err(invalid_argument("expected a status code from 1 to 16"));
    };
    Err(failure(code, message).with_recoverable(recoverable))
}
