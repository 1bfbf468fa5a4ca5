//! `callbox fetch`: gets a package by its name.

pub(super) mod bundles;
pub(super) mod cache;
pub(super) mod http;
pub(super) mod hub;
pub(super) mod locked;
pub(super) mod oci;
pub(super) mod reference;
pub(super) mod source;
mod spelling;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use callbox::{Blame, Status, StatusCode};
use serde::Serialize;

use self::cache::digest;
use self::locked::Additions;
use self::reference::Reference;
use super::failure::{Failure, Outcome};
use super::inspect::field;
use super::lock::Lock;
use super::text::{name, printable};
use super::{json, output, regular_file, signing, write_file};

const EXAMPLES: &str = "\
References:
  hf:ORG/NAME@VERSION   a kernel of the Hugging Face Hub: of version 1 the branch v1, or a branch,
                        tag or commit
  oci:HOST/PATH:TAG     an artefact of a registry of containers, or oci:HOST/PATH@sha256:DIGEST
  https://HOST/PATH     a file; also http:// of this machine
  PATH                  a file
  Each may end with #sha256:DIGEST: of the file, or for the Hub of its metadata.json, as
  `callbox pack --hub` prints it.

Environment, as of the Hub's own tools: HF_ENDPOINT, HF_HOME, HF_TOKEN, HF_TOKEN_PATH,
  HF_HUB_OFFLINE, HTTPS_PROXY, NO_PROXY. SSL_CERT_FILE names other authorities' certificates.
  DOCKER_CONFIG/config.json has the passwords of registries, as `docker login` keeps them, or names
  the program that does.

Examples:
  callbox fetch hf:org/rms-norm@1
  callbox fetch hf:org/rms-norm@1 --write-lock callbox.lock
  callbox fetch hf:org/rms-norm@1 --lock callbox.lock -o kernels/rms-norm.wasm
  callbox fetch https://example.com/softmax-1.0.0.wasm#sha256:...

If a rule of --trust takes bundles of signatures, the one that the host has counts, and is written
beside the file, as FILE.wasm.sig.

Nothing of the package runs. `callbox inspect` and `callbox test` take the file.

With --json, standard output is one object, of failures too (then fetched is null):
  {\"status\":{...},\"fetched\":{\"from\":...,\"file\":...,\"bundle\":...,\"sha256\":...,\"size\":...,
    \"name\":...,\"version\":...,\"commit\":...,\"hub_digest\":...}}
  name and version are null for a plain module; commit and hub_digest are null but for the Hub.";

/// Get a package from the Hugging Face Hub, a registry, an https address or a path, and check it
#[derive(Debug, clap::Args)]
#[command(after_long_help = format!("{EXAMPLES}\n\n{}", super::EXIT_CODES))]
pub(super) struct Arguments {
    /// The package: hf:ORG/NAME@VERSION, oci:HOST/PATH:TAG, https://... or a path, with
    /// #sha256:DIGEST or not
    #[arg(value_name = "REF", value_parser = reference::parse)]
    reference: Reference,

    /// The file to write. If left out, the package's own name in the current folder
    #[arg(short, long, value_name = "FILE.wasm")]
    output: Option<PathBuf>,

    /// Replace another file of this name. If left out, that is an error
    #[arg(long)]
    replace: bool,

    /// The lock that must have the reference. Its commit and digest are fetched, wherever the
    /// branch is now
    #[arg(long, value_name = "FILE.lock")]
    lock: Option<PathBuf>,

    /// Write the reference and the file down in this lock, as `callbox lock` does. `callbox update`
    /// shows what changed at the reference since
    #[arg(long, value_name = "FILE.lock", conflicts_with = "lock")]
    write_lock: Option<PathBuf>,

    /// The rules about signatures that must hold for the reference, as of `callbox run`
    #[arg(long, value_name = "FILE.json")]
    trust: Option<PathBuf>,

    /// Use only what was downloaded before
    #[arg(long)]
    offline: bool,

    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// A package that was written.
#[derive(Debug, Serialize)]
struct Fetched {
    from: String,
    file: String,
    bundle: Option<String>,
    sha256: String,
    size: usize,
    name: Option<String>,
    version: Option<String>,
    commit: Option<String>,
    hub_digest: Option<String>,
}

pub(super) fn fetch(arguments: &Arguments) -> ExitCode {
    let outcome = write(arguments);
    let code = output::exit_code(&outcome);
    match (arguments.json, &outcome) {
        (true, outcome) => output::emit(&json::command("fetched", outcome.as_ref()), code),
        (false, Ok(fetched)) => output::emit(&fetched.describe(), code),
        (false, Err(_)) => code,
    }
}

fn write(arguments: &Arguments) -> Outcome<Fetched> {
    let trust = arguments.trust.as_deref().map(signing::rules).transpose()?;
    let lock = arguments.lock.as_deref().map(Lock::read).transpose()?;
    let mut package = source::get(&arguments.reference, lock.as_ref(), arguments.offline)?;
    let header = package.header()?;
    if package.takes_bundles(trust.as_ref()) {
        package.bundle = bundles::of(
            &arguments.reference,
            &package,
            trust.as_ref(),
            arguments.offline,
        )?;
    }
    package.check_trust(trust.as_ref())?;
    let path = arguments.output.clone();
    let path = path.unwrap_or_else(|| PathBuf::from(&package.file_name));
    let additions = arguments.write_lock.as_deref();
    let additions =
        additions.map(|lock| Additions::new(lock, &arguments.reference, &path, &package));
    let additions = additions.transpose()?;
    let bundle = package.bundle.as_deref();
    let bundle = bundle.map(|bytes| (signing::beside(&path), bytes));
    let files = std::iter::once((&path, &package.bytes[..]));
    let files = files.chain(bundle.iter().map(|(path, bytes)| (path, *bytes)));
    let files = Vec::from_iter(files);
    let mut new = Vec::new();
    for (path, bytes) in files {
        if is_new(path, bytes, arguments.replace)? {
            new.push((path, bytes));
        }
    }
    for (path, bytes) in new {
        write_file::write(path, &[bytes])?;
    }
    if let Some(additions) = additions {
        additions.write()?;
    }
    Ok(Fetched {
        from: package.from().to_owned(),
        file: path.to_string_lossy().into_owned(),
        bundle: bundle.map(|(path, _)| path.to_string_lossy().into_owned()),
        sha256: digest(&package.bytes),
        size: package.bytes.len(),
        name: header.as_ref().map(|(name, _)| name.clone()),
        version: header.map(|(_, version)| version),
        commit: package.hub.as_ref().map(|hub| hub.commit.clone()),
        hub_digest: package.hub.map(|hub| hub.digest),
    })
}

/// Whether a file is to be written, as it is not there. Another file of this name stays, unless it
/// is to be replaced.
fn is_new(path: &Path, bytes: &[u8], replace: bool) -> Outcome<bool> {
    if path.is_dir() {
        let message = "expected the name of a file to write, found a folder: name a file in it \
                       with -o";
        let status = Status::invalid_argument(message).context(path.display());
        return Err(Failure::usage(status));
    }
    if path.symlink_metadata().is_ok() {
        let found = regular_file::read(path, bytes.len());
        if found.is_ok_and(|found| found == bytes) {
            return Ok(false);
        }
        if !replace {
            let message = "expected no other file of this name: use --replace, or name one with -o";
            let status = Status::new(StatusCode::FailedPrecondition, Blame::Caller, message);
            return Err(status.context(path.display()).into());
        }
    }
    Ok(true)
}

impl Fetched {
    fn describe(&self) -> String {
        let title = match (&self.name, &self.version) {
            (Some(name), Some(version)) => format!("{name} {version}"),
            _ => name(&self.file),
        };
        let mut lines = vec![
            title,
            field("from", &name(&self.from)),
            field("file", &name(&self.file)),
            field("sha256", &self.sha256),
        ];
        if let Some(bundle) = &self.bundle {
            lines.push(field("bundle", &name(bundle)));
        }
        if let (Some(commit), Some(digest)) = (&self.commit, &self.hub_digest) {
            lines.push(field("commit", commit));
            lines.push(field("hub", digest));
        }
        printable(&(lines.join("\n") + "\n"))
    }
}
