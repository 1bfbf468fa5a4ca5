//! The HTML report: one self-contained page.
//!
//! Guests choose the text of their messages, so every text from outside goes through [`escape`]. As
//! a second defence, the page's content security policy allows only its own script and style, by
//! their digests, and loads nothing.

mod case;
mod escape;
mod paragraphs;
#[cfg(test)]
mod tests;

use std::fmt::Write;

use sha2::{Digest, Sha256};

use self::escape::escape;
use super::{CaseReport, Counts, Ending, PlatformReport, Provenance, Report, count_of};

const STYLE: &str = include_str!("html/page.css");
const SCRIPT: &str = include_str!("html/page.js");

/// The largest number of cases that the page shows expanded. Longer reports show folders and failed
/// cases.
const FEW: usize = 40;

/// Renders the page.
#[must_use]
pub fn page(report: &Report) -> String {
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'; base-uri 'none'; form-action 'none'",
        digest(STYLE),
        digest(SCRIPT)
    );
    let (head, failures, tools) = (head(report), failures(report), tools(report));
    let (paragraphs, folders) = (paragraphs::paragraphs(report), folders(report));
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
{paragraphs}
{tools}
<main>
{folders}<p class="nothing" hidden>No case matches.</p>
</main>
<script>{SCRIPT}</script>
</body>
</html>
"#,
        columns = report.platforms.len()
    )
}

/// Returns the digest that identifies a style or script in the policy.
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
        "<header>\n<h1>callbox <span>conformance</span></h1>\n<p>callbox {} · {} in {:.1} s · {}",
        escape(&report.callbox),
        count_of(report.cases.len(), "case"),
        report.seconds,
        count_of(report.stress_runs(), "concurrent run")
    );
    if !report.filter.is_empty() {
        let _ = write!(text, " · only those with <q>{}</q>", escape(&report.filter));
    }
    let Provenance {
        date,
        commit,
        machine,
    } = &report.provenance;
    let commit = match commit.as_str() {
        "" => "unknown commit".to_owned(),
        commit => format!("commit {commit}"),
    };
    let _ = write!(
        text,
        "</p>\n<p>{} · {} · {}</p>\n<div class=\"platforms\">\n",
        escape(date),
        escape(&commit),
        escape(machine)
    );
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

/// Draws the shares of the counts. The numbers stand beside the bar, which is hidden from screen
/// readers.
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

/// Lists links to the failed cases.
fn failures(report: &Report) -> String {
    let failed = |case: &&CaseReport| has(case, Ending::Failed);
    let failed: Vec<&CaseReport> = report.cases.iter().filter(failed).collect();
    if failed.is_empty() {
        return String::new();
    }
    let count = count_of(failed.len(), "case");
    let mut text = format!(
        "<nav class=\"failures\" aria-labelledby=\"failures\">\n<h2 id=\"failures\">{count} failed</h2>\n<ul>\n"
    );
    for case in failed {
        let name = escape(&case.name);
        let _ = writeln!(text, "<li><a href=\"#{name}\">{name}</a></li>");
    }
    text.push_str("</ul>\n</nav>");
    text
}

/// Renders the filter, which needs the script, and the column headings.
fn tools(report: &Report) -> String {
    let mut text = String::from(
        "<div class=\"tools\">\n<div class=\"filter\" hidden>\n\
         <input type=\"search\" id=\"search\" placeholder=\"Filter by name, origin, program or message\" aria-label=\"Filter by name, origin, program or message\">\n\
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
        "</div>\n<output id=\"shown\" aria-live=\"polite\"></output>\n</div>\n<div class=\"row heads\" aria-hidden=\"true\"><span>case</span><span>origin of the expectation</span>",
    );
    for platform in &report.platforms {
        let _ = write!(text, "<span>{}</span>", escape(&platform.name));
    }
    text.push_str("</div>\n</div>");
    text
}

/// Renders the cases, grouped by folder.
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
            "<details class=\"folder\"{open}>\n<summary class=\"row\"><h2>{}</h2><span>{}</span>",
            escape(cases[0].folder()).replace('/', "<i>/</i>"),
            count_of(cases.len(), "case")
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

/// Returns the CSS class of an ending.
const fn class(ending: Ending) -> &'static str {
    match ending {
        Ending::Passed => "passed",
        Ending::Failed => "failed",
        Ending::Unsupported => "unsupported",
        Ending::ExpectedFailure => "expected-failure",
        Ending::NotRun => "not-run",
    }
}
