//! The description of a module, without compiling it.

use std::path::Path;

use callbox::Status;
use callbox::policy::Policy;
use callbox::wasm::{ModuleInfo, inspect, stack_above_data};

use super::fields::{bytes, field, list, target};
use super::package::InspectedPackage;
use super::slow;
use crate::failure::Outcome;
use crate::files::npy;
use crate::signing::{self, DescribedSigner};
use crate::text::name;
use crate::{modules, package};

/// The description of a module.
#[derive(Debug)]
pub(crate) struct InspectedModule {
    pub(crate) info: ModuleInfo,
    /// The WebAssembly proposals that it needs.
    pub(crate) features: Vec<&'static str>,
    /// Whether a stack that overflows overwrites the module's data.
    pub(crate) stack_above_data: bool,
    /// Whether loops compute one element at a time for want of vector instructions.
    pub(crate) scalar_loops: bool,
    /// Why a host with the default limits would not load it.
    pub(crate) problem: Option<Status>,
    /// What it carries as a package, if it is one.
    pub(crate) package: Option<InspectedPackage>,
    /// Its signatures.
    pub(crate) signers: Vec<DescribedSigner>,
}

pub(super) fn read(path: &Path) -> Outcome<InspectedModule> {
    let Policy { limits, grants, .. } = Policy::default();
    let bytes = package::read_file(path)?;
    let in_file = |status: Status| status.context(path.display());
    if !bytes.starts_with(modules::MAGIC) {
        let status = Status::invalid_argument(format!(
            "expected a WebAssembly module, a manifest `.json` or a shared library `.so`, found {}",
            beginning(&bytes)
        ));
        return Err(in_file(status).into());
    }
    let info = inspect(&bytes, &limits).map_err(in_file)?;
    let carried = InspectedPackage::find(&bytes).map_err(in_file)?;
    Ok(InspectedModule {
        features: info.features.clone(),
        stack_above_data: stack_above_data(&bytes),
        scalar_loops: slow::scalar_loops(&bytes),
        problem: info.check(&limits, &grants).err(),
        package: carried,
        signers: signing::of_file(path, &bytes),
        info,
    })
}

/// The first bytes of a file, for a message.
fn beginning(bytes: &[u8]) -> String {
    let start = &bytes[..bytes.len().min(8)];
    if start.is_empty() {
        "an empty file".to_owned()
    } else if start.starts_with(npy::MAGIC) {
        "an array in a .npy file".to_owned()
    } else {
        format!("a file that begins with \"{}\"", start.escape_ascii())
    }
}

/// The module for a person.
pub(super) fn describe(inspected: &InspectedModule) -> String {
    let info = &inspected.info;
    let features = if inspected.features.is_empty() {
        "none past WebAssembly 1.0".to_owned()
    } else {
        inspected.features.join(", ")
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
    lines.splice(2..2, signing::lines_of(&inspected.signers));
    if inspected.stack_above_data {
        lines.push(field(
            "warning",
            "the stack lies above the data and overwrites it on overflow: link with -Wl,--stack-first",
        ));
    }
    if inspected.scalar_loops {
        lines.push(field("warning", slow::SCALAR_LOOPS));
    }
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
    lines.extend(
        inspected
            .package
            .iter()
            .flat_map(InspectedPackage::describe),
    );
    lines.join("\n") + "\n"
}

/// The memory of a module for a person.
pub(crate) fn memory(info: &ModuleInfo) -> String {
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
