//! `callbox build`, `test` and `bench` on the folder of a kernel in Python.
#![cfg(unix)]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::guests::NEGATE;
use crate::kernels::{fails, replace};
use crate::packages::CASE;
use crate::support::{Folder, Ran, text};

/// A stand-in for Python shows what is run: compiling needs the Python package.
#[test]
fn a_kernel_in_python_is_built_by_the_chosen_python() {
    let folder = Folder::new();
    folder.run(&["new", "negate", "--lang", "python"]).done();
    folder
        .module("module.wasm", NEGATE)
        .write("negate/cases/negate.json", CASE);
    let script = "#!/bin/sh\necho \"$1 $3 $4 $PYTHONPATH\" >&2\n\
                  test \"$1\" = -c || exit 0\ncp ../module.wasm \"$5\"\n";
    folder.write("python", script);
    let python = folder.path("python");
    fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).unwrap();
    let run = |arguments: &[&str]| {
        let mut command = folder.command(arguments);
        command
            .env("CALLBOX_PYTHON", &python)
            .env_remove("PYTHONPATH");
        Ran::new(&command.output().unwrap())
    };
    let ran = run(&["test", "negate"]);
    assert!(ran.code == 0 && ran.stdout.contains("passed"), "{ran:?}");
    let folder_of_kernel = fs::canonicalize(folder.path("negate")).unwrap();
    let test = folder_of_kernel.join("tests/test_negate.py");
    let words = [
        "-c negate.py negate",
        &format!("{}   {}", text(&test), text(&folder_of_kernel)),
    ];
    fails(&ran, 0, &words);
    folder.write(
        "python",
        "#!/bin/sh\necho 'negate.py:9: no strings' >&2\nexit 1\n",
    );
    let words = ["negate.py:9: no strings", "callbox.jit did not compile"];
    fails(&run(&["build", "negate"]), 1, &words);
}

/// The Python of `cargo xtask python` that has Numba, or the reason why there is none.
fn python_with_numba() -> Result<PathBuf, String> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let python = repository.join("target/python/new/bin/python");
    let mut command = Command::new(&python);
    let tried = command.args(["-c", "import callbox, numba"]).output();
    match tried {
        Ok(output) if output.status.success() => Ok(python),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        Err(error) => Err(format!("{}: {error}", python.display())),
    }
}

/// A new folder becomes a module, whose cases pass, by Numba.
#[test]
fn a_kernel_in_python_is_compiled_and_tested() {
    let python = match python_with_numba() {
        Ok(python) => python,
        Err(reason) => {
            // `cargo xtask test` sets the variable where it has made that Python.
            let is_needed = std::env::var_os("CALLBOX_TEST_NUMBA").is_some();
            assert!(!is_needed, "expected a Python with Numba: {reason}");
            eprintln!("skipped: `cargo xtask python` makes a Python with Numba: {reason}");
            return;
        }
    };
    let folder = Folder::new();
    let run = |arguments: &[&str]| {
        let mut command = folder.command(arguments);
        command
            .env("CALLBOX_PYTHON", &python)
            .env("CALLBOX_JIT_CACHE", folder.path("cache"))
            .env_remove("PYTHONPATH");
        Ran::new(&command.output().unwrap())
    };
    for (name, form) in [("center", "--rows"), ("scale", "--elementwise")] {
        run(&["new", name, "--lang", "python", form]).done();
        let built = run(&["build", name]).done();
        assert!(built.contains(&format!("{name}.wasm, ")), "{built}");
        let ran = run(&["test", name]);
        assert!(
            ran.code == 0 && ran.stdout.contains("1 passed, 0 failed"),
            "{ran:?}"
        );
        // The module needs no Python.
        let module = format!("{name}/{name}.wasm");
        let shown = folder.run(&["inspect", &module]).done();
        assert!(!shown.contains("warning"), "{shown}");
    }
    for name in ["center", "scale"] {
        let measured = run(&["bench", name]).done();
        let has_native = measured.contains(", native ");
        assert!(
            measured.starts_with(&format!("{name}: ")) && has_native,
            "{measured}"
        );
    }

    // A wrong case, a wrong native test, and what cannot be compiled, with its line.
    replace(
        &folder,
        "scale/cases/scale.json",
        "[2, -4, 1]",
        "[2, -4, 2]",
    );
    let ran = run(&["test", "scale"]);
    assert!(ran.code == 1 && ran.stdout.contains("failed"), "{ran:?}");
    replace(&folder, "scale/tests/test_scale.py", "-4.0", "-5.0");
    let words = ["Mismatched elements: 1 / 3", "tests/test_scale.py failed"];
    fails(&run(&["test", "scale"]), 1, &words);
    replace(
        &folder,
        "center/center.py",
        "total / columns",
        "open(total)",
    );
    let words = ["center.py:15", "open", "callbox.jit did not compile"];
    fails(&run(&["build", "center"]), 1, &words);
}
