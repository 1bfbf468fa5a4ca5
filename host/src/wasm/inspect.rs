//! Reads a module's outside: what it imports, exports and declares. Nothing of it is compiled or run.

use sha2::{Digest, Sha256};
use wasmparser::{
    Encoding, ExternalKind, FuncType, Parser, Payload, TypeRef, ValType, Validator, WasmFeatures,
};

use super::api;
use super::limits::Limits;
use super::metadata;
use super::proposals::{self, MAX_TABLES};
use super::text::clean_message;
use crate::call::Signature;
use crate::frame::abi;
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

/// Something that a module imports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportedItem {
    /// The module that it is imported from.
    pub module: String,
    /// Its name there.
    pub name: String,
    /// Its type: `(i32, i32) -> i32` of a function, or `memory`, `table`, `global`, `tag`.
    pub ty: String,
}

/// A function that a module exports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportedFunction {
    /// Its name.
    pub name: String,
    /// Its type: `(i32) -> i32`.
    pub ty: String,
}

/// How large a memory is, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryBounds {
    /// At first.
    pub initial: u64,
    /// At most, if the module says.
    pub maximum: Option<u64>,
}

/// Reads what can be said of a module.
///
/// # Errors
/// As for [`Engine::load`](super::Engine::load), but for what only compiling finds. A module with imports that are not granted is read
/// all the same: [`ModuleInfo::imports`] shows them.
pub fn inspect(wasm: &[u8], limits: &Limits) -> Result<ModuleInfo> {
    read(wasm, limits).map_err(|status| clean_message(status, limits.message_bytes))
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
        Some(bytes) => (metadata::read(bytes, &outside.exports)?, true),
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
    /// Checks that the module imports the FFI API table at most, and that its memory and tables are within the limits.
    ///
    /// # Errors
    /// PERMISSION_DENIED, INVALID_ARGUMENT or RESOURCE_EXHAUSTED, as for [`Engine::load`](super::Engine::load).
    pub fn check(&self, limits: &Limits) -> Result<()> {
        self.check_all(limits)
            .map_err(|status| clean_message(status, limits.message_bytes))
    }

    fn check_all(&self, limits: &Limits) -> Result<()> {
        self.imports.iter().try_for_each(check_import)?;
        self.check_export("_initialize", "()")?;
        self.check_export(abi::REALLOC, REALLOC_TYPE)?;
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

fn check_import(import: &ImportedItem) -> Result<()> {
    let name = format!(
        "\"{}\" \"{}\"",
        import.module.escape_debug(),
        import.name.escape_debug()
    );
    let known = api::FUNCTIONS
        .iter()
        .find(|(function, _)| *function == import.name);
    match (import.module == abi::API_MODULE, known) {
        (true, Some((_, ty))) if import.ty == *ty => Ok(()),
        (true, Some((_, ty))) => Err(invalid(format!(
            "expected the import {name} of type {ty}, found {}",
            import.ty
        ))),
        _ => Err(Status::new(
            StatusCode::PermissionDenied,
            Blame::Guest,
            format!(
                "the import {name} is not granted; granted are version, set-failure, set-success and log of \"{}\"",
                abi::API_MODULE
            ),
        )),
    }
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

/// What the sections of a module say of its outside.
#[derive(Default)]
struct Outside {
    types: Vec<Option<FuncType>>,
    /// Type indices of all functions, imported ones first.
    functions: Vec<u32>,
    memories: Vec<MemoryBounds>,
    imports: Vec<ImportedItem>,
    exports: Vec<ExportedFunction>,
    memory: Option<MemoryBounds>,
    tables: Vec<u64>,
    metadata: Option<Vec<u8>>,
}

impl Outside {
    /// Reads a valid module.
    fn read(wasm: &[u8], limits: &Limits) -> Result<Self> {
        let mut outside = Self::default();
        let mut parser = Parser::new(0);
        parser.set_features(proposals::features());
        for payload in parser.parse_all(wasm) {
            let payload = payload.map_err(malformed)?;
            outside
                .section(payload, limits)
                .map_err(|problem| match problem {
                    Problem::Malformed(error) => malformed(error),
                    Problem::Status(status) => status,
                })?;
        }
        Ok(outside)
    }

    fn section(&mut self, payload: Payload<'_>, limits: &Limits) -> Result<(), Problem> {
        match payload {
            Payload::TypeSection(types) => {
                for group in types {
                    for ty in group?.into_types() {
                        self.types.push(match ty.composite_type.inner {
                            wasmparser::CompositeInnerType::Func(ty) => Some(ty),
                            _ => None,
                        });
                    }
                }
            }
            Payload::ImportSection(imports) => {
                for import in imports.into_imports() {
                    self.import(import?);
                }
            }
            Payload::FunctionSection(functions) => {
                for ty in functions {
                    self.functions.push(ty?);
                }
            }
            Payload::TableSection(tables) => {
                for table in tables {
                    self.tables.push(table?.ty.initial);
                }
            }
            Payload::MemorySection(memories) => {
                for memory in memories {
                    self.memories.push(bounds(memory?));
                }
            }
            Payload::ExportSection(exports) => {
                for export in exports {
                    self.export(export?);
                }
            }
            Payload::CustomSection(section) if section.name() == abi::METADATA_SECTION => {
                let metadata = self.metadata.get_or_insert_default();
                metadata.extend_from_slice(section.data());
                if metadata.len() > limits.metadata_bytes {
                    return Err(Problem::Status(exhausted(format!(
                        "expected the section {} to have at most {} bytes, found {}",
                        abi::METADATA_SECTION,
                        limits.metadata_bytes,
                        metadata.len()
                    ))));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn import(&mut self, import: wasmparser::Import<'_>) {
        let ty = match import.ty {
            TypeRef::Func(index) | TypeRef::FuncExact(index) => {
                self.functions.push(index);
                self.type_text(index)
            }
            TypeRef::Memory(memory) => {
                self.memories.push(bounds(memory));
                "memory".to_owned()
            }
            TypeRef::Table(_) => "table".to_owned(),
            TypeRef::Global(_) => "global".to_owned(),
            TypeRef::Tag(_) => "tag".to_owned(),
        };
        self.imports.push(ImportedItem {
            module: import.module.to_owned(),
            name: import.name.to_owned(),
            ty,
        });
    }

    fn export(&mut self, export: wasmparser::Export<'_>) {
        match export.kind {
            ExternalKind::Func | ExternalKind::FuncExact => {
                let index = self.functions.get(export.index as usize).copied();
                self.exports.push(ExportedFunction {
                    name: export.name.to_owned(),
                    ty: index.map_or_else(|| "unknown".to_owned(), |index| self.type_text(index)),
                });
            }
            ExternalKind::Memory if export.name == "memory" => {
                self.memory = self.memories.get(export.index as usize).copied();
            }
            _ => {}
        }
    }

    /// A function's type, shown to a bounded length: a type of a thousand parameters can be exported any number of times.
    fn type_text(&self, index: u32) -> String {
        const MOST: usize = 16;
        if let Some(Some(ty)) = self.types.get(index as usize)
            && ty.params().len().max(ty.results().len()) > MOST
        {
            return format!(
                "of {} parameters and {} results",
                ty.params().len(),
                ty.results().len()
            );
        }
        let list = |types: &[ValType]| {
            types
                .iter()
                .map(ValType::to_string)
                .collect::<Vec<_>>()
                .join(", ")
        };
        match self.types.get(index as usize) {
            Some(Some(ty)) => match ty.results() {
                [] => format!("({})", list(ty.params())),
                [result] => format!("({}) -> {result}", list(ty.params())),
                results => format!("({}) -> ({})", list(ty.params()), list(results)),
            },
            _ => "unknown".to_owned(),
        }
    }
}

/// What can go wrong with a section.
enum Problem {
    Malformed(wasmparser::BinaryReaderError),
    Status(Status),
}

impl From<wasmparser::BinaryReaderError> for Problem {
    fn from(error: wasmparser::BinaryReaderError) -> Self {
        Self::Malformed(error)
    }
}

fn bounds(memory: wasmparser::MemoryType) -> MemoryBounds {
    let page = 1_u64
        .checked_shl(memory.page_size_log2.unwrap_or(16))
        .unwrap_or(u64::MAX);
    MemoryBounds {
        initial: memory.initial.saturating_mul(page),
        maximum: memory.maximum.map(|pages| pages.saturating_mul(page)),
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

fn malformed(error: wasmparser::BinaryReaderError) -> Status {
    invalid(format!(
        "expected a valid WebAssembly module: {} at byte {}",
        error.message(),
        error.offset()
    ))
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

fn invalid(message: impl Into<String>) -> Status {
    Status::new(StatusCode::InvalidArgument, Blame::Guest, message)
}

fn exhausted(message: String) -> Status {
    Status::new(StatusCode::ResourceExhausted, Blame::Guest, message)
}
