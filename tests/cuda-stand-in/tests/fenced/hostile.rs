//! The kernels of `tests/ptx/hostile`, verified, fenced and run.

use callbox_ptx::fence::{Fault, fence};
use callbox_ptx_cases::hostile::{self, ENTRY, Expectation, Hostile};

use crate::rig;

fn check(hostile: &Hostile) -> Result<(), String> {
    let here = hostile.here;
    let launch = hostile.case.launch.launch();
    let verified = rig::verified(&hostile.text, ENTRY, &launch);
    match (&hostile.case.expect, verified) {
        (Expectation::Refused { refused, line }, Err(refusals)) => {
            let first = refusals.first().ok_or("a refusal without a reason")?;
            let is_line = line.or(here).is_none_or(|line| line == first.line);
            if refused.has(first.rule.name()) && is_line {
                return Ok(());
            }
            Err(format!("expected line {:?}, found {first}", line.or(here)))
        }
        (Expectation::Refused { .. }, Ok(_)) => Err("it was not refused".to_owned()),
        (_, Err(refusals)) => Err(format!("it was refused: {}", refusals[0])),
        (expect, Ok((module, proof))) => {
            let fenced = fence(&module, &proof);
            let outcome = rig::run(&fenced, ENTRY, &launch, 4, rig::BUDGET);
            let outcome = outcome.map_err(|failure| format!("{failure:?}"))?;
            judge(expect, &outcome, here)
        }
    }
}

fn judge(expect: &Expectation, outcome: &rig::Outcome, here: Option<u32>) -> Result<(), String> {
    let Expectation::Fault {
        fault,
        offset,
        param,
        thread,
    } = expect
    else {
        return match outcome.fault {
            None => Ok(()),
            Some(fault) => Err(format!("it noted {fault:?}")),
        };
    };
    let Some((line, found)) = outcome.fault else {
        return Err("it noted nothing".to_owned());
    };
    let (name, found_param) = match found {
        Fault::Access { param, .. } => ("access", param),
        Fault::Trap => ("trap", None),
        Fault::Assertion => ("assertion", None),
        Fault::Stopped => ("stopped", None),
    };
    let is_right = name == fault
        && here.is_none_or(|here| here == line)
        && offset.is_none_or(|offset| offset == outcome.offset)
        && param.is_none_or(|param| found_param == Some(param))
        && thread.is_none_or(|thread| thread == outcome.thread && outcome.block == [0; 3]);
    if is_right {
        Ok(())
    } else {
        Err(format!(
            "line {line}, not {here:?}: {found:?} at {} in {:?}",
            outcome.offset, outcome.thread
        ))
    }
}

#[test]
fn hostile_kernels_get_their_status() {
    let kernels = hostile::all(&rig::root()).unwrap();
    assert!(kernels.len() >= 100, "{} cases", kernels.len());
    let mut wrong = Vec::new();
    for kernel in kernels {
        if let Err(message) = check(&kernel) {
            let line = message.lines().next().unwrap_or_default();
            wrong.push(format!("{}: {line}", kernel.name));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} cases:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
