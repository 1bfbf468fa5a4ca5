//! The HTML report: one page that needs nothing beside it. Everything that is not the page's own text goes through
//! [`escape`]: a guest chooses what its messages say. Should something get past it all the same, the page's policy lets no script run
//! but its own, which it names by its digest, and lets nothing be loaded.

mod case;
mod escape;
#[cfg(test)]
mod tests;

use std::fmt::Write;

use sha2::{Digest, Sha256};

use self::escape::escape;
use super::{CaseReport, Counts, Ending, PlatformReport, Report};

const STYLE: &str = include_str!("html/page.css");
const SCRIPT: &str = include_str!("html/page.js");

/// A run of no more cases than this shows them all at once. Others show the folders, and the cases that failed.
const FEW: usize = 40;

/// The page.
#[must_use]
pub fn page(report: &Report) -> String {
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'; base-uri 'none'; form-action 'none'",
        digest(STYLE),
        digest(SCRIPT)
    );
    let (head, failures, tools) = (head(report), failures(report), tools(report));
    let folders = folders(report);
    format!(
        r#"<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>callbox conformance</title>
<style>{STYLE}</style>
</head>
<body class="columns-{columns}">
{head}
{failures}
{tools}
<main>
{folders}<p class="nothing" hidden>No case is like that.</p>
</main>
<script>{SCRIPT}</script>
</body>
</html>
"#,
        columns = report.platforms.len()
    )
}

/// What the policy knows a style or a script by.
fn digest(text: &str) -> String {
    base64(&Sha256::digest(text.as_bytes()))
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let byte = |i: usize| u32::from(group.get(i).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for i in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * i) & 63) as usize];
            text.push(if i <= group.len() { digit.into() } else { '=' });
        }
    }
    text
}

fn head(report: &Report) -> String {
    let mut text = format!(
        "<header>\n<h1>callbox <span>conformance</span></h1>\n<p>callbox {} · {} cases in {:.1} s · {} runs in threads at once",
        escape(&report.callbox),
        report.cases.len(),
        report.seconds,
        report.stress_runs()
    );
    if !report.filter.is_empty() {
        let _ = write!(text, " · only those with <q>{}</q>", escape(&report.filter));
    }
    text.push_str("</p>\n<div class=\"platforms\">\n");
    for platform in &report.platforms {
        text.push_str(&platform_card(platform));
    }
    text.push_str("</div>\n</header>");
    text
}

fn platform_card(platform: &PlatformReport) -> String {
    let counts = &platform.counts;
    let mut text = format!("<section><h2>{}</h2>\n", escape(&platform.name));
    if platform.unavailable.is_empty() {
        let (passed, run) = (counts.of(Ending::Passed), counts.run());
        let _ = writeln!(
            text,
            "<p><b>{passed}</b> of {run} passed</p>\n{}",
            bar(counts)
        );
        let others = Ending::ALL.into_iter().skip(1);
        let others = others.filter(|&ending| counts.of(ending) > 0);
        let others: Vec<_> = others
            .map(|ending| format!("{} {ending}", counts.of(ending)))
            .collect();
        let _ = writeln!(text, "<p class=\"counts\">{}</p>", others.join(" · "));
    } else {
        let _ = writeln!(
            text,
            "<p>not available: {}</p>",
            escape(&platform.unavailable)
        );
    }
    text.push_str("</section>\n");
    text
}

/// A bar of the counts' shares. What it says is written beside it, so that it is for the eye only.
fn bar(counts: &Counts) -> String {
    let mut text = String::from("<svg class=\"bar\" aria-hidden=\"true\">");
    let all = counts.all().max(1) as f64;
    let mut begin = 0.0;
    for ending in Ending::ALL {
        let share = 100.0 * counts.of(ending) as f64 / all;
        if share > 0.0 {
            let class = class(ending);
            let _ = write!(
                text,
                "<rect class=\"{class}\" x=\"{begin:.2}%\" width=\"{share:.2}%\" height=\"100%\"/>"
            );
        }
        begin += share;
    }
    text.push_str("</svg>");
    text
}

/// Links to the cases that failed.
fn failures(report: &Report) -> String {
    let failed = |case: &&CaseReport| has(case, Ending::Failed);
    let failed: Vec<&CaseReport> = report.cases.iter().filter(failed).collect();
    if failed.is_empty() {
        return String::new();
    }
    let count = failed.len();
    let what = if count == 1 { "case" } else { "cases" };
    let mut text = format!(
        "<nav class=\"failures\" aria-labelledby=\"failures\">\n<h2 id=\"failures\">{count} {what} failed</h2>\n<ul>\n"
    );
    for case in failed {
        let name = escape(&case.name);
        let _ = writeln!(text, "<li><a href=\"#{name}\">{name}</a></li>");
    }
    text.push_str("</ul>\n</nav>");
    text
}

/// The filter, which only a script can work, and the heads of the columns.
fn tools(report: &Report) -> String {
    let mut text = String::from(
        "<div class=\"tools\">\n<div class=\"filter\" hidden>\n\
         <input type=\"search\" id=\"search\" placeholder=\"Filter by name, origin or message\" aria-label=\"Filter by name, origin or message\">\n\
         <div class=\"endings\" role=\"group\" aria-label=\"Show only\">\n",
    );
    for ending in Ending::ALL {
        let count = report.cases.iter().filter(|case| has(case, ending)).count();
        let class = class(ending);
        let disabled = if count == 0 { " disabled" } else { "" };
        let _ = writeln!(
            text,
            "<button type=\"button\" aria-pressed=\"false\" data-ending=\"{class}\"{disabled}>{} {ending} <b>{count}</b></button>",
            case::mark(ending)
        );
    }
    text.push_str(
        "</div>\n<output id=\"shown\" aria-live=\"polite\"></output>\n</div>\n<div class=\"row heads\" aria-hidden=\"true\"><span>case</span><span>where the expectation comes from</span>",
    );
    for platform in &report.platforms {
        let _ = write!(text, "<span>{}</span>", escape(&platform.name));
    }
    text.push_str("</div>\n</div>");
    text
}

/// The cases, folder by folder.
fn folders(report: &Report) -> String {
    let mut text = String::new();
    for cases in report.cases.chunk_by(|a, b| a.folder() == b.folder()) {
        let failed = cases.iter().any(|case| has(case, Ending::Failed));
        let open = if failed || report.cases.len() <= FEW {
            " open"
        } else {
            ""
        };
        let _ = write!(
            text,
            "<details class=\"folder\"{open}>\n<summary class=\"row\"><h2>{}</h2><span>{} cases</span>",
            escape(cases[0].folder()).replace('/', "<i>/</i>"),
            cases.len()
        );
        for i in 0..report.platforms.len() {
            let counts: Counts = cases.iter().map(|case| case.results[i].ending).collect();
            let _ = write!(
                text,
                "<span class=\"share\">{}<span class=\"spoken\">{}: {counts}</span></span>",
                bar(&counts),
                escape(&report.platforms[i].name)
            );
        }
        text.push_str("</summary>\n");
        cases
            .iter()
            .for_each(|case| text.push_str(&case::row(case)));
        text.push_str("</details>\n");
    }
    text
}

fn has(case: &CaseReport, ending: Ending) -> bool {
    case.results.iter().any(|result| result.ending == ending)
}

/// The ending as the style and the script name it.
const fn class(ending: Ending) -> &'static str {
    match ending {
        Ending::Passed => "passed",
        Ending::Failed => "failed",
        Ending::Unsupported => "unsupported",
        Ending::ExpectedFailure => "expected-failure",
        Ending::NotRun => "not-run",
    }
}
