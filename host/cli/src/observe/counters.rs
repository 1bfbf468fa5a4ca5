//! `--stats`: counts the calls of targets.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use callbox::{Platform, Result, Status, StatusCode};
use callbox_core::untrusted_text::shown_name;
use serde::Serialize;

use super::CodeName;
use crate::failure::Outcome;
use crate::write_file;

/// Counts calls for a file.
#[derive(Debug)]
pub(super) struct Counters {
    file: PathBuf,
    targets: Mutex<BTreeMap<Target, Counter>>,
}

/// What a target is counted as.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct Target {
    module: String,
    sha256: String,
    target: String,
    platform: &'static str,
}

/// The counters of one target.
#[derive(Clone, Debug, Default)]
pub(super) struct Counter(Arc<Mutex<Counts>>);

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct Counts {
    calls: u64,
    seconds: f64,
    bytes_in: u64,
    bytes_out: u64,
    /// By the name of the status code.
    failures: BTreeMap<&'static str, u64>,
    /// The calls that `--shadow` compared, and those whose results differed.
    #[serde(flatten)]
    shadow: Option<ShadowCounts>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct ShadowCounts {
    shadowed: u64,
    differing: u64,
}

/// A target and its counters.
#[derive(Debug, Serialize)]
struct Counted {
    #[serde(flatten)]
    target: Target,
    #[serde(flatten)]
    counts: Counts,
}

/// A counter of Prometheus: its name, its help and its value.
type Column = (&'static str, &'static str, fn(&Counts) -> f64);

/// The same of what `--shadow` compared.
type ShadowColumn = (&'static str, &'static str, fn(&ShadowCounts) -> u64);

/// Those of `callbox.stats` of the Python package.
const COLUMNS: [Column; 4] = [
    ("callbox_calls_total", "Calls of targets.", |counts| {
        counts.calls as f64
    }),
    (
        "callbox_call_seconds_total",
        "Time in calls of targets.",
        |counts| counts.seconds,
    ),
    (
        "callbox_operand_bytes_total",
        "Bytes of operands.",
        |counts| counts.bytes_in as f64,
    ),
    (
        "callbox_result_bytes_total",
        "Bytes of results of calls that succeeded.",
        |counts| counts.bytes_out as f64,
    ),
];

/// Those of `--shadow`.
const SHADOW_COLUMNS: [ShadowColumn; 2] = [
    (
        "callbox_shadowed_calls_total",
        "Calls that also ran as wasm.",
        |shadow| shadow.shadowed,
    ),
    (
        "callbox_shadow_differences_total",
        "Calls whose results as wasm differed.",
        |shadow| shadow.differing,
    ),
];

/// Reads the path of the file.
pub(super) fn path(text: &str) -> std::result::Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match path.extension().and_then(OsStr::to_str) {
        Some("json" | "prom") => Ok(path),
        _ => Err(format!("expected FILE.json or FILE.prom, found {text:?}")),
    }
}

impl Counters {
    pub(super) fn new(file: PathBuf) -> Self {
        Self {
            file,
            targets: Mutex::default(),
        }
    }

    /// The counters of a target.
    pub(super) fn of(&self, code: &CodeName, platform: Platform, target: &str) -> Counter {
        let target = Target {
            module: shown_name(&code.file),
            sha256: code.sha256.clone(),
            target: target.to_owned(),
            platform: platform.name(),
        };
        let mut targets = self.targets.lock().unwrap_or_else(PoisonError::into_inner);
        targets.entry(target).or_default().clone()
    }

    /// Writes the file.
    pub(super) fn write(&self) -> Outcome<()> {
        let targets = self.targets.lock().unwrap_or_else(PoisonError::into_inner);
        let counted = targets.iter().map(|(target, counter)| Counted {
            target: target.clone(),
            counts: counter.lock().clone(),
        });
        let counted: Vec<_> = counted.collect();
        let text = if self.file.extension() == Some("prom".as_ref()) {
            prometheus(&counted)
        } else {
            let text = serde_json::to_string_pretty(&counted);
            text.map_err(|error| Status::internal(error.to_string()))? + "\n"
        };
        write_file::write(Path::new(&self.file), &[text.as_bytes()])
    }
}

impl Counter {
    /// Counts a call. The result bytes of a failed call are not counted.
    pub(super) fn count(
        &self,
        time: Duration,
        bytes_in: usize,
        bytes_out: usize,
        outcome: &Result<()>,
    ) {
        let mut counts = self.lock();
        counts.calls += 1;
        counts.seconds += time.as_secs_f64();
        counts.bytes_in += bytes_in as u64;
        match outcome {
            Ok(()) => counts.bytes_out += bytes_out as u64,
            Err(status) => {
                let code: StatusCode = status.code();
                *counts.failures.entry(code.name()).or_default() += 1;
            }
        }
    }

    /// Counts a call that `--shadow` compared.
    #[cfg_attr(
        not(feature = "cuda"),
        allow(dead_code, reason = "of native code only")
    )]
    pub(super) fn shadowed(&self, is_different: bool) {
        let mut counts = self.lock();
        let shadow = counts.shadow.get_or_insert_default();
        shadow.shadowed += 1;
        shadow.differing += u64::from(is_different);
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The text that Prometheus reads.
fn prometheus(counted: &[Counted]) -> String {
    let mut text = String::new();
    let head = |text: &mut String, name: &str, help: &str| {
        // Writing to a string does not fail.
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} counter");
    };
    for (name, help, value) in COLUMNS {
        head(&mut text, name, help);
        for one in counted {
            let _ = writeln!(text, "{name}{{{}}} {}", labels(one), value(&one.counts));
        }
    }
    for (name, help, value) in SHADOW_COLUMNS {
        if counted.iter().any(|one| one.counts.shadow.is_some()) {
            head(&mut text, name, help);
        }
        for one in counted {
            if let Some(shadow) = &one.counts.shadow {
                let _ = writeln!(text, "{name}{{{}}} {}", labels(one), value(shadow));
            }
        }
    }
    let name = "callbox_failures_total";
    head(&mut text, name, "Calls and batch elements that failed.");
    for one in counted {
        for (code, count) in &one.counts.failures {
            let _ = writeln!(text, "{name}{{{},code=\"{code}\"}} {count}", labels(one));
        }
    }
    text
}

fn labels(one: &Counted) -> String {
    let target = &one.target;
    let labels = [
        ("module", target.module.as_str()),
        ("sha256", &target.sha256),
        ("target", &target.target),
        ("platform", target.platform),
    ];
    let labels = labels.map(|(name, value)| format!("{name}=\"{}\"", escaped(value)));
    labels.join(",")
}

fn escaped(value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace('\n', "\\n");
    value.replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_does_not_end_its_label() {
        let counted = Counted {
            target: Target {
                module: "a\\.wasm".to_owned(),
                sha256: "00".to_owned(),
                target: "f\"} 1\ncallbox_calls_total 7".to_owned(),
                platform: "Host",
            },
            counts: Counts {
                calls: 2,
                ..Counts::default()
            },
        };
        let line = r#"callbox_calls_total{module="a\\.wasm",sha256="00","#.to_owned()
            + r#"target="f\"} 1\ncallbox_calls_total 7",platform="Host"} 2"#;
        let text = prometheus(&[counted]);
        assert_eq!(text.lines().nth(2), Some(line.as_str()));
    }
}
