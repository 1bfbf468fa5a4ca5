//! Runs cases on platforms, several at a time, and collects the results.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use crate::case::{Case, Subject};
use crate::discover::Found;
use crate::platform::Platform;
use crate::report::{CaseReport, FORMAT, PlatformReport, Provenance, Report, ResultReport};
use crate::run::{self, Problem, Ran};

/// The cases, and the platforms to run them on.
#[derive(Clone, Copy)]
pub struct Suite<'s> {
    /// The cases.
    pub cases: &'s [Found],
    /// The platforms.
    pub platforms: &'s [&'s dyn Platform],
    /// The filter by which the cases were chosen, for the report.
    pub filter: &'s str,
}

impl Suite<'_> {
    /// Runs all cases. `ended` is called with each case as it ends, from any thread.
    pub fn run(self, ended: &(dyn Fn(&CaseReport) + Sync)) -> Report {
        let begun = Instant::now();
        // Query the platforms first, so that the first case does not include their start-up time.
        let unavailable: Vec<String> = self
            .platforms
            .iter()
            .map(|platform| platform.availability().err().unwrap_or_default())
            .collect();
        let cases = self.run_cases(ended);
        let platforms = std::iter::zip(self.platforms, unavailable).enumerate();
        let platforms = platforms.map(|(i, (platform, unavailable))| PlatformReport {
            name: platform.label(),
            unavailable,
            counts: cases.iter().map(|case| case.results[i].ending).collect(),
        });
        Report {
            format: FORMAT,
            callbox: env!("CARGO_PKG_VERSION").to_owned(),
            provenance: Provenance::now(),
            filter: self.filter.to_owned(),
            platforms: platforms.collect(),
            seconds: begun.elapsed().as_secs_f64(),
            cases,
        }
    }

    /// Runs one case per processor at a time.
    fn run_cases(self, ended: &(dyn Fn(&CaseReport) + Sync)) -> Vec<CaseReport> {
        let next = AtomicUsize::new(0);
        let reports = Mutex::new(Vec::new());
        let work = || {
            while let Some(found) = self.cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                let report = self.run_case(found);
                ended(&report);
                let mut reports = reports.lock().unwrap_or_else(PoisonError::into_inner);
                reports.push(report);
            }
        };
        let threads = thread::available_parallelism().map_or(1, usize::from);
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(work);
            }
        });
        let mut reports = reports.into_inner().unwrap_or_else(PoisonError::into_inner);
        reports.sort_by(|a, b| a.name.cmp(&b.name));
        reports
    }

    fn run_case(self, found: &Found) -> CaseReport {
        let case = Case::read(&found.path);
        let results = self.platforms.iter().map(|platform| {
            let ran = match &case {
                // A panic counts as a failure of this case.
                Ok(case) => catch_unwind(AssertUnwindSafe(|| run::run(case, *platform)))
                    .unwrap_or_else(|_| Ran::failed(Problem::new("callbox panicked".to_owned()))),
                Err(error) => Ran::failed(Problem::new(format!("cannot read the case: {error:#}"))),
            };
            ResultReport::new(platform.label(), ran)
        });
        CaseReport {
            name: found.name.clone(),
            results: results.collect(),
            program: program(&case, found),
            origin: case.map(|case| case.origin).unwrap_or_default(),
        }
    }
}

/// Returns the program's HLO text, or the case's file for other subjects and unreadable cases.
fn program(case: &anyhow::Result<Case>, found: &Found) -> String {
    match case.as_ref().map(|case| &case.subject) {
        Ok(Subject::Program { text, .. }) => text.clone(),
        _ => std::fs::read_to_string(&found.path).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::cuda::Cuda;
    use crate::platform::host::Host;
    use crate::report::Ending;
    use std::fs;

    #[test]
    fn every_case_ends_on_every_platform() {
        let folder = std::env::temp_dir().join(format!("callbox-suite-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let program = r#"{"origin": "x", "program": {"text": ["HloModule m", "ENTRY e { ROOT x = f32[] constant(1) }"]},
            "expect": {"results": [{"shape": "f32[]", "values": [VALUE]}]}}"#;
        let texts = [
            ("broken", "{".to_owned()),
            ("failing", program.replace("VALUE", "2")),
            ("passing", program.replace("VALUE", "1")),
        ];
        let cases: Vec<Found> = texts
            .into_iter()
            .map(|(name, text)| {
                let path = folder.join(name);
                fs::write(&path, text).unwrap();
                let name = name.to_owned();
                Found { name, path }
            })
            .collect();
        let ended = AtomicUsize::new(0);
        let suite = Suite {
            cases: &cases,
            platforms: &[&Host::default(), &Cuda::absent("no GPU here")],
            filter: "",
        };
        let report = suite.run(&|_| {
            ended.fetch_add(1, Ordering::Relaxed);
        });
        fs::remove_dir_all(&folder).unwrap();
        let endings: Vec<_> = report
            .cases
            .iter()
            .map(|case| {
                let results = case.results.iter().map(|result| result.ending);
                (case.name.as_str(), results.collect::<Vec<_>>())
            })
            .collect();
        let expected = [
            ("broken", vec![Ending::Failed, Ending::Failed]),
            ("failing", vec![Ending::Failed, Ending::NotRun]),
            ("passing", vec![Ending::Passed, Ending::NotRun]),
        ];
        assert_eq!(endings, expected);
        assert_eq!(ended.into_inner(), 3);
        assert!(report.has_failures());
        assert_eq!(report.platforms[1].unavailable, "no GPU here");
        assert!(report.stress_runs() > 0);
    }
}
