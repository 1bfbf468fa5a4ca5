//! What callbox is built from: where crates come from, that the ones that hold the sandbox are new enough and have no more in them than is
//! used, and that licences and duplicates are those of `deny.toml`. cargo-deny checks the same, with advisories: `cargo xtask deny`.
//!
//! Lock files say it for every platform. Licences and features are those of the platform that this runs on, of which cargo has everything.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use callbox_tests::module::repository;
use spdx::{Expression, ParseMode};
use toml::{Table, Value};

/// Where every crate comes from that is not our own.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// The oldest releases without known escapes, and the reason for each.
const FLOORS: [(&str, [u64; 3], &str); 6] = [
    (
        "wasmtime",
        [48, 0, 8],
        "the oldest release of the 48 line without known escapes",
    ),
    ("wasmtime-environ", [48, 0, 8], "goes with wasmtime"),
    ("wasmtime-wasi", [48, 0, 8], "goes with wasmtime"),
    (
        "cap-std",
        [4, 0, 3],
        "the oldest release without known escapes",
    ),
    ("cap-primitives", [4, 0, 3], "goes with cap-std"),
    ("cap-fs-ext", [4, 0, 3], "goes with cap-std"),
];

/// wasmtime's features, as `Cargo.toml` asks for them and with what they bring.
const FEATURES: [&str; 9] = [
    "addr2line",
    "cranelift",
    "demangle",
    "once_cell",
    "parallel-compilation",
    "pooling-allocator",
    "runtime",
    "std",
    "wasmtime-jit-icache-coherence",
];

/// What wasmtime-wasi asks of wasmtime besides. callbox calls it synchronously and loads no components; a library without
/// the feature `capabilities` is built without these.
const FEATURES_OF_WASI: [&str; 2] = ["async", "component-model"];

/// Crates that must not be built in: compilers and proposals that the sandbox does not use.
const ABSENT: [&str; 6] = [
    "winch-codegen",
    "wasmtime-internal-winch",
    "wasmtime-internal-cache",
    "wasmtime-wasi-http",
    "wasmtime-wasi-threads",
    "wasmtime-wasi-nn",
];

/// A crate in a lock file.
struct Locked {
    name: String,
    version: String,
    source: Option<String>,
    has_checksum: bool,
}

/// The files of this name in the repository, but for what is built.
fn files(name: &str) -> Vec<String> {
    let root = repository();
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let last = path.file_name().unwrap().to_str().unwrap();
            match path.is_dir() {
                true if last == "target" || last.starts_with('.') => {}
                true => folders.push(path),
                false if last == name => {
                    found.push(
                        path.strip_prefix(&root)
                            .unwrap()
                            .to_str()
                            .unwrap()
                            .to_owned(),
                    );
                }
                false => {}
            }
        }
    }
    found
}

fn read(path: &str) -> String {
    fs::read_to_string(repository().join(path)).unwrap()
}

/// The crates of each lock file of the repository.
fn locks() -> BTreeMap<String, Vec<Locked>> {
    let paths = files("Cargo.lock").into_iter();
    let locks: BTreeMap<_, _> = paths.map(|path| (path.clone(), lock(&path))).collect();
    for workspace in ["Cargo.lock", "guests/Cargo.lock"] {
        assert!(
            locks.contains_key(workspace),
            "expected {workspace}, found {:?}",
            locks.keys()
        );
    }
    locks
}

fn lock(path: &str) -> Vec<Locked> {
    let lock: Table = read(path).parse().unwrap();
    let packages = lock["package"].as_array().unwrap().iter();
    packages
        .map(|package| Locked {
            name: text(&package["name"]),
            version: text(&package["version"]),
            source: package.get("source").map(text),
            has_checksum: package.get("checksum").is_some(),
        })
        .collect()
}

fn rules() -> Table {
    read("deny.toml").parse().unwrap()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

fn numbers(version: &str) -> [u64; 3] {
    let numbers: Vec<u64> = version
        .split(['+', '-'])
        .next()
        .unwrap()
        .split('.')
        .map(|number| number.parse().unwrap())
        .collect();
    numbers.try_into().unwrap()
}

/// The crates that are built with these arguments, each as `name version`, with what `format` says of it. Nothing is fetched.
fn built(workspace: &str, arguments: &[&str], format: &str) -> BTreeSet<(String, String)> {
    let output = Command::new(env!("CARGO"))
        .current_dir(repository().join(workspace))
        .args([
            "tree",
            "--locked",
            "--offline",
            "--prefix",
            "none",
            "--no-dedupe",
        ])
        .args(["--edges", "normal,build,dev", "--format"])
        .arg(format!("{{p}}\t{format}"))
        .args(arguments)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let lines = String::from_utf8(output.stdout).unwrap();
    let lines = lines.lines().filter_map(|line| line.split_once('\t'));
    lines
        .map(|(name, said)| (name.to_owned(), said.to_owned()))
        .collect()
}

#[test]
fn crates_come_from_the_registry() {
    let own = own_crates();
    let mut problems = Vec::new();
    for (path, crates) in locks() {
        for found in &crates {
            match &found.source {
                // One of this repository's own: cargo writes no source for a path.
                None if own.contains(&found.name) => {}
                Some(source) if source == REGISTRY && found.has_checksum => {}
                other => problems.push(format!(
                    "{path}: {} {} from {other:?}",
                    found.name, found.version
                )),
            }
        }
        assert!(
            crates.iter().any(|found| found.source.is_some()),
            "expected crates in {path}"
        );
    }
    assert!(problems.is_empty(), "{problems:#?}");
    let sources = &rules()["sources"];
    assert_eq!(sources["allow-git"].as_array().unwrap().len(), 0);
    assert_eq!(sources["unknown-git"].as_str(), Some("deny"));
    assert_eq!(sources["unknown-registry"].as_str(), Some("deny"));
}

/// The names of this repository's own crates.
fn own_crates() -> BTreeSet<String> {
    let manifests = files("Cargo.toml").into_iter();
    let manifests = manifests.map(|path| read(&path).parse::<Table>().unwrap());
    let names = manifests.filter_map(|manifest| Some(text(manifest.get("package")?.get("name")?)));
    names.collect()
}

#[test]
fn what_holds_the_sandbox_is_new_enough() {
    let locks = locks();
    for (name, floor, reason) in FLOORS {
        let of_workspace = locks["Cargo.lock"]
            .iter()
            .filter(|found| found.name == name);
        assert!(of_workspace.count() > 0, "expected {name} in Cargo.lock");
        for (path, crates) in &locks {
            for found in crates.iter().filter(|found| found.name == name) {
                assert!(
                    numbers(&found.version) >= floor,
                    "{path}: expected {name} of at least {floor:?} ({reason}), found {}",
                    found.version
                );
            }
        }
    }
}

/// A lock file is not for those who build on callbox: what it asks for is.
#[test]
fn what_is_asked_for_is_new_enough() {
    let manifest: Table = read("Cargo.toml").parse().unwrap();
    let asked = manifest["workspace"]["dependencies"].as_table().unwrap();
    for (name, floor, reason) in FLOORS {
        let Some(dependency) = asked.get(name) else {
            continue;
        };
        let version = dependency.get("version").unwrap_or(dependency);
        let version = text(version);
        assert!(
            numbers(&version) >= floor,
            "expected {name} to be asked for with at least {floor:?} ({reason}), found {version}"
        );
    }
    for name in ["wasmtime", "wasmtime-wasi", "cap-std"] {
        assert!(asked.contains_key(name), "expected {name} in Cargo.toml");
    }
}

/// The features of wasmtime that are built in with these arguments.
fn features(arguments: &[&str]) -> BTreeSet<String> {
    let crates = built(".", arguments, "{f}");
    let mut found = crates
        .iter()
        .filter(|(name, _)| name.starts_with("wasmtime v"));
    let (name, features) = found.next().unwrap();
    assert_eq!(
        found.next(),
        None,
        "expected wasmtime once, found more than {name}"
    );
    features.split(',').map(str::to_owned).collect()
}

#[test]
fn wasmtime_has_no_more_in_it_than_is_used() {
    let set = |features: &[&str]| features.iter().copied().map(str::to_owned).collect();
    let alone: BTreeSet<String> = set(&FEATURES);
    let bare = ["--package", "callbox", "--no-default-features"];
    assert_eq!(features(&bare), alone);
    let with_wasi: BTreeSet<String> = alone.union(&set(&FEATURES_OF_WASI)).cloned().collect();
    // The tests and fuzzers of the whole workspace too: what is tested is what is used.
    for arguments in [
        &["--package", "callbox"][..],
        &["--workspace", "--all-features"],
    ] {
        assert_eq!(features(arguments), with_wasi, "{arguments:?}");
    }
    for (path, crates) in locks() {
        let found = crates
            .iter()
            .find(|found| ABSENT.contains(&found.name.as_str()));
        assert!(found.is_none(), "{path} has {}", found.unwrap().name);
    }
}

#[test]
fn licences_are_those_that_are_allowed() {
    let rules = rules();
    let allowed = rules["licenses"]["allow"].as_array().unwrap();
    let allowed: BTreeSet<String> = allowed.iter().map(text).collect();
    let mut crates = built(".", &["--workspace", "--all-features"], "{l}");
    crates.extend(built("guests", &["--workspace"], "{l}"));
    let expressions: Vec<(String, Expression)> = crates
        .into_iter()
        .map(|(name, licence)| {
            let parsed = Expression::parse_mode(&licence, ParseMode::LAX);
            assert!(
                parsed.is_ok(),
                "expected a licence of {name}, found {licence:?}"
            );
            (name, parsed.unwrap())
        })
        .collect();
    let refused = |allowed: &BTreeSet<String>| {
        let is_allowed = |expression: &Expression| {
            expression.evaluate(|licence| allowed.contains(&licence.to_string()))
        };
        let refused = expressions
            .iter()
            .filter(|(_, expression)| !is_allowed(expression));
        refused
            .map(|(name, expression)| format!("{name}: {expression}"))
            .collect::<Vec<_>>()
    };
    assert_eq!(refused(&allowed), Vec::<String>::new());
    for licence in &allowed {
        let mut others = allowed.clone();
        others.remove(licence);
        assert!(
            !refused(&others).is_empty(),
            "nothing needs {licence}, which deny.toml allows"
        );
    }
}

#[test]
fn duplicates_have_reasons() {
    let rules = rules();
    let skipped: BTreeMap<String, String> = rules["bans"]["skip"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| (text(&entry["crate"]), text(&entry["reason"])))
        .collect();
    assert!(skipped.values().all(|reason| !reason.trim().is_empty()));
    let exempts = |entry: &str, found: &Locked| {
        let (name, version) = entry.split_once('@').unwrap();
        name == found.name && format!("{}.", found.version).starts_with(&format!("{version}."))
    };
    let mut needed = BTreeSet::new();
    let mut problems = Vec::new();
    for (path, crates) in locks() {
        for found in &crates {
            let is_newer = |other: &Locked| {
                other.name == found.name && numbers(&other.version) > numbers(&found.version)
            };
            if !crates.iter().any(is_newer) {
                continue;
            }
            match skipped.keys().find(|entry| exempts(entry, found)) {
                Some(entry) => _ = needed.insert(entry.clone()),
                None => problems.push(format!(
                    "{path}: {} {} beside a newer one",
                    found.name, found.version
                )),
            }
        }
    }
    assert!(
        problems.is_empty(),
        "expected one release of each crate, or a reason in deny.toml: {problems:#?}"
    );
    let needless: Vec<_> = skipped
        .keys()
        .filter(|entry| !needed.contains(*entry))
        .collect();
    assert!(
        needless.is_empty(),
        "deny.toml exempts what is there once: {needless:?}"
    );
}
