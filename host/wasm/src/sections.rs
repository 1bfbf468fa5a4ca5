//! Collects a module's imports, exports, memories and metadata from its sections.

use std::borrow::Cow;

use wasmparser::{
    BinaryReaderError, CompositeInnerType, Export, ExternalKind, FuncType, Import, MemoryType,
    Payload, SubType, TypeRef, ValType,
};

use callbox_core::policy::Limits;
use callbox_core::untrusted_text::shown_name;
use callbox_core::values::{Result, Status};

use crate::budget::Budget;
use crate::escaping::EscapingWork;
use crate::failure::{exhausted, invalid};
use crate::frame::abi;
use crate::names;
use crate::start_up::StartUpWork;
use crate::types;
use crate::work::FunctionTypes;

/// An import of a module.
///
/// Names come from the module: characters that cannot stand in a line or between quotation marks
/// are escaped, and names longer than 1 KiB are cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportedItem {
    /// The module that it is imported from.
    pub module: String,
    /// Its name there.
    pub name: String,
    /// The type of a function, such as `(i32, i32) -> i32`, or else `memory`, `table`, `global` or
    /// `tag`.
    pub ty: String,
}

impl ImportedItem {
    /// Checks the type. Messages call the import `name`.
    pub(crate) fn check_type(&self, name: &str, expected: &str) -> Result<()> {
        if self.ty != expected {
            return Err(invalid(format!(
                "expected the import {name} of type {expected}, found {}",
                self.ty
            )));
        }
        Ok(())
    }
}

/// A function that a module exports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportedFunction {
    /// Its name, escaped as in [`ImportedItem`].
    pub name: String,
    /// Its type, such as `(i32) -> i32`.
    pub ty: String,
}

/// The size of a memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryBounds {
    /// The initial size.
    pub initial: u64,
    /// The module's own maximum, if it declares one.
    pub maximum: Option<u64>,
}

/// Why a module cannot be read.
pub(crate) enum ReadError {
    /// The module is not valid.
    Invalid(BinaryReaderError),
    /// The module exceeds a limit.
    Refused(Status),
}

impl From<BinaryReaderError> for ReadError {
    fn from(error: BinaryReaderError) -> Self {
        Self::Invalid(error)
    }
}

impl From<Status> for ReadError {
    fn from(status: Status) -> Self {
        Self::Refused(status)
    }
}

impl From<ReadError> for Status {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Invalid(error) => invalid(format!(
                "expected a valid WebAssembly module: {} at byte {}",
                with_name_quoted(error.message()),
                error.offset()
            )),
            ReadError::Refused(status) => status,
        }
    }
}

/// A message of the validator, of which one kind contains a name that ends its quotation marks.
fn with_name_quoted(message: &str) -> Cow<'_, str> {
    let (before, after) = ("duplicate export name `", "` already defined");
    let name = message
        .strip_prefix(before)
        .and_then(|rest| rest.strip_suffix(after));
    name.map_or(message.into(), |name| {
        format!("duplicate export name \"{}\"", shown_name(name)).into()
    })
}

/// The contents of the sections read so far.
pub(crate) struct Sections<'a> {
    limits: &'a Limits,
    pub(crate) types: Vec<SubType>,
    /// The type indices of all functions, imported ones first.
    pub(crate) functions: Vec<u32>,
    imported_functions: u32,
    memories: Vec<MemoryBounds>,
    pub(crate) imports: Vec<ImportedItem>,
    pub(crate) exports: Vec<ExportedFunction>,
    /// The memory exported as `memory`.
    pub(crate) memory: Option<MemoryBounds>,
    /// The initial sizes of the module's own tables.
    pub(crate) tables: Vec<u64>,
    /// Whether an instance begins with a function or with data of the module.
    pub(crate) starts: bool,
    /// Whether it begins with a function.
    pub(crate) has_start: bool,
    /// The bytes of the functions' code.
    pub(crate) code_bytes: usize,
    /// The contents of the section `callbox.targets`.
    pub(crate) metadata: Option<Vec<u8>>,
    /// The number of globals, imported ones included.
    globals: usize,
    /// The number of data and element segments.
    segments: usize,
    /// The bytes of the names of imports and exports.
    interface: usize,
    /// The bytes of the sections of names.
    names: usize,
    start_up: StartUpWork,
    escaping: EscapingWork,
}

impl<'a> Sections<'a> {
    pub(crate) fn new(limits: &'a Limits) -> Self {
        Self {
            limits,
            types: Vec::new(),
            functions: Vec::new(),
            imported_functions: 0,
            memories: Vec::new(),
            imports: Vec::new(),
            exports: Vec::new(),
            memory: None,
            tables: Vec::new(),
            starts: false,
            has_start: false,
            code_bytes: 0,
            metadata: None,
            globals: 0,
            segments: 0,
            interface: 0,
            names: 0,
            start_up: StartUpWork::new(limits),
            escaping: EscapingWork::new(limits),
        }
    }

    /// The bytes that wasmtime takes for an instance beside its memory and tables.
    pub(crate) fn record_bytes(&self) -> u64 {
        const IMPORT: usize = 32;
        const ITEM: usize = 16;
        let items = self.globals + self.tables.len() + self.segments;
        self.escaping.record_bytes() + (self.imports.len() * IMPORT + items * ITEM) as u64
    }

    /// Checks what a section of the file declares, before the validator copies it.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED, blamed on the guest, past a limit; DEADLINE_EXCEEDED past that on time;
    /// INVALID_ARGUMENT for what the validator would take although its proposal is not allowed.
    pub(crate) fn check(
        &mut self,
        payload: &Payload<'_>,
        wasm: &[u8],
        budget: &mut Budget,
    ) -> Result<(), ReadError> {
        self.check_count(payload)?;
        self.start_up.check(payload, wasm, budget)?;
        match payload {
            Payload::TypeSection(types) => types::check(&wasm[types.range()], self.limits)?,
            Payload::ImportSection(imports) => {
                let imports = imports.clone().into_imports();
                // The validator reports an import that cannot be read, and takes exact functions.
                for import in imports.map_while(Result::ok) {
                    if matches!(import.ty, TypeRef::FuncExact(_)) {
                        return Err(no_exact_functions());
                    }
                    self.add_interface(import.module.len() + import.name.len())?;
                }
            }
            Payload::ExportSection(exports) => {
                for export in exports.clone().into_iter().map_while(Result::ok) {
                    if export.kind == ExternalKind::FuncExact {
                        return Err(no_exact_functions());
                    }
                    self.add_interface(export.name.len())?;
                    if export.kind == ExternalKind::Func {
                        self.escaping
                            .add(export.index, &self.functions, &self.types)?;
                    }
                }
            }
            Payload::GlobalSection(globals) => {
                self.start_up.globals(globals.clone())?;
                let globals = globals.clone();
                (self.escaping).globals(globals, &self.functions, &self.types)?;
            }
            Payload::ElementSection(segments) => {
                self.start_up.elements(segments.clone())?;
                let segments = segments.clone();
                (self.escaping).segments(segments, &self.functions, &self.types)?;
            }
            Payload::DataSection(segments) => self.start_up.data_segments(segments.clone())?,
            _ => {}
        }
        Ok(())
    }

    fn check_count(&mut self, payload: &Payload<'_>) -> Result<()> {
        let limits = self.limits;
        match payload {
            Payload::TypeSection(types) => at_most("types", limits.types, types.count()),
            Payload::ImportSection(imports) => at_most("imports", limits.imports, imports.count()),
            Payload::FunctionSection(functions) => {
                at_most("functions", limits.functions, functions.count())
            }
            Payload::GlobalSection(globals) => {
                self.globals += globals.count() as usize;
                at_most("globals", limits.globals, self.globals)
            }
            Payload::ExportSection(exports) => at_most("exports", limits.exports, exports.count()),
            Payload::ElementSection(segments) => self.add_segments(segments.count()),
            Payload::DataSection(segments) => self.add_segments(segments.count()),
            Payload::CodeSectionEntry(body) => self.check_body(body.range().len()),
            Payload::CustomSection(section) if names::names_in(section).is_some() => {
                self.check_names(section.data().len())
            }
            _ => Ok(()),
        }
    }

    fn add_segments(&mut self, count: u32) -> Result<()> {
        self.segments += count as usize;
        self.starts |= count > 0;
        at_most("segments", self.limits.segments, self.segments)
    }

    /// Reads a section that the validator has accepted, so that its size bounds the work.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED, blamed on the guest, past a limit.
    pub(crate) fn read(&mut self, payload: Payload<'_>) -> Result<(), ReadError> {
        match payload {
            Payload::TypeSection(types) => {
                for group in types {
                    self.types.extend(group?.into_types());
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
                    let ty = table?.ty;
                    self.start_up.table(&ty);
                    self.tables.push(ty.initial);
                }
            }
            Payload::MemorySection(memories) => {
                for memory in memories {
                    let memory = bounds(memory?);
                    self.start_up.memory(memory.initial);
                    self.memories.push(memory);
                }
            }
            Payload::ExportSection(exports) => {
                for export in exports {
                    self.export(export?);
                }
            }
            Payload::StartSection { .. } => (self.starts, self.has_start) = (true, true),
            Payload::CodeSectionStart { size, .. } => self.code_bytes = size as usize,
            Payload::CustomSection(section) if section.name() == abi::METADATA_SECTION => {
                self.add_metadata(section.data())?;
            }
            _ => {}
        }
        Ok(())
    }

    fn check_body(&self, size: usize) -> Result<()> {
        let most = self.limits.function_bytes;
        if size > most {
            return Err(exhausted(format!(
                "expected functions of at most {most} bytes (`function_bytes`), found one of {size}"
            )));
        }
        Ok(())
    }

    /// The description, the compiled module and wasmtime's tables have these names once each.
    fn add_interface(&mut self, bytes: usize) -> Result<()> {
        self.interface += bytes;
        let most = self.limits.name_bytes / 8;
        if self.interface > most {
            return Err(exhausted(format!(
                "expected imports and exports with names of at most {most} bytes in all (an eighth of `name_bytes`), found more"
            )));
        }
        Ok(())
    }

    fn check_names(&mut self, size: usize) -> Result<()> {
        self.names += size;
        let most = self.limits.name_bytes;
        if self.names > most {
            return Err(exhausted(format!(
                "expected the section name to have at most {most} bytes (`name_bytes`), found {}",
                self.names
            )));
        }
        Ok(())
    }

    fn add_metadata(&mut self, data: &[u8]) -> Result<()> {
        let metadata = self.metadata.get_or_insert_default();
        let size = metadata.len() + data.len();
        if size > self.limits.metadata_bytes {
            return Err(exhausted(format!(
                "expected the section {} to have at most {} bytes (`metadata_bytes`), found {size}",
                abi::METADATA_SECTION,
                self.limits.metadata_bytes,
            )));
        }
        metadata.extend_from_slice(data);
        Ok(())
    }

    fn import(&mut self, import: Import<'_>) {
        let ty = match import.ty {
            TypeRef::Func(index) | TypeRef::FuncExact(index) => {
                self.functions.push(index);
                self.imported_functions += 1;
                self.type_text(index)
            }
            TypeRef::Memory(memory) => {
                self.memories.push(bounds(memory));
                "memory".to_owned()
            }
            TypeRef::Table(_) => "table".to_owned(),
            TypeRef::Global(_) => {
                self.globals += 1;
                "global".to_owned()
            }
            TypeRef::Tag(_) => "tag".to_owned(),
        };
        self.imports.push(ImportedItem {
            module: shown_name(import.module),
            name: shown_name(import.name),
            ty,
        });
    }

    fn export(&mut self, export: Export<'_>) {
        let index = export.index as usize;
        match export.kind {
            ExternalKind::Func | ExternalKind::FuncExact => {
                let ty = self.functions.get(index);
                self.exports.push(ExportedFunction {
                    name: shown_name(export.name),
                    ty: ty.map_or_else(|| "unknown".to_owned(), |&index| self.type_text(index)),
                });
            }
            ExternalKind::Memory if export.name == "memory" => {
                self.memory = self.memories.get(index).copied();
            }
            _ => {}
        }
    }

    /// A function's type as text of bounded length, because a module can export functions of a type
    /// with a thousand parameters any number of times.
    fn type_text(&self, index: u32) -> String {
        const MOST: usize = 16;
        let Some(ty) = self.types.get(index as usize).and_then(function) else {
            return "unknown".to_owned();
        };
        let (parameters, results) = (ty.params(), ty.results());
        if parameters.len().max(results.len()) > MOST {
            return format!(
                "of {} parameters and {} results",
                parameters.len(),
                results.len()
            );
        }
        let list = |types: &[ValType]| {
            let names: Vec<_> = types.iter().map(ValType::to_string).collect();
            names.join(", ")
        };
        match results {
            [] => format!("({})", list(parameters)),
            [result] => format!("({}) -> {result}", list(parameters)),
            results => format!("({}) -> ({})", list(parameters), list(results)),
        }
    }
}

impl FunctionTypes for Sections<'_> {
    fn ty(&self, index: u32) -> Option<&SubType> {
        self.types.get(index as usize)
    }

    fn type_of(&self, function: u32) -> Option<u32> {
        self.functions.get(function as usize).copied()
    }

    fn imported_functions(&self) -> u32 {
        self.imported_functions
    }

    fn globals(&self) -> usize {
        self.globals
    }
}

fn no_exact_functions() -> ReadError {
    invalid("expected a valid WebAssembly module: exact functions require the custom-descriptors proposal").into()
}

pub(crate) fn function(ty: &SubType) -> Option<&FuncType> {
    match &ty.composite_type.inner {
        CompositeInnerType::Func(ty) => Some(ty),
        _ => None,
    }
}

/// Checks a count against the limit `name`.
pub(crate) fn at_most(name: &str, most: usize, found: impl TryInto<usize>) -> Result<()> {
    let found = found.try_into().unwrap_or(usize::MAX);
    if found > most {
        return Err(exhausted(format!(
            "expected at most {most} {name} (`{name}`), found {found}"
        )));
    }
    Ok(())
}

fn bounds(memory: MemoryType) -> MemoryBounds {
    let page = 1_u64
        .checked_shl(memory.page_size_log2.unwrap_or(16))
        .unwrap_or(u64::MAX);
    MemoryBounds {
        initial: memory.initial.saturating_mul(page),
        maximum: memory.maximum.map(|pages| pages.saturating_mul(page)),
    }
}
