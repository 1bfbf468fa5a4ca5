//! The description of what a package carries beside its module.

use std::collections::BTreeMap;

use callbox::Result;
use callbox_package::Limits;
use serde::Serialize;

use super::fields::{bytes, field, list};
use crate::text::name;

/// The description of a package.
#[derive(Debug, Serialize)]
pub(crate) struct InspectedPackage {
    name: String,
    version: String,
    license: String,
    description: String,
    source: String,
    /// The derivative of each target that has one.
    derivatives: BTreeMap<String, String>,
    files: Vec<CarriedFile>,
}

#[derive(Debug, Serialize)]
struct CarriedFile {
    path: String,
    size: usize,
}

impl InspectedPackage {
    /// Describes a package. `None` for a plain module.
    pub(super) fn find(bytes: &[u8]) -> Result<Option<Self>> {
        let package = callbox_package::find(bytes, &Limits::default())?;
        Ok(package.map(|package| {
            let header = package.header().clone();
            let files = package.files().map(|(path, bytes)| CarriedFile {
                path: path.to_owned(),
                size: bytes.len(),
            });
            Self {
                name: header.name,
                version: header.version,
                license: header.license,
                description: header.description,
                source: header.source,
                derivatives: header.derivatives,
                files: files.collect(),
            }
        }))
    }

    /// The package for a person.
    pub(super) fn describe(&self) -> Vec<String> {
        let title = format!("package {} {}", name(&self.name), name(&self.version));
        let mut lines = vec![String::new(), title];
        for (key, value) in [
            ("license", &self.license),
            ("about", &self.description),
            ("source", &self.source),
        ] {
            if !value.is_empty() {
                lines.push(field(key, &name(value)));
            }
        }
        let derivatives = self.derivatives.iter();
        let derivatives =
            derivatives.map(|(target, by)| format!("of {} by {}", name(target), name(by)));
        if !self.derivatives.is_empty() {
            lines.extend(list("vjp", derivatives));
        }
        let files = self.files.iter();
        let files = files.map(|file| format!("{}, {}", file.path, bytes(file.size as u64)));
        lines.extend(list("carries", files));
        lines
    }
}
