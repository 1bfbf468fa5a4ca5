//! The description of a module.

use callbox_core::call::Signature;

use crate::sections::{ExportedFunction, ImportedItem, MemoryBounds};

/// A description of a module, made without running or compiling it.
///
/// All of it is the module's claim, checked as far as the ABI goes.
#[derive(Clone, Debug)]
pub struct ModuleInfo {
    /// SHA-256 of the file, in hexadecimal.
    pub sha256: String,
    /// The file's size in bytes.
    pub size: usize,
    /// The imports.
    pub imports: Vec<ImportedItem>,
    /// The exported functions.
    pub exports: Vec<ExportedFunction>,
    /// The memory that it exports as `memory`.
    pub memory: Option<MemoryBounds>,
    /// The initial number of elements of each of its own tables.
    pub tables: Vec<u64>,
    /// The targets: those that the section `callbox.targets` declares, or else the exported
    /// functions whose types fit a target.
    pub targets: Vec<Signature>,
    /// Whether the targets are declared.
    pub has_metadata: bool,
    /// The WebAssembly proposals past version 1 without which the module would not be valid.
    pub features: Vec<&'static str>,
}
