//! Checks the statements of ARCHITECTURE.md about the sources, the links of documents, and rules
//! for sources that no lint has.

use std::collections::{BTreeMap, BTreeSet};

use crate::sources::{Source, Token, files, read, sources};

/// The folders with Rust sources.
const FOLDERS: [&str; 7] = [
    "host",
    "guest-sdk",
    "guests",
    "python",
    "tests",
    "benches",
    "xtask",
];

/// The maximum number of lines of a source.
const MAX_LINES: usize = 600;

/// The only source that uses wasmtime's functions for a guest's values.
const CLAIMS: &str = "host/wasm/src/claim.rs";

/// The source that links WASI's functions, whose parameters wasmtime-wasi checks.
const WASI: &str = "host/wasm/src/capabilities/link.rs";

/// The sources with the stop memory, which guests cannot write.
const STOP: &str = "host/wasm/src/stop/";

/// wasmtime's names that give access to a guest's functions, imports, memories, globals and tables.
const ACCESSES: [&str; 20] = [
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

/// Returns the texts between backquotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Returns the lines of a section of ARCHITECTURE.md, without its heading.
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
    let covers = |listed: &str, path: &str| {
        path == listed || listed.ends_with('/') && path.starts_with(listed)
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
    for invariant in starts.windows(2).map(|ends| &text[ends[0]..ends[1]]) {
        let invariant = invariant.split_whitespace().collect::<Vec<_>>().join(" ");
        let checks = invariant.split("checked by ").skip(1);
        let paths: Vec<&str> = checks.filter_map(|check| quoted(check).next()).collect();
        assert!(
            !paths.is_empty(),
            "expected \"checked by `PATH`\" in the invariant {invariant:?}"
        );
    }
}

#[test]
fn paths_of_the_map_exist() {
    let text = read("ARCHITECTURE.md");
    let paths = quoted(&text).filter(|text| {
        let folder = text.split('/').next().unwrap_or_default();
        text.contains('/') && (FOLDERS.contains(&folder) || folder == "wit")
    });
    let root = callbox_tests::module::repository();
    let missing: BTreeSet<&str> = paths.filter(|path| !root.join(path).exists()).collect();
    assert!(
        missing.is_empty(),
        "ARCHITECTURE.md names paths that do not exist: {missing:?}"
    );
}

/// Returns the targets of a Markdown text's links to other files of the repository.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let targets = text.split("](").skip(1).filter_map(|rest| {
        let target = rest.split(')').next()?;
        Some(target.split('#').next().unwrap_or_default())
    });
    targets.filter(|target| !target.is_empty() && !target.contains("://"))
}

#[test]
fn links_of_documents_exist() {
    let root = callbox_tests::module::repository();
    let documents = files(".").into_iter().filter(|path| path.ends_with(".md"));
    for document in documents {
        let text = read(&document);
        let folder = root.join(&document);
        let folder = folder.parent().unwrap();
        let dead: BTreeSet<&str> = links(&text)
            .filter(|target| !folder.join(target).exists())
            .collect();
        assert!(
            dead.is_empty(),
            "{document} links to files that do not exist: {dead:?}"
        );
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

/// Returns the lines of each table of a manifest whose name begins with `prefix`.
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

#[test]
fn values_of_guests_enter_at_one_place() {
    let mut problems = Vec::new();
    let mut seen = BTreeSet::new();
    let is_test = |source: &Source| source.path.ends_with("/tests.rs");
    for source in sources("host/wasm/src").into_iter().filter(|s| !is_test(s)) {
        for (at, token) in source.tokens.iter().enumerate() {
            if let Some(access) = ACCESSES.iter().find(|name| token.is_word(name)) {
                let is_wasi = source.path == WASI && *access == "func_wrap";
                let is_stop = source.path.starts_with(STOP) && *access == "SharedMemory";
                if source.path == CLAIMS || is_wasi || is_stop {
                    seen.insert(*access);
                } else {
                    problems.push(format!("{} mentions {access}", source.path));
                }
            }
            // Finds `memory.data(&store)`, but not `store.data()`.
            let is_bytes = (token.is_word("data") || token.is_word("data_mut"))
                && at > 0
                && source.tokens[at - 1] == Token::Sign('.')
                && source.tokens.get(at + 1) == Some(&Token::Sign('('))
                && source.tokens.get(at + 2) != Some(&Token::Sign(')'));
            if is_bytes && source.path != CLAIMS {
                problems.push(format!("{} accesses a memory's bytes", source.path));
            }
        }
    }
    assert!(problems.is_empty(), "{problems:#?}");
    for access in ["TypedFunc", "func_wrap", "get_typed_func", "get_export"] {
        assert!(
            seen.contains(access),
            "expected {CLAIMS} to mention {access}"
        );
    }
}

#[test]
fn no_source_has_unfinished_code_or_ignored_tests() {
    let mut problems = Vec::new();
    for source in every_source() {
        for (at, token) in source.tokens.iter().enumerate() {
            let is_macro = source.tokens.get(at + 1) == Some(&Token::Sign('!'));
            let is_attribute =
                at >= 2 && source.tokens[at - 2..at] == [Token::Sign('#'), Token::Sign('[')];
            let words = |words: &[&str]| words.iter().any(|word| token.is_word(word));
            let is_ignored = is_attribute && words(&["ignore", "should_panic"]);
            let is_unfinished = is_macro && words(&["todo", "unimplemented", "dbg"]);
            if is_ignored || is_unfinished {
                problems.push(format!("{} has {token:?}", source.path));
            }
        }
    }
    assert!(problems.is_empty(), "{problems:#?}");
}

#[test]
fn sources_are_short_and_begin_with_a_comment() {
    let mut problems = Vec::new();
    for source in every_source() {
        let lines = source.text.lines().count();
        if lines > MAX_LINES {
            problems.push(format!(
                "{} has {lines} lines, more than {MAX_LINES}",
                source.path
            ));
        }
        // A file of unit tests needs no comment: its folder is named like the module.
        if !source.text.starts_with("//!") && !source.path.ends_with("/tests.rs") {
            problems.push(format!(
                "{} does not begin with a comment that describes it",
                source.path
            ));
        }
    }
    assert!(problems.is_empty(), "{problems:#?}");
}
