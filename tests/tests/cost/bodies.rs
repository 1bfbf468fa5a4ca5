//! Functions whose bodies are expensive to compile.

use wasm_encoder::{BlockType, InstructionSink};

use crate::generators::RowOf;
use crate::sections::{Sections, drop_all, push};

pub(crate) fn blocks(sections: &mut Sections, depth: u32, values: u32) {
    let block = BlockType::FunctionType(sections.add_type(0, values));
    let ty = sections.add_type(0, 0);
    sections.add(ty, 0, |code| {
        for _ in 0..depth {
            code.block(block);
        }
        push(code, values);
        code.i32_const(0)
            .br_table((0..depth).collect::<Vec<_>>(), 0);
        for _ in 0..depth {
            code.end();
        }
        drop_all(code, values);
    });
}

pub(crate) fn branch_table(
    sections: &mut Sections,
    ty: u32,
    block: BlockType,
    targets: u32,
    values: u32,
) {
    sections.add(ty, 0, |code| {
        code.block(block);
        push(code, values);
        code.i32_const(0)
            .br_table(vec![0; targets as usize], 0)
            .end();
        drop_all(code, values);
    });
}

pub(crate) fn loops(sections: &mut Sections, depth: u32, locals: u32) {
    let ty = sections.add_type(0, 0);
    sections.add(ty, locals, |code| {
        for _ in 0..depth {
            code.loop_(BlockType::Empty);
        }
        for local in 0..locals {
            code.local_get(local)
                .i32_const(1)
                .i32_add()
                .local_set(local);
        }
        for _ in 0..depth {
            code.local_get(0).br_if(0).end();
        }
    });
}

pub(crate) fn row(sections: &mut Sections, of: RowOf, count: u32, functions: u32) {
    let ty = sections.add_type(0, 0);
    let body = |code: &mut InstructionSink<'_>| {
        for _ in 0..count {
            code.i32_const(0);
            match of {
                RowOf::Loops => code.drop().loop_(BlockType::Empty).end(),
                RowOf::Growth => code.memory_grow(0).drop(),
                RowOf::Fills => code.i32_const(0).i32_const(8).memory_fill(0),
                RowOf::Traps => code.if_(BlockType::Empty).unreachable().end(),
                RowOf::Stores => code.i32_const(1).i32_store(memory_access()),
            };
        }
    };
    for _ in 0..functions {
        sections.add(ty, 0, body);
    }
}

pub(crate) fn branches(sections: &mut Sections, count: u32, locals: u32) {
    let ty = sections.add_type(0, 0);
    sections.add(ty, locals, |code| {
        for local in 0..locals {
            code.i32_const(8).i32_load(memory_access()).local_set(local);
        }
        for i in 0..count {
            code.local_get(i % locals).if_(BlockType::Empty);
            code.i32_const(1).local_set(i % locals).end();
        }
        for local in 0..locals {
            code.i32_const(8)
                .local_get(local)
                .i32_store(memory_access());
        }
    });
}

fn memory_access() -> wasm_encoder::MemArg {
    wasm_encoder::MemArg {
        offset: 0,
        align: 0,
        memory_index: 0,
    }
}

pub(crate) fn stack(sections: &mut Sections, count: u32, height: u32) {
    let ty = sections.add_type(0, 0);
    sections.add(ty, 1, |code| {
        for _ in 0..height {
            code.i32_const(8).i32_load(memory_access());
        }
        for _ in 0..count {
            code.block(BlockType::Empty).local_get(0).br_if(0).end();
        }
        for _ in 1..height {
            code.i32_add();
        }
        code.local_set(0);
    });
}

pub(crate) fn calls(sections: &mut Sections, functions: u32, count: u32, values: u32) {
    let ty = sections.add_type(values, values);
    let callee = sections.add(ty, 0, |code| {
        code.unreachable();
    });
    for _ in 0..functions {
        sections.add(ty, 0, |code| {
            for value in 0..values {
                code.local_get(value);
            }
            for _ in 0..count {
                code.call(callee);
            }
        });
    }
}
