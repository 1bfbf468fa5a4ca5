//! The cases by the documents' paragraphs, from the tables of `tests/COVERAGE.md`.

use std::collections::HashMap;
use std::fmt::Write;

use super::super::{CaseReport, Counts, Ending, Report, count_of};
use super::escape::escape;
use super::{bar, case, has};

const COVERAGE: &str = include_str!("../../../COVERAGE.md");

/// A section of the document, with the rows of its tables.
struct Section<'a> {
    title: &'a str,
    rows: Vec<Row<'a>>,
}

/// A statement of a document.
struct Row<'a> {
    /// The columns before the last one: the paragraph, if the table has it, and the statement.
    statement: Vec<&'a str>,
    /// The names of cases, and of folders of cases, which end with `/`.
    cases: Vec<String>,
}

/// Renders the paragraphs that have cases in the report. Empty if none has.
pub(super) fn paragraphs(report: &Report) -> String {
    let cases: HashMap<&str, &CaseReport> = report
        .cases
        .iter()
        .map(|case| (case.name.as_str(), case))
        .collect();
    let (mut text, mut tested) = (String::new(), 0);
    for section in sections(COVERAGE) {
        let rows = section.rows.iter();
        let rows: Vec<String> = rows.filter_map(|row| shown(row, report, &cases)).collect();
        if rows.is_empty() {
            continue;
        }
        tested += rows.len();
        let _ = write!(
            text,
            "<details class=\"document\">\n<summary><h3>{}</h3> <span>{}</span></summary>\n\
             <div class=\"scroll\"><table>\n<tbody>\n{}</tbody>\n</table></div>\n</details>\n",
            escape(&plain(section.title)),
            count_of(rows.len(), "statement"),
            rows.concat()
        );
    }
    if text.is_empty() {
        return text;
    }
    format!(
        "<details class=\"paragraphs\">\n<summary><h2>The documents, paragraph by paragraph</h2> \
         <span>{} with cases here</span></summary>\n{text}</details>",
        count_of(tested, "statement")
    )
}

/// Renders a statement with its cases. `None` if the report has none of them.
fn shown(row: &Row<'_>, report: &Report, known: &HashMap<&str, &CaseReport>) -> Option<String> {
    let mut links = Vec::new();
    for name in &row.cases {
        if let Some(folder) = name.strip_suffix('/') {
            let inside = |case: &&CaseReport| case.name.starts_with(name.as_str());
            let inside: Vec<&CaseReport> = report.cases.iter().filter(inside).collect();
            if !inside.is_empty() {
                links.push(folder_link(folder, &inside));
            }
        } else if let Some(case) = known.get(name.as_str()) {
            let marks = case.results.iter().map(|result| case::mark(result.ending));
            let (name, marks) = (escape(name), marks.collect::<String>());
            links.push(format!("<a href=\"#{name}\">{marks} {name}</a>"));
        }
    }
    let statement = row.statement.iter().map(|cell| escape(&plain(cell)));
    let statement = statement.collect::<Vec<_>>().join(": ");
    let links = links.join("\n");
    (!links.is_empty())
        .then(|| format!("<tr><th scope=\"row\">{statement}</th><td>{links}</td></tr>\n"))
}

/// A link to the first case of a folder that failed, or else to the first.
fn folder_link(folder: &str, cases: &[&CaseReport]) -> String {
    let failed = cases.iter().find(|case| has(case, Ending::Failed));
    let first = failed.or_else(|| cases.first());
    let counts: Counts = cases
        .iter()
        .flat_map(|case| &case.results)
        .map(|result| result.ending)
        .collect();
    format!(
        "<a href=\"#{}\">{}/ ({}: {counts})</a>{}",
        first.map(|case| escape(&case.name)).unwrap_or_default(),
        escape(folder),
        count_of(cases.len(), "case"),
        bar(&counts)
    )
}

/// The sections of the document that have tables.
fn sections(text: &str) -> Vec<Section<'_>> {
    let mut sections: Vec<Section<'_>> = Vec::new();
    for line in text.lines() {
        if let Some(title) = line.strip_prefix("##") {
            sections.push(Section {
                title: title.trim_start_matches('#').trim(),
                rows: Vec::new(),
            });
        } else if let (Some(section), Some(row)) = (sections.last_mut(), row(line)) {
            section.rows.push(row);
        }
    }
    sections.retain(|section| !section.rows.is_empty());
    sections
}

/// The row of a table with cases in its last column.
fn row(line: &str) -> Option<Row<'_>> {
    let line = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    let mut statement: Vec<&str> = line.split('|').map(str::trim).collect();
    let tests = statement.pop()?;
    let targets = tests.split("](cases/").skip(1);
    let targets = targets.filter_map(|rest| rest.split_once(')'));
    let cases = targets.map(|(target, _)| match target.strip_suffix(".json") {
        Some(name) => name.to_owned(),
        None => format!("{}/", target.trim_end_matches('/')),
    });
    let cases: Vec<String> = cases.collect();
    (!cases.is_empty()).then_some(Row { statement, cases })
}

/// A text of Markdown without its markup.
fn plain(markdown: &str) -> String {
    let mut text = String::new();
    for (number, part) in markdown.split("](").enumerate() {
        let part = match number {
            0 => part,
            // The address of a link.
            _ => part.split_once(')').map_or("", |(_, rest)| rest),
        };
        text.push_str(part);
    }
    text.replace(['`', '[', ']'], "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discover;
    use crate::report::tests::{case, report};

    #[test]
    fn statements_have_links_to_their_cases() {
        let page = paragraphs(&report(vec![
            case("faults/calls/a", Ending::Passed, "x"),
            case("faults/calls/b", Ending::Failed, "x"),
            case("seeds/do_it_in_c", Ending::Passed, "x"),
        ]));
        for part in [
            "<h3>XLA Custom Calls (the oldest, nine pointers)</h3>",
            "<th scope=\"row\">introduction: a program invokes code in C++ or CUDA</th>",
            "<a href=\"#seeds/do_it_in_c\">",
            "<a href=\"#faults/calls/b\">faults/calls/ (2 cases: ",
        ] {
            assert!(page.contains(part), "expected {part:?} in {page}");
        }
        assert!(!page.contains("not_utf_8"), "{page}");
        let others = report(vec![case("a/b", Ending::Passed, "x")]);
        assert_eq!(paragraphs(&others), "");
    }

    #[test]
    fn every_linked_case_exists() {
        let sections = sections(COVERAGE);
        let rows = sections.iter().flat_map(|section| &section.rows);
        let names: Vec<&String> = rows.flat_map(|row| &row.cases).collect();
        assert!(names.len() >= 150, "found {} links", names.len());
        let root = crate::module::repository();
        for name in names {
            let file = match name.strip_suffix('/') {
                Some(_) => format!("tests/cases/{name}"),
                None => discover::file_of(name),
            };
            assert!(root.join(&file).exists(), "{file}");
        }
    }
}
