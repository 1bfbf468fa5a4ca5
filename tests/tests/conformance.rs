//! Runs every case of `tests/cases` and `tests/hostile` on the platform Host, one test per file,
//! named by its path.
//!
//! A word on the command line filters by name: `cargo test -p callbox-tests --test conformance --
//! faults/`. `cargo xtask conformance` runs the same cases and writes reports.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Result, ensure};
use callbox_tests::case::Case;
use callbox_tests::discover::{self, Found};
use callbox_tests::platform::PlatformName;
use callbox_tests::platform::host::Host;
use callbox_tests::report::{Counts, Ending, ResultReport};
use callbox_tests::run;
use libtest_mimic::{Arguments, Failed, Trial};

fn main() -> Result<ExitCode> {
    let arguments = Arguments::from_args();
    let counts = Arc::<Mutex<Counts>>::default();
    let mut trials: Vec<Trial> = discover::all()?
        .into_iter()
        .map(|case| trial(case, &counts))
        .collect();
    ensure!(!trials.is_empty(), "expected cases, found none");
    trials.push(Trial::test("every_file_belongs_to_a_case", || {
        no_strays(&discover::folder())?;
        no_strays(&discover::hostile_folder())
    }));
    let conclusion = libtest_mimic::run(&arguments, trials);
    if !arguments.list {
        let counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
        eprintln!("cases: {counts}");
    }
    Ok(conclusion.exit_code())
}

fn trial(case: Found, counts: &Arc<Mutex<Counts>>) -> Trial {
    let counts = Arc::clone(counts);
    Trial::test(case.name.clone(), move || {
        let read = Case::read(&case.path).map_err(|error| format!("{error:#}"))?;
        let result = ResultReport::new(PlatformName::Host, run::run(&read, &Host::default()));
        counts
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .add(result.ending);
        match (result.ending, result.problem) {
            (_, Some(problem)) => Err(problem.to_string().into()),
            (Ending::Passed, None) => Ok(()),
            (ending, None) => {
                eprintln!("{}: {ending}: {}", case.name, result.reason);
                Ok(())
            }
        }
    })
}

fn no_strays(folder: &Path) -> Result<(), Failed> {
    let strays: Vec<PathBuf> = discover::strays(folder).map_err(|error| format!("{error:#}"))?;
    if strays.is_empty() {
        Ok(())
    } else {
        Err(
            format!("expected every file beside cases to be named by one, found {strays:#?}")
                .into(),
        )
    }
}
