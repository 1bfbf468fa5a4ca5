//! Kernels that fault, each in a process of its own, because a fault makes the device's context
//! unusable.
//!
//! The endless loop of `guests/faults` is left out: without a watchdog, nothing stops a kernel.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, bail, ensure};
use callbox::call::CallSite;
use callbox::cuda::{CudaDevice, CudaModule};
use callbox::{ArrayShape, Blame, ElementType, Status, StatusCode};
use callbox_tests::platform::cuda::trusted;
use serde_json::{Value, json};

use crate::guests;
use crate::report::{Outcome, Section};

/// The prefix of the names of these sections.
pub(crate) const PREFIX: &str = "fault: ";

/// The faults, with the driver errors that each may cause. The error of a trap depends on the
/// device.
pub(crate) const FAULTS: [(&str, &[u32]); 5] = [
    ("read_out_of_bounds", &[700]),
    ("write_out_of_bounds", &[700]),
    ("unreachable", &[715, 719]),
    ("misaligned", &[716]),
    // No fault: the device works again in a new process.
    ("none", &[]),
];

/// The part of a message that precedes the fault's own, in a call after a fault.
const LOST: &str = "was lost to an earlier failure";

/// The contents of the result before a call.
const UNTOUCHED: [u8; 16] = [0xa5; 16];

/// Runs a healthy kernel, the faulting one, and the healthy one again, and checks each outcome.
///
/// # Errors
/// An unexpected outcome.
pub(crate) fn cause(
    name: &str,
    fault: &str,
    device: &Arc<CudaDevice>,
    root: &Path,
) -> Result<Section> {
    let Some((_, errors)) = FAULTS.iter().find(|(known, _)| *known == fault) else {
        bail!("expected a fault, found {fault:?}");
    };
    let module = guests::kernels(root, "faults")?;
    let (healthy, written) = call(device, &module, "healthy")?;
    healthy?;
    ensure!(
        written == operand(),
        "expected the healthy kernel to copy, found {written:?}"
    );
    if errors.is_empty() {
        return Ok(Section::ok(name, json!({"fault": fault, "healthy": "OK"})));
    }
    let faulty = match fault {
        "misaligned" => misaligned()?,
        _ => module.clone(),
    };
    let (outcome, written) = call(device, &faulty, fault)?;
    let Err(first) = outcome else {
        bail!("expected {fault} to fail, found success");
    };
    let (outcome, _) = call(device, &module, "healthy")?;
    let Err(later) = outcome else {
        bail!("expected the device to be lost after {fault}, found {first}");
    };
    let found = json!({
        "fault": fault,
        "status": said(&first),
        "after": said(&later),
        "results_untouched": written == UNTOUCHED,
    });
    let problems = problems(errors, &first, &later, device.lost(), written == UNTOUCHED);
    Ok(if problems.is_empty() {
        Section::ok(name, found)
    } else {
        Section::failed(name, problems.join("; "), found)
    })
}

/// Lists unexpected outcomes.
fn problems(
    errors: &[u32],
    first: &Status,
    later: &Status,
    lost: Option<&Status>,
    is_untouched: bool,
) -> Vec<String> {
    let numbers: Vec<String> = errors.iter().map(|error| format!("({error})")).collect();
    let mut problems = Vec::new();
    let mut check = |holds: bool, expected: &str, found: &Status| {
        if !holds {
            problems.push(format!("expected {expected}, found {found}"));
        }
    };
    check(
        (first.code(), first.blame()) == (StatusCode::Internal, Blame::Guest),
        "INTERNAL of the guest's",
        first,
    );
    let is_named = numbers
        .iter()
        .any(|number| first.message().contains(number));
    check(
        is_named,
        &format!("driver error {}", numbers.join(" or ")),
        first,
    );
    check(is_untouched, "no results of a call that failed", first);
    check(
        lost == Some(first),
        "the device to know its first failure",
        first,
    );
    check(
        later.code() == StatusCode::Unavailable,
        "UNAVAILABLE afterwards",
        later,
    );
    let tells = later.message().contains(LOST) && later.message().contains(first.message());
    check(tells, "the first failure in the words of later ones", later);
    problems
}

fn said(status: &Status) -> Value {
    json!({
        "code": status.code().name(),
        "blame": status.blame().name(),
        "message": status.message(),
    })
}

fn operand() -> [u8; 16] {
    std::array::from_fn(|place| place as u8)
}

/// Calls a target with four numbers. Returns its outcome and the caller's result.
fn call(
    device: &Arc<CudaDevice>,
    module: &Arc<CudaModule>,
    target: &str,
) -> Result<(callbox::Result<()>, [u8; 16])> {
    let shape = ArrayShape::new(ElementType::F32, &[4])?;
    let site = CallSite::new(target, vec![shape.clone().into()], shape.into());
    let mut result = UNTOUCHED;
    let outcome = module
        .prepare_call(device, site)?
        .call(&[&operand()], &mut [&mut result]);
    Ok((outcome, result))
}

fn misaligned() -> Result<Arc<CudaModule>> {
    let text = include_str!("faults/misaligned.json");
    let image = include_bytes!("faults/misaligned.ptx").to_vec();
    Ok(trusted::manifest_text(text, vec![image])?)
}

/// Combines the results of all processes into one section.
pub(crate) fn together(name: &str, parts: Vec<Section>) -> Section {
    let failed = parts.iter().filter(|part| part.outcome != Outcome::Ok);
    let failed: Vec<String> = failed
        .map(|part| format!("{}: {}", part.name, part.why))
        .collect();
    let numbers = parts.into_iter().map(|part| part.numbers).collect();
    if failed.is_empty() {
        Section::ok(name, numbers)
    } else {
        Section::failed(name, failed.join("; "), numbers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(code: StatusCode, blame: Blame, text: &str) -> Status {
        Status::new(code, blame, text)
    }

    #[test]
    fn a_fault_with_the_expected_status_has_no_problems() {
        let first = status(
            StatusCode::Internal,
            Blame::Guest,
            "CUDA_ERROR_ILLEGAL_ADDRESS (700)",
        );
        let text = format!("CUDA device 0 was lost to an earlier failure: {first}");
        let later = status(StatusCode::Unavailable, Blame::Host, &text);
        assert!(problems(&[700], &first, &later, Some(&first), true).is_empty());
        assert_eq!(
            problems(&[716], &first, &later, Some(&first), true).len(),
            1
        );
        assert_eq!(problems(&[700], &first, &later, None, false).len(), 2);
        assert_eq!(
            problems(&[700], &first, &first, Some(&first), true).len(),
            2
        );
    }
}
