//! What can be said of a shared library without loading it: next to nothing.

use std::path::Path;

use callbox::cuda::hex;
use sha2::{Digest, Sha256};

use super::fields::{bytes, field};
use super::manifest::MOST_BYTES;
use crate::cli::failure::Outcome;
use crate::cli::modules;

/// What is shown of a library.
#[derive(Debug)]
pub(in crate::cli) struct InspectedLibrary {
    pub(in crate::cli) size: usize,
    /// The SHA-256 of the file: what a grant names.
    pub(in crate::cli) sha256: String,
}

pub(super) fn read(path: &Path) -> Outcome<InspectedLibrary> {
    let bytes = modules::read(path, MOST_BYTES)?;
    Ok(InspectedLibrary {
        size: bytes.len(),
        sha256: hex(Sha256::digest(&bytes).into()),
    })
}

/// The library for a person.
pub(super) fn describe(library: &InspectedLibrary) -> String {
    let lines = [
        field("size", &bytes(library.size as u64)),
        field("grant", &format!("--allow-native {}", library.sha256)),
        String::new(),
        "targets: not known. A library does not say which functions of it are targets, or of which convention: \
         `callbox run --native FILE.so:NAME@...` does"
            .to_owned(),
    ];
    lines.join("\n") + "\n"
}
