//! A whole run, and the recording of reference outcomes on the stand-in.

use std::fs;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use callbox_tests::date;

use crate::conformance::{Codes, Record};
use crate::fence::random;
use crate::options::Options;
use crate::report::{Device, FORMAT, Outcome, Report, Section};
use crate::sections::{
    BANDWIDTH, CONFORMANCE, ENVIRONMENT, FENCE, FENCE_COST, LAUNCH, LOADING, RANDOM,
};
use crate::{children, faults};

/// The commit that `cargo xtask gpu-check` built from.
const COMMIT: &str = match option_env!("CALLBOX_COMMIT") {
    Some(commit) => commit,
    None => "",
};

/// Runs all sections.
pub(crate) fn run(options: &Options, root: &Path) -> Report {
    let begun = Instant::now();
    let date = date::now();
    let environment = say(children::run(ENVIRONMENT, options, root));
    let device: Option<Device> = serde_json::from_value(environment.numbers["device"].clone()).ok();
    let why_no_device = match &device {
        Some(_) => String::new(),
        None => environment.why.clone(),
    };
    let section = |name: &str| match &device {
        Some(_) => children::run(name, options, root),
        None => Section::skipped(name, &why_no_device),
    };
    let faults = || {
        let parts = faults::FAULTS
            .iter()
            .map(|(fault, _)| children::run(&format!("{}{fault}", faults::PREFIX), options, root));
        faults::together("faults", parts.collect())
    };
    let sections = vec![
        environment,
        say(section(CONFORMANCE)),
        say(match &device {
            Some(_) => faults(),
            None => Section::skipped("faults", &why_no_device),
        }),
        say(section(LAUNCH)),
        say(section(BANDWIDTH)),
        // NVRTC works without a device.
        say(children::run(LOADING, options, root)),
        say(section(FENCE)),
        say(section(FENCE_COST)),
        say(match &device {
            Some(_) => random::run(RANDOM, options, root),
            None => Section::skipped(RANDOM, &why_no_device),
        }),
    ];
    Report {
        format: FORMAT,
        callbox: env!("CARGO_PKG_VERSION"),
        commit: COMMIT,
        date,
        quick: options.quick,
        device,
        why_no_device,
        seconds: begun.elapsed().as_secs_f64(),
        sections,
    }
}

/// Prints the progress.
fn say(section: Section) -> Section {
    let outcome = match section.outcome {
        Outcome::Ok => "ok",
        Outcome::Failed => "FAILED",
        Outcome::Skipped => "skipped",
    };
    let why = if section.why.is_empty() {
        String::new()
    } else {
        format!(": {}", section.why)
    };
    eprintln!("{}: {outcome}{why}", section.name);
    section
}

/// Records the outcomes of the cases on the stand-in.
///
/// # Errors
/// Cases that fail there.
pub(crate) fn record(options: &Options, root: &Path, file: &Path) -> Result<()> {
    let options = Options {
        stand_in: true,
        ..options.clone()
    };
    let section = say(children::run(CONFORMANCE, &options, root));
    if section.outcome != Outcome::Ok {
        bail!(
            "expected the cases to pass on the stand-in: {}",
            section.why
        );
    }
    let codes: Codes = serde_json::from_value(section.numbers["codes"].clone())?;
    ensure!(
        !codes.is_empty(),
        "expected cases that run on the stand-in, found none"
    );
    let record = Record {
        format: FORMAT,
        made_on: "callbox stand-in (not a GPU)".to_owned(),
        callbox: env!("CARGO_PKG_VERSION").to_owned(),
        commit: COMMIT.to_owned(),
        codes,
    };
    let text = serde_json::to_string_pretty(&record)? + "\n";
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}
