//! Bulk memory instructions in pieces, so that a guest can be stopped in the middle of one.
//!
//! wasmtime runs `memory.fill`, `memory.copy` and `memory.init` as one call into the host each, and looks whether to stop only before it: with a
//! gigabyte that is a large part of a second. So before a module is compiled, such an instruction becomes a call of a function that is added
//! behind the module's own ([`helpers`]) and does the very same piece by piece, in a loop. Indices stay what they are; an instruction whose length is
//! a small constant stays, and so does a module that has nothing else.

mod helpers;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use wasm_encoder::{CodeSection, Encode, RawSection};
use wasmparser::{BinaryReader, BinaryReaderError, DataKind, FunctionBody, Operator, Parser};
use wasmparser::{Payload, TypeRef};

/// How many bytes are moved without looking whether to stop. Even where each page has to be made first, that is some 30 µs.
const PIECE: u32 = 64 << 10;

/// A module in which no bulk memory instruction takes long.
pub(super) struct InPieces<'a> {
    pub(super) wasm: Cow<'a, [u8]>,
    /// The functions from this index on are not the guest's.
    pub(super) helpers_from: u32,
}

/// A bulk memory instruction that can take long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Operation {
    Fill,
    Copy,
    /// From this data segment.
    Init(u32),
}

/// Puts bulk memory instructions of a valid module into pieces.
///
/// # Errors
/// If the module is not valid after all.
pub(super) fn in_pieces(wasm: &[u8]) -> Result<InPieces<'_>, BinaryReaderError> {
    let found = Found::read(wasm)?;
    let wasm = match found.helpers.is_empty() {
        true => Cow::Borrowed(wasm),
        false => Cow::Owned(rewrite(wasm, &found)?),
    };
    Ok(InPieces {
        wasm,
        helpers_from: found.functions,
    })
}

/// What a module has, as far as it matters here.
#[derive(Default)]
struct Found {
    types: u32,
    /// Imported ones too.
    functions: u32,
    /// The functions that stand for instructions, in this order.
    helpers: BTreeMap<Operation, u32>,
}

impl Found {
    fn read(wasm: &[u8]) -> Result<Self, BinaryReaderError> {
        let mut found = Self::default();
        let mut long_segments = BTreeSet::new();
        for payload in Parser::new(0).parse_all(wasm) {
            match payload? {
                Payload::TypeSection(types) => {
                    for group in types {
                        found.types += group?.types().len() as u32;
                    }
                }
                Payload::ImportSection(imports) => {
                    for import in imports.into_imports() {
                        let ty = import?.ty;
                        let is_function = matches!(ty, TypeRef::Func(_) | TypeRef::FuncExact(_));
                        found.functions += u32::from(is_function);
                    }
                }
                Payload::FunctionSection(functions) => found.functions += functions.count(),
                Payload::CodeSectionEntry(body) => each_long(&body, |operation, _| {
                    found.helpers.insert(operation, 0);
                })?,
                Payload::DataSection(segments) => {
                    for (index, segment) in (0..).zip(segments) {
                        let segment = segment?;
                        // An active one has no bytes left once anything runs.
                        let is_passive = matches!(segment.kind, DataKind::Passive);
                        if is_passive && segment.data.len() > PIECE as usize {
                            long_segments.insert(index);
                        }
                    }
                }
                _ => {}
            }
        }
        // More than a segment has cannot be asked for: short ones are left as they are.
        found.helpers.retain(|operation, _| match operation {
            Operation::Init(segment) => long_segments.contains(segment),
            _ => true,
        });
        for (helper, index) in found.helpers.values_mut().zip(found.functions..) {
            *helper = index;
        }
        Ok(found)
    }
}

/// Goes through a function's bulk memory instructions that can take long, each with the bytes that it has in the file.
fn each_long(
    body: &FunctionBody<'_>,
    mut visit: impl FnMut(Operation, Range<usize>),
) -> Result<(), BinaryReaderError> {
    let mut reader = body.get_operators_reader()?;
    let mut is_short = false;
    while !reader.eof() {
        let start = reader.original_position();
        let operator = reader.read()?;
        let operation = match operator {
            Operator::MemoryFill { mem: 0 } => Some(Operation::Fill),
            Operator::MemoryCopy {
                dst_mem: 0,
                src_mem: 0,
            } => Some(Operation::Copy),
            Operator::MemoryInit { mem: 0, data_index } => Some(Operation::Init(data_index)),
            _ => None,
        };
        if let Some(operation) = operation.filter(|_| !is_short) {
            visit(operation, start..reader.original_position());
        }
        // What is right before such an instruction pushes its length.
        is_short = matches!(operator, Operator::I32Const { value } if value as u32 <= PIECE);
    }
    Ok(())
}

/// Writes the module anew: all that does not change as it is, byte for byte.
fn rewrite(wasm: &[u8], found: &Found) -> Result<Vec<u8>, BinaryReaderError> {
    const TYPES: u8 = wasm_encoder::SectionId::Type as u8;
    const FUNCTIONS: u8 = wasm_encoder::SectionId::Function as u8;
    const CODE: u8 = wasm_encoder::SectionId::Code as u8;
    let mut module = wasm_encoder::Module::new();
    let mut code = CodeSection::new();
    let mut bodies = 0;
    for payload in Parser::new(0).parse_all(wasm) {
        let payload = payload?;
        if let Payload::CodeSectionStart { count, .. } = payload {
            bodies = count;
        }
        if let Payload::CodeSectionEntry(body) = &payload {
            code.raw(&rewrite_body(wasm, body, found)?);
            bodies -= 1;
            if bodies == 0 {
                for &operation in found.helpers.keys() {
                    code.function(&helpers::body(operation));
                }
                module.section(&code);
            }
        }
        if let Payload::CustomSection(section) = &payload
            && section.name().starts_with("metadata.code.")
        {
            // It speaks of places in functions, which are elsewhere now.
            continue;
        }
        let Some((id, range)) = payload.as_section() else {
            continue;
        };
        let data = &wasm[range];
        let count = found.helpers.len() as u32;
        match id {
            TYPES => raw(&mut module, id, &append(data, 1, helpers::TYPE)?),
            FUNCTIONS => {
                let ty = leb128(found.types);
                raw(
                    &mut module,
                    id,
                    &append(data, count, &ty.repeat(count as usize))?,
                );
            }
            CODE => {}
            _ => raw(&mut module, id, data),
        }
    }
    Ok(module.finish())
}

/// A function's body with calls in place of instructions that can take long.
fn rewrite_body<'a>(
    wasm: &'a [u8],
    body: &FunctionBody<'_>,
    found: &Found,
) -> Result<Cow<'a, [u8]>, BinaryReaderError> {
    const CALL: u8 = 0x10;
    let Range { start, end } = body.range();
    let mut written = Vec::new();
    let mut done = start;
    each_long(body, |operation, range| {
        if let Some(&helper) = found.helpers.get(&operation) {
            written.extend_from_slice(&wasm[done..range.start]);
            written.push(CALL);
            written.extend(leb128(helper));
            done = range.end;
        }
    })?;
    if done == start {
        return Ok(Cow::Borrowed(&wasm[start..end]));
    }
    written.extend_from_slice(&wasm[done..end]);
    Ok(Cow::Owned(written))
}

/// A section that is a list, with more of its items behind.
fn append(section: &[u8], more: u32, items: &[u8]) -> Result<Vec<u8>, BinaryReaderError> {
    let mut reader = BinaryReader::new(section, 0);
    let count = reader.read_var_u32()?;
    let old = &section[reader.original_position()..];
    Ok([&leb128(count + more), old, items].concat())
}

fn raw(module: &mut wasm_encoder::Module, id: u8, data: &[u8]) {
    module.section(&RawSection { id, data });
}

fn leb128(number: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    number.encode(&mut bytes);
    bytes
}
