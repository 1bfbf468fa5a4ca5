//! The toolchains that kernels are built with, and JAX.

use std::path::Path;

use super::Finding;
use super::program::{ask, find};

/// The target that kernels in Rust are compiled for.
const TARGET: &str = "wasm32-unknown-unknown";

const RUST: &str = "https://rustup.rs, then `rustup target add wasm32-unknown-unknown`";

const RUST_TARGET: &str = "`rustup target add wasm32-unknown-unknown`";

const CLANG: &str = "`sudo apt install clang-19 lld-19` (Debian, Ubuntu), clang and lld (others)";

const PYTHON: &str = "python3, then `pip install jax`";

const JAX: &str = "`pip install jax`";

/// Names of clang and its linker, in the order in which the guests' build prefers them.
const CLANGS: [&str; 5] = ["clang-19", "clang-20", "clang-21", "clang-22", "clang"];
const LINKERS: [&str; 5] = [
    "wasm-ld-19",
    "wasm-ld-20",
    "wasm-ld-21",
    "wasm-ld-22",
    "wasm-ld",
];

/// rustc of the current folder's toolchain, with the target that kernels are compiled for.
pub(super) fn rust() -> Finding {
    let Some(rustc) = find(&["rustc"]) else {
        return Finding::missing("rustc is not on PATH", RUST);
    };
    let asked = ask(&rustc, &["--version"])
        .and_then(|version| Ok((version, ask(&rustc, &["--print", "sysroot"])?)));
    let (version, sysroot) = match asked {
        Ok(answers) => answers,
        Err(problem) => return Finding::missing(problem, RUST),
    };
    // A target is installed if this folder exists: rustup lists targets by it.
    let target = Path::new(&sysroot).join("lib/rustlib").join(TARGET);
    if !target.join("lib").is_dir() {
        let problem = format!(
            "{version} lacks the target {TARGET}: no {}",
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
        None => Finding::missing("clang is not on PATH", CLANG),
        Some(path) => ask(&path, &["--print-targets"])
            .and_then(|targets| {
                if targets.contains("wasm32") {
                    ask(&path, &["-dumpversion"])
                } else {
                    Err(format!("{} does not compile for wasm32", path.display()))
                }
            })
            .map_or_else(
                |problem| Finding::missing(problem, CLANG),
                |version| Finding::found(Some(version), Some(path.display().to_string())),
            ),
    };
    let linker = match find(&LINKERS) {
        None => Finding::missing("wasm-ld is not on PATH", CLANG),
        Some(path) => match ask(&path, &["--version"]) {
            Ok(version) => Finding::found(Some(version), Some(path.display().to_string())),
            Err(problem) => Finding::missing(problem, CLANG),
        },
    };
    (clang, linker)
}

/// JAX of the Python on `PATH`. Python runs isolated (`-I`): it imports nothing from the current
/// folder.
pub(super) fn jax() -> Finding {
    let Some(python) = find(&["python3"]) else {
        return Finding::missing("python3 is not on PATH", PYTHON);
    };
    let script = "import jax; print(jax.__version__)";
    match ask(&python, &["-I", "-c", script]) {
        Ok(version) => Finding::found(Some(version), Some(python.display().to_string())),
        Err(problem) => Finding::missing(problem, JAX),
    }
}
