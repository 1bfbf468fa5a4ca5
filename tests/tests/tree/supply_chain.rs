//! Checks dependencies: their sources, licences and duplicates by the rules of `deny.toml`, and the
//! versions and features of the crates that hold the sandbox. `cargo xtask deny` checks the rules
//! with cargo-deny, and advisories too.
//!
//! Lock files name crates for every platform. Licences and features are those of this platform.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use callbox_tests::module::repository;
use spdx::{Expression, ParseMode};
use toml::{Table, Value};

/// The source of every crate outside this repository.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// The oldest acceptable release of each crate that holds the sandbox, with the reason.
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

/// wasmtime's features: those that `Cargo.toml` enables, and those that these enable.
const FEATURES: [&str; 10] = [
    "addr2line",
    "cranelift",
    "demangle",
    "once_cell",
    "parallel-compilation",
    "pooling-allocator",
    "runtime",
    "std",
    "threads",
    "wasmtime-jit-icache-coherence",
];

/// The features of wasmtime that wasmtime-wasi enables. Without the feature `capabilities` they are
/// off. callbox calls wasmtime-wasi synchronously and loads no components.
const FEATURES_OF_WASI: [&str; 2] = ["async", "component-model"];

/// Crates that must be in no lock file: compilers and proposals that the sandbox does not use.
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

/// Returns the paths of the repository's files with this name, without build outputs.
fn files(name: &str) -> Vec<String> {
    let root = repository();
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let last = path.file_name().unwrap().to_str().unwrap();
            if path.is_dir() {
                if last != "target" && !last.starts_with('.') {
                    folders.push(path);
                }
            } else if last == name {
                let below = path.strip_prefix(&root).unwrap();
                found.push(below.to_str().unwrap().to_owned());
            }
        }
    }
    found
}

fn read(path: &str) -> String {
    fs::read_to_string(repository().join(path)).unwrap()
}

/// Returns the crates of each lock file in the repository.
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

/// Returns the crates of a build with these arguments, each as `name version` with the output of
/// `format`. Cargo downloads the crates that it has not downloaded yet, to read their licences.
fn built(workspace: &str, arguments: &[&str], format: &str) -> BTreeSet<(String, String)> {
    let output = Command::new(env!("CARGO"))
        .current_dir(repository().join(workspace))
        .args(["tree", "--locked", "--prefix", "none", "--no-dedupe"])
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
        .map(|(name, value)| {
            // Cargo marks a package that depends on itself for its tests.
            let value = value.trim_end_matches(" (*)");
            (name.to_owned(), value.to_owned())
        })
        .collect()
}

#[test]
fn crates_come_from_the_registry() {
    let own = own_crates();
    let mut problems = Vec::new();
    for (path, crates) in locks() {
        for found in &crates {
            match &found.source {
                // Cargo writes no source for the repository's own crates.
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

/// Returns the names of this repository's own crates.
fn own_crates() -> BTreeSet<String> {
    let manifests = files("Cargo.toml").into_iter();
    let manifests = manifests.map(|path| read(&path).parse::<Table>().unwrap());
    let names = manifests.filter_map(|manifest| Some(text(manifest.get("package")?.get("name")?)));
    names.collect()
}

#[test]
fn crates_of_the_sandbox_are_new_enough() {
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

/// For embedders, who have lock files of their own, the requirements in `Cargo.toml` count.
#[test]
fn requirements_are_new_enough() {
    let manifest: Table = read("Cargo.toml").parse().unwrap();
    let required = manifest["workspace"]["dependencies"].as_table().unwrap();
    for (name, floor, reason) in FLOORS {
        let Some(dependency) = required.get(name) else {
            continue;
        };
        let version = dependency.get("version").unwrap_or(dependency);
        let version = text(version);
        assert!(
            numbers(&version) >= floor,
            "Cargo.toml: expected {name} of at least {floor:?} ({reason}), found {version}"
        );
    }
    for name in ["wasmtime", "wasmtime-wasi", "cap-std"] {
        assert!(required.contains_key(name), "expected {name} in Cargo.toml");
    }
}

/// Returns the features of wasmtime in a build with these arguments.
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
    for arguments in [
        &["--package", "callbox"][..],
        &["--package", "callbox-cli", "--no-default-features"],
    ] {
        assert_eq!(features(arguments), alone, "{arguments:?}");
    }
    let with_wasi: BTreeSet<String> = alone.union(&set(&FEATURES_OF_WASI)).cloned().collect();
    // Tests and fuzzers must run with the same features as users.
    for arguments in [
        &["--package", "callbox-cli"][..],
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

/// Otherwise `cargo xtask test` compiles wasmtime a second time, for the Python package.
#[test]
fn the_tested_wheel_shares_its_dependencies() {
    let is_shared =
        |(name, _): &(String, String)| !name.starts_with("pyo3") && !name.starts_with("callbox");
    let tests = ["--workspace", "--exclude", "callbox-python"];
    let tests = built(".", &tests, "{f}");
    let wheel = ["--package", "callbox-python", "--features", "shared-build"];
    let wheel = built(".", &wheel, "{f}");
    let others: Vec<_> = wheel
        .difference(&tests)
        .filter(|found| is_shared(found))
        .collect();
    assert!(
        others.is_empty(),
        "expected dependencies with the features that tests enable (the feature `shared-build` of python/Cargo.toml adds them), found {others:#?}"
    );
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
        "deny.toml exempts crates that occur once: {needless:?}"
    );
}

/// Crates that no build of a library crate alone may contain, by library crate.
const WALLS: [(&str, &[&str]); 6] = [
    (
        "callbox-core",
        &["wasmtime", "cudarc", "clap", "callbox-hlo", "callbox-wasm"],
    ),
    (
        "callbox-wasm",
        &[
            "clap",
            "indicatif",
            "cudarc",
            "seccompiler",
            "wasmtime-wasi",
            "callbox-hlo",
        ],
    ),
    ("callbox-hlo", &["wasmtime", "cudarc", "clap"]),
    (
        "callbox-package",
        &["wasmtime", "cudarc", "clap", "callbox-wasm"],
    ),
    (
        "callbox-ptx",
        &["wasmtime", "cudarc", "serde", "callbox-core"],
    ),
    ("callbox-cuda", &["wasmtime", "clap", "callbox-hlo"]),
];

#[test]
fn crates_build_without_what_they_do_not_use() {
    for (name, forbidden) in WALLS {
        let output = Command::new(env!("CARGO"))
            .current_dir(repository())
            .args(["tree", "--locked", "--prefix", "none", "--edges", "normal"])
            .args(["--package", name, "--format", "{p}"])
            .output()
            .unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{error}");
        let tree = String::from_utf8(output.stdout).unwrap();
        let crates: BTreeSet<&str> = tree
            .lines()
            .filter_map(|line| line.split(' ').next())
            .collect();
        assert!(crates.contains(name), "{name} is not in its own tree");
        let found: Vec<_> = forbidden.iter().filter(|c| crates.contains(*c)).collect();
        assert!(found.is_empty(), "{name} depends on {found:?}");
    }
}
