//! The terminal summary: a table per platform, the reasons, and the failures.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::{CaseReport, Counts, Ending, PlatformReport, Report, ResultReport, count_of};

/// The number of case names shown for a reason.
const NAMES: usize = 3;

/// Renders the summary.
#[must_use]
pub fn summary(report: &Report) -> String {
    let mut text = String::new();
    for platform in &report.platforms {
        let results: Vec<_> = report.results(&platform.name).collect();
        text.push_str(&table(platform, &results));
        for ending in [Ending::Unsupported, Ending::ExpectedFailure, Ending::NotRun] {
            text.push_str(&reasons(ending, &results));
        }
        text.push_str(&failures(&results));
        text.push('\n');
    }
    let seconds = report.seconds;
    let _ = write!(
        text,
        "{} in {seconds:.1} s, and {}",
        count_of(report.cases.len(), "case"),
        count_of(report.stress_runs(), "concurrent run")
    );
    text
}

/// Renders a platform's table: a row for each folder of `tests/cases`, and one for `tests/hostile`.
fn table(platform: &PlatformReport, results: &[(&CaseReport, &ResultReport)]) -> String {
    let mut folders: BTreeMap<&str, Counts> = BTreeMap::new();
    for (case, result) in results {
        let folder = case.name.split('/').next().unwrap_or_default();
        folders.entry(folder).or_default().add(result.ending);
    }
    let mut text = format!("{:<20}", platform.name);
    for ending in Ending::ALL {
        let _ = write!(text, "  {ending}");
    }
    text.push('\n');
    for (folder, counts) in folders {
        text.push_str(&row(folder, &counts));
    }
    text.push_str(&row("all", &platform.counts));
    text
}

fn row(name: &str, counts: &Counts) -> String {
    let mut text = format!("  {name:<18}");
    for ending in Ending::ALL {
        let count = match counts.of(ending) {
            0 => "·".to_owned(),
            count => count.to_string(),
        };
        let width = ending.label().len();
        let _ = write!(text, "  {count:>width$}");
    }
    text.push('\n');
    text
}

/// Lists the reasons of cases with this ending, each with the first of its cases.
fn reasons(ending: Ending, results: &[(&CaseReport, &ResultReport)]) -> String {
    let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (case, result) in results.iter().filter(|(_, result)| result.ending == ending) {
        let names = reasons.entry(&result.reason).or_default();
        names.push(&case.name);
    }
    let mut text = String::new();
    for (reason, names) in reasons {
        let more = match names.len().saturating_sub(NAMES) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let first = names[..names.len().min(NAMES)].join(", ");
        let _ = writeln!(text, "{ending}: {reason}\n  {first}{more}");
    }
    text
}

fn failures(results: &[(&CaseReport, &ResultReport)]) -> String {
    let mut text = String::new();
    for (case, result) in results {
        let Some(problem) = &result.problem else {
            continue;
        };
        let _ = writeln!(text, "FAILED {} on {}", case.name, result.platform);
        for line in problem.to_string().lines() {
            let _ = writeln!(text, "  {line}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::{case, report};

    #[test]
    fn a_summary_has_counts_reasons_and_failures() {
        let names = ["b/1", "b/2", "b/3", "b/4"];
        let mut cases = vec![
            case("a/x/failing", Ending::Failed, "what"),
            case("a/y", Ending::Passed, ""),
        ];
        cases.extend(names.map(|name| case(name, Ending::NotRun, "no device")));
        let expected = "\
Host                  passed  failed  unsupported  expected failure  not run
  a                        1       1            ·                 ·        ·
  b                        ·       ·            ·                 ·        4
  all                      1       1            ·                 ·        4
not run: no device
  b/1, b/2, b/3 and 1 more
FAILED a/x/failing on Host
  what
  what: expected what, found what; what

6 cases in 1.5 s, and 600 concurrent runs";
        assert_eq!(summary(&report(cases)), expected);
    }
}
