//! Runs every case of `tests/cases`: one test for each file, named by its path.
//!
//! A word on the command line filters by name: `cargo test -p callbox-tests --test conformance -- faults/`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Result, ensure};
use callbox_tests::case::Case;
use callbox_tests::discover::{self, Found};
use callbox_tests::run::{self, Verdict};
use libtest_mimic::{Arguments, Failed, Trial};

fn main() -> Result<ExitCode> {
    let arguments = Arguments::from_args();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases");
    let counts = Arc::<Counts>::default();
    let mut trials: Vec<Trial> = discover::cases(&folder)?
        .into_iter()
        .map(|case| trial(case, &counts))
        .collect();
    ensure!(
        !trials.is_empty(),
        "expected cases in {}, found none",
        folder.display()
    );
    trials.push(Trial::test("every_file_belongs_to_a_case", move || {
        no_strays(&folder)
    }));
    let conclusion = libtest_mimic::run(&arguments, trials);
    if !arguments.list {
        eprintln!("{}", counts.summary());
    }
    Ok(conclusion.exit_code())
}

/// How many cases ended how.
#[derive(Debug, Default)]
struct Counts {
    passed: AtomicUsize,
    failed_as_expected: AtomicUsize,
    unsupported: AtomicUsize,
}

impl Counts {
    fn add(&self, verdict: Verdict) {
        let count = match verdict {
            Verdict::Passed => &self.passed,
            Verdict::FailedAsExpected => &self.failed_as_expected,
            Verdict::Unsupported => &self.unsupported,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    fn summary(&self) -> String {
        format!(
            "cases: {} passed, {} failed as expected, {} unsupported",
            self.passed.load(Ordering::Relaxed),
            self.failed_as_expected.load(Ordering::Relaxed),
            self.unsupported.load(Ordering::Relaxed)
        )
    }
}

fn trial(case: Found, counts: &Arc<Counts>) -> Trial {
    let counts = Arc::clone(counts);
    Trial::test(case.name, move || {
        let verdict = Case::read(&case.path).and_then(|case| run::run(&case));
        counts.add(verdict.map_err(|error| Failed::from(format!("{error:#}")))?);
        Ok(())
    })
}

fn no_strays(folder: &Path) -> Result<(), Failed> {
    let strays: Vec<PathBuf> = discover::strays(folder).map_err(|error| format!("{error:#}"))?;
    match strays.is_empty() {
        true => Ok(()),
        false => Err(format!(
            "expected every file beside cases to be named by one, found {strays:#?}"
        )
        .into()),
    }
}
