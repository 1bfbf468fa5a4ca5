//! `callbox new`, `build`, `test`, `bench` and `watch` on the folder of a kernel.

use std::fs;
use std::io::{BufRead as _, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStderr, Stdio};

use crate::guests::NEGATE;
use crate::packages::{CASE, HEADER};
use crate::support::{Folder, Ran};

/// Changes a file of a kernel.
#[track_caller]
pub(crate) fn replace(folder: &Folder, file: &str, from: &str, to: &str) {
    let found = fs::read_to_string(folder.path(file)).unwrap();
    assert!(found.contains(from), "{file}: {found}");
    folder.write(file, found.replace(from, to));
}

/// Expects an exit code, and words on standard error.
#[track_caller]
pub(crate) fn fails(ran: &Ran, code: i32, words: &[&str]) {
    assert_eq!(ran.code, code, "{ran:?}");
    for word in words {
        assert!(ran.stderr.contains(word), "expected {word:?} in {ran:?}");
    }
}

#[test]
fn a_new_folder_has_all_files_and_no_gaps() {
    let folder = Folder::new();
    for (language, own) in [
        (
            "rust",
            &[
                "Cargo.toml",
                "src/lib.rs",
                "benches/native.rs",
                ".cargo/config.toml",
            ][..],
        ),
        (
            "c",
            &["src/k.c", "src/k.h", "tests/k.c", "benches/native.c"],
        ),
        ("python", &["k.py", "tests/test_k.py", "benches/native.py"]),
    ] {
        for form in ["--elementwise", "--rows"] {
            let path = format!("{language}{form}/k");
            fs::create_dir(folder.path(&format!("{language}{form}"))).unwrap();
            let made = folder.run(&["new", &path, "--lang", language, form]).done();
            assert_eq!(
                made,
                format!("{path}\n  next: cd {path} && callbox test .\n")
            );
            let shared = [
                "callbox-package.json",
                "README.md",
                ".gitignore",
                "cases/k.json",
            ];
            let more = ["benches/k.json", ".github/workflows/ci.yml"];
            for file in shared.iter().chain(&more).chain(own) {
                let text = fs::read_to_string(folder.path(&format!("{path}/{file}"))).unwrap();
                for gap in [
                    "NAME",
                    "DESCRIPTION",
                    "VERSION",
                    "TOOLS",
                    "ELEMENTS",
                    "DIMENSIONS",
                    "ATTRIBUTE",
                    "COMPUTE",
                ] {
                    assert!(!text.contains(gap), "{file} has {gap}: {text}");
                }
            }
        }
    }
    let sdk = folder.list("rust--rows/k/callbox-sdk");
    assert_eq!(
        sdk,
        [
            "Cargo.toml",
            "LICENSE-APACHE",
            "LICENSE-MIT",
            "guest-sdk",
            "host"
        ]
    );
    let sdk = folder.list("c--rows/k/callbox-sdk/guest-sdk");
    assert_eq!(sdk, ["include", "wasm32-wasi.cfg", "wasm32.cfg"]);
}

#[test]
fn names_and_folders_that_cannot_be_are_refused() {
    let folder = Folder::new();
    folder.write("there/file", "kept");
    for (arguments, message) in [
        (&["new", "there"][..], "expected to make there: "),
        (&["new", "absent/k"], "expected to make absent/k: "),
        (&["new", "Scale"], "found \"Scale\""),
        (
            &["new", "2d"],
            "lower-case letters, digits and `_` with a letter first",
        ),
        (&["new", "a-b"], "found \"a-b\""),
        (&["new", ".."], "found \"\""),
        (
            &["new", "match"],
            "`match` is reserved in Rust, C or Python",
        ),
        (&["new", "callbox"], "`callbox` is reserved"),
        (
            &["new", "json", "--lang", "python"],
            "`json` is a module that Python programs import",
        ),
        (
            &["new", "k", "--lang", "cobol"],
            "[possible values: rust, c, python]",
        ),
        (
            &["new", "k", "--rows", "--elementwise"],
            "cannot be used with",
        ),
    ] {
        fails(&folder.run(arguments), 2, &[message]);
    }
    assert_eq!(folder.list("."), ["there"]);
    assert_eq!(folder.list("there"), ["file"]);
}

#[test]
fn folders_without_sources_are_refused() {
    let folder = Folder::new();
    folder.write("k/README.md", "");
    for command in ["build", "test", "bench"] {
        let ran = folder.run(&[command, "absent"]);
        fails(&ran, 2, &["NOT_FOUND", "absent"]);
    }
    fails(
        &folder.run(&["watch", "absent"]),
        2,
        &["NOT_FOUND", "absent"],
    );
    let words = ["k: expected the sources of a kernel: Cargo.toml, src/*.c or NAME.py"];
    fails(&folder.run(&["build", "k"]), 1, &words);
    fails(&folder.run(&["test", "k"]), 2, &["callbox-package.json"]);
    folder.write("k/callbox-package.json", "{");
    fails(
        &folder.run(&["build", "k"]),
        1,
        &["callbox-package.json", "the header is wrong"],
    );
    // A module without sources is tested as it is.
    folder.module("k/negate.wasm", NEGATE);
    folder
        .write("k/callbox-package.json", HEADER)
        .write("k/cases/a.json", CASE);
    let tested = folder.run(&["test", "k"]).done();
    assert!(tested.contains("passed"), "{tested}");
}

/// A native test that calls the target `scale`.
const CALL: &str = r#"
#include "callbox_test.h"

#include "../src/scale.c"

int main(void) {
  float x[2] = {1, 2}, y[2], factor = 3;
  const int64_t size = 2;
  callbox_buffer operand = callbox_test_buffer(CALLBOX_F32, x, sizeof x, &size, 1);
  callbox_buffer result = callbox_test_buffer(CALLBOX_F32, y, sizeof y, &size, 1);
  callbox_attribute attribute = callbox_test_scalar("factor", CALLBOX_F32, &factor, sizeof factor);
  callbox_call_frame frame = callbox_test_frame(&operand, 1, &result, 1, &attribute, 1);
  if (scale(&frame) != CALLBOX_OK || y[1] != 6) return 1;
  frame.attributes.count = 0;
  if (scale(&frame) != CALLBOX_INVALID_ARGUMENT) return 2;
  return strcmp(callbox_test_failure.message, "Unexpected attribute: factor") != 0;
}
"#;

#[test]
fn a_kernel_in_c_is_built_tested_and_measured() {
    let folder = Folder::new();
    for (name, form) in [("center", "--rows"), ("scale", "--elementwise")] {
        folder.run(&["new", name, "--lang", "c", form]).done();
        let built = folder.run(&["build", name]).done();
        assert!(built.contains(&format!("{name}.wasm, ")), "{built}");
        assert!(built.ends_with(&format!("\n  {name}\n")), "{built}");
        let tested = folder.run(&["test", name]).done();
        assert!(tested.contains("1 passed, 0 failed"), "{tested}");
        // The module is as a plain clang makes it: with vectors.
        let shown = folder
            .run(&["inspect", &format!("{name}/{name}.wasm")])
            .done();
        assert!(
            shown.contains("simd") && !shown.contains("warning"),
            "{shown}"
        );
    }
    // A native test can call the target itself.
    folder.write("scale/tests/call.c", CALL);
    folder.run(&["test", "scale"]).done();
    replace(&folder, "scale/tests/call.c", "y[1] != 6", "y[1] != 7");
    fails(&folder.run(&["test", "scale"]), 1, &["tests/call.c failed"]);
    replace(&folder, "scale/tests/call.c", "y[1] != 7", "y[1] != 6");
    let measured = folder.run(&["bench", "scale"]).done();
    assert!(
        measured.starts_with("scale: ") && measured.contains(", native "),
        "{measured}"
    );
    if cfg!(target_arch = "x86_64") {
        let measured = folder.run(&["bench", "scale", "--asm"]).done();
        let (time, code) = measured.split_once('\n').unwrap();
        assert!(time.starts_with("scale: "), "{measured}");
        assert!(
            code.starts_with("asm: a loop of `scale` with vectors of floating-point numbers: "),
            "{measured}"
        );
        assert!(code.contains("mulps xmm"), "{measured}");
        let ran = folder.run(&["bench", "scale", "--asm", "--isolate", "process"]);
        fails(&ran, 1, &["UNIMPLEMENTED", "leave out --isolate process"]);
    }
    let packed = folder.run(&["pack", "scale", "-o", "scale.wasm"]).done();
    assert!(packed.starts_with("scale 0.1.0\n"), "{packed}");
    // The cases of a package are measured, without native code.
    let measured = folder.run(&["bench", "scale.wasm"]).done();
    assert!(
        measured.starts_with("scale: ") && !measured.contains("native"),
        "{measured}"
    );
}

#[test]
fn mistakes_in_c_are_told_with_the_compilers_lines() {
    let folder = Folder::new();
    folder.run(&["new", "k", "--lang", "c"]).done();
    // A wrong native test, then a wrong case, then a wrong native benchmark.
    replace(&folder, "k/tests/k.c", "-4.0f", "-5.0f");
    let words = ["element 1: expected -5, found -4", "tests/k.c failed"];
    fails(&folder.run(&["test", "k"]), 1, &words);
    replace(&folder, "k/tests/k.c", "-5.0f", "-4.0f");
    replace(&folder, "k/cases/k.json", "[2, -4, 1]", "[2, -4, 2]");
    let ran = folder.run(&["test", "k"]);
    assert!(ran.code == 1 && ran.stdout.contains("failed"), "{ran:?}");
    replace(&folder, "k/benches/native.c", "%.0f", "time");
    fails(
        &folder.run(&["bench", "k"]),
        1,
        &["`NAME NANOSECONDS`", "k time"],
    );

    folder.write(
        "k/benches/k.json",
        r#"{"call": {"target": "k"}, "operands": ["f32[2]"]}"#,
    );
    let words = ["benches/k.json: expected the shapes `results` in `call`"];
    fails(&folder.run(&["bench", "k"]), 1, &words);
    folder.write("k/benches/k.json", "[");
    fails(&folder.run(&["bench", "k"]), 1, &["benches/k.json", "EOF"]);

    replace(&folder, "k/src/k.c", "*factor,", "*missing,");
    let before = fs::read(folder.path("k/k.wasm")).unwrap();
    let words = [
        "src/k.c:",
        "use of undeclared identifier 'missing'",
        "clang did not compile",
    ];
    fails(&folder.run(&["build", "k"]), 1, &words);
    assert_eq!(fs::read(folder.path("k/k.wasm")).unwrap(), before);
    fs::remove_dir_all(folder.path("k/callbox-sdk")).unwrap();
    fails(
        &folder.run(&["build", "k"]),
        1,
        &["wasm32.cfg", "`callbox new --lang c`"],
    );
}

#[test]
fn missing_tools_are_named_with_their_cure() {
    let folder = Folder::new();
    for (language, name, cure) in [
        ("rust", "r", "install Rust from https://rustup.rs"),
        ("c", "c", "install clang and lld"),
        (
            "python",
            "p",
            "install Python 3.11 or newer with callbox[jit]",
        ),
    ] {
        folder.run(&["new", name, "--lang", language]).done();
        let mut command = folder.command(&["build", name]);
        let cleared = command.env("PATH", "").env_remove("CALLBOX_CLANG");
        let ran = Ran::new(&cleared.env_remove("CALLBOX_PYTHON").output().unwrap());
        fails(&ran, 1, &["error: NOT_FOUND: ", "is missing, which", cure]);
        assert_eq!(ran.stderr.lines().count(), 2, "{ran:?}");
    }
    let mut command = folder.command(&["build", "c"]);
    let ran = Ran::new(&command.env("CALLBOX_CLANG", "absent").output().unwrap());
    fails(
        &ran,
        1,
        &["CALLBOX_CLANG=absent cannot compile and link for wasm32"],
    );
}

/// Cargo's builds are kept in the target folder, and take their crates from cargo's cache.
#[test]
fn a_kernel_in_rust_is_built_and_tested() {
    let folder = Folder::new();
    folder.run(&["new", "center", "--rows"]).done();
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kernels");
    let run = |arguments: &[&str]| {
        let mut command = folder.command(arguments);
        command
            .env("CARGO_TARGET_DIR", &target)
            .env("CARGO_NET_OFFLINE", "true");
        Ran::new(&command.output().unwrap())
    };
    let ran = run(&["test", "center"]);
    let missing = "run `rustup target add wasm32-unknown-unknown`";
    if ran.stderr.contains(missing) {
        fails(&ran, 1, &["NOT_FOUND", "the standard library for"]);
        // A machine with Debian's compiler alone, which `cargo xtask guests` can use.
        let variable = "CALLBOX_TESTS_WITHOUT_WASM32";
        let is_known = std::env::var_os(variable).is_some();
        assert!(
            is_known,
            "to test kernels in Rust, {missing}; set {variable} to go without"
        );
        return;
    }
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(
        ran.stderr.contains("tests::rows_have_the_mean_zero ... ok"),
        "{ran:?}"
    );
    assert!(
        ran.stdout.contains("cases/center.json") && ran.stdout.contains("passed"),
        "{ran:?}"
    );
    let shown = folder.run(&["inspect", "center/center.wasm"]).done();
    assert!(
        shown.contains("simd") && !shown.contains("warning"),
        "{shown}"
    );

    // Cargo writes to standard error, too.
    let ran = run(&["bench", "center"]);
    assert!(
        ran.code == 0 && ran.stdout.starts_with("center: ") && ran.stdout.contains(", native "),
        "{ran:?}"
    );

    replace(&folder, "center/src/lib.rs", "x - mean", "x - missing");
    let words = [
        "cannot find value `missing`",
        "--> src/lib.rs:",
        "cargo did not build",
    ];
    fails(&run(&["build", "center"]), 1, &words);
}

/// `callbox watch k`.
struct Watch<'f> {
    folder: &'f Folder,
    child: Child,
    notes: Lines<BufReader<ChildStderr>>,
}

impl<'f> Watch<'f> {
    fn start(folder: &'f Folder) -> Self {
        let mut command = folder.command(&["watch", "k"]);
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let notes = BufReader::new(child.stderr.take().unwrap()).lines();
        Self {
            folder,
            child,
            notes,
        }
    }

    /// Waits for a line on standard error.
    fn next(&mut self, word: &str) {
        let mut lines = self.notes.by_ref().map(Result::unwrap);
        assert!(lines.any(|line| line.contains(word)), "{word}");
    }

    /// Changes a file. A renamed file is never read in part.
    fn put(&self, name: &str, text: &str) {
        self.folder.write("k/.part", text);
        fs::rename(self.folder.path("k/.part"), self.folder.path(name)).unwrap();
    }

    /// Ends it, and returns what it printed.
    fn end(mut self) -> String {
        self.child.kill().unwrap();
        let output = self.child.wait_with_output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }
}

#[test]
fn a_watched_folder_is_tested_again_when_a_file_changes() {
    let folder = Folder::new();
    folder.module("k/negate.wasm", NEGATE);
    folder
        .write("k/callbox-package.json", HEADER)
        .write("k/cases/a.json", CASE);
    let mut watch = Watch::start(&folder);
    watch.next("watching k");
    watch.put(
        "k/cases/a.json",
        &CASE.replace("[-1, 2.5, -0.0]", "[-1, 2.5, 77]"),
    );
    watch.next("error: ");
    watch.next("watching k");
    watch.put("k/cases/b.json", CASE);
    watch.next("watching k");
    let shown = watch.end();
    assert!(shown.contains("b.json"), "{shown}");
}

#[test]
fn a_watched_kernel_is_built_again_when_its_source_changes() {
    let folder = Folder::new();
    folder.run(&["new", "k", "--lang", "c"]).done();
    let mut watch = Watch::start(&folder);
    watch.next("watching k");
    let source = fs::read_to_string(folder.path("k/src/k.c")).unwrap();
    watch.put("k/src/k.c", &source.replace("*factor,", "*missing,"));
    watch.next("use of undeclared identifier 'missing'");
    watch.next("watching k");
    watch.put("k/src/k.c", &source);
    watch.next("watching k");
    let shown = watch.end();
    assert_eq!(shown.matches("1 passed, 0 failed").count(), 2, "{shown}");
}
