//! The helper functions that replace bulk memory instructions, with the same operands and effect.
//!
//! A short or out-of-bounds operation runs as a single instruction: the latter traps before
//! anything is written. Every other operation is in bounds and cannot trap, so that running it in
//! pieces is not observable. A helper looks at the stop word on entry and before each piece.

use wasm_encoder::{BlockType, Function, InstructionSink};

use super::bulk::{Operation, PIECE};
use super::look::{GUEST_MEMORY, look};

/// The helpers' type `(i32, i32, i32) -> ()`, encoded for the type section.
pub(crate) const TYPE: &[u8] = &[0x60, 3, 0x7f, 0x7f, 0x7f, 0];

// The parameters.
const TO: u32 = 0;
const FROM: u32 = 1;
const LENGTH: u32 = 2;

const PIECE_LENGTH: i32 = PIECE as i32;

pub(crate) fn body(operation: Operation) -> Function {
    let mut function = Function::new([]);
    let mut code = function.instructions();
    look(&mut code);
    unless_long(&mut code, operation);
    match operation {
        Operation::Fill => forwards(&mut code, operation, &[TO]),
        Operation::Init(_) => forwards(&mut code, operation, &[TO, FROM]),
        Operation::Copy => {
            code.local_get(TO).local_get(FROM).i32_gt_u();
            code.if_(BlockType::Empty);
            backwards(&mut code, operation);
            code.else_();
            forwards(&mut code, operation, &[TO, FROM]);
            code.end();
        }
    }
    code.end();
    function
}

/// Runs the instruction and returns, unless it is long and in bounds.
fn unless_long(code: &mut InstructionSink<'_>, operation: Operation) {
    code.block(BlockType::Empty).block(BlockType::Empty);
    code.local_get(LENGTH).i32_const(PIECE_LENGTH);
    code.i32_le_u().br_if(0);
    ends_past_memory(code, TO);
    code.br_if(0);
    match operation {
        Operation::Fill => {}
        Operation::Copy => {
            ends_past_memory(code, FROM);
            code.br_if(0);
        }
        Operation::Init(segment) => {
            // No segment is that long.
            end_of(code, FROM);
            code.i64_const(i64::from(u32::MAX)).i64_gt_u().br_if(0);
            // Only the instruction itself knows whether the segment was dropped. An empty copy from
            // the end of the range traps if the whole copy would.
            code.i32_const(0).local_get(FROM).local_get(LENGTH);
            code.i32_add()
                .i32_const(0)
                .memory_init(GUEST_MEMORY, segment);
        }
    }
    code.br(1).end();
    whole(code, operation);
    code.return_().end();
}

/// Pushes whether the range that begins at a parameter ends past the memory.
fn ends_past_memory(code: &mut InstructionSink<'_>, start: u32) {
    const PAGE_BITS: i64 = 16;
    end_of(code, start);
    code.memory_size(GUEST_MEMORY).i64_extend_i32_u();
    code.i64_const(PAGE_BITS).i64_shl().i64_gt_u();
}

/// Pushes the end of the range that begins at a parameter, as an `i64`.
fn end_of(code: &mut InstructionSink<'_>, start: u32) {
    code.local_get(start).i64_extend_i32_u();
    code.local_get(LENGTH).i64_extend_i32_u().i64_add();
}

/// Runs from the first piece to the last, advancing the parameters `along`.
fn forwards(code: &mut InstructionSink<'_>, operation: Operation, along: &[u32]) {
    code.loop_(BlockType::Empty);
    look(code);
    code.local_get(TO).local_get(FROM).i32_const(PIECE_LENGTH);
    instruction(code, operation);
    for &parameter in along {
        code.local_get(parameter).i32_const(PIECE_LENGTH);
        code.i32_add().local_set(parameter);
    }
    again_while_long(code, |code| {
        code.local_get(LENGTH).i32_const(PIECE_LENGTH);
        code.i32_sub().local_tee(LENGTH);
    });
    whole(code, operation);
}

/// Runs from the last piece to the first: a copy to a higher address would otherwise overwrite its
/// source before reading it.
fn backwards(code: &mut InstructionSink<'_>, operation: Operation) {
    code.loop_(BlockType::Empty);
    look(code);
    code.local_get(LENGTH).i32_const(PIECE_LENGTH);
    code.i32_sub().local_set(LENGTH);
    code.local_get(TO).local_get(LENGTH).i32_add();
    code.local_get(FROM).local_get(LENGTH).i32_add();
    code.i32_const(PIECE_LENGTH);
    instruction(code, operation);
    again_while_long(code, |code| {
        code.local_get(LENGTH);
    });
    whole(code, operation);
}

fn again_while_long(code: &mut InstructionSink<'_>, length: impl Fn(&mut InstructionSink<'_>)) {
    length(code);
    code.i32_const(PIECE_LENGTH).i32_gt_u().br_if(0).end();
}

/// Runs the instruction on the rest.
fn whole(code: &mut InstructionSink<'_>, operation: Operation) {
    code.local_get(TO).local_get(FROM).local_get(LENGTH);
    instruction(code, operation);
}

pub(super) fn instruction(code: &mut InstructionSink<'_>, operation: Operation) {
    match operation {
        Operation::Fill => code.memory_fill(GUEST_MEMORY),
        Operation::Copy => code.memory_copy(GUEST_MEMORY, GUEST_MEMORY),
        Operation::Init(segment) => code.memory_init(GUEST_MEMORY, segment),
    };
}
