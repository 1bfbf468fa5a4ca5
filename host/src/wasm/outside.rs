//! Reads the sections of a module that say what it imports, exports and declares.

use wasmparser::{ExternalKind, FuncType, Parser, Payload, TypeRef, ValType};

use super::proposals;
use super::text::shown_name;
use crate::frame::abi;
use crate::policy::Limits;
use crate::values::{Blame, Result, Status, StatusCode};

/// Something that a module imports. Names are the module's own: what could not stand in a line or between quotation marks is escaped,
/// and what is longer than 1 KiB is cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportedItem {
    /// The module that it is imported from.
    pub module: String,
    /// Its name there.
    pub name: String,
    /// Its type: `(i32, i32) -> i32` of a function, or `memory`, `table`, `global`, `tag`.
    pub ty: String,
}

/// A function that a module exports. Its name is shown as an imported one is.
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

/// What the sections of a module say of its outside.
#[derive(Default)]
pub(super) struct Outside {
    types: Vec<Option<FuncType>>,
    /// Type indices of all functions, imported ones first.
    functions: Vec<u32>,
    memories: Vec<MemoryBounds>,
    pub(super) imports: Vec<ImportedItem>,
    pub(super) exports: Vec<ExportedFunction>,
    pub(super) memory: Option<MemoryBounds>,
    pub(super) tables: Vec<u64>,
    pub(super) metadata: Option<Vec<u8>>,
}

impl Outside {
    /// Reads a valid module.
    pub(super) fn read(wasm: &[u8], limits: &Limits) -> Result<Self> {
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
                if functions.count() as usize > limits.functions {
                    return Err(Problem::Status(exhausted(format!(
                        "expected at most {} functions, found {}",
                        limits.functions,
                        functions.count()
                    ))));
                }
                for ty in functions {
                    self.functions.push(ty?);
                }
            }
            Payload::CodeSectionEntry(body) => {
                let size = body.range().len();
                if size > limits.function_bytes {
                    return Err(Problem::Status(exhausted(format!(
                        "expected functions of at most {} bytes, found one of {size}",
                        limits.function_bytes
                    ))));
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
            module: shown_name(import.module),
            name: shown_name(import.name),
            ty,
        });
    }

    fn export(&mut self, export: wasmparser::Export<'_>) {
        match export.kind {
            ExternalKind::Func | ExternalKind::FuncExact => {
                let index = self.functions.get(export.index as usize).copied();
                self.exports.push(ExportedFunction {
                    name: shown_name(export.name),
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

pub(super) fn malformed(error: wasmparser::BinaryReaderError) -> Status {
    invalid(format!(
        "expected a valid WebAssembly module: {} at byte {}",
        error.message(),
        error.offset()
    ))
}

pub(super) fn invalid(message: impl Into<String>) -> Status {
    Status::new(StatusCode::InvalidArgument, Blame::Guest, message)
}

pub(super) fn exhausted(message: String) -> Status {
    Status::new(StatusCode::ResourceExhausted, Blame::Guest, message)
}
