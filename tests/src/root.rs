//! The folder of cases and guests.

use std::path::PathBuf;

/// The environment variable that names the folder, for programs that run without their repository.
pub const VARIABLE: &str = "CALLBOX_ROOT";

/// Returns the folder named by [`VARIABLE`], otherwise the repository's root.
#[must_use]
pub fn root() -> PathBuf {
    if let Some(root) = std::env::var_os(VARIABLE) {
        return root.into();
    }
    let mut root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.pop();
    root
}
