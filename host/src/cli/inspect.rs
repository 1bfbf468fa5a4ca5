//! `callbox inspect`: what can be said of a module, a manifest or a library without loading any of it.

mod fields;
mod library;
mod manifest;
mod module;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

pub(super) use self::fields::bytes;
pub(super) use self::library::InspectedLibrary;
pub(super) use self::manifest::{InspectedImage, InspectedManifest};
pub(super) use self::module::InspectedModule;

use super::failure::Outcome;
use super::output::{self, complain};
use super::text::name;
use super::{json, native};

const EXAMPLES: &str = "\
Examples:
  callbox inspect kernels/add_n.wasm
  callbox inspect kernels/callbox.json
  callbox inspect libk.so

What is shown is the file's own claim. Nothing of it is run, compiled or loaded, and no
driver is needed. A manifest, or the folder of a callbox.json, is shown with its images
and the digest over all of them, a library with its own: that is what --allow-native takes.

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
  would load the module: OK, or why not. In place of module stands, for a manifest,
   \"manifest\":{\"size\":...,\"digest\":...,\"format\":...,
    \"images\":[{\"name\":...,\"kind\":...,\"file\":...,\"size\":...,\"sha256\":...,\"problem\":...,
      \"source\":{\"file\":...,\"sha256\":...,\"found_sha256\":...,\"agrees\":...}}],
    \"targets\":[{...,\"launches\":[{\"image\":...,\"entry\":...}]}]}
  and for a library \"library\":{\"size\":...,\"sha256\":...}. digest is null if an image cannot be
  read, whose size and sha256 are null then; source is null if the manifest names none, and
  found_sha256 and agrees are null if it is not there.";

/// Show what a module, a manifest of native targets or a library is: targets, images, imports, size, digest
///
/// Loads and runs nothing of it.
#[derive(Debug, clap::Args)]
#[command(after_long_help = format!("{EXAMPLES}\n\n{}", super::EXIT_CODES))]
pub(super) struct Arguments {
    /// The module, the manifest callbox.json or the folder of one, or the shared library
    #[arg(value_name = "FILE.wasm|FILE.json|DIR|FILE.so")]
    file: PathBuf,

    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// What a file is taken for, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Module,
    Manifest,
    Library,
}

/// What is shown of a file.
#[derive(Debug)]
pub(super) enum Inspected {
    Module(InspectedModule),
    Manifest(InspectedManifest),
    Library(InspectedLibrary),
}

pub(super) fn show(arguments: &Arguments) -> ExitCode {
    let path = native::manifest(&arguments.file);
    let kind = Kind::of(&path);
    let outcome = read(kind, &path);
    let code = match &outcome {
        Ok(_) => ExitCode::SUCCESS,
        Err(failure) => {
            complain(failure);
            failure.exit_code()
        }
    };
    match (arguments.json, &outcome) {
        (true, outcome) => output::emit(&json::inspected(kind, outcome.as_ref()), code),
        (false, Ok(inspected)) => {
            let title = name(&path.display().to_string());
            output::emit(&(title + "\n" + &describe(inspected)), code)
        }
        (false, Err(_)) => code,
    }
}

impl Kind {
    fn of(path: &Path) -> Self {
        if native::is_library(path) {
            return Self::Library;
        }
        match path
            .extension()
            .is_some_and(|extension| extension == "json")
        {
            true => Self::Manifest,
            false => Self::Module,
        }
    }
}

fn read(kind: Kind, path: &Path) -> Outcome<Inspected> {
    match kind {
        Kind::Module => module::read(path).map(Inspected::Module),
        Kind::Manifest => manifest::read(path).map(Inspected::Manifest),
        Kind::Library => library::read(path).map(Inspected::Library),
    }
}

fn describe(inspected: &Inspected) -> String {
    match inspected {
        Inspected::Module(module) => module::describe(module),
        Inspected::Manifest(manifest) => manifest::describe(manifest),
        Inspected::Library(library) => library::describe(library),
    }
}
