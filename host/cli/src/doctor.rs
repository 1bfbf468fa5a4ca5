//! `callbox doctor`: what this machine has for kernels, and how to get what it lacks. It installs
//! and changes nothing.

#[cfg_attr(not(feature = "cuda"), path = "doctor/cuda_left_out.rs")]
mod cuda;
mod program;
mod programs;

use std::process::ExitCode;

use callbox::wasm::Engine;
use serde::Serialize;

use super::inspect::{bytes, field};
use super::text::{name, printable};
use super::{backend, json, output};

const EXAMPLES: &str = "\
What it looks for:
  host     .wasm modules: callbox runs them itself
  compiler a child process that compiles them, under limits on time, memory and system calls
  driver   NVIDIA's driver and its devices: to run CUDA targets
  nvrtc    NVIDIA's compiler: for manifests that name CUDA source
  ptxas    NVIDIA's assembler: to assemble fenced kernels in a child process
  rust     rustc's target wasm32-unknown-unknown: to build kernels in Rust
  clang    a clang that compiles for wasm32: to build kernels in C and C++
  wasm-ld  the linker that this clang calls
  jax      JAX in the first python3 on PATH, without the user's own packages: to make programs

Only the first is needed to run targets on Host. Its memory is \"pooled\", or \"on demand\" or
\"compact\" where the process may reserve less address space (ulimit -v). Programs on PATH are asked for their version,
for at most 30 s each.

With --json, standard output is one object:
  {\"status\":{...},\"doctor\":{\"version\":...,\"host\":{\"allocation\":...,\"problem\":...},
    \"compiler\":{...},
    \"driver\":{\"found\":...,\"version\":...,\"path\":...,\"problem\":...,\"remedy\":...},
    \"devices\":[{\"ordinal\":...,\"name\":...,\"compute_capability\":...,
      \"memory\":{\"free\":...,\"total\":...},\"problem\":...}],
    \"nvrtc\":{...},\"ptxas\":{...},\"rust\":{...},\"clang\":{...},\"wasm_ld\":{...},\"jax\":{...}}}
  compiler, nvrtc, ptxas, rust, clang, wasm_ld and jax have the keys of driver. Sizes are in bytes.
  Unknown values are null, and so are problem and remedy of what was found.

The exit code is 0, whatever is missing.";

/// Show what this machine has for kernels, and the commands that get what it lacks
///
/// Checks for the CUDA driver, devices and NVRTC, the toolchains for WebAssembly, and JAX.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Arguments {
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// The report. Its fields are in the order of the JSON's keys.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    version: &'static str,
    host: Host,
    compiler: Finding,
    driver: Finding,
    devices: Vec<Device>,
    nvrtc: Finding,
    ptxas: Finding,
    rust: Finding,
    clang: Finding,
    wasm_ld: Finding,
    jax: Finding,
}

/// The result of looking for one program, library or device.
#[derive(Debug, Default, Serialize)]
struct Finding {
    found: bool,
    version: Option<String>,
    path: Option<String>,
    /// Why it cannot be used, if it cannot.
    problem: Option<String>,
    /// The way to install it, if it cannot be used.
    remedy: Option<&'static str>,
}

/// The engine that runs `.wasm` modules.
#[derive(Debug, Serialize)]
struct Host {
    /// How an engine of this process reserves address space.
    allocation: Option<String>,
    problem: Option<String>,
}

impl Host {
    fn find() -> Self {
        let (allocation, problem) = match Engine::new() {
            Ok(engine) => (Some(engine.allocation().to_string()), None),
            Err(status) => (None, Some(status.message().to_owned())),
        };
        Self {
            allocation,
            problem,
        }
    }

    fn describe(&self) -> String {
        match (&self.allocation, &self.problem) {
            (Some(allocation), _) => format!("ready: runs .wasm modules, memory {allocation}"),
            (None, problem) => name(problem.as_deref().unwrap_or_default()),
        }
    }
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
        host: Host::find(),
        compiler: compiler(),
        driver,
        devices,
        nvrtc: cuda::nvrtc(),
        ptxas: cuda::ptxas(),
        rust: programs::rust(),
        clang,
        wasm_ld,
        jax: programs::jax(),
    };
    let text = if arguments.json {
        json::doctor(Ok(&report))
    } else {
        describe(&report)
    };
    output::emit(&text, ExitCode::SUCCESS)
}

/// Whether modules are compiled in a child process that is confined.
fn compiler() -> Finding {
    match backend::check_compiler() {
        Ok(()) => Finding::found(Some("in a confined child process".to_owned()), None),
        Err(status) => Finding::missing(
            status.message(),
            "Linux with seccomp; modules are compiled in this process until then",
        ),
    }
}

/// The report for a person.
fn describe(report: &Report) -> String {
    let mut lines = vec![
        format!("callbox {}", report.version),
        field("host", &report.host.describe()),
    ];
    lines.extend(finding("compiler", &report.compiler));
    lines.extend(finding("driver", &report.driver));
    for device in &report.devices {
        let key = format!("device {}", device.ordinal);
        lines.push(field(&key, &describe_device(device)));
    }
    for (key, found) in [
        ("nvrtc", &report.nvrtc),
        ("ptxas", &report.ptxas),
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
    let problem = printable(finding.problem.as_deref().unwrap_or_default());
    let mut problem = problem.lines();
    let mut lines = vec![if finding.found {
        field(key, &known.join(", "))
    } else {
        let first = problem.next().unwrap_or_default();
        field(key, &format!("missing: {first}"))
    }];
    let remedy = finding.remedy.map(|text| format!("get it: {text}"));
    lines.extend(problem.map(|text| field("", text)));
    lines.extend(remedy.map(|text| field("", &text)));
    lines
}

fn describe_device(device: &Device) -> String {
    let capability = device.compute_capability.as_deref();
    let memory = device.memory.as_ref().map(|memory| {
        let (free, total) = (memory.free as u64, memory.total as u64);
        format!("{} of memory, {} of it free", bytes(total), bytes(free))
    });
    let parts = [
        device.name.as_deref().map(name),
        capability.map(|capability| format!("compute capability {capability}")),
        memory,
        device.problem.as_deref().map(name),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}
