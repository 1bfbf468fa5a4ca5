//! `callbox fetch`: gets a package by its name.

mod cache;
mod http;
mod hub;
mod reference;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use callbox::{Blame, Status, StatusCode};
use callbox_package::{Limits, Trust, names_of_file};
use serde::Serialize;

use self::cache::digest;
use self::http::{Address, Client, Rules, denied};
use self::hub::{Hub, Wanted};
use self::reference::{HubReference, Place, Reference};
use super::failure::{Failure, Outcome};
use super::inspect::field;
use super::lock::Lock;
use super::text::{name, printable};
use super::{json, modules, output, regular_file, signing, write_file};

const EXAMPLES: &str = "\
References:
  hf:ORG/NAME@VERSION   a kernel of the Hugging Face Hub: of version 1 the branch v1, or a branch,
                        tag or commit
  https://HOST/PATH     a file; also http:// of this machine
  PATH                  a file
  Each may end with #sha256:DIGEST: of the file, or for the Hub of its metadata.json, as
  `callbox pack --hub` prints it.

Environment, as of the Hub's own tools: HF_ENDPOINT, HF_HOME, HF_TOKEN, HF_TOKEN_PATH,
  HF_HUB_OFFLINE, HTTPS_PROXY, NO_PROXY. SSL_CERT_FILE names other authorities' certificates.

Examples:
  callbox fetch hf:org/rms-norm@1
  callbox fetch hf:org/rms-norm@1 --lock callbox.lock -o kernels/rms-norm.wasm
  callbox fetch https://example.com/softmax-1.0.0.wasm#sha256:...

Nothing of the package runs. `callbox inspect` and `callbox test` take the file.

With --json, standard output is one object, of failures too (then fetched is null):
  {\"status\":{...},\"fetched\":{\"from\":...,\"file\":...,\"sha256\":...,\"size\":...,
    \"name\":...,\"version\":...,\"commit\":...,\"hub_digest\":...}}
  name and version are null for a plain module; commit and hub_digest are null but for the Hub.";

/// Get a package from the Hugging Face Hub, an https address or a path, and check it
#[derive(Debug, clap::Args)]
#[command(after_long_help = format!("{EXAMPLES}\n\n{}", super::EXIT_CODES))]
pub(super) struct Arguments {
    /// The package: hf:ORG/NAME@VERSION, https://... or a path, with #sha256:DIGEST or not
    #[arg(value_name = "REF", value_parser = reference::parse)]
    reference: Reference,

    /// The file to write. If left out, the package's own name in the current folder
    #[arg(short, long, value_name = "FILE.wasm")]
    output: Option<PathBuf>,

    /// Replace another file of this name. If left out, that is an error
    #[arg(long)]
    replace: bool,

    /// The lock that must have the kernel of the Hub, as `callbox.hub.lock` of the Python package
    /// writes it. Its commit and digest are fetched, wherever the branch is now
    #[arg(long, value_name = "FILE.lock")]
    lock: Option<PathBuf>,

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
    sha256: String,
    size: usize,
    name: Option<String>,
    version: Option<String>,
    commit: Option<String>,
    hub_digest: Option<String>,
}

/// A package that was read.
struct Package {
    /// The names for rules about signatures, the reference's own first.
    names: Vec<String>,
    bytes: Vec<u8>,
    /// The file to write, if the user names none.
    file_name: String,
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
    let package = get(arguments)?;
    let from = package.names.first().cloned().unwrap_or_default();
    let in_file = |status: Status| Failure::from(status.context(name(&from)));
    if !package.bytes.starts_with(modules::MAGIC) {
        let message = "expected a WebAssembly module, found another file";
        return Err(in_file(Status::invalid_argument(message)));
    }
    let found = callbox_package::find(&package.bytes, &Limits::default()).map_err(in_file)?;
    let header = found.map(|found| found.header().clone());
    check_trust(trust.as_ref(), &package)?;
    let path = arguments.output.clone();
    let path = path.unwrap_or_else(|| PathBuf::from(&package.file_name));
    place(&path, &package.bytes, arguments.replace)?;
    Ok(Fetched {
        from,
        file: path.to_string_lossy().into_owned(),
        sha256: digest(&package.bytes),
        size: package.bytes.len(),
        name: header.as_ref().map(|header| header.name.clone()),
        version: header.map(|header| header.version),
        commit: package.commit,
        hub_digest: package.hub_digest,
    })
}

fn get(arguments: &Arguments) -> Outcome<Package> {
    let Reference { place, digest } = &arguments.reference;
    if arguments.lock.is_some() && !matches!(place, Place::Hub(_)) {
        let message = "--lock is for kernels of the Hub; add #sha256:DIGEST to other references";
        return Err(Failure::usage(Status::invalid_argument(message)));
    }
    match place {
        Place::File(path) => {
            let bytes = regular_file::read(path, Limits::default().package_bytes)?;
            let package = Package {
                names: names_of_file(path),
                bytes,
                file_name: last_name(&path.to_string_lossy()),
                commit: None,
                hub_digest: None,
            };
            package.checked(digest.as_deref())
        }
        Place::Web(address) => from_web(address, digest.as_deref(), arguments.offline),
        Place::Hub(reference) => {
            let wanted = wanted(arguments, reference, digest.as_deref())?;
            let found = Hub::open(arguments.offline)?.fetch(reference, &wanted)?;
            Ok(Package {
                names: vec![reference.name()],
                bytes: found.package,
                file_name: found.name,
                commit: Some(found.commit),
                hub_digest: Some(found.digest),
            })
        }
    }
}

/// Downloads a file of an address. One with a digest is kept, and not downloaded again.
fn from_web(address: &Address, wanted: Option<&str>, is_offline: bool) -> Outcome<Package> {
    let most = Limits::default().package_bytes;
    let cache = wanted.map(|_| hub::cache()).transpose()?;
    let known = cache.as_ref().zip(wanted);
    let known = known.and_then(|(cache, wanted)| cache.file(wanted, most));
    let bytes = match known {
        Some(known) => known,
        None if is_offline => {
            let message =
                format!("{address} was not downloaded before, and this command is offline");
            let status = Status::new(StatusCode::Unavailable, Blame::Caller, message);
            return Err(status.into());
        }
        None => {
            let rules = Rules {
                token: None,
                may_leave: wanted.is_some(),
                within: None,
                most,
                commit: None,
            };
            Client::new(address)?.get(address, rules)?
        }
    };
    let package = Package {
        names: vec![address.text()],
        bytes,
        file_name: last_name(address.path()),
        commit: None,
        hub_digest: None,
    };
    let package = package.checked(wanted)?;
    if let Some(cache) = cache {
        cache.keep(&package.bytes);
    }
    Ok(package)
}

/// The commit and the digest that a kernel of the Hub must have.
fn wanted(
    arguments: &Arguments,
    reference: &HubReference,
    digest: Option<&str>,
) -> Outcome<Wanted> {
    let Some(path) = &arguments.lock else {
        return Ok(Wanted {
            commit: None,
            digest: digest.map(|digest| (digest.to_owned(), "expected".to_owned())),
        });
    };
    let (commit, locked) = Lock::read(path)?.kernel(&reference.name())?;
    match digest {
        Some(digest) if digest != locked => {
            let (name, lock) = (reference.name(), path.display());
            let message = format!("{name}: expected the digest {digest}, {lock} has {locked}");
            Err(denied(message).into())
        }
        _ => Ok(Wanted {
            commit: Some(commit),
            digest: Some((locked, format!("{} has", path.display()))),
        }),
    }
}

impl Package {
    /// The package, whose file must have this digest.
    fn checked(self, wanted: Option<&str>) -> Outcome<Self> {
        let found = digest(&self.bytes);
        match wanted {
            Some(wanted) if wanted != found => {
                let message = format!("expected the digest {wanted}, found {found}");
                let from = self.names.first().map(|from| name(from));
                Err(denied(message).context(from.unwrap_or_default()).into())
            }
            _ => Ok(self),
        }
    }
}

fn check_trust(trust: Option<&Trust>, package: &Package) -> Outcome<()> {
    let Some(trust) = trust else {
        return Ok(());
    };
    let mut names = package.names.iter();
    Ok(names.try_for_each(|name| trust.check(name, &package.bytes))?)
}

/// The name of a file at the end of a path, for a file in the current folder.
fn last_name(path: &str) -> String {
    let last = path.rsplit(['/', '\\']).next().unwrap_or_default();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-+".contains(c);
    if last.ends_with(".wasm") && !last.starts_with(['.', '-']) && last.chars().all(is_plain) {
        return last.to_owned();
    }
    "package.wasm".to_owned()
}

/// Writes the package. Another file of this name stays, unless it is to be replaced.
fn place(path: &Path, bytes: &[u8], replace: bool) -> Outcome<()> {
    if path.symlink_metadata().is_ok() {
        let found = regular_file::read(path, bytes.len());
        if found.is_ok_and(|found| found == bytes) {
            return Ok(());
        }
        if !replace {
            let message = "expected no other file of this name: use --replace, or name one with -o";
            let status = Status::new(StatusCode::FailedPrecondition, Blame::Caller, message);
            return Err(status.context(path.display()).into());
        }
    }
    write_file::write(path, &[bytes])
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
        if let (Some(commit), Some(digest)) = (&self.commit, &self.hub_digest) {
            lines.push(field("commit", commit));
            lines.push(field("hub", digest));
        }
        printable(&(lines.join("\n") + "\n"))
    }
}
