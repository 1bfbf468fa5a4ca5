//! The toolchains that kernels are built with, and JAX.

use std::path::Path;

use super::Finding;
use super::program::{ask, find};

/// What kernels in Rust are compiled for.
const TARGET: &str = "wasm32-unknown-unknown";

const RUST: &str = "https://rustup.rs, then `rustup target add wasm32-unknown-unknown`";

const RUST_TARGET: &str = "`rustup target add wasm32-unknown-unknown`";

const CLANG: &str = "`sudo apt install clang-19 lld-19` (Debian, Ubuntu), clang and lld (others)";

const PYTHON: &str = "python3, then `pip install jax`";

const JAX: &str = "`pip install jax`";

/// Clangs and linkers, in the order in which the guests' build takes them.
const CLANGS: [&str; 5] = ["clang-19", "clang-20", "clang-21", "clang-22", "clang"];
const LINKERS: [&str; 5] = [
    "wasm-ld-19",
    "wasm-ld-20",
    "wasm-ld-21",
    "wasm-ld-22",
    "wasm-ld",
];

/// rustc with the target that kernels are compiled for: the toolchain of the folder that callbox runs in.
pub(super) fn rust() -> Finding {
    let Some(rustc) = find(&["rustc"]) else {
        return Finding::missing("expected rustc on PATH, found none", RUST);
    };
    let asked = ask(&rustc, &["--version"])
        .and_then(|version| Ok((version, ask(&rustc, &["--print", "sysroot"])?)));
    let (version, sysroot) = match asked {
        Ok(answers) => answers,
        Err(problem) => return Finding::missing(problem, RUST),
    };
    // rustup's list of targets says no more than which of these folders are there.
    let target = Path::new(&sysroot).join("lib/rustlib").join(TARGET);
    if !target.join("lib").is_dir() {
        let problem = format!(
            "expected {version} to have the target {TARGET}, found no {}",
            target.display()
        );
        return Finding::missing(problem, RUST_TARGET);
    }
    let version = version.strip_prefix("rustc ").unwrap_or(&version);
    Finding::found(Some(version.to_owned()), Some(target.display().to_string()))
}

/// A clang that compiles for wasm32, and the linker that it calls.
pub(super) fn clang() -> (Finding, Finding) {
    let clang = match find(&CLANGS) {
        None => Finding::missing("expected clang on PATH, found none", CLANG),
        Some(path) => ask(&path, &["--print-targets"])
            .and_then(|targets| match targets.contains("wasm32") {
                true => ask(&path, &["-dumpversion"]),
                false => Err(format!(
                    "expected a clang that compiles for wasm32, found {} without",
                    path.display()
                )),
            })
            .map_or_else(
                |problem| Finding::missing(problem, CLANG),
                |version| Finding::found(Some(version), Some(path.display().to_string())),
            ),
    };
    let linker = match find(&LINKERS) {
        None => Finding::missing("expected wasm-ld on PATH, found none", CLANG),
        Some(path) => match ask(&path, &["--version"]) {
            Ok(version) => Finding::found(Some(version), Some(path.display().to_string())),
            Err(problem) => Finding::missing(problem, CLANG),
        },
    };
    (clang, linker)
}

/// JAX, in the Python that is on `PATH`. Python is asked in isolation: nothing of the folder that callbox runs in is imported.
pub(super) fn jax() -> Finding {
    let Some(python) = find(&["python3"]) else {
        return Finding::missing("expected python3 on PATH, found none", PYTHON);
    };
    let script = "import jax; print(jax.__version__)";
    match ask(&python, &["-I", "-c", script]) {
        Ok(version) => Finding::found(Some(version), Some(python.display().to_string())),
        Err(problem) => Finding::missing(problem, JAX),
    }
}
