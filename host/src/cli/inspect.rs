//! `callbox inspect`: what can be said of a module without running or compiling any of it.

use std::path::PathBuf;
use std::process::ExitCode;

use callbox::Status;
use callbox::call::{AttributeSignature, BufferSignature, Signature};
use callbox::policy::Policy;
use callbox::wasm::{ModuleInfo, inspect, needed_features};

use super::failure::Outcome;
use super::output::{self, complain};
use super::text::{name, printable};
use super::{json, modules};

const EXAMPLES: &str = "\
Example:
  callbox inspect kernels/add_n.wasm

What is shown is the module's own claim. Nothing of the module is run or compiled.

With --json, standard output is one object, of failures too (then module is null):
  {\"status\":{\"code\":...,\"number\":...,\"message\":...,\"recoverable\":...,\"blame\":...},
   \"module\":{\"size\":...,\"sha256\":...,\"memory\":{\"initial\":...,\"maximum\":...},
    \"loads\":{\"code\":...,\"number\":...,\"message\":...,\"recoverable\":...,\"blame\":...},
    \"features\":[...],\"imports\":[{\"module\":...,\"name\":...,\"type\":...}],
    \"exports\":[{\"name\":...,\"type\":...}],\"has_metadata\":...,
    \"targets\":[{\"name\":...,\"api_versions\":[...],\"stages\":[...],
      \"operands\":[{\"name\":...,\"element_types\":[...],\"rank\":...,\"optional\":...}],
      \"remaining_operands\":...,\"results\":[...],\"remaining_results\":...,
      \"attributes\":[{\"name\":...,\"kind\":...,\"element_type\":...,\"optional\":...}],
      \"traits\":[...],\"documentation\":...}]}}
  Sizes are in bytes; operands, results and attributes are null if not declared. loads is the status with which the host
  would load the module: OK, or why not.";

/// Show a module's targets, imports, exports, memory, features, size and SHA-256, and whether it would load
///
/// Runs nothing of it.
#[derive(Debug, clap::Args)]
#[command(after_long_help = format!("{EXAMPLES}\n\n{}", super::EXIT_CODES))]
pub(super) struct Arguments {
    /// The module
    #[arg(value_name = "FILE.wasm")]
    module: PathBuf,

    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// What is shown of a module.
#[derive(Debug)]
pub(super) struct Inspected {
    pub(super) info: ModuleInfo,
    /// The WebAssembly proposals that it needs.
    pub(super) features: Vec<&'static str>,
    /// Why a host with the default limits would not load it.
    pub(super) problem: Option<Status>,
}

pub(super) fn show(arguments: &Arguments) -> ExitCode {
    let outcome = read(arguments);
    let code = match &outcome {
        Ok(_) => ExitCode::SUCCESS,
        Err(failure) => {
            complain(failure);
            failure.exit_code()
        }
    };
    match (arguments.json, &outcome) {
        (true, outcome) => output::emit(&json::module(outcome.as_ref()), code),
        (false, Ok(inspected)) => {
            let title = name(&arguments.module.display().to_string());
            output::emit(&(title + "\n" + &describe(inspected)), code)
        }
        (false, Err(_)) => code,
    }
}

fn read(arguments: &Arguments) -> Outcome<Inspected> {
    let Policy { limits, grants, .. } = Policy::default();
    let path = &arguments.module;
    let bytes = modules::read(path, limits.module_bytes)?;
    let in_file = |status: Status| status.context(path.display());
    let info = inspect(&bytes, &limits).map_err(in_file)?;
    Ok(Inspected {
        features: needed_features(&bytes).map_err(in_file)?,
        problem: info.check(&limits, &grants).err(),
        info,
    })
}

/// The module for a person.
fn describe(inspected: &Inspected) -> String {
    let info = &inspected.info;
    let features = match inspected.features.is_empty() {
        true => "none past WebAssembly 1.0".to_owned(),
        false => inspected.features.join(", "),
    };
    let loads = match &inspected.problem {
        None => "yes".to_owned(),
        Some(status) => format!("no: {}", name(&status.to_string())),
    };
    let mut lines = vec![
        field("size", &bytes(info.size as u64)),
        field("sha256", &info.sha256),
        field("loads", &loads),
        field("memory", &memory(info)),
        field("features", &features),
    ];
    let imports = info.imports.iter();
    let imports = imports.map(|i| format!("{} {} {}", name(&i.module), name(&i.name), i.ty));
    lines.extend(list("imports", imports));
    let exports = info
        .exports
        .iter()
        .map(|e| format!("{} {}", name(&e.name), e.ty));
    lines.extend(list("exports", exports));
    lines.push(String::new());
    lines.push(match (info.targets.is_empty(), info.has_metadata) {
        (true, _) => "no targets".to_owned(),
        (false, true) => "targets, as the module declares them".to_owned(),
        (false, false) => "targets, as exported functions could be them".to_owned(),
    });
    lines.extend(info.targets.iter().flat_map(target));
    lines.join("\n") + "\n"
}

fn memory(info: &ModuleInfo) -> String {
    match info.memory {
        None => "none exported as \"memory\"".to_owned(),
        Some(memory) => match memory.maximum {
            Some(maximum) => format!(
                "{} at first, {} at most",
                bytes(memory.initial),
                bytes(maximum)
            ),
            None => format!("{} at first, no maximum", bytes(memory.initial)),
        },
    }
}

fn target(target: &Signature) -> Vec<String> {
    let traits: Vec<_> = target.traits.iter().map(|t| name(t)).collect();
    let traits = match traits.is_empty() {
        true => String::new(),
        false => format!(" ({})", traits.join(", ")),
    };
    let mut lines = vec![format!("  {}{traits}", name(&target.name))];
    let documentation = printable(target.documentation.trim());
    lines.extend(documentation.lines().map(|line| format!("    | {line}")));
    let api_versions: Vec<_> = target.api_versions.iter().map(|v| v.name()).collect();
    let stages: Vec<_> = target.stages.iter().map(|s| s.name()).collect();
    let mut add = |key: &str, value: String| lines.push(format!("    {key:<11} {value}"));
    add("convention", api_versions.join(", "));
    add("stages", stages.join(", "));
    let more = |more: bool| if more { ", and any after those" } else { "" };
    let operands = declared(target.operands.as_deref(), buffer);
    add("operands", operands + more(target.remaining_operands));
    let results = declared(target.results.as_deref(), buffer);
    add("results", results + more(target.remaining_results));
    add(
        "attributes",
        declared(target.attributes.as_deref(), attribute),
    );
    lines
}

fn declared<T>(items: Option<&[T]>, text: impl Fn(&T) -> String) -> String {
    match items {
        None => "not declared".to_owned(),
        Some([]) => "none".to_owned(),
        Some(items) => items.iter().map(text).collect::<Vec<_>>().join(", "),
    }
}

fn buffer(buffer: &BufferSignature) -> String {
    name(&buffer.to_string())
}

fn attribute(attribute: &AttributeSignature) -> String {
    let element_type = attribute
        .element_type
        .map_or_else(String::new, |t| format!(" {t}"));
    let optional = if attribute.optional { ", optional" } else { "" };
    let (name, kind) = (name(&attribute.name), name(&attribute.kind));
    format!("{name}:{element_type} {kind}{optional}")
}

fn field(key: &str, value: &str) -> String {
    format!("  {key:<9} {value}")
}

/// Values one below the other.
fn list(key: &str, values: impl Iterator<Item = String>) -> Vec<String> {
    let mut key = key;
    let mut lines: Vec<_> = values
        .map(|value| field(std::mem::take(&mut key), &value))
        .collect();
    if lines.is_empty() {
        lines.push(field(key, "none"));
    }
    lines
}

/// A number of bytes, and in a unit that reads more easily where one divides it or it is large.
fn bytes(count: u64) -> String {
    let units = [("GiB", 1_u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match units.into_iter().find(|(_, unit)| count >= *unit) {
        Some((name, unit)) if count.is_multiple_of(unit) => {
            format!("{count} bytes ({} {name})", count / unit)
        }
        Some((name, unit)) => format!("{count} bytes ({:.1} {name})", count as f64 / unit as f64),
        None => format!("{count} bytes"),
    }
}
