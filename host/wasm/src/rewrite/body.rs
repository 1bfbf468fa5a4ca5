//! Rewrites the bodies of functions.

use std::collections::BTreeMap;
use std::ops::Range;

use wasm_encoder::InstructionSink;
use wasmparser::{BinaryReaderError, FunctionBody, Operator};

use super::bulk::{Finder, Operation};
use super::look::{self, GUEST_MEMORY};
use super::paths::{Paths, accesses_memory, has_look};
use super::{helpers, leb128};

/// The bit of a memory access's first byte by which the index of its memory follows the alignment.
const HAS_INDEX: u8 = 0x40;

/// Rewrites the bodies of a module.
pub(super) struct Bodies<'a> {
    wasm: &'a [u8],
    helpers: &'a BTreeMap<Operation, u32>,
    /// The number of imported functions.
    imports: u32,
    look: Vec<u8>,
}

impl<'a> Bodies<'a> {
    pub(super) fn new(wasm: &'a [u8], imports: u32, helpers: &'a BTreeMap<Operation, u32>) -> Self {
        let mut look = Vec::new();
        look::look(&mut InstructionSink::new(&mut look));
        Self {
            wasm,
            helpers,
            imports,
            look,
        }
    }

    /// A body with looks, the memory's new index, and calls of helpers in place of its long
    /// instructions.
    pub(super) fn rewrite(&self, body: &FunctionBody<'_>) -> Result<Vec<u8>, BinaryReaderError> {
        let Range { start, end } = body.range();
        let mut operators = body.get_operators_reader()?;
        let mut written = Vec::with_capacity(2 * (end - start) + self.look.len());
        let mut finder = Finder::default();
        let mut paths = Paths::new(self.imports);
        // After the locals.
        let mut copied = operators.original_position();
        written.extend_from_slice(&self.wasm[start..copied]);
        written.extend_from_slice(&self.look);
        while !operators.eof() {
            let at = operators.original_position();
            let operator = operators.read()?;
            let after = operators.original_position();
            let long = finder.next(&operator);
            let helper = long.and_then(|long| self.helpers.get(&long));
            let change = Change::of(&operator, helper.copied());
            let is_due = paths.next(&operator)?;
            if is_due || change != Change::None {
                written.extend_from_slice(&self.wasm[copied..at]);
                copied = at;
            }
            if is_due {
                written.extend_from_slice(&self.look);
            }
            if change != Change::None {
                self.write(&mut written, &self.wasm[at..after], change);
                copied = after;
            }
        }
        written.extend_from_slice(&self.wasm[copied..end]);
        Ok(written)
    }

    /// Writes an operator, given its bytes.
    fn write(&self, written: &mut Vec<u8>, operator: &[u8], change: Change) {
        match change {
            Change::None => written.extend_from_slice(operator),
            Change::LookAfter => {
                written.extend_from_slice(operator);
                written.extend_from_slice(&self.look);
            }
            Change::LookBefore => {
                written.extend_from_slice(&self.look);
                written.extend_from_slice(operator);
            }
            Change::Access => write_access(written, operator),
            Change::Call(helper) => {
                InstructionSink::new(written).call(helper);
            }
            Change::Size => {
                InstructionSink::new(written).memory_size(GUEST_MEMORY);
            }
            Change::Grow => {
                written.extend_from_slice(&self.look);
                InstructionSink::new(written).memory_grow(GUEST_MEMORY);
            }
            Change::Bulk(operation) => {
                written.extend_from_slice(&self.look);
                helpers::instruction(&mut InstructionSink::new(written), operation);
            }
        }
    }
}

/// The change to an operator.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    None,
    /// The guest looks at the stop word after the operator.
    LookAfter,
    /// The guest looks at the stop word before the operator, which may take longer than others.
    LookBefore,
    /// The index of the memory is added to an access.
    Access,
    Call(u32),
    Size,
    Grow,
    Bulk(Operation),
}

impl Change {
    fn of(operator: &Operator<'_>, helper: Option<u32>) -> Self {
        if let Some(helper) = helper {
            return Self::Call(helper);
        }
        match *operator {
            Operator::Loop { .. } => Self::LookAfter,
            Operator::MemorySize { .. } => Self::Size,
            Operator::MemoryGrow { .. } => Self::Grow,
            Operator::MemoryFill { .. } => Self::Bulk(Operation::Fill),
            Operator::MemoryCopy { .. } => Self::Bulk(Operation::Copy),
            Operator::MemoryInit { data_index, .. } => Self::Bulk(Operation::Init(data_index)),
            _ if accesses_memory(operator) => Self::Access,
            _ if has_look(operator) => Self::LookBefore,
            _ => Self::None,
        }
    }
}

/// Writes a memory access, whose operands are an alignment, an offset and possibly a lane.
fn write_access(written: &mut Vec<u8>, operator: &[u8]) {
    // A prefix precedes the opcode of vector accesses.
    let opcode = match operator {
        [0xfc..=0xfe, rest @ ..] => 1 + leb128_length(rest),
        _ => 1,
    };
    let (opcode, operands) = operator.split_at(opcode.min(operator.len()));
    let (alignment, rest) = operands.split_at(leb128_length(operands));
    written.extend_from_slice(opcode);
    if let [first, more @ ..] = alignment {
        written.push(first | HAS_INDEX);
        written.extend_from_slice(more);
    }
    written.extend(leb128(GUEST_MEMORY));
    written.extend_from_slice(rest);
}

/// The length of the LEB128 number at the beginning, which may be longer than it needs to be.
fn leb128_length(bytes: &[u8]) -> usize {
    let continued = bytes.iter().take_while(|byte| **byte & 0x80 != 0).count();
    (continued + 1).min(bytes.len())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use crate::rewrite::rewrite;

    #[test]
    fn costly_operators_in_a_row_have_looks_between_them() {
        let mut look = Vec::new();
        look::look(&mut InstructionSink::new(&mut look));
        for row in [
            "(drop (ref.func $f))",
            "(drop (table.get (i32.const 0)))",
            "(table.set (i32.const 0) (ref.null func))",
            "(elem.drop $e)",
            "(data.drop $d)",
            "(drop (i32.load (i32.const 0)))",
            "(drop (i32.load (i32.const 0))) (drop (memory.size))",
        ] {
            const COUNT: usize = 640;
            let wasm = wat::parse_str(format!(
                r#"(module (memory 1) (table 1 funcref) (data $d "") (elem $e func $f)
                  (func $f {}))"#,
                row.repeat(COUNT)
            ));
            let rewritten = rewrite(&wasm.unwrap()).unwrap();
            let looks = rewritten.windows(look.len()).filter(|code| *code == look);
            // One at the beginning of the function.
            assert!(looks.count() >= 10, "{row}");
        }
    }
}
