//! Reads a module's outside: what it imports, exports and declares. Nothing of it is compiled or run.

use sha2::{Digest, Sha256};
use wasmparser::{Encoding, Parser, Payload, Validator, WasmFeatures};

use super::metadata;
use super::outside::{
    ExportedFunction, ImportedItem, MemoryBounds, Outside, exhausted, invalid, malformed,
};
use super::proposals::{self, MAX_TABLES};
use super::text::clean_line;
use super::version::FfiVersion;
use super::{api, capabilities};
use crate::call::Signature;
use crate::frame::abi;
use crate::policy::{Grants, Limits};
use crate::values::{Blame, Result, Status, StatusCode};

/// What can be said of a module without running any of it. All of it is the module's claim, checked as far as the ABI
/// goes.
#[derive(Clone, Debug)]
pub struct ModuleInfo {
    /// SHA-256 of the file, in hexadecimal.
    pub sha256: String,
    /// The file's size in bytes.
    pub size: usize,
    /// What it imports.
    pub imports: Vec<ImportedItem>,
    /// The functions that it exports.
    pub exports: Vec<ExportedFunction>,
    /// The memory that it exports as `memory`.
    pub memory: Option<MemoryBounds>,
    /// How many elements each of its tables has at first.
    pub tables: Vec<u64>,
    /// Its targets: what the section `callbox.targets` declares, or else what the exported functions' types allow.
    pub targets: Vec<Signature>,
    /// Whether the targets are declared.
    pub has_metadata: bool,
}

/// Reads what can be said of a module.
///
/// # Errors
/// As for [`Engine::load`](super::Engine::load), but for what only compiling finds. A module with imports that are not granted is read
/// all the same: [`ModuleInfo::imports`] shows them.
pub fn inspect(wasm: &[u8], limits: &Limits) -> Result<ModuleInfo> {
    read(wasm, limits).map_err(|status| clean_line(status, limits.message_bytes))
}

fn read(wasm: &[u8], limits: &Limits) -> Result<ModuleInfo> {
    check_size(wasm, limits)?;
    check_kind(wasm)?;
    // Validated first, with the proposals that are on: what is read below is then bounded by the file's size.
    Validator::new_with_features(proposals::features())
        .validate_all(wasm)
        .map_err(malformed)?;
    let outside = Outside::read(wasm, limits)?;
    let (targets, has_metadata) = match &outside.metadata {
        Some(bytes) => (
            metadata::read(bytes, &outside.exports, limits.metadata_depth)?,
            true,
        ),
        None => (metadata::from_types(&outside.exports), false),
    };
    Ok(ModuleInfo {
        sha256: sha256(wasm),
        size: wasm.len(),
        imports: outside.imports,
        exports: outside.exports,
        memory: outside.memory,
        tables: outside.tables,
        targets,
        has_metadata,
    })
}

impl ModuleInfo {
    /// Checks that the module imports what is granted at most, and that its memory and tables are within the limits.
    ///
    /// # Errors
    /// PERMISSION_DENIED, INVALID_ARGUMENT or RESOURCE_EXHAUSTED, as for [`Engine::load`](super::Engine::load).
    pub fn check(&self, limits: &Limits, grants: &Grants) -> Result<()> {
        self.check_all(limits, grants)
            .map_err(|status| clean_line(status, limits.message_bytes))
    }

    fn check_all(&self, limits: &Limits, grants: &Grants) -> Result<()> {
        let mut imports = self.imports.iter();
        imports.try_for_each(|import| check_import(import, grants))?;
        self.check_export("_initialize", "()")?;
        self.check_export(abi::REALLOC, REALLOC_TYPE)?;
        self.check_export(abi::JAX_FFI_API, "() -> i32")?;
        if self.tables.len() > MAX_TABLES {
            return Err(exhausted(format!(
                "expected at most {MAX_TABLES} table, found {}",
                self.tables.len()
            )));
        }
        if let Some(elements) = self
            .tables
            .iter()
            .find(|&&n| n > limits.table_elements as u64)
        {
            return Err(exhausted(format!(
                "expected a table of at most {} elements, found one of {elements}",
                limits.table_elements
            )));
        }
        match self.memory {
            None => Err(invalid(
                "expected an exported memory named \"memory\", found none",
            )),
            Some(memory) if memory.initial > limits.memory_bytes as u64 => Err(exhausted(format!(
                "expected a memory of at most {} bytes, found one of {}",
                limits.memory_bytes, memory.initial
            ))),
            Some(_) => Ok(()),
        }
    }
}

impl ModuleInfo {
    /// Checks that a function which the host calls, if it is exported, has its type.
    fn check_export(&self, name: &str, ty: &str) -> Result<()> {
        match self.exports.iter().find(|export| export.name == name) {
            Some(export) if export.ty != ty => Err(invalid(format!(
                "expected the export {name:?} to be a function {ty}, found {}",
                export.ty
            ))),
            _ => Ok(()),
        }
    }
}

/// The type of `cabi_realloc`.
const REALLOC_TYPE: &str = "(i32, i32, i32, i32) -> i32";

/// Checks that an import is granted, or of the FFI API table, in a version that this host has.
fn check_import(import: &ImportedItem, grants: &Grants) -> Result<()> {
    let name = format!("\"{}\" \"{}\"", import.module, import.name);
    if let Some(outcome) = capabilities::check_import(import, &name, grants) {
        return outcome;
    }
    let Some(version) = import.module.strip_prefix(abi::API_MODULE) else {
        return Err(not_granted(&name));
    };
    let Some(minor) = (0..=abi::MINOR).find(|&minor| api::module_name(minor) == import.module)
    else {
        return Err(match FfiVersion::parse(version) {
            Some(found) if found > FfiVersion::HOST => found.too_new(&format!("the import {name}")),
            _ => not_granted(&name),
        });
    };
    let mut functions = api::FUNCTIONS.iter();
    match functions.find(|function| function.name == import.name && function.since <= minor) {
        Some(function) if import.ty == function.ty => Ok(()),
        Some(function) => Err(invalid(format!(
            "expected the import {name} of type {}, found {}",
            function.ty, import.ty
        ))),
        None => Err(not_granted(&name)),
    }
}

fn not_granted(name: &str) -> Status {
    let names: Vec<_> = api::FUNCTIONS
        .iter()
        .map(|function| function.name)
        .collect();
    Status::new(
        StatusCode::PermissionDenied,
        Blame::Guest,
        format!(
            "the import {name} is not granted; granted are the functions of \"{}\": {}",
            api::module_name(abi::MINOR),
            names.join(", ")
        ),
    )
}

fn check_size(wasm: &[u8], limits: &Limits) -> Result<()> {
    match wasm.len() <= limits.module_bytes {
        true => Ok(()),
        false => Err(exhausted(format!(
            "expected a module of at most {} bytes, found {}",
            limits.module_bytes,
            wasm.len()
        ))),
    }
}

/// Checks that it is a core module, as far as the first bytes say.
fn check_kind(wasm: &[u8]) -> Result<()> {
    if !wasm.starts_with(b"\0asm") {
        return Err(invalid(format!(
            "expected a WebAssembly module, which starts with \\0asm, found {}",
            beginning(wasm)
        )));
    }
    match Parser::new(0).parse_all(wasm).next() {
        Some(Ok(Payload::Version {
            encoding: Encoding::Component,
            ..
        })) => Err(invalid(
            "expected a core WebAssembly module, found a component; a target is a function of a core module",
        )),
        _ => Ok(()),
    }
}

/// The proposals that engines turn on or off, as far as a core module can need them.
const FEATURES: &[(&str, WasmFeatures)] = &[
    ("mutable-global", WasmFeatures::MUTABLE_GLOBAL),
    ("nontrapping-fptoint", WasmFeatures::SATURATING_FLOAT_TO_INT),
    ("sign-extension", WasmFeatures::SIGN_EXTENSION),
    ("reference-types", WasmFeatures::REFERENCE_TYPES),
    ("multi-value", WasmFeatures::MULTI_VALUE),
    ("bulk-memory", WasmFeatures::BULK_MEMORY),
    ("simd", WasmFeatures::SIMD),
    ("relaxed-simd", WasmFeatures::RELAXED_SIMD),
    ("tail-call", WasmFeatures::TAIL_CALL),
    ("extended-const", WasmFeatures::EXTENDED_CONST),
    ("threads", WasmFeatures::THREADS),
    ("multi-memory", WasmFeatures::MULTI_MEMORY),
    ("memory64", WasmFeatures::MEMORY64),
    ("exceptions", WasmFeatures::EXCEPTIONS),
    ("function-references", WasmFeatures::FUNCTION_REFERENCES),
    ("gc", WasmFeatures::GC),
    ("custom-page-sizes", WasmFeatures::CUSTOM_PAGE_SIZES),
    ("wide-arithmetic", WasmFeatures::WIDE_ARITHMETIC),
];

/// The WebAssembly proposals past version 1 that a module needs: those without which it is not valid. It is validated once for
/// each.
///
/// # Errors
/// INVALID_ARGUMENT, the guest's doing, if it is no valid core module with all of them.
pub fn needed_features(wasm: &[u8]) -> Result<Vec<&'static str>> {
    let all = proposals::features();
    Validator::new_with_features(all)
        .validate_all(wasm)
        .map_err(malformed)?;
    let needed = FEATURES.iter().filter(|(_, feature)| {
        let without = all.difference(*feature);
        Validator::new_with_features(without)
            .validate_all(wasm)
            .is_err()
    });
    Ok(needed.map(|(name, _)| *name).collect())
}

fn beginning(bytes: &[u8]) -> String {
    match bytes {
        [] => "an empty file".to_owned(),
        _ => format!("\"{}\"", bytes[..bytes.len().min(8)].escape_ascii()),
    }
}

pub(super) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}
