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

/// `ptxas` refuses `[%r1-16]`, `x-4` and `generic(x)-8`.
#[test]
fn negative_offsets_are_printed_with_both_signs() {
    let text = ".version 8.0\n.target sm_80\n.address_size 64\n\
                .global .align 8 .b8 x[16];\n.global .align 8 .u64 p = generic(x)+-8;\n\
                .visible .entry k(.param .u64 a)\n{\n\
                .reg .b64 %rd<3>;\n.reg .b32 %r<2>;\n\
                ld.param.u64 %rd1, [a];\nld.global.b32 %r1, [%rd1+-16];\n\
                mov.u64 %rd2, x+-4;\nst.global.b32 [x+-12], %r1;\nret;\n}\n";
    let printed = print(&read(text, "k.ptx", &Limits::default()).unwrap());
    for offset in ["+-16]", "x+-4;", "[x+-12]", "generic(x)+-8;"] {
        assert!(printed.contains(offset), "{offset} in {printed}");
    }
    read(&printed, "printed", &Limits::default()).unwrap();
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
