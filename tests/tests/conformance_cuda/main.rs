//! Runs every case on the platform CUDA with the stand-in driver: one test for each file and each
//! mode of the stand-in, named by mode and path.
//!
//! The tests run callbox's own backend with the shipped PTX and libraries. The stand-in is not a
//! GPU, and proves nothing about one. It must be loaded before CUDA is first used, so that the
//! tests have a process of their own.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod faults;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Result, ensure};
use callbox_cuda_stand_in::{Leaks, Mode, StandIn};
use callbox_tests::case::Case;
use callbox_tests::discover::{self, Found};
use callbox_tests::platform::Platform as _;
use callbox_tests::platform::cuda::Cuda;
use callbox_tests::report::{Counts, Ending, ResultReport};
use callbox_tests::run;
use libtest_mimic::{Arguments, Conclusion, Trial};

/// The outcomes of the cases in one mode.
#[derive(Default)]
struct Came {
    counts: Counts,
    /// The number of cases that were not run, by reason.
    not_run: BTreeMap<String, usize>,
}

fn main() -> Result<ExitCode> {
    if let Some(code) = faults::as_told() {
        return Ok(code);
    }
    let arguments = Arguments::from_args();
    let stand_in = StandIn::try_preload().map_err(anyhow::Error::msg)?;
    let cases = discover::all()?;
    ensure!(!cases.is_empty(), "expected cases, found none");
    let mut conclusions = Vec::new();
    // The mode applies to the whole driver: the modes run one after the other.
    for mode in [Mode::Eager, Mode::Lazy] {
        stand_in.set_mode(mode);
        let cuda = Arc::new(Cuda::on_stand_in());
        let came = Arc::<Mutex<Came>>::default();
        let trials = cases
            .iter()
            .map(|case| trial(mode, case, &cuda, stand_in, &came));
        let trials = trials.chain(faults::trials(mode)).collect();
        conclusions.push(libtest_mimic::run(&arguments, trials));
        let label = cuda.label();
        // Dropping the device frees what callbox keeps for it.
        drop(cuda);
        let name = format!("{}/nothing_is_left_behind", faults::mode_name(mode));
        let left = Trial::test(name, || {
            nothing_is_left(stand_in);
            Ok(())
        });
        conclusions.push(libtest_mimic::run(&arguments, vec![left]));
        if !arguments.list {
            let came = came.lock().unwrap_or_else(PoisonError::into_inner);
            eprintln!("{label} {}: {}", faults::mode_name(mode), came.counts);
            for (reason, cases) in &came.not_run {
                eprintln!("not run: {cases} cases: {reason}");
            }
        }
    }
    let failed = conclusions.iter().any(Conclusion::has_failed);
    Ok(if failed {
        ExitCode::from(101)
    } else {
        ExitCode::SUCCESS
    })
}

/// Modules may remain: libraries of the C ABI never unload theirs.
fn nothing_is_left(stand_in: &StandIn) {
    let leaks = stand_in.leaks();
    let modules = leaks.modules;
    let expected = Leaks {
        modules,
        ..Leaks::NONE
    };
    assert_eq!(leaks, expected);
}

fn trial(
    mode: Mode,
    case: &Found,
    cuda: &Arc<Cuda>,
    stand_in: &'static StandIn,
    came: &Arc<Mutex<Came>>,
) -> Trial {
    let (cuda, came, path) = (Arc::clone(cuda), Arc::clone(came), case.path.clone());
    Trial::test(
        format!("{}/{}", faults::mode_name(mode), case.name),
        move || {
            let read = Case::read(&path).map_err(|error| format!("{error:#}"))?;
            let result = ResultReport::new(cuda.label(), run::run(&read, &*cuda));
            // The recorded calls are not used here, and would accumulate.
            stand_in.clear_calls();
            let mut came = came.lock().unwrap_or_else(PoisonError::into_inner);
            came.counts.add(result.ending);
            if result.ending == Ending::NotRun {
                *came.not_run.entry(result.reason).or_default() += 1;
            }
            match result.problem {
                Some(problem) => Err(problem.to_string().into()),
                None => Ok(()),
            }
        },
    )
}
