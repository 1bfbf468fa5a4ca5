//! `callbox doctor`: what this machine has for kernels, and how to get what it lacks. It is a report: nothing is installed or changed.

mod cuda;
mod program;
mod programs;

use std::process::ExitCode;

use serde::Serialize;

use super::inspect::bytes;
use super::text::{name, printable};
use super::{json, output};

const EXAMPLES: &str = "\
What is looked for, and what for:
  driver   NVIDIA's driver, and its devices: to run CUDA targets
  nvrtc    NVIDIA's compiler: for manifests that name CUDA source
  rust     rustc's target wasm32-unknown-unknown: to build kernels in Rust
  clang    a clang that compiles for wasm32: to build kernels in C and C++
  wasm-ld  the linker that this clang calls
  jax      JAX in the first python3 on PATH, without the user's own packages: to make programs

Only programs on PATH are asked, for no longer than 30 s each. Nothing is installed. To run
targets on Host none of this is needed.

With --json, standard output is one object:
  {\"status\":{...},\"doctor\":{\"version\":...,
    \"driver\":{\"found\":...,\"version\":...,\"path\":...,\"problem\":...,\"remedy\":...},
    \"devices\":[{\"ordinal\":...,\"name\":...,\"compute_capability\":...,
      \"memory\":{\"free\":...,\"total\":...},\"problem\":...}],
    \"nvrtc\":{...},\"rust\":{...},\"clang\":{...},\"wasm_ld\":{...},\"jax\":{...}}}
  nvrtc and those after it have the keys of driver. Sizes are in bytes. What is not known
  is null: problem and remedy where something was found.

The exit code is 0, whatever is missing.";

/// Show what this machine has for kernels, and the commands that get what it lacks
///
/// Driver, devices and NVRTC for CUDA, the toolchains for WebAssembly, and JAX. Installs nothing.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Arguments {
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// What was found. The order of the fields is that of the JSON's keys.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    version: &'static str,
    driver: Finding,
    devices: Vec<Device>,
    nvrtc: Finding,
    rust: Finding,
    clang: Finding,
    wasm_ld: Finding,
    jax: Finding,
}

/// What was found of one thing.
#[derive(Debug, Default, Serialize)]
struct Finding {
    found: bool,
    version: Option<String>,
    path: Option<String>,
    /// What was expected and what was found, if it cannot be used.
    problem: Option<String>,
    /// What gets it then.
    remedy: Option<&'static str>,
}

/// A device that the driver has.
#[derive(Debug, Serialize)]
struct Device {
    ordinal: usize,
    name: Option<String>,
    compute_capability: Option<String>,
    memory: Option<Memory>,
    problem: Option<String>,
}

/// A device's memory, in bytes.
#[derive(Debug, Serialize)]
struct Memory {
    free: usize,
    total: usize,
}

impl Finding {
    fn found(version: Option<String>, path: Option<String>) -> Self {
        Self {
            found: true,
            version,
            path,
            ..Self::default()
        }
    }

    fn missing(problem: impl Into<String>, remedy: &'static str) -> Self {
        Self {
            problem: Some(problem.into()),
            remedy: Some(remedy),
            ..Self::default()
        }
    }
}

pub(super) fn show(arguments: &Arguments) -> ExitCode {
    let (driver, devices) = cuda::driver();
    let (clang, wasm_ld) = programs::clang();
    let report = Report {
        version: env!("CARGO_PKG_VERSION"),
        driver,
        devices,
        nvrtc: cuda::nvrtc(),
        rust: programs::rust(),
        clang,
        wasm_ld,
        jax: programs::jax(),
    };
    let text = match arguments.json {
        true => json::doctor(Ok(&report)),
        false => describe(&report),
    };
    output::emit(&text, ExitCode::SUCCESS)
}

/// The report for a person.
fn describe(report: &Report) -> String {
    let mut lines = vec![format!("callbox {}", report.version)];
    lines.extend(finding("driver", &report.driver));
    for device in &report.devices {
        lines.push(line(
            &format!("device {}", device.ordinal),
            &describe_device(device),
        ));
    }
    for (key, found) in [
        ("nvrtc", &report.nvrtc),
        ("rust", &report.rust),
        ("clang", &report.clang),
        ("wasm-ld", &report.wasm_ld),
        ("jax", &report.jax),
    ] {
        lines.extend(finding(key, found));
    }
    lines.join("\n") + "\n"
}

fn finding(key: &str, finding: &Finding) -> Vec<String> {
    let known: Vec<_> = [&finding.version, &finding.path]
        .into_iter()
        .flatten()
        .map(|text| name(text))
        .collect();
    let mut lines = vec![match finding.found {
        true => line(key, &known.join(", ")),
        false => line(key, "missing"),
    }];
    let problem = printable(finding.problem.as_deref().unwrap_or_default());
    lines.extend(problem.lines().map(|text| line("", text)));
    lines.extend(
        finding
            .remedy
            .map(|text| line("", &format!("get it: {text}"))),
    );
    lines
}

fn describe_device(device: &Device) -> String {
    let title = device.name.as_deref().map(name);
    let capability = device.compute_capability.as_deref();
    let memory = device.memory.as_ref().map(|memory| {
        let (free, total) = (memory.free as u64, memory.total as u64);
        format!("{} of memory, {} of it free", bytes(total), bytes(free))
    });
    let parts = [
        title,
        capability.map(|capability| format!("compute capability {capability}")),
        memory,
        device.problem.as_deref().map(name),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn line(key: &str, value: &str) -> String {
    format!("  {key:<9} {value}")
}
