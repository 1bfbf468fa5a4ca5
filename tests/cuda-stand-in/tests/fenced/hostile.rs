//! The cases of `tests/ptx/hostile`. The first line of each file says what must happen; the line
//! that ends with `// here` is the one that the refusal or the record names.

use callbox_ptx::fence::{Fault, fence};
use serde::Deserialize;

use crate::rig::{self, LaunchData};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    #[serde(rename = "doc")]
    _doc: String,
    expect: Expectation,
    launch: LaunchData,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Expectation {
    Refused {
        refused: Rules,
        line: Option<u32>,
    },
    Fault {
        fault: String,
        offset: Option<i64>,
        param: Option<usize>,
        thread: Option<[u32; 3]>,
    },
    Passes {
        #[serde(rename = "passes")]
        _passes: bool,
    },
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Rules {
    One(String),
    AnyOf(Vec<String>),
}

impl Rules {
    fn has(&self, name: &str) -> bool {
        match self {
            Self::One(rule) => rule == name,
            Self::AnyOf(rules) => rules.iter().any(|rule| rule == name),
        }
    }
}

fn check(text: &str) -> Result<(), String> {
    let head = text
        .lines()
        .next()
        .and_then(|line| line.strip_prefix("//! "))
        .ok_or("no first line")?;
    let case: Case = serde_json::from_str(head).map_err(|error| error.to_string())?;
    let here = text
        .lines()
        .position(|line| line.ends_with("// here"))
        .map(|at| at as u32 + 1);
    let launch = case.launch.launch();
    let verified = rig::verified(text, "k", &launch);
    match (case.expect, verified) {
        (Expectation::Refused { refused, line }, Err(refusals)) => {
            let first = refusals.first().ok_or("a refusal without a reason")?;
            let is_line = line.or(here).is_none_or(|line| line == first.line);
            if refused.has(first.rule.name()) && is_line {
                return Ok(());
            }
            Err(format!("expected line {:?}, found {first}", line.or(here)))
        }
        (Expectation::Refused { .. }, Ok(_)) => Err("it was not refused".to_owned()),
        (_, Err(refusals)) => Err(format!("it was refused: {}", refusals[0])),
        (expect, Ok((module, proof))) => {
            let fenced = fence(&module, &proof);
            let outcome = rig::run(&fenced, "k", &launch, 4, rig::BUDGET);
            let outcome = outcome.map_err(|failure| format!("{failure:?}"))?;
            judge(&expect, &outcome, here)
        }
    }
}

fn judge(expect: &Expectation, outcome: &rig::Outcome, here: Option<u32>) -> Result<(), String> {
    let Expectation::Fault {
        fault,
        offset,
        param,
        thread,
    } = expect
    else {
        return match outcome.fault {
            None => Ok(()),
            Some(fault) => Err(format!("it noted {fault:?}")),
        };
    };
    let Some((line, found)) = outcome.fault else {
        return Err("it noted nothing".to_owned());
    };
    let (name, found_param) = match found {
        Fault::Access { param, .. } => ("access", param),
        Fault::Trap => ("trap", None),
        Fault::Assertion => ("assertion", None),
        Fault::Stopped => ("stopped", None),
    };
    let is_right = name == fault
        && here.is_none_or(|here| here == line)
        && offset.is_none_or(|offset| offset == outcome.offset)
        && param.is_none_or(|param| found_param == Some(param))
        && thread.is_none_or(|thread| thread == outcome.thread && outcome.block == [0; 3]);
    if is_right {
        Ok(())
    } else {
        Err(format!(
            "line {line}, not {here:?}: {found:?} at {} in {:?}",
            outcome.offset, outcome.thread
        ))
    }
}

#[test]
fn hostile_kernels_get_their_status() {
    let folder = rig::root().join("tests/ptx/hostile");
    let mut names: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    names.sort();
    assert!(names.len() >= 100, "{} cases", names.len());
    let mut wrong = Vec::new();
    for name in names {
        let text = std::fs::read_to_string(&name).unwrap();
        if let Err(message) = check(&text) {
            let name = name
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            wrong.push(format!(
                "{name}: {}",
                message.lines().next().unwrap_or_default()
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} cases:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
