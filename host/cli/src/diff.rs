//! `callbox diff`: what changed between two packages or modules.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use callbox::policy::Policy;
use callbox::wasm::inspect;
use callbox_package::{CASES, Limits, MANIFEST, Package};
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::failure::Outcome;
use super::inspect::{memory, target_lines};
use super::json;
use super::output;
use super::package::{self, twin};
use super::signing;
use super::text::{name, printable};

const EXAMPLES: &str = "\
Examples:
  callbox diff softmax-1.0.0.wasm softmax-1.1.0.wasm
  callbox diff old.wasm new.wasm --json

Compares the package's name, version, licence and origin, the targets with their signatures, the
signatures, imports, whether the default policy loads the module, its memory and code, the derivatives, the
native twin, the cases and the documentation. Nothing is run. The exit code is 0 whether or not
something changed.

With --json, standard output is one object, of failures too (then diff is null):
  {\"status\":{...},\"diff\":{\"old\":{\"file\":...,\"sha256\":...},\"new\":{...},
    \"changes\":[{\"kind\":\"target\",\"name\":\"softmax\",\"old\":...,\"new\":...}]}}
  old is null for what is new, and new for what is gone.";

/// Show what changed between two packages or modules that a user should care about
///
/// Runs nothing.
#[derive(Debug, clap::Args)]
#[command(after_long_help = format!("{EXAMPLES}\n\n{}", super::EXIT_CODES))]
pub(super) struct Arguments {
    /// The package or module that is in use
    #[arg(value_name = "OLD.wasm")]
    old: PathBuf,

    /// The package or module that would replace it
    #[arg(value_name = "NEW.wasm")]
    new: PathBuf,

    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// What a fact is about, in the order in which changes are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
enum FactKind {
    Package,
    Signature,
    Loads,
    Import,
    Target,
    Derivative,
    Twin,
    Memory,
    Code,
    Case,
    File,
}

impl FactKind {
    fn word(self) -> &'static str {
        match self {
            Self::Package => "package",
            Self::Signature => "signature",
            Self::Loads => "loads",
            Self::Import => "import",
            Self::Target => "target",
            Self::Derivative => "derivative",
            Self::Twin => "twin",
            Self::Memory => "memory",
            Self::Code => "code",
            Self::Case => "case",
            Self::File => "file",
        }
    }
}

/// The facts about a module, by kind and name.
type Facts = BTreeMap<(FactKind, String), String>;

/// The facts that differ between two modules.
#[derive(Debug, Serialize)]
pub(super) struct Difference {
    old: Side,
    new: Side,
    changes: Vec<Change>,
}

/// One of the two files.
#[derive(Debug, Serialize)]
struct Side {
    file: String,
    sha256: String,
    #[serde(skip)]
    facts: Facts,
}

#[derive(Debug, Serialize)]
struct Change {
    kind: FactKind,
    name: String,
    old: Option<String>,
    new: Option<String>,
}

pub(super) fn diff(arguments: &Arguments) -> ExitCode {
    let outcome = compare(arguments);
    let code = output::exit_code(&outcome);
    match (arguments.json, &outcome) {
        (true, outcome) => output::emit(&json::command("diff", outcome.as_ref()), code),
        (false, Ok(difference)) => output::emit(&difference.describe(), code),
        (false, Err(_)) => code,
    }
}

fn compare(arguments: &Arguments) -> Outcome<Difference> {
    let (old, new) = (Side::read(&arguments.old)?, Side::read(&arguments.new)?);
    Ok(difference(old, new))
}

/// The difference between two modules with names for a person.
#[cfg(feature = "fetch")]
pub(super) fn between(old: (&str, &[u8]), new: (&str, &[u8])) -> Outcome<Difference> {
    let (old, new) = (Side::new(old.0, old.1)?, Side::new(new.0, new.1)?);
    Ok(difference(old, new))
}

fn difference(old: Side, new: Side) -> Difference {
    let keys = old.facts.keys().chain(new.facts.keys());
    let keys: std::collections::BTreeSet<_> = keys.cloned().collect();
    let changes = keys.into_iter().filter_map(|key| {
        let (before, after) = (old.facts.get(&key), new.facts.get(&key));
        (before != after).then(|| Change {
            kind: key.0,
            name: key.1.clone(),
            old: before.cloned(),
            new: after.cloned(),
        })
    });
    let changes = changes.collect();
    Difference { old, new, changes }
}

impl Side {
    fn read(path: &Path) -> Outcome<Self> {
        Self::new(&path.to_string_lossy(), &package::read_file(path)?)
    }

    fn new(file: &str, bytes: &[u8]) -> Outcome<Self> {
        let facts = facts(bytes).map_err(|status| status.context(file))?;
        Ok(Self {
            file: file.to_owned(),
            sha256: sha256(bytes),
            facts,
        })
    }
}

/// The facts about a module, which may be a package.
fn facts(bytes: &[u8]) -> callbox::Result<Facts> {
    let Policy { limits, grants, .. } = Policy::default();
    let package = callbox_package::find(bytes, &Limits::default())?;
    let info = inspect(bytes, &limits)?;
    let mut facts = Facts::new();
    let mut add = |kind, name: &str, value: String| {
        // A guest chooses names: a fact must not hide another one of its name.
        facts
            .entry((kind, name.to_owned()))
            .and_modify(|known: &mut String| *known = format!("{known}\n{value}"))
            .or_insert(value);
    };
    let loads = match info.check(&limits, &grants) {
        Ok(()) => "yes".to_owned(),
        Err(status) => format!("no: {status}"),
    };
    add(FactKind::Loads, "with the default policy", loads);
    add(FactKind::Memory, "exported", memory(&info));
    for signer in signing::of_module(bytes) {
        add(FactKind::Signature, &signer.key, signer.state.to_owned());
    }
    let module = package.as_ref().map_or(bytes, Package::module);
    add(FactKind::Code, "module", summary(module));
    for import in &info.imports {
        let name = format!("{} {}", import.module, import.name);
        add(FactKind::Import, &name, import.ty.clone());
    }
    for target in &info.targets {
        add(
            FactKind::Target,
            &target.name,
            target_lines(target).join("\n"),
        );
    }
    if let Some(package) = package {
        add_package(&mut add, &package);
        if let Some(twin) = twin::read(&package, &info.targets)? {
            add(FactKind::Twin, "loads", twin.grade());
            for (name, value) in twin.targets() {
                add(FactKind::Twin, &name, value);
            }
        }
    }
    Ok(facts)
}

/// Adds the header and the files of a package.
fn add_package(add: &mut dyn FnMut(FactKind, &str, String), package: &Package<'_>) {
    let header = package.header();
    for (key, value) in [
        ("name", &header.name),
        ("version", &header.version),
        ("license", &header.license),
        ("description", &header.description),
        ("source", &header.source),
    ] {
        if !value.is_empty() {
            add(FactKind::Package, key, value.clone());
        }
    }
    for (target, derivative) in &header.derivatives {
        add(FactKind::Derivative, target, derivative.clone());
    }
    for (path, bytes) in package.files() {
        let kind = match path {
            _ if path.starts_with(CASES) => FactKind::Case,
            MANIFEST => FactKind::Twin,
            _ => FactKind::File,
        };
        add(kind, path, summary(bytes));
    }
}

/// The size and the digest of a file.
fn summary(bytes: &[u8]) -> String {
    format!("{} bytes, {}", bytes.len(), sha256(bytes))
}

fn sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

impl Difference {
    /// The changes for a person.
    pub(super) fn describe(&self) -> String {
        let mut lines = Vec::new();
        for (word, side) in [("old", &self.old), ("new", &self.new)] {
            lines.push(format!(
                "{word} {}, sha256 {}",
                name(&side.file),
                side.sha256
            ));
        }
        for change in &self.changes {
            lines.extend(change.describe());
        }
        if self.changes.is_empty() {
            lines.push("nothing changed".to_owned());
        }
        printable(&(lines.join("\n") + "\n"))
    }
}

impl Change {
    fn describe(&self) -> Vec<String> {
        let (kind, shown) = (self.kind.word(), name(&self.name));
        let (mark, old, new) = match (&self.old, &self.new) {
            (None, Some(new)) => ('+', "", new.as_str()),
            (Some(old), None) => ('-', old.as_str(), ""),
            (Some(old), Some(new)) => ('~', old.as_str(), new.as_str()),
            (None, None) => return Vec::new(),
        };
        let mut lines = vec![format!("  {mark} {kind} {shown}")];
        let only = |mark: char, of: &str, other: &str| {
            // Documentation may have very many lines.
            let known: HashSet<&str> = other.lines().collect();
            let lines = of.lines().filter(|line| !known.contains(line));
            lines
                .map(|line| format!("      {mark} {}", name(line.trim_start())))
                .collect::<Vec<_>>()
        };
        lines.extend(only('-', old, new));
        lines.extend(only('+', new, old));
        lines
    }
}
