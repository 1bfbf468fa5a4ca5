//! The description of a shared library: its size and digest.

use std::path::Path;

use super::MOST_BYTES;
use super::fields::{bytes, field};
use super::hash::hash;
use crate::failure::Outcome;

/// The description of a library.
#[derive(Debug)]
pub(crate) struct InspectedLibrary {
    pub(crate) size: u64,
    /// The SHA-256 of the file, which a grant names.
    pub(crate) sha256: String,
}

pub(super) fn read(path: &Path) -> Outcome<InspectedLibrary> {
    let (size, sha256) = hash(path, &mut { MOST_BYTES }, &mut |_| {})?;
    Ok(InspectedLibrary { size, sha256 })
}

/// The library for a person.
pub(super) fn describe(library: &InspectedLibrary) -> String {
    let lines = [
        field("size", &bytes(library.size)),
        field("grant", &format!("--allow-native {}", library.sha256)),
        String::new(),
        "targets: unknown. A library does not declare its targets or their conventions: name them \
         with `callbox run --native FILE.so:NAME@...`"
            .to_owned(),
    ];
    lines.join("\n") + "\n"
}
