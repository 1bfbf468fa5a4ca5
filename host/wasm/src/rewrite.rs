//! Rewrites a module before it is compiled, so that the guest can be stopped at any time.
//!
//! - The module imports the *stop memory*, one page in which the host writes a word when the guest
//!   is to stop ([`stop`](crate::stop)). At the head of each loop and at the entry of each function
//!   it looks at that word, and traps if it is set ([`look`]). It also looks after 64 memory
//!   accesses, each of which may fault in a page, after 4,096 other instructions, and behind calls,
//!   on each path through a body ([`paths`]).
//! - wasmtime runs `memory.fill`, `memory.copy` and `memory.init` as one call into the host each:
//!   with a gigabyte the call takes a large part of a second. Such an instruction becomes a call of
//!   a helper function that is appended to the module ([`helpers`]) and does the same work in a
//!   loop over pieces of 64 KiB, with a look at each. One whose length is a small constant stays,
//!   behind a look of its own, as do instructions on tables and the growth of memory.
//!
//! The guest cannot name the stop memory. Its file is validated before it is rewritten, without the
//! proposals for several memories and for shared ones. Imported memories come first: index 0 is the
//! stop memory's, and every index of a memory in the file is raised by one. All other indices stay
//! the same. Backtraces omit the helpers.
//!
//! The only custom section that is kept is that of names, with long ones cut. Others may contain
//! offsets into functions, which would be wrong.
//!
//! The process that compiles also rewrites. The process that runs the guest never has the rewritten
//! module, which can be several times as large as the file.

mod body;
mod bulk;
mod helpers;
mod look;
pub(crate) mod paths;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeMap;

use wasm_encoder::{Encode, Section, SectionId};
use wasmparser::{
    BinaryReader, BinaryReaderError, DataKind, DataSectionReader, ExportSectionReader,
    ExternalKind, FunctionBody, Parser, Payload, TypeRef,
};

use self::body::Bodies;
use self::bulk::{LongOperations, Operation};
use self::look::GUEST_MEMORY;
pub(crate) use self::look::{IMPORT, STOP_BYTE, TRAP};
use crate::names;

/// The sources of the rewriting. Engines take no code that another rewriting has made.
pub(crate) const SOURCES: [&str; 7] = [
    include_str!("rewrite.rs"),
    include_str!("rewrite/body.rs"),
    include_str!("rewrite/bulk.rs"),
    include_str!("rewrite/helpers.rs"),
    include_str!("rewrite/look.rs"),
    include_str!("rewrite/paths.rs"),
    include_str!("names.rs"),
];

const TYPES: u8 = SectionId::Type as u8;
const IMPORTS: u8 = SectionId::Import as u8;
const CODE: u8 = SectionId::Code as u8;

/// The module as it is compiled. The file must be valid within the features that engines
/// [allow](crate::features::allowed).
///
/// # Errors
/// wasmparser's, if the file is not valid.
pub(crate) fn rewrite(wasm: &[u8]) -> Result<Vec<u8>, BinaryReaderError> {
    Rewriter::of(wasm)?.rewrite(wasm)
}

/// The rewriter of a module, which knows the helper functions that the module needs.
struct Rewriter {
    /// The number of the module's types.
    types: u32,
    /// The number of imported functions.
    imports: u32,
    /// The number of functions, imported ones included.
    functions: u32,
    /// The helpers' indices, which follow those of the module's functions.
    helpers: BTreeMap<Operation, u32>,
}

impl Rewriter {
    fn of(wasm: &[u8]) -> Result<Self, BinaryReaderError> {
        let (mut types, mut imports, mut functions) = (0, 0, 0);
        let mut long = LongOperations::default();
        for payload in Parser::new(0).parse_all(wasm) {
            let payload = payload?;
            long.section(&payload)?;
            match &payload {
                Payload::TypeSection(section) => types = section.count(),
                Payload::ImportSection(section) => {
                    for import in section.clone().into_imports() {
                        let ty = import?.ty;
                        let is_function = matches!(ty, TypeRef::Func(_) | TypeRef::FuncExact(_));
                        imports += u32::from(is_function);
                    }
                }
                Payload::FunctionSection(section) => functions = section.count(),
                Payload::CodeSectionEntry(body) => {
                    let mut operators = body.get_operators_reader()?;
                    while !operators.eof() {
                        long.operator(&operators.read()?);
                    }
                }
                _ => {}
            }
        }
        Ok(Self {
            types,
            imports,
            functions: imports + functions,
            helpers: long.into_operations().zip(imports + functions..).collect(),
        })
    }

    fn rewrite(&self, wasm: &[u8]) -> Result<Vec<u8>, BinaryReaderError> {
        let mut module = wasm_encoder::Module::HEADER.to_vec();
        let mut code = Code::new(wasm, self);
        let mut imports_stop = false;
        for payload in Parser::new(0).parse_all(wasm) {
            let payload = payload?;
            match &payload {
                Payload::CodeSectionStart { count, .. } => code.begin(*count, &mut module),
                Payload::CodeSectionEntry(body) => code.add(body, &mut module)?,
                Payload::CustomSection(section) => {
                    if let Some(found) = names::names_in(section) {
                        names::function_names(found, self.functions).append_to(&mut module);
                    }
                    continue;
                }
                _ => {}
            }
            let Some((id, range)) = payload.as_section() else {
                continue;
            };
            if !imports_stop && id != TYPES {
                imports_stop = true;
                if id != IMPORTS {
                    let imports = append(&[0], 1, &stop_import())?;
                    section(&mut module, IMPORTS, &imports);
                }
            }
            if id != CODE {
                section(&mut module, id, &self.section(&payload, &wasm[range])?);
            }
        }
        Ok(module)
    }

    /// The contents of a section other than the code.
    fn section<'a>(
        &self,
        payload: &Payload<'_>,
        data: &'a [u8],
    ) -> Result<Cow<'a, [u8]>, BinaryReaderError> {
        let helpers = self.helpers.len() as u32;
        Ok(Cow::Owned(match payload {
            Payload::TypeSection(_) => append(data, 1, helpers::TYPE)?,
            Payload::ImportSection(_) => append(data, 1, &stop_import())?,
            Payload::FunctionSection(_) => {
                let types = leb128(self.types).repeat(helpers as usize);
                append(data, helpers, &types)?
            }
            Payload::ExportSection(exports) => with_raised_exports(exports)?,
            Payload::DataSection(segments) => with_raised_segments(segments, data)?,
            _ => return Ok(Cow::Borrowed(data)),
        }))
    }
}

/// The code section, which is written in place: it can be several times as large as the file.
struct Code<'a> {
    bodies: Bodies<'a>,
    helpers: &'a BTreeMap<Operation, u32>,
    /// The number of bodies that have not been written.
    left: u32,
    /// The start of the section's contents in the module.
    start: usize,
}

impl<'a> Code<'a> {
    fn new(wasm: &'a [u8], rewriter: &'a Rewriter) -> Self {
        let helpers = &rewriter.helpers;
        Self {
            bodies: Bodies::new(wasm, rewriter.imports, helpers),
            helpers,
            left: 0,
            start: 0,
        }
    }

    /// Begins the section, whose size is not known yet. Without bodies there is none.
    fn begin(&mut self, count: u32, module: &mut Vec<u8>) {
        self.left = count;
        if count > 0 {
            module.push(CODE);
            module.extend(padded_leb128(0));
            self.start = module.len();
            (count + self.helpers.len() as u32).encode(module);
        }
    }

    /// Writes a body, and behind the last one the helpers.
    fn add(
        &mut self,
        body: &FunctionBody<'_>,
        module: &mut Vec<u8>,
    ) -> Result<(), BinaryReaderError> {
        self.bodies.rewrite(body)?.encode(module);
        self.left -= 1;
        if self.left == 0 {
            for &operation in self.helpers.keys() {
                helpers::body(operation).encode(module);
            }
            let size = padded_leb128((module.len() - self.start) as u32);
            module[self.start - size.len()..self.start].copy_from_slice(&size);
        }
        Ok(())
    }
}

/// A number in as many bytes as any number of 32 bits has.
fn padded_leb128(number: u32) -> [u8; 5] {
    std::array::from_fn(|i| {
        let more = if i < 4 { 0x80 } else { 0 };
        (number >> (7 * i)) as u8 & 0x7f | more
    })
}

fn section(module: &mut Vec<u8>, id: u8, data: &[u8]) {
    module.push(id);
    data.encode(module);
}

/// The import of the stop memory, encoded.
fn stop_import() -> Vec<u8> {
    let (module, name) = IMPORT;
    let mut import = Vec::new();
    module.encode(&mut import);
    name.encode(&mut import);
    look::memory().encode(&mut import);
    import
}

/// The export section, where the index of an exported memory is the new one.
fn with_raised_exports(exports: &ExportSectionReader<'_>) -> Result<Vec<u8>, BinaryReaderError> {
    let mut written = leb128(exports.count());
    for export in exports.clone() {
        let export = export?;
        let (kind, index) = match export.kind {
            ExternalKind::Func | ExternalKind::FuncExact => (0, export.index),
            ExternalKind::Table => (1, export.index),
            ExternalKind::Memory => (2, export.index + GUEST_MEMORY),
            ExternalKind::Global => (3, export.index),
            ExternalKind::Tag => (4, export.index),
        };
        export.name.encode(&mut written);
        written.push(kind);
        index.encode(&mut written);
    }
    Ok(written)
}

/// The data section, where active segments name the guest's memory by its new index.
fn with_raised_segments(
    segments: &DataSectionReader<'_>,
    data: &[u8],
) -> Result<Vec<u8>, BinaryReaderError> {
    const ACTIVE_WITH_INDEX: u8 = 2;
    let start = segments.range().start;
    let mut written = Vec::with_capacity(data.len() + segments.count() as usize + 5);
    segments.count().encode(&mut written);
    for segment in segments.clone() {
        let segment = segment?;
        let mut from = segment.range.start;
        if let DataKind::Active {
            memory_index,
            offset_expr,
        } = segment.kind
        {
            written.push(ACTIVE_WITH_INDEX);
            (memory_index + GUEST_MEMORY).encode(&mut written);
            from = offset_expr.get_binary_reader().original_position();
        }
        written.extend_from_slice(&data[from - start..segment.range.end - start]);
    }
    Ok(written)
}

/// A section that is a list, with `more` items appended.
fn append(section: &[u8], more: u32, items: &[u8]) -> Result<Vec<u8>, BinaryReaderError> {
    let mut reader = BinaryReader::new(section, 0);
    let count = reader.read_var_u32()?;
    let old = &section[reader.original_position()..];
    Ok([&leb128(count + more), old, items].concat())
}

fn leb128(number: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    number.encode(&mut bytes);
    bytes
}
