//! `callbox annotate`: writes the declarations of a module's targets into it.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use callbox::Status;
use callbox::policy::Limits;
use callbox_core::json;
use callbox_core::untrusted_text::{formatted, shown_name};
use serde_json::{Deserializer, Value};

use super::failure::Outcome;
use super::modules::Loader;
use super::policy::PolicyArguments;
use super::{output, regular_file, write_file};

const EXAMPLES: &str = "\
TARGETS.json has an object for each target, or a list of such objects:
  {\"name\": \"scale\", \"traits\": [\"elementwise\"],
   \"operands\": [{\"name\": \"x\", \"element_types\": [\"f32\"], \"dimensions\": [\"..\"]}],
   \"results\": [{\"name\": \"y\", \"element_types\": [\"f32\"], \"dimensions\": [\"..\"]}],
   \"attributes\": [{\"name\": \"n\", \"kind\": \"scalar\", \"element_type\": \"f32\"}]}
The module exports a function of each name. guests/MANIFEST.md describes the fields. A target that
computes the derivatives of another one has the field \"derivative_of\" with its name, and
\"derivative_mode\": \"jvp\" for those of forward mode.

Examples:
  callbox annotate zig-out/bin/k.wasm targets.json
  callbox annotate k.wasm targets.json -o annotated.wasm

Earlier declarations are replaced. A tool that strips custom sections, such as wasm-strip, removes
the declarations too: run it before.";

/// Write the declarations of a module's targets into it, for compilers that cannot
///
/// Checks them as loading the module does. Nothing is written if they do not fit.
#[derive(Debug, clap::Args)]
#[command(after_long_help = format!("{EXAMPLES}\n\n{}", super::EXIT_CODES))]
pub(super) struct Arguments {
    /// The module
    #[arg(value_name = "FILE.wasm")]
    module: PathBuf,

    /// The declarations
    #[arg(value_name = "TARGETS.json")]
    targets: PathBuf,

    /// The module to write. If left out, FILE.wasm is replaced
    #[arg(short, long, value_name = "FILE.wasm")]
    output: Option<PathBuf>,
}

pub(super) fn annotate(arguments: &Arguments) -> ExitCode {
    match write(arguments) {
        Ok(text) => output::emit(&text, ExitCode::SUCCESS),
        Err(failure) => {
            output::complain(&failure);
            failure.exit_code()
        }
    }
}

fn write(arguments: &Arguments) -> Outcome<String> {
    let limits = Limits::default();
    let (path, targets) = (&arguments.module, &arguments.targets);
    let module = regular_file::read(path, limits.module_bytes)?;
    // The section can have no more.
    let text = regular_file::read(targets, limits.metadata_bytes)?;
    let in_targets = |message| Status::invalid_argument(message).context(targets.display());
    let declarations = declarations(&text).map_err(in_targets)?;
    let annotated = callbox_package::with_targets(&module, &declarations);
    let annotated = annotated.map_err(|status| status.context(path.display()))?;

    let output = arguments.output.as_ref().unwrap_or(path);
    let loader = Loader::new(&PolicyArguments::default())?;
    let file = loader.describe(output, annotated)?;
    write_file::write(output, &[file.contents.bytes()])?;
    let mut text = format!("{}\n", output.display());
    for target in &file.contents.info().targets {
        // Writing to a string does not fail.
        let _ = writeln!(text, "  {}", shown_name(&target.name));
    }
    Ok(text)
}

/// Returns the declarations as the section has them: one object after the other.
fn declarations(text: &[u8]) -> Result<String, String> {
    /// The most memory of the values.
    const MOST: usize = 48 << 20;
    json::check_memory(text, json::MAP, MOST)?;
    let mut found = Vec::new();
    for value in Deserializer::from_slice(text).into_iter::<Value>() {
        match value.map_err(|error| format!("expected JSON: {error}"))? {
            Value::Array(items) => found.extend(items),
            value => found.push(value),
        }
    }
    if found.is_empty() {
        return Err("expected an object for each target, found none".to_owned());
    }
    let lines = found.iter().map(|value| match value {
        Value::Object(_) => Ok(format!("{value}\n")),
        other => Err(formatted(
            format_args!("expected an object for each target, found {other}"),
            1024,
        )),
    });
    lines.collect()
}
