//! Kernels that fault, each in a process of its own, for they take the device's context with them.
//!
//! The endless loop of `guests/faults` is not among them: nothing stops a kernel on a device without a watchdog.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, bail, ensure};
use callbox::call::CallSite;
use callbox::cuda::{CudaDevice, CudaModule};
use callbox::{ArrayShape, Blame, ElementType, Status, StatusCode};
use serde_json::{Value, json};

use crate::guests;
use crate::report::{Outcome, Section};

/// What the names of these sections' processes begin with.
pub(crate) const PREFIX: &str = "fault: ";

/// The faults, with the errors of the driver's that each may be. What a trap is depends on the device.
pub(crate) const FAULTS: [(&str, &[u32]); 5] = [
    ("read_out_of_bounds", &[700]),
    ("write_out_of_bounds", &[700]),
    ("unreachable", &[715, 719]),
    ("misaligned", &[716]),
    // None of the driver's: a device is there again for another process.
    ("none", &[]),
];

/// What a call says that comes after a fault, before the fault's own words.
const LOST: &str = "was lost to an earlier failure";

/// What the result is before a call.
const UNTOUCHED: [u8; 16] = [0xa5; 16];

/// Has a healthy kernel run, then the one that faults, then the healthy one again, and checks what each comes to.
///
/// # Errors
/// What is not as expected.
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
        bail!("expected {fault} to fail, and it did not");
    };
    let (outcome, _) = call(device, &module, "healthy")?;
    let Err(later) = outcome else {
        bail!("expected the device to be lost after {fault}, and it was not: {first}");
    };
    let found = json!({
        "fault": fault,
        "status": said(&first),
        "after": said(&later),
        "results_untouched": written == UNTOUCHED,
    });
    let problems = problems(errors, &first, &later, device.lost(), written == UNTOUCHED);
    Ok(match problems.is_empty() {
        true => Section::ok(name, found),
        false => Section::failed(name, problems.join("; "), found),
    })
}

/// What is not as it should be.
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
        &format!("error {} of the driver's", numbers.join(" or ")),
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

/// Calls a target with four numbers: what it came to, and the caller's result.
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
    guests::module(text, vec![image])
}

/// One section of what the processes said.
pub(crate) fn together(name: &str, parts: Vec<Section>) -> Section {
    let failed = parts.iter().filter(|part| part.outcome != Outcome::Ok);
    let failed: Vec<String> = failed
        .map(|part| format!("{}: {}", part.name, part.why))
        .collect();
    let numbers = parts.into_iter().map(|part| part.numbers).collect();
    match failed.is_empty() {
        true => Section::ok(name, numbers),
        false => Section::failed(name, failed.join("; "), numbers),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(code: StatusCode, blame: Blame, text: &str) -> Status {
        Status::new(code, blame, text)
    }

    #[test]
    fn a_fault_that_is_told_as_it_should_has_no_problems() {
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
