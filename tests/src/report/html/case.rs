//! A case in the page: a table row that opens to the details.

use std::fmt::Write;

use super::super::{CaseReport, Ending, ResultReport, count_of};
use super::class;
use super::escape::escape;
use crate::discover;
use crate::run::{Problem, Stressed};

/// The number of lines of a program that the page shows.
const PROGRAM_LINES: usize = 200;

/// Renders the row. It is open if the case failed.
pub(super) fn row(case: &CaseReport) -> String {
    let name = escape(&case.name);
    let last = case.name.rsplit('/').next().unwrap_or_default();
    let endings: Vec<&str> = case.results.iter().map(|r| class(r.ending)).collect();
    let open = if super::has(case, Ending::Failed) {
        " open"
    } else {
        ""
    };
    let mut text = format!(
        "<details class=\"case\" id=\"{name}\" data-endings=\"{}\"{open}>\n<summary class=\"row\"><code>{}</code><span class=\"origin\">{}</span>",
        endings.join(" "),
        escape(last),
        escape(&case.origin)
    );
    case.results
        .iter()
        .for_each(|result| text.push_str(&cell(result)));
    let _ = write!(
        text,
        "</summary>\n<div class=\"more\">\n<p class=\"origin\">{}</p>\n<p class=\"file\"><code>{}</code></p>\n",
        escape(&case.origin),
        escape(&discover::file_of(&case.name))
    );
    case.results
        .iter()
        .for_each(|result| text.push_str(&details(result)));
    text.push_str(&program(&case.program));
    text.push_str("</div>\n</details>\n");
    text
}

/// Renders the case's program, cut after [`PROGRAM_LINES`] lines.
fn program(text: &str) -> String {
    let left = text.lines().count().saturating_sub(PROGRAM_LINES);
    let lines: Vec<&str> = text.lines().take(PROGRAM_LINES).collect();
    let more = match left {
        0 => String::new(),
        left => format!("\n… and {} more", count_of(left, "line")),
    };
    format!(
        "<details class=\"program\"><summary>program</summary>\n<pre>{}{more}</pre></details>\n",
        escape(&lines.join("\n"))
    )
}

/// Renders the sign of an ending, with its name for screen readers.
pub(super) fn mark(ending: Ending) -> String {
    let sign = match ending {
        Ending::Passed => "✓",
        Ending::Failed => "✕",
        Ending::Unsupported => "−",
        Ending::ExpectedFailure => "≠",
        Ending::NotRun => "○",
    };
    format!(
        "<span class=\"mark {}\" aria-hidden=\"true\">{sign}</span>",
        class(ending)
    )
}

fn cell(result: &ResultReport) -> String {
    format!(
        "<span class=\"cell\">{}<span class=\"spoken\">{}: {}</span></span>",
        mark(result.ending),
        escape(&result.platform),
        result.ending
    )
}

fn details(result: &ResultReport) -> String {
    let mut text = format!(
        "<section>\n<h3>{} {} <span class=\"{}\">{}</span></h3>\n",
        mark(result.ending),
        escape(&result.platform),
        class(result.ending),
        result.ending
    );
    if !result.reason.is_empty() {
        let _ = writeln!(text, "<p>{}</p>", escape(&result.reason));
    }
    if let Some(problem) = &result.problem {
        text.push_str(&problem_text(problem));
    }
    if result.ending != Ending::NotRun {
        let stress = result.stress.as_ref().map(stress_text).unwrap_or_default();
        let _ = writeln!(
            text,
            "<p class=\"facts\">{:.3} s{stress}</p>",
            result.seconds
        );
    }
    text.push_str("</section>\n");
    text
}

fn stress_text(stress: &Stressed) -> String {
    let runs = format!(" · {}", count_of(stress.runs, "concurrent run"));
    match stress.reason.as_str() {
        "" => runs,
        reason => format!("{runs} ({})", escape(reason)),
    }
}

fn problem_text(problem: &Problem) -> String {
    let mut text = String::new();
    if !problem.message.is_empty() {
        let _ = writeln!(text, "<pre>{}</pre>", escape(&problem.message));
    }
    if problem.differences.is_empty() {
        return text;
    }
    text.push_str(
        "<div class=\"scroll\"><table>\n<thead><tr><th scope=\"col\">where</th><th scope=\"col\">expected</th><th scope=\"col\">found</th></tr></thead>\n<tbody>\n",
    );
    for difference in &problem.differences {
        let _ = writeln!(
            text,
            "<tr><th scope=\"row\">{}</th><td class=\"expected\">{}</td><td class=\"found\">{}</td></tr>",
            escape(&difference.place),
            escape(&difference.expected),
            escape(&difference.found)
        );
        if !difference.note.is_empty() {
            let note = escape(&difference.note);
            let _ = writeln!(
                text,
                "<tr class=\"note\"><td></td><td colspan=\"2\">{note}</td></tr>"
            );
        }
    }
    text.push_str("</tbody>\n</table></div>\n");
    text
}
