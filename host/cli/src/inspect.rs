//! `callbox inspect`: describes a module, a manifest, PTX or a library without loading it.

mod fields;
mod hash;
mod library;
#[cfg(feature = "cuda")]
mod manifest;
mod module;
mod package;
pub(super) mod slow;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

pub(super) use self::fields::{bytes, field, target as target_lines};
pub(super) use self::library::InspectedLibrary;
#[cfg(feature = "cuda")]
pub(super) use self::manifest::{
    InspectedImage, InspectedManifest, MAX_MANIFEST, parse as parse_manifest,
};
pub(super) use self::module::{InspectedModule, memory};
pub(super) use self::package::InspectedPackage;

use super::failure::Outcome;
use super::json;
use super::output;
use super::package::tensor_in;
#[cfg(feature = "cuda")]
use super::ptx::{self, PtxReport};
use super::text::name;

const EXAMPLES: &str = "\
Examples:
  callbox inspect kernels/add_n.wasm
  callbox inspect kernels/callbox.json
  callbox inspect kernels/softmax.ptx
  callbox inspect libk.so

What is shown is the file's own claim: nothing is run, compiled or loaded, and no driver is
needed. --allow-native takes the digest of a library, or of a manifest with its images.

With --json, standard output is one object, of failures too (then module is null):
  {\"status\":{\"code\":...,\"number\":...,\"message\":...,\"recoverable\":...,\"blame\":...},
   \"module\":{\"size\":...,\"sha256\":...,\"memory\":{\"initial\":...,\"maximum\":...},
    \"stack_above_data\":...,\"scalar_loops\":...,
    \"loads\":{\"code\":...,\"number\":...,\"message\":...,\"recoverable\":...,\"blame\":...},
    \"features\":[...],\"imports\":[{\"module\":...,\"name\":...,\"type\":...}],
    \"exports\":[{\"name\":...,\"type\":...}],\"has_metadata\":...,
    \"targets\":[{\"name\":...,\"api_versions\":[...],\"stages\":[...],
      \"operands\":[{\"name\":...,\"element_types\":[...],\"rank\":...,\"optional\":...}],
      \"remaining_operands\":...,\"results\":[...],\"remaining_results\":...,
      \"attributes\":[{\"name\":...,\"kind\":...,\"element_type\":...,\"optional\":...}],
      \"traits\":[...],\"derivative_of\":...,\"derivative_mode\":...,\"documentation\":...}],
    \"package\":{\"name\":...,\"version\":...,\"license\":...,\"description\":...,\"source\":...,
      \"derivatives\":{...},\"files\":[{\"path\":...,\"size\":...}]},
    \"signers\":[{\"key\":...,\"state\":...}]}}
  Sizes are in bytes; operands, results and attributes are null if not declared. loads is OK,
  or the status with which the host would refuse the module. package is null for a plain module. stack_above_data is true if a stack
  that overflows overwrites the module's data instead of trapping. scalar_loops is true
  if loops lack vector instructions. For a manifest, module is replaced by
   \"manifest\":{\"size\":...,\"digest\":...,\"grade\":...,\"format\":...,
    \"images\":[{\"name\":...,\"kind\":...,\"file\":...,\"size\":...,\"sha256\":...,\"problem\":...,
      \"source\":{\"file\":...,\"sha256\":...,\"found_sha256\":...,\"agrees\":...},
      \"ptx\":{...}}],
    \"targets\":[{...,\"launches\":[{\"image\":...,\"entry\":...}]}]}
  for PTX \"ptx\":{...}, as of `callbox ptx`, and for a library
   \"library\":{\"size\":...,\"sha256\":...}.
  digest and grade are null if an image cannot be read, and so are its size and sha256; source is
  null if the manifest names none, and found_sha256 and agrees are null if the file is missing. The
  grade of a manifest is fenced, depends (on the shapes of a call) or granted, which needs a grant.
  ptx is null for an image that is not PTX.";

/// Show what a module, a manifest of native targets, PTX or a library declares: targets, images,
/// imports, grades, size, digest
///
/// Loads and runs nothing.
#[derive(Debug, clap::Args)]
#[command(after_long_help = format!("{EXAMPLES}\n\n{}", super::EXIT_CODES))]
pub(super) struct Arguments {
    /// The module, the manifest callbox.json or the folder of one, the PTX, or the shared library
    #[arg(value_name = "FILE.wasm|FILE.json|DIR|FILE.ptx|FILE.so")]
    file: PathBuf,

    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// The largest library, and the most bytes of a manifest's images together, as when callbox loads
/// them.
const MOST_BYTES: u64 = 1 << 30;

/// The kind of a file, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Module,
    Manifest,
    Library,
    Ptx,
}

/// The description of a file.
#[derive(Debug)]
pub(super) enum Inspected {
    Module(Box<InspectedModule>),
    #[cfg(feature = "cuda")]
    Manifest(InspectedManifest),
    Library(InspectedLibrary),
    #[cfg(feature = "cuda")]
    Ptx(PtxReport),
}

pub(super) fn show(arguments: &Arguments) -> ExitCode {
    let path = manifest_in(&arguments.file);
    let kind = Kind::of(&path);
    let outcome = read(kind, &path);
    let code = output::exit_code(&outcome);
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
    pub(super) fn of(path: &Path) -> Self {
        // The tensor may be `callbox.json`.
        if tensor_in(path).is_some() {
            Self::Module
        } else if is_library(path) {
            Self::Library
        } else {
            match path.extension().and_then(|extension| extension.to_str()) {
                Some("json") => Self::Manifest,
                Some("ptx") => Self::Ptx,
                _ => Self::Module,
            }
        }
    }
}

fn read(kind: Kind, path: &Path) -> Outcome<Inspected> {
    match kind {
        Kind::Module => module::read(path).map(|module| Inspected::Module(Box::new(module))),
        #[cfg(feature = "cuda")]
        Kind::Manifest => manifest::read(path).map(Inspected::Manifest),
        #[cfg(not(feature = "cuda"))]
        Kind::Manifest | Kind::Ptx => {
            Err(callbox::Status::unimplemented(super::left_out("cuda")).into())
        }
        #[cfg(feature = "cuda")]
        Kind::Ptx => ptx::of_file(path).map(Inspected::Ptx),
        Kind::Library => library::read(path).map(Inspected::Library),
    }
}

fn describe(inspected: &Inspected) -> String {
    match inspected {
        Inspected::Module(module) => module::describe(module),
        #[cfg(feature = "cuda")]
        Inspected::Manifest(manifest) => manifest::describe(manifest),
        Inspected::Library(library) => library::describe(library),
        #[cfg(feature = "cuda")]
        Inspected::Ptx(report) => ptx::describe(report),
    }
}

/// The digest that a grant of a manifest or a library names, and the size of the file.
pub(super) fn native_digest(kind: Kind, path: &Path) -> Outcome<(String, u64)> {
    match read(kind, path)? {
        Inspected::Library(library) => Ok((library.sha256, library.size)),
        #[cfg(feature = "cuda")]
        Inspected::Manifest(manifest) => {
            let unread = manifest
                .images
                .iter()
                .find_map(|image| image.file.as_ref().err());
            match (manifest.digest, unread) {
                (Some(digest), _) => Ok((digest, manifest.size as u64)),
                (None, unread) => Err(unread
                    .cloned()
                    .unwrap_or_else(|| callbox::Status::internal("an image was not read"))
                    .into()),
            }
        }
        Inspected::Module(module) => Ok((module.info.sha256, module.info.size as u64)),
        #[cfg(feature = "cuda")]
        Inspected::Ptx(_) => Err(super::failure::Failure::usage(
            callbox::Status::invalid_argument(format!(
                "{}: PTX is loaded only by a manifest: name the `callbox.json` that has it",
                path.display()
            )),
        )),
    }
}

/// The manifest that a path names: the file itself, or the `callbox.json` of a folder.
pub(super) fn manifest_in(path: &Path) -> PathBuf {
    if path.is_dir() {
        path.join("callbox.json")
    } else {
        path.to_owned()
    }
}

/// Whether a file is a shared library, by its name: `k.so`, `k.so.1`, `k.dylib` or `k.dll`.
pub(super) fn is_library(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let endings = [".so", ".dylib", ".dll"];
    endings.iter().any(|ending| name.ends_with(ending)) || name.contains(".so.")
}
