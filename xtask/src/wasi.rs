//! wasi-libc, with which guests in C can use the C library.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::process::say;
use crate::toolchain::install;

/// Names the folder of a wasi-libc to use instead of Debian's.
const VARIABLE: &str = "WASI_SYSROOT";

const DEBIAN_PACKAGE: &str = "wasi-libc";

/// The module that functions of WASI are imported from.
const MODULE: &[u8] = b"wasi_snapshot_preview1";

/// An installed wasi-libc.
pub(crate) struct Wasi {
    sysroot: PathBuf,
}

impl Wasi {
    /// Finds wasi-libc. Installs it if there is none.
    ///
    /// # Errors
    /// There is none, and it cannot be installed: the error says how to get it.
    pub(crate) fn find() -> Result<Self> {
        if let Some(sysroot) = std::env::var_os(VARIABLE) {
            let wasi = Self::at(sysroot);
            ensure!(
                wasi.has_libc(),
                "{VARIABLE}={} has no lib/wasm32-wasi/libc.a",
                wasi.sysroot.display()
            );
            return Ok(wasi);
        }
        let wasi = Self::at("/usr");
        if !wasi.has_libc() {
            say(&format!("Installing {DEBIAN_PACKAGE}, for guests in C"));
            install(&[DEBIAN_PACKAGE]).with_context(|| {
                format!(
                    "wasi-libc is missing, which guests in C are linked with: install \
                     {DEBIAN_PACKAGE} (Debian, Ubuntu), or name its folder in {VARIABLE}"
                )
            })?;
        }
        Ok(wasi)
    }

    pub(crate) fn at(sysroot: impl Into<PathBuf>) -> Self {
        Self {
            sysroot: sysroot.into(),
        }
    }

    pub(crate) fn sysroot(&self) -> &Path {
        &self.sysroot
    }

    /// Whether a module imports functions of WASI.
    pub(crate) fn is_imported_by(module: &Path) -> Result<bool> {
        let bytes =
            fs::read(module).with_context(|| format!("cannot read {}", module.display()))?;
        Ok(bytes.windows(MODULE.len()).any(|name| name == MODULE))
    }

    fn has_libc(&self) -> bool {
        self.sysroot.join("lib/wasm32-wasi/libc.a").is_file()
    }
}
