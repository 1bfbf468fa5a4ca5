//! Where cases and guests lie.

use std::path::PathBuf;

/// The environment variable that names the folder, for programs that run without the repository that they were built in.
pub const VARIABLE: &str = "CALLBOX_ROOT";

/// The folder that [`VARIABLE`] names, else the repository's root.
#[must_use]
pub fn root() -> PathBuf {
    if let Some(root) = std::env::var_os(VARIABLE) {
        return root.into();
    }
    let mut root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.pop();
    root
}
