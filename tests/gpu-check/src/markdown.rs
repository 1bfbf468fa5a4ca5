//! Renders the report as Markdown tables.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use crate::report::{Outcome, Report, Section};

/// Lists that only the JSON report contains.
const LEFT_OUT: [&str; 1] = ["codes"];

/// Renders the page.
pub(crate) fn page(report: &Report) -> String {
    let mut page = String::from("# callbox on a GPU\n\n");
    let device = match &report.device {
        Some(device) if device.is_stand_in => {
            format!("{} - times here are meaningless", device.name)
        }
        Some(device) => {
            let [major, minor] = device.compute_capability;
            let gib = device.memory_bytes as f64 / f64::from(1 << 30);
            format!(
                "{}, compute capability {major}.{minor}, {gib:.1} GiB",
                device.name
            )
        }
        None => format!("none: {}", report.why_no_device),
    };
    let commit = match report.commit {
        "" => "unknown",
        commit => commit,
    };
    // Writing to a `String` cannot fail.
    let _ = write!(
        page,
        "- device: {device}\n- callbox: {}, commit {commit}\n- date: {}\n- took: {:.0} s{}\n\n",
        report.callbox,
        report.date,
        report.seconds,
        if report.quick { ", quick" } else { "" }
    );
    page.push_str("| section | outcome | |\n| --- | --- | --- |\n");
    for section in &report.sections {
        let _ = writeln!(
            page,
            "| {} | {} | {} |",
            section.name,
            outcome(section),
            cell(&section.why.clone().into())
        );
    }
    for section in &report.sections {
        if !section.numbers.is_null() {
            let _ = write!(page, "\n## {}\n\n", section.name);
            value(&mut page, "", &section.numbers);
        }
    }
    page
}

fn outcome(section: &Section) -> &'static str {
    match section.outcome {
        Outcome::Ok => "ok",
        Outcome::Failed => "**failed**",
        Outcome::Skipped => "skipped",
    }
}

/// Renders a list of objects as a table, and an object as lines followed by its lists.
fn value(page: &mut String, name: &str, found: &Value) {
    match found {
        Value::Object(object) => {
            let is_list = |value: &Value| value.as_array().is_some_and(|list| is_table(list));
            let entries = || {
                object
                    .iter()
                    .filter(|(name, _)| !LEFT_OUT.contains(&name.as_str()))
            };
            for (name, value) in entries().filter(|(_, value)| !is_list(value)) {
                let _ = writeln!(page, "- {}: {}", words(name), cell(value));
            }
            for (name, list) in entries().filter(|(_, value)| is_list(value)) {
                value(page, name, list);
            }
        }
        Value::Array(list) if is_table(list) => table(page, name, list),
        other => {
            let _ = writeln!(page, "- {}", cell(other));
        }
    }
}

fn is_table(list: &[Value]) -> bool {
    !list.is_empty() && list.iter().all(Value::is_object)
}

fn table(page: &mut String, name: &str, list: &[Value]) {
    let mut columns: Vec<&String> = Vec::new();
    for column in list.iter().filter_map(Value::as_object).flat_map(Map::keys) {
        if !columns.contains(&column) {
            columns.push(column);
        }
    }
    if !name.is_empty() {
        let _ = write!(page, "\n{}:\n", words(name));
    }
    let heads: Vec<String> = columns.iter().map(|column| words(column)).collect();
    let _ = writeln!(page, "\n| {} |", heads.join(" | "));
    let _ = writeln!(page, "|{}", " --- |".repeat(columns.len()));
    for row in list {
        let cells: Vec<String> = columns
            .iter()
            .map(|column| cell(&row[column.as_str()]))
            .collect();
        let _ = writeln!(page, "| {} |", cells.join(" | "));
    }
}

fn words(name: &str) -> String {
    name.replace('_', " ")
}

/// Formats a value on one line, with the characters escaped that would end a table cell.
fn cell(value: &Value) -> String {
    let text = match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
            Some(number) => format!("{number:.3}"),
            None => number.to_string(),
        },
        Value::Array(list) => list.iter().map(cell).collect::<Vec<_>>().join(", "),
        Value::Object(object) => {
            let entries = object
                .iter()
                .map(|(name, value)| format!("{} {}", words(name), cell(value)));
            entries.collect::<Vec<_>>().join(", ")
        }
    };
    text.replace('|', "\\|").replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_become_lines_and_tables() {
        let mut page = String::new();
        let found = json!({
            "rows": [{"way": "a|b", "ns": 1.25}, {"way": "c", "why": "d\ne"}],
            "rounds": 3,
            "codes": {"left": "out"},
            "counts": {"passed": 2, "not_run": 1},
            "none": [],
        });
        value(&mut page, "", &found);
        let expected = "- rounds: 3\n- counts: passed 2, not run 1\n- none: \n\nrows:\n\n\
            | way | ns | why |\n| --- | --- | --- |\n| a\\|b | 1.250 |  |\n| c |  | d e |\n";
        assert_eq!(page, expected);
    }
}
