//! Builds the guests.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::clang::{self, Clang};
use crate::process::{root, run, say};
use crate::ptx::libraries;
use crate::toolchain::{TARGET, Toolchain};

/// The folder of all built guests.
const GUESTS: &str = "target/guests";

/// The guests without the standard library. Cargo unites the features of packages that it builds at
/// one time, so that these are built by themselves.
const WITHOUT_STD: [&str; 2] = ["add_n", "broadcast_add"];

/// The folder of the sample kernels in the Python package.
const SAMPLES: &str = "python/callbox/samples";

/// The guests that the Python package has.
const IN_PACKAGE: [&str; 2] = ["add_n", "rms_norm"];

/// The size of the largest guest without the standard library.
const MOST_BYTES: u64 = 30_000;

/// The features of the guest SDK that guests are built with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Features {
    Std,
    Runtime,
}

impl Features {
    /// Adds those of the packages that are built with these features, or all of them if none is
    /// named. Returns whether there are any.
    fn select(self, packages: &[&str], build: &mut Command) -> bool {
        if packages.is_empty() {
            match self {
                Self::Std => build
                    .arg("--workspace")
                    .args(WITHOUT_STD.map(|name| format!("--exclude={name}"))),
                Self::Runtime => build.args(WITHOUT_STD.map(|name| format!("--package={name}"))),
            };
            return true;
        }
        let is_selected = |name: &&&str| WITHOUT_STD.contains(*name) == (self == Self::Runtime);
        let mut selected = packages.iter().filter(is_selected).peekable();
        let is_any = selected.peek().is_some();
        build.args(selected.map(|name| format!("--package={name}")));
        is_any
    }
}

/// Builds every guest to `target/guests/NAME.wasm`, and the C targets for CUDA to
/// `target/guests/NAME.so`. Copies the samples into the Python package.
pub(crate) fn build() -> Result<()> {
    let rust = build_rust(&[])?;
    let clang = Clang::find()?;
    clang::build(&clang, &rust)?;
    libraries::build(&clang)?;
    for name in IN_PACKAGE.map(|name| format!("{name}.wasm")) {
        fs::copy(
            root().join(GUESTS).join(&name),
            root().join(SAMPLES).join(&name),
        )
        .with_context(|| format!("cannot copy {name} to {SAMPLES}"))?;
    }
    println!(
        "   {GUESTS} has {}",
        file_names(&root().join(GUESTS))?.join(", ")
    );
    Ok(())
}

/// Builds these guests in Rust, or all of them if none is named, and copies them to
/// `target/guests/NAME.wasm`. Needs no clang. Returns the names of their files.
pub(crate) fn build_rust(packages: &[&str]) -> Result<Vec<String>> {
    let toolchain = Toolchain::find()?;
    say("Building the guests in Rust");
    for features in [Features::Std, Features::Runtime] {
        let mut build = toolchain.build();
        if features.select(packages, &mut build) {
            run(&mut build)?;
        }
    }

    let built = root().join("guests/target").join(TARGET).join("release");
    let folder = root().join(GUESTS);
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut modules = file_names(&built)?;
    modules.retain(|name| name.ends_with(".wasm"));
    for name in &modules {
        let size = fs::copy(built.join(name), folder.join(name))
            .with_context(|| format!("cannot copy {name} to {GUESTS}"))?;
        let without_std = WITHOUT_STD
            .iter()
            .any(|guest| *name == format!("{guest}.wasm"));
        ensure!(
            !without_std || size <= MOST_BYTES,
            "expected {name} to have at most {MOST_BYTES} bytes, found {size}: what has brought the \
             formatting machinery or a general allocator into it?"
        );
    }
    Ok(modules)
}

fn file_names(folder: &Path) -> Result<Vec<String>> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut names = Vec::new();
    for entry in entries {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}
