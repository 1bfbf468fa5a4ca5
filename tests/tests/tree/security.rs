//! Compares `SECURITY.md` with the code: limits are the defaults, and each promise names an
//! existing test.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use callbox::policy::Policy;
use serde_json::Value;

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Returns the cells of each row of the table under this heading.
fn table(heading: &str) -> Vec<Vec<String>> {
    let text = fs::read_to_string(root().join("SECURITY.md")).unwrap();
    let section = text
        .split("\n## ")
        .find(|section| section.starts_with(heading))
        .unwrap();
    section
        .lines()
        .filter(|line| line.starts_with('|'))
        .skip(2)
        .map(|line| {
            let cells = line.trim_matches('|').split(" | ");
            cells.map(|cell| cell.trim().to_owned()).collect()
        })
        .collect()
}

#[test]
fn the_limits_are_the_defaults() {
    let documented: BTreeMap<String, String> = table("Limits")
        .into_iter()
        .map(|row| (row[0].trim_matches('`').to_owned(), row[1].clone()))
        .collect();
    let policy: Value = serde_json::from_str(&Policy::default().to_json().unwrap()).unwrap();
    let defaults: BTreeMap<String, String> = policy["limits"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(name, value)| (name.clone(), value.to_string()))
        .collect();
    assert_eq!(documented, defaults);
}

/// Limits that no single call reaches, and their tests.
const NO_CASES: [(&str, &str); 6] = [
    ("threads", "tests/tests/threads/limits.rs"),
    ("open_files", "tests/tests/capabilities/limits.rs"),
    ("engine_open_files", "tests/tests/capabilities/limits.rs"),
    ("compile_time_ms", "tests/tests/limits.rs"),
    (
        "compile_memory_bytes",
        "tests/tests/compile_child/limits.rs",
    ),
    ("compile_refusal_ms", "tests/tests/compile_child/limits.rs"),
];

#[test]
fn each_limit_has_a_case() {
    let entries = fs::read_dir(root().join("tests/hostile/limits")).unwrap();
    let cases: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let limits = table("Limits");
    for row in &limits {
        let limit = row[0].trim_matches('`');
        // Only the JSON names of times contain the unit.
        let name = limit.trim_end_matches("_ms");
        let found = match NO_CASES.iter().find(|(other, _)| *other == limit) {
            // Search for a field, because one limit's name may be part of another's.
            Some((_, test)) => fs::read_to_string(root().join(test))
                .unwrap()
                .lines()
                .map(str::trim)
                .any(|line| {
                    line.strip_prefix(name)
                        .is_some_and(|rest| rest.starts_with([':', ',']))
                }),
            None => ["at", "past"].iter().all(|end| {
                cases.iter().any(|case| {
                    let rest = case.strip_prefix(name).and_then(|r| r.strip_prefix('_'));
                    // A test without an exact bound has a case within the limit.
                    rest.is_some_and(|rest| {
                        let rest = rest.trim_end_matches(".json");
                        rest == *end || (*end == "at" && rest.starts_with("within"))
                    })
                })
            }),
        };
        assert!(found, "{limit}: expected tests of it");
    }
    for (limit, _) in NO_CASES {
        let is_there = limits.iter().any(|row| row[0].trim_matches('`') == limit);
        assert!(is_there, "{limit}: expected a limit of SECURITY.md");
    }
}

#[test]
fn each_promise_names_a_test() {
    let promises = table("What is promised");
    assert!(promises.len() > 10);
    let fenced = table("Fenced GPU kernels").into_iter();
    // The second table is of statuses.
    let fenced = fenced.take_while(|row| !row[0].starts_with("what it did"));
    for row in promises.into_iter().chain(fenced) {
        let tests: Vec<_> = row[2]
            .split("](")
            .skip(1)
            .map(|rest| rest.split(')').next().unwrap())
            .collect();
        assert!(!tests.is_empty(), "{}: expected a test", row[0]);
        for test in tests {
            let path = root().join(test);
            let is_test = path.is_dir()
                || fs::read_to_string(&path).is_ok_and(|text| {
                    ["#[test]", "fn main", "Trial", "\ndef test_"]
                        .iter()
                        .any(|mark| text.contains(mark))
                });
            assert!(is_test, "{}: expected tests at {test}", row[0]);
        }
    }
}

/// A row names the tests themselves, each with a link to its file.
#[test]
fn each_attack_names_its_tests() {
    let attacks = table("Packages");
    assert!(attacks.len() > 10);
    for row in attacks {
        let tests: Vec<_> = row[2].split(", ").collect();
        assert!(!tests.is_empty(), "{}: expected a test", row[0]);
        for test in tests {
            let link = test
                .strip_prefix("[`")
                .and_then(|rest| rest.strip_suffix(')'));
            let (name, file) = link
                .and_then(|link| link.split_once("`]("))
                .unwrap_or_else(|| panic!("expected [`test`](file), found {test}"));
            let text = fs::read_to_string(root().join(file)).unwrap();
            let starts = ["fn", "def"].map(|word| format!("{word} {name}("));
            let is_there = text.lines().any(|line| {
                let line = line.trim_start();
                starts.iter().any(|start| line.starts_with(start))
            });
            assert!(is_there, "{}: expected {name} in {file}", row[0]);
        }
    }
}
