//! The functions that bulk memory instructions become. Each takes what the instruction takes, and does what it does.
//!
//! What is short, or reaches past an end, runs as the very instruction: in the second case it traps before anything is written, as it should.
//! All else is in bounds and cannot trap any more, so that nobody can tell that it is done in pieces.

use wasm_encoder::{BlockType, Function, InstructionSink};

use super::{Operation, PIECE};

/// `(i32, i32, i32) -> ()`, as in the type section.
pub(super) const TYPE: &[u8] = &[0x60, 3, 0x7f, 0x7f, 0x7f, 0];

/// The parameters.
const TO: u32 = 0;
const FROM: u32 = 1;
const LENGTH: u32 = 2;

const PIECE_LENGTH: i32 = PIECE as i32;

pub(super) fn body(operation: Operation) -> Function {
    let mut function = Function::new([]);
    let mut code = function.instructions();
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

/// Runs the instruction as it is, and returns, unless it is long and in bounds.
fn unless_long(code: &mut InstructionSink<'_>, operation: Operation) {
    code.block(BlockType::Empty).block(BlockType::Empty);
    code.local_get(LENGTH).i32_const(PIECE_LENGTH);
    code.i32_le_u().br_if(0);
    past_memory(code, TO);
    code.br_if(0);
    match operation {
        Operation::Fill => {}
        Operation::Copy => {
            past_memory(code, FROM);
            code.br_if(0);
        }
        Operation::Init(segment) => {
            // No segment is so long.
            end_of(code, FROM);
            code.i64_const(i64::from(u32::MAX)).i64_gt_u().br_if(0);
            // Only the instruction knows whether the segment was dropped. With no bytes it traps as it would with all of them, if its
            // beginning is where their end is.
            code.i32_const(0).local_get(FROM).local_get(LENGTH);
            code.i32_add().i32_const(0).memory_init(0, segment);
        }
    }
    code.br(1).end();
    whole(code, operation);
    code.return_().end();
}

/// Whether what begins at a parameter ends past the memory.
fn past_memory(code: &mut InstructionSink<'_>, start: u32) {
    const PAGE_BITS: i64 = 16;
    end_of(code, start);
    code.memory_size(0).i64_extend_i32_u();
    code.i64_const(PAGE_BITS).i64_shl().i64_gt_u();
}

/// Where what begins at a parameter ends, in 64 bits.
fn end_of(code: &mut InstructionSink<'_>, start: u32) {
    code.local_get(start).i64_extend_i32_u();
    code.local_get(LENGTH).i64_extend_i32_u().i64_add();
}

/// From the first piece to the last, with these parameters going along.
fn forwards(code: &mut InstructionSink<'_>, operation: Operation, along: &[u32]) {
    code.loop_(BlockType::Empty);
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

/// From the last piece to the first: for a copy to behind its source, which it would else overwrite before it is read.
fn backwards(code: &mut InstructionSink<'_>, operation: Operation) {
    code.loop_(BlockType::Empty);
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

/// The instruction with all that is left.
fn whole(code: &mut InstructionSink<'_>, operation: Operation) {
    code.local_get(TO).local_get(FROM).local_get(LENGTH);
    instruction(code, operation);
}

fn instruction(code: &mut InstructionSink<'_>, operation: Operation) {
    match operation {
        Operation::Fill => code.memory_fill(0),
        Operation::Copy => code.memory_copy(0, 0),
        Operation::Init(segment) => code.memory_init(0, segment),
    };
}
