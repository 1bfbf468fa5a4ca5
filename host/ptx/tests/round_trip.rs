//! Every committed PTX text reads, classifies and prints to the same tree.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]
#![allow(
    clippy::disallowed_methods,
    reason = "a test reads the repository's files"
)]

use std::fs;
use std::path::{Path, PathBuf};

use callbox_ptx::ast::{Module, Statement};
use callbox_ptx::{Limits, instruction_text, print, read, table};

fn texts(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        // Hostile texts are refused, each for its own reason.
        let is_skipped = path.ends_with("target") || path.ends_with("hostile");
        if path.is_dir() && !is_skipped {
            texts(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "ptx") {
            found.push(path);
        }
    }
}

fn corpus() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = Vec::new();
    for folder in ["guests", "tests"] {
        texts(&root.join(folder), &mut found);
    }
    found.sort();
    found
}

fn module(path: &Path) -> Module {
    let text = fs::read_to_string(path).unwrap();
    let file = path.file_name().unwrap().to_string_lossy();
    read(&text, &file, &Limits::default()).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn printed_text_reads_as_the_same_tree() {
    let corpus = corpus();
    assert!(corpus.len() > 25, "{corpus:?}");
    for path in corpus {
        let tree = module(&path);
        let printed = print(&tree);
        let mut again = read(&printed, "printed", &Limits::default())
            .unwrap_or_else(|error| panic!("{}: {error}\n{printed}", path.display()));
        // The printed version is the one that is needed.
        assert!(
            again.version <= tree.version.max((7, 0)),
            "{}",
            path.display()
        );
        again.version = tree.version;
        assert_eq!(again, tree, "{}", path.display());
    }
}

#[test]
fn every_instruction_of_the_corpus_has_a_form() {
    for path in corpus() {
        let module = module(&path);
        for function in &module.functions {
            for statement in function.body.iter().flatten() {
                let Statement::Instruction(instruction) = statement else {
                    continue;
                };
                let form = table::form(&module, function, instruction).unwrap_or_else(|refusal| {
                    let text = instruction_text(&module, instruction);
                    panic!(
                        "{}:{}: {text}: {}",
                        path.display(),
                        instruction.line.0,
                        refusal.reason
                    )
                });
                assert_eq!(form.roles.len(), instruction.operands.len());
            }
        }
    }
}
