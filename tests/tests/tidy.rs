//! What ARCHITECTURE.md says of the sources, checked against them, and what documents link to.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::collections::{BTreeMap, BTreeSet};

mod sources;

use sources::{Source, Token, files, read, sources};

/// Where Rust sources are.
const FOLDERS: [&str; 7] = [
    "host",
    "guest-sdk",
    "guests",
    "python",
    "tests",
    "benches",
    "xtask",
];

/// The most lines that a source may have.
const MAX_LINES: usize = 600;

/// The rooms of `host/src`, and the rooms that each may know besides itself. The command line may know all.
const ROOMS: &[(&str, &[&str])] = &[
    ("values", &[]),
    ("arrays", &["values"]),
    ("call", &["values"]),
    ("frame", &["values", "call"]),
    ("registry", &["values", "call"]),
    ("graph_launch", &["values", "call"]),
    ("jax_ffi", &["values", "call"]),
    ("policy", &["values"]),
    ("wasm", &["values", "call", "frame", "policy"]),
    ("process", &["values", "call", "policy", "wasm"]),
    (
        "cuda",
        &[
            "values",
            "call",
            "frame",
            "registry",
            "graph_launch",
            "wasm",
        ],
    ),
    ("program", &["values", "call", "registry"]),
];

/// Names that only some of the host's sources may mention: the name, and where.
const CONFINED: &[(&str, &[&str])] = &[
    ("wasmtime", &["host/src/wasm", "host/src/wasm.rs"]),
    ("wasmparser", &["host/src/wasm", "host/src/wasm.rs"]),
    ("cudarc", &["host/src/cuda", "host/src/cuda.rs"]),
    ("libloading", &["host/src/cuda"]),
    (
        "anyhow",
        &["host/src/cli", "host/src/cli.rs", "host/src/main.rs"],
    ),
    (
        "clap",
        &["host/src/cli", "host/src/cli.rs", "host/src/main.rs"],
    ),
    // The readers of text formats: metadata in modules, manifests, policies, headers of tensors, HLO text, and the command line.
    (
        "serde_json",
        &[
            "host/src/arrays/tensors.rs",
            "host/src/call/signature/json.rs",
            "host/src/cuda/manifest",
            "host/src/policy/json.rs",
            "host/src/process",
            "host/src/wasm/metadata.rs",
            "host/src/program/hlo",
            "host/src/cli",
            "host/src/cli.rs",
        ],
    ),
];

/// Where what a guest says comes into the host: nowhere else are wasmtime's own ways to it taken.
const CLAIMS: &str = "host/src/wasm/claim.rs";

/// Where functions of WASI get their parameters, which wasmtime-wasi checks.
const WASI: &str = "host/src/wasm/capabilities/link.rs";

/// wasmtime's names for ways to a guest's values: functions, imports, memories, globals and tables.
const WAYS_TO_VALUES: [&str; 20] = [
    "TypedFunc",
    "SharedMemory",
    "Extern",
    "IntoFunc",
    "func_wrap",
    "func_new",
    "func_new_unchecked",
    "func_wrap_async",
    "get_typed_func",
    "get_func",
    "get_export",
    "get_module_export",
    "get_memory",
    "get_global",
    "get_table",
    "into_func",
    "into_memory",
    "data_ptr",
    "data_and_store_mut",
    "data_size",
];

fn every_source() -> Vec<Source> {
    FOLDERS.iter().flat_map(|folder| sources(folder)).collect()
}

/// Texts between backquotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The lines of a section of ARCHITECTURE.md, without its heading.
fn section(heading: &str) -> Vec<String> {
    let text = read("ARCHITECTURE.md");
    let lines = text.lines().skip_while(|line| *line != heading).skip(1);
    let lines: Vec<String> = lines
        .take_while(|line| !line.starts_with("## "))
        .map(str::to_owned)
        .collect();
    assert!(
        !lines.is_empty(),
        "expected a section {heading:?} in ARCHITECTURE.md"
    );
    lines
}

#[test]
fn unsafe_code_is_where_the_list_says() {
    let lines = section("## Unsafe");
    let bullets = lines.iter().filter(|line| line.starts_with("- "));
    let listed: Vec<&str> = bullets
        .flat_map(|line| quoted(line))
        .filter(|path| path.contains('/'))
        .collect();
    let has_unsafe = |source: &&Source| {
        source
            .tokens
            .iter()
            .any(|token| token.is_word("unsafe") || token.is_word("unsafe_code"))
    };
    let sources = every_source();
    let found: Vec<&str> = sources
        .iter()
        .filter(has_unsafe)
        .map(|source| source.path.as_str())
        .collect();
    let covers = |listed: &str, path: &str| match listed.ends_with('/') {
        true => path.starts_with(listed),
        false => path == listed,
    };
    let unlisted: Vec<_> = found
        .iter()
        .filter(|path| !listed.iter().any(|listed| covers(listed, path)))
        .collect();
    assert!(
        unlisted.is_empty(),
        "ARCHITECTURE.md does not list {unlisted:?}, which have unsafe code"
    );
    let needless: Vec<_> = listed
        .iter()
        .filter(|listed| !found.iter().any(|path| covers(listed, path)))
        .collect();
    assert!(
        needless.is_empty(),
        "ARCHITECTURE.md lists {needless:?}, which have no unsafe code"
    );
}

#[test]
fn invariants_name_their_tests() {
    let text = section("## Invariants").join("\n");
    let numbers = (1..).map_while(|number: usize| text.find(&format!("\n{number}. ")));
    let mut starts: Vec<usize> = numbers.collect();
    assert!(!starts.is_empty(), "expected numbered invariants");
    starts.push(text.len());
    for invariant in starts.windows(2).map(|ends| text[ends[0]..ends[1]].trim()) {
        let checks = invariant.split("checked by ").skip(1);
        let paths: Vec<&str> = checks.filter_map(|check| quoted(check).next()).collect();
        assert!(
            !paths.is_empty(),
            "expected \"checked by `PATH`\" in the invariant {invariant:?}"
        );
    }
}

#[test]
fn the_map_names_what_is_there() {
    let text = read("ARCHITECTURE.md");
    let paths = quoted(&text).filter(|text| {
        let folder = text.split('/').next().unwrap_or_default();
        text.contains('/') && (FOLDERS.contains(&folder) || folder == "wit")
    });
    let root = callbox_tests::module::repository();
    let missing: BTreeSet<&str> = paths.filter(|path| !root.join(path).exists()).collect();
    assert!(
        missing.is_empty(),
        "ARCHITECTURE.md names what is not there: {missing:?}"
    );
}

/// Documents whose links lead into the repository.
const LINKING: [&str; 4] = [
    "README.md",
    "tests/README.md",
    "tests/COVERAGE.md",
    "guests/c/README.md",
];

/// Where the links of a Markdown text lead, without those to other sites and to places of the text itself.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let targets = text.split("](").skip(1).filter_map(|rest| {
        let target = rest.split(')').next()?;
        Some(target.split('#').next().unwrap_or_default())
    });
    targets.filter(|target| !target.is_empty() && !target.contains("://"))
}

#[test]
fn coverage_links_exist() {
    let root = callbox_tests::module::repository();
    for document in LINKING {
        let text = read(document);
        let folder = root.join(document);
        let folder = folder.parent().unwrap();
        let dead: BTreeSet<&str> = links(&text)
            .filter(|target| !folder.join(target).exists())
            .collect();
        assert!(dead.is_empty(), "{document} links to nothing: {dead:?}");
    }
    let coverage = read("tests/COVERAGE.md");
    let cases = links(&coverage).filter(|target| target.starts_with("cases/"));
    let cases: BTreeSet<&str> = cases.collect();
    assert!(
        cases.len() >= 150,
        "expected at least 150 cases in tests/COVERAGE.md, found {}",
        cases.len()
    );
}

#[test]
fn every_crate_inherits_the_workspace_lints() {
    let manifests = ["."]
        .iter()
        .flat_map(|folder| files(folder))
        .filter(|path| path.ends_with("Cargo.toml"));
    let mut crates = 0;
    for path in manifests {
        let text = read(&path);
        if text.contains("[package]") {
            crates += 1;
            assert!(
                text.contains("[lints]\nworkspace = true"),
                "{path} does not inherit the workspace's lints"
            );
        }
    }
    assert!(
        crates >= 7,
        "expected the crates of both workspaces, found {crates}"
    );
}

/// The tables of a manifest whose names begin so.
fn tables(manifest: &str, prefix: &str) -> BTreeMap<String, Vec<String>> {
    let text = read(manifest);
    let tables = text.split("\n[").filter(|table| table.starts_with(prefix));
    tables
        .map(|table| {
            let (name, rest) = table.split_once(']').unwrap();
            let lines = rest.lines().map(|line| line.trim().to_owned());
            (
                name.to_owned(),
                lines
                    .filter(|line| !line.is_empty() && !line.starts_with('#'))
                    .collect(),
            )
        })
        .collect()
}

#[test]
fn guests_have_the_same_lints() {
    let lints = tables("Cargo.toml", "workspace.lints");
    assert!(lints["workspace.lints.rust"].contains(&"unsafe_code = \"deny\"".to_owned()));
    assert_eq!(lints, tables("guests/Cargo.toml", "workspace.lints"));
}

/// What the crate's root re-exports, with the room that it comes from.
fn re_exports() -> BTreeMap<String, String> {
    let lib = sources("host/src")
        .into_iter()
        .find(|source| source.path == "host/src/lib.rs")
        .unwrap();
    let mut names = BTreeMap::new();
    for (at, token) in lib.tokens.iter().enumerate() {
        if let (true, Some(Token::Word(room))) = (token.is_word("use"), lib.tokens.get(at + 1)) {
            let rest = lib.tokens[at + 2..]
                .iter()
                .take_while(|token| **token != Token::Sign(';'));
            let words = rest.filter_map(|token| match token {
                Token::Word(name) => Some(name.clone()),
                _ => None,
            });
            names.extend(words.map(|name| (name, room.clone())));
        }
    }
    assert_eq!(names["CallSite"], "call");
    names
}

/// The words that follow a path's beginning: one, or those that begin each path in braces.
fn heads(tokens: &[Token]) -> Vec<&str> {
    match tokens {
        [Token::Word(word), ..] => vec![word],
        [Token::Sign('{'), inside @ ..] => {
            let mut depth = 0;
            let mut begins = true;
            let mut words = Vec::new();
            for token in inside {
                match token {
                    Token::Sign('{') => depth += 1,
                    Token::Sign('}') if depth == 0 => break,
                    Token::Sign('}') => depth -= 1,
                    Token::Sign(',') if depth == 0 => begins = true,
                    Token::Word(word) if begins => {
                        words.push(word.as_str());
                        begins = false;
                    }
                    _ => begins = false,
                }
            }
            words
        }
        _ => Vec::new(),
    }
}

/// What a source takes from the crate's root: by `crate::`, or by as many `super::` as its folder is deep.
fn taken_from_root(source: &Source) -> Vec<&str> {
    let module = source
        .path
        .strip_prefix("host/src/")
        .unwrap()
        .trim_end_matches(".rs");
    let depth = module.split('/').count();
    let separator = [Token::Sign(':'), Token::Sign(':')];
    let mut taken = Vec::new();
    let mut supers = 0;
    let mut at = 0;
    while at < source.tokens.len() {
        let is_path = source.tokens[at + 1..].starts_with(&separator);
        let is_super = is_path && source.tokens[at].is_word("super");
        supers = if is_super { supers + 1 } else { 0 };
        if is_path && (source.tokens[at].is_word("crate") || (is_super && supers == depth)) {
            taken.extend(heads(&source.tokens[at + 3..]));
        }
        // A chain of `super::` is walked in steps of three tokens, so that a break in it shows.
        at += if is_super { 3 } else { 1 };
    }
    taken
}

#[test]
fn what_a_source_takes_is_seen() {
    let source = |path: &str, text: &str| Source::new(format!("host/src/{path}"), text.to_owned());
    for (path, text, taken) in [
        ("values/a.rs", "use crate::call::{Stage, x};", &["call"][..]),
        (
            "values/a.rs",
            "use crate::{call::{A, B}, frame, wasm::C as D};",
            &["call", "frame", "wasm"],
        ),
        (
            "values/a.rs",
            "fn f() -> crate::CallSite { crate::program::g() }",
            &["CallSite", "program"],
        ),
        (
            "values/a.rs",
            "use super::super::wasm; use super::b;",
            &["wasm"],
        ),
        (
            "values/a/b.rs",
            "use super::super::wasm; use super::super::super::program::{x};",
            &["program"],
        ),
        ("values.rs", "use super::wasm;", &["wasm"]),
        (
            "values/a.rs",
            "// use crate::call;\nconst A: &str = \"crate::call\";",
            &[],
        ),
    ] {
        assert_eq!(taken_from_root(&source(path, text)), taken, "{text}");
    }
}

#[test]
fn rooms_know_only_the_rooms_below_them() {
    let re_exports = re_exports();
    let mut seen = BTreeSet::new();
    let mut problems = Vec::new();
    for source in sources("host/src") {
        let module = source
            .path
            .strip_prefix("host/src/")
            .unwrap()
            .trim_end_matches(".rs");
        let first = module.split('/').next().unwrap();
        let Some((room, known)) = ROOMS.iter().find(|(name, _)| *name == first) else {
            if !["lib", "main", "cli"].contains(&first) {
                problems.push(format!(
                    "{} is in no room that this test knows",
                    source.path
                ));
            }
            continue;
        };
        seen.insert(*room);
        for name in taken_from_root(&source) {
            // What `values` re-exports is there by a glob.
            let from = match ROOMS.iter().any(|(room, _)| *room == name) {
                true => name,
                false => re_exports.get(name).map_or("values", String::as_str),
            };
            if from != *room && !known.contains(&from) {
                problems.push(format!(
                    "{} takes {name} from {from}, which {room} must not know",
                    source.path
                ));
            }
        }
    }
    assert!(problems.is_empty(), "{problems:#?}");
    assert_eq!(seen.len(), ROOMS.len(), "expected sources in each room");
}

#[test]
fn names_stay_in_their_rooms() {
    let mut problems = Vec::new();
    for source in sources("host/src") {
        let mentions = |name: &str| source.tokens.iter().any(|token| token.is_word(name));
        for (name, places) in CONFINED {
            let is_in = |place: &&str| {
                source.path == *place || source.path.starts_with(&format!("{place}/"))
            };
            if !places.iter().any(is_in) && mentions(name) {
                problems.push(format!("{} mentions {name}", source.path));
            }
        }
        if source.path.starts_with("host/src/program") && mentions("wasm") {
            problems.push(format!("{} mentions wasm", source.path));
        }
    }
    assert!(problems.is_empty(), "{problems:#?}");
}

#[test]
fn what_guests_say_comes_in_at_one_place() {
    let mut problems = Vec::new();
    let mut seen = BTreeSet::new();
    let is_test = |source: &Source| source.path.ends_with("/tests.rs");
    for source in sources("host/src/wasm").into_iter().filter(|s| !is_test(s)) {
        for (at, token) in source.tokens.iter().enumerate() {
            let way = WAYS_TO_VALUES.iter().find(|name| token.is_word(name));
            if let Some(way) = way {
                let is_wasi = source.path == WASI && *way == "func_wrap";
                match source.path == CLAIMS || is_wasi {
                    true => drop(seen.insert(*way)),
                    false => problems.push(format!("{} mentions {way}", source.path)),
                }
            }
            // `memory.data(&store)`, but not `store.data()`.
            let is_bytes = (token.is_word("data") || token.is_word("data_mut"))
                && at > 0
                && source.tokens[at - 1] == Token::Sign('.')
                && source.tokens.get(at + 1) == Some(&Token::Sign('('))
                && source.tokens.get(at + 2) != Some(&Token::Sign(')'));
            if is_bytes && source.path != CLAIMS {
                problems.push(format!("{} takes a memory's bytes", source.path));
            }
        }
    }
    assert!(problems.is_empty(), "{problems:#?}");
    for way in ["TypedFunc", "func_wrap", "get_typed_func", "get_export"] {
        assert!(seen.contains(way), "expected {CLAIMS} to mention {way}");
    }
}

#[test]
fn nothing_is_left_to_do_or_left_out() {
    let mut problems = Vec::new();
    for source in every_source() {
        for (at, token) in source.tokens.iter().enumerate() {
            let is_macro = source.tokens.get(at + 1) == Some(&Token::Sign('!'));
            let is_attribute =
                at >= 2 && source.tokens[at - 2..at] == [Token::Sign('#'), Token::Sign('[')];
            let words = |words: &[&str]| words.iter().any(|word| token.is_word(word));
            let is_left_out = is_attribute && words(&["ignore", "should_panic"]);
            let is_left_to_do = is_macro && words(&["todo", "unimplemented", "dbg"]);
            if is_left_out || is_left_to_do {
                problems.push(format!("{} has {token:?}", source.path));
            }
        }
    }
    assert!(problems.is_empty(), "{problems:#?}");
}

#[test]
fn sources_are_short_and_say_what_they_are_for() {
    let mut problems = Vec::new();
    for source in every_source() {
        let lines = source.text.lines().count();
        if lines > MAX_LINES {
            problems.push(format!(
                "{} has {lines} lines, more than {MAX_LINES}",
                source.path
            ));
        }
        // A file of unit tests is for the module that it is named by.
        if !source.text.starts_with("//!") && !source.path.ends_with("/tests.rs") {
            problems.push(format!(
                "{} does not begin with a comment that says what it is for",
                source.path
            ));
        }
    }
    assert!(problems.is_empty(), "{problems:#?}");
}
