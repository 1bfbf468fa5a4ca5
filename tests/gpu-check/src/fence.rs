//! Kernels without a grant on the device: what hostile ones get, and how soon a stop ends them.

pub(crate) mod cost;
pub(crate) mod random;
mod rig;

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use callbox::call::CancelToken;
use callbox::cuda::CudaDevice;
use callbox::{CallOptions, Deadline, StatusCode};
use callbox_ptx_cases::hostile;
use callbox_tests::fenced::{self, FencedCall, INEXPRESSIBLE};
use serde_json::{Value, json};

use crate::options::Amount;
use crate::report::Section;
use crate::timing::Series;

/// When a kernel without an end is stopped.
const STOPPED_AFTER: Duration = Duration::from_millis(50);

/// The longest time from a stop to the call's return.
const MOST: Duration = Duration::from_secs(1);

/// Runs each hostile kernel and a healthy one after it, in one context, and stops kernels that have
/// no end.
///
/// # Errors
/// Files that cannot be read, and kernels that are not stopped in time.
pub(crate) fn hold(
    name: &str,
    device: &Arc<CudaDevice>,
    root: &Path,
    amount: Amount,
    is_stand_in: bool,
) -> Result<Section> {
    let mut kernels = hostile::all(root)?;
    kernels.retain(|kernel| !INEXPRESSIBLE.contains(&&*kernel.name));
    let mut wrong = Vec::new();
    for kernel in &kernels {
        if let Some(problem) = fenced::judge(kernel, device) {
            wrong.push(json!({"kernel": kernel.name, "problem": problem}));
        }
        if device.lost().is_some() {
            break;
        }
    }
    let stops = if device.lost().is_none() {
        stops(amount)?
    } else {
        Vec::new()
    };
    let alive = fenced::judge_healthy(device);
    let numbers = json!({
        "hostile_kernels": kernels.len(),
        "wrong": wrong,
        "stops": if is_stand_in { Vec::new() } else { stops },
        "healthy_at_the_end": alive.is_none(),
    });
    Ok(if wrong.is_empty() && alive.is_none() {
        Section::ok(name, numbers)
    } else {
        let why = format!(
            "{} of {} hostile kernels ended otherwise; the last call: {}",
            wrong.len(),
            kernels.len(),
            alive.unwrap_or_else(|| "OK".to_owned())
        );
        Section::failed(name, why, numbers)
    })
}

/// Measures the time from a deadline or a cancellation to the return of the call.
fn stops(amount: Amount) -> Result<Vec<Value>> {
    let rounds = match amount {
        Amount::Tiny => 1,
        Amount::Quick => 10,
        Amount::Full => 50,
    };
    let mut rows = Vec::new();
    for (by, code) in [
        ("deadline", StatusCode::DeadlineExceeded),
        ("cancel token", StatusCode::Cancelled),
    ] {
        let prepared = FencedCall::endless().prepare()?;
        let mut late_ms = Series::default();
        for _ in 0..=rounds {
            let cancel = CancelToken::new();
            let options = CallOptions {
                deadline: (by == "deadline").then_some(Deadline::After(STOPPED_AFTER)),
                cancel: Some(cancel.clone()),
                ..CallOptions::default()
            };
            let (operand, mut result) = ([0; 256], [0; 256]);
            let begun = Instant::now();
            let outcome = thread::scope(|scope| {
                if by != "deadline" {
                    scope.spawn(move || {
                        thread::sleep(STOPPED_AFTER);
                        cancel.cancel();
                    });
                }
                prepared.call_with(&options, &[&operand], &mut [&mut result])
            });
            let late = begun.elapsed().saturating_sub(STOPPED_AFTER);
            let found = outcome.map_err(|status| status.code());
            ensure!(
                found == Err(code),
                "stopped by a {by}: expected {code}, found {found:?}"
            );
            ensure!(late < MOST, "stopped by a {by}: it took {late:?}");
            late_ms.push(late.as_secs_f64() * 1e3);
        }
        rows.push(json!({
            "stopped_by": by,
            "times": rounds + 1,
            "late_ms": late_ms.median(),
            "late_p99_ms": late_ms.quantile(0.99),
            "late_max_ms": late_ms.quantile(1.0),
        }));
    }
    Ok(rows)
}
