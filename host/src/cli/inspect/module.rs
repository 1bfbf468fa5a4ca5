//! What can be said of a module without running or compiling any of it.

use std::path::Path;

use callbox::Status;
use callbox::policy::Policy;
use callbox::wasm::{ModuleInfo, inspect, needed_features};

use super::fields::{bytes, field, list, target};
use crate::cli::failure::Outcome;
use crate::cli::modules;
use crate::cli::text::name;

/// What is shown of a module.
#[derive(Debug)]
pub(in crate::cli) struct InspectedModule {
    pub(in crate::cli) info: ModuleInfo,
    /// The WebAssembly proposals that it needs.
    pub(in crate::cli) features: Vec<&'static str>,
    /// Why a host with the default limits would not load it.
    pub(in crate::cli) problem: Option<Status>,
}

pub(super) fn read(path: &Path) -> Outcome<InspectedModule> {
    let Policy { limits, grants, .. } = Policy::default();
    let bytes = modules::read(path, limits.module_bytes)?;
    let in_file = |status: Status| status.context(path.display());
    let info = inspect(&bytes, &limits).map_err(in_file)?;
    Ok(InspectedModule {
        features: needed_features(&bytes).map_err(in_file)?,
        problem: info.check(&limits, &grants).err(),
        info,
    })
}

/// The module for a person.
pub(super) fn describe(inspected: &InspectedModule) -> String {
    let info = &inspected.info;
    let features = match inspected.features.is_empty() {
        true => "none past WebAssembly 1.0".to_owned(),
        false => inspected.features.join(", "),
    };
    let loads = match &inspected.problem {
        None => "yes".to_owned(),
        Some(status) => format!("no: {}", name(&status.to_string())),
    };
    let mut lines = vec![
        field("size", &bytes(info.size as u64)),
        field("sha256", &info.sha256),
        field("loads", &loads),
        field("memory", &memory(info)),
        field("features", &features),
    ];
    let imports = info.imports.iter();
    let imports = imports.map(|i| format!("{} {} {}", name(&i.module), name(&i.name), i.ty));
    lines.extend(list("imports", imports));
    let exports = info
        .exports
        .iter()
        .map(|e| format!("{} {}", name(&e.name), e.ty));
    lines.extend(list("exports", exports));
    lines.push(String::new());
    lines.push(match (info.targets.is_empty(), info.has_metadata) {
        (true, _) => "no targets".to_owned(),
        (false, true) => "targets, as the module declares them".to_owned(),
        (false, false) => "targets, as exported functions could be them".to_owned(),
    });
    lines.extend(info.targets.iter().flat_map(target));
    lines.join("\n") + "\n"
}

fn memory(info: &ModuleInfo) -> String {
    match info.memory {
        None => "none exported as \"memory\"".to_owned(),
        Some(memory) => match memory.maximum {
            Some(maximum) => format!(
                "{} at first, {} at most",
                bytes(memory.initial),
                bytes(maximum)
            ),
            None => format!("{} at first, no maximum", bytes(memory.initial)),
        },
    }
}
