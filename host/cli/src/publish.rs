//! `callbox publish`: puts a package where `callbox fetch` gets it.

mod folder;
mod hub;
mod lfs;
mod oci;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use callbox::{Blame, Status, StatusCode};
use callbox_package::oms::Bundle;
use callbox_package::{Limits, Package};
use serde::Serialize;

use self::hub::Choices;
use super::failure::{Failure, Outcome};
use super::fetch::cache::digest;
use super::fetch::reference::{self, Place, Reference};
use super::inspect::field;
use super::text::{name, printable};
use super::update::is_older;
use super::{json, output, regular_file, signing};

const EXAMPLES: &str = "\
Destinations:
  hf:ORG/NAME@VERSION   a repository of kernels of the Hugging Face Hub, which is made if it is
                        missing: of version 1 the branch v1, or a branch
  oci:HOST/PATH:TAG     a registry of containers, as an artefact of the layout for wasm
  DIR                   a folder, for a site of files: NAME-VERSION.wasm

Environment: HF_TOKEN, HF_HOME/token and HF_ENDPOINT, as of the Hub's own tools; for registries the
  passwords that `docker login` keeps in DOCKER_CONFIG/config.json.

Examples:
  callbox publish softmax-1.0.0.wasm hf:org/softmax@1
  callbox publish softmax-1.0.0.wasm oci:ghcr.io/org/softmax:1.0.0
  callbox publish softmax-1.0.0.wasm site/kernels

The bundle of signatures that is beside the file, FILE.wasm.sig, is published too. Run
`callbox test` before. A version that is published stays as it is, with its bundle, and the branch
of a version does not go back: --replace does both.

With --json, standard output is one object, of failures too (then published is null):
  {\"status\":{...},\"published\":{\"to\":...,\"name\":...,\"version\":...,\"sha256\":...,
    \"changed\":true,\"bundle\":...,\"commit\":...,\"hub_digest\":...,\"manifest_digest\":...,
    \"bundle_digest\":...}}
  changed is false if the destination had all of this; bundle is the path of the bundle in the
  folder or repository; keys of other destinations are null.";

/// Publish a package on the Hugging Face Hub, in a registry of containers or in a folder
#[derive(Debug, clap::Args)]
#[command(after_long_help = format!("{EXAMPLES}\n\n{}", super::EXIT_CODES))]
pub(super) struct Arguments {
    /// The package, as `callbox pack` wrote it
    #[arg(value_name = "FILE.wasm")]
    file: PathBuf,

    /// The destination: hf:ORG/NAME@VERSION, oci:HOST/PATH:TAG or a folder
    #[arg(value_name = "DEST", value_parser = reference::parse)]
    destination: Reference,

    /// Replace another package of this name and version, or a newer version
    #[arg(long)]
    replace: bool,

    /// If the repository of the Hub is made, make a private one
    #[arg(long)]
    private: bool,

    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// What was published.
#[derive(Debug, Default, Serialize)]
struct Published {
    to: String,
    name: String,
    version: String,
    sha256: String,
    changed: bool,
    /// The path of the bundle in the folder or repository.
    bundle: Option<String>,
    commit: Option<String>,
    hub_digest: Option<String>,
    manifest_digest: Option<String>,
    /// The digest of the artefact with the bundle.
    bundle_digest: Option<String>,
}

/// A package, and the bundle of signatures beside it.
#[derive(Clone, Copy)]
struct Content<'a> {
    package: &'a Package<'a>,
    bundle: Option<&'a [u8]>,
}

/// What becomes of the bundle beside a published package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BundleChange {
    Keep,
    Write,
    /// It is of another package.
    Remove,
}

pub(super) fn publish(arguments: &Arguments) -> ExitCode {
    let outcome = write(arguments);
    let code = output::exit_code(&outcome);
    match (arguments.json, &outcome) {
        (true, outcome) => output::emit(&json::command("published", outcome.as_ref()), code),
        (false, Ok(published)) => output::emit(&published.describe(), code),
        (false, Err(_)) => code,
    }
}

fn write(arguments: &Arguments) -> Outcome<Published> {
    let limits = Limits::default();
    let bytes = regular_file::read(&arguments.file, limits.package_bytes)?;
    let in_file = |status: Status| status.context(arguments.file.display());
    let package = callbox_package::read(&bytes, &limits).map_err(in_file)?;
    let destination = &arguments.destination;
    if destination.digest.is_some() {
        return Err(wrong("expected a destination without a digest"));
    }
    let bundle = bundle_of(&arguments.file, &bytes)?;
    let content = Content {
        package: &package,
        bundle: bundle.as_deref(),
    };
    let mut published = Published {
        name: package.header().name.clone(),
        version: package.header().version.clone(),
        sha256: digest(&bytes),
        changed: true,
        ..Published::default()
    };
    let done = put(content, arguments, &mut published);
    done.map_err(|failure| destination.in_failure(failure))?;
    Ok(published)
}

/// Puts a package and its bundle to the destination.
fn put(content: Content<'_>, arguments: &Arguments, published: &mut Published) -> Outcome<()> {
    match &arguments.destination.place {
        Place::File(path) => folder::publish(content, path, arguments.replace, published),
        Place::Web(_) => {
            let message = "expected hf:ORG/NAME@VERSION, oci:HOST/PATH:TAG or a folder: publish \
                           into a folder, and upload that to the site";
            Err(wrong(message))
        }
        Place::Hub(reference) => {
            let choices = Choices {
                replaces: arguments.replace,
                is_private: arguments.private,
            };
            hub::publish(content, reference, choices, published)
        }
        Place::Oci(reference) => oci::publish(content, reference, arguments.replace, published),
    }
}

/// The bundle of signatures beside the package, which must be of it.
fn bundle_of(file: &Path, package: &[u8]) -> Outcome<Option<Vec<u8>>> {
    let Some(text) = signing::bundle_of(file)? else {
        return Ok(None);
    };
    let path = signing::beside(file);
    let bundle = Bundle::read(&text).map_err(|status| status.context(path.display()))?;
    if bundle.lists(package) {
        return Ok(Some(text));
    }
    let message = "expected a bundle of the package, found one of other content: sign the package \
                   again, or remove the bundle";
    let status = Status::new(StatusCode::FailedPrecondition, Blame::Caller, message);
    Err(status.context(path.display()).into())
}

fn wrong(message: &str) -> Failure {
    Failure::usage(Status::invalid_argument(message))
}

/// Checks that a package may take the place of another one with this name and version.
fn check_replaces(package: &Package<'_>, other: (&str, &str), to: &str) -> Outcome<()> {
    let header = package.header();
    let is_other = other.0 != header.name || other.1 == header.version;
    if !is_other && !is_older(Some(other.1), Some(&header.version)) {
        return Ok(());
    }
    let (name, version) = other;
    let message = format!(
        "it has {name:?} {version:?}, which is not an earlier version of this package: a new \
         version needs a greater number, and --replace replaces it"
    );
    let status = Status::new(StatusCode::FailedPrecondition, Blame::Caller, message);
    Err(status.context(crate::text::name(to)).into())
}

impl Content<'_> {
    /// What becomes of the bundle that is found beside this package at its destination.
    fn bundle_change(&self, found: Option<&[u8]>) -> BundleChange {
        match (self.bundle, found) {
            (Some(bundle), Some(found)) if bundle == found => BundleChange::Keep,
            (Some(_), _) => BundleChange::Write,
            (None, Some(found)) if is_of_other(found, self.package.bytes()) => BundleChange::Remove,
            (None, _) => BundleChange::Keep,
        }
    }
}

/// Whether a file is a bundle, of another module. A file that is no bundle can be any signature.
fn is_of_other(file: &[u8], module: &[u8]) -> bool {
    Bundle::read(file).is_ok_and(|bundle| !bundle.lists(module))
}

impl Published {
    fn describe(&self) -> String {
        let mut lines = vec![
            format!("{} {}", self.name, self.version),
            field("to", &name(&self.to)),
            field("sha256", &self.sha256),
        ];
        for (key, value) in [
            ("commit", &self.commit),
            ("hub", &self.hub_digest),
            ("manifest", &self.manifest_digest),
            ("bundle", &self.bundle),
            ("bundle", &self.bundle_digest),
        ] {
            lines.extend(value.as_ref().map(|value| field(key, value)));
        }
        if !self.changed {
            lines.push(field("changed", "nothing: it is there already"));
        }
        printable(&(lines.join("\n") + "\n"))
    }
}
