//! Modules that are small to write down and expensive to load.

use serde::Deserialize;
use wasm_encoder::{
    BlockType, CompositeInnerType, CompositeType, CustomSection, Elements, EntityType, ExportKind,
    FuncType, GlobalType, InstructionSink, RefType, SubType, TableType, ValType,
};

use crate::names;
use crate::pieces::{Piece, join};
use crate::sections::{Sections, TARGET, drop_all, offset, push};

/// A generated module: the name of a generator, with its sizes.
///
/// Each module has a memory and a target `f`, which traps if it is called, and otherwise only what
/// its generator adds.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Generator {
    /// `depth` nested blocks of `values` results, which a `br_table` branches to all of.
    Blocks { depth: u32, values: u32 },
    /// In each of `functions` functions, a `br_table` of `targets` targets that carry `values`
    /// values.
    BranchTables {
        functions: u32,
        targets: u32,
        values: u32,
    },
    /// `depth` nested loops around uses of `locals` locals.
    Loops { depth: u32, locals: u32 },
    /// `count` instructions of one kind, one after the other, in each of `functions` functions.
    Row {
        of: RowOf,
        count: u32,
        #[serde(default = "one")]
        functions: u32,
    },
    /// Uses of `locals` locals before and after `count` conditional assignments, one by one.
    Branches { count: u32, locals: u32 },
    /// `height` values on the stack beneath `count` conditional branches, one by one.
    Stack { count: u32, height: u32 },
    /// In each of `functions` functions, `count` calls that pass on `values` values.
    Calls {
        functions: u32,
        count: u32,
        values: u32,
    },
    /// `functions` functions with `locals` locals each, which they do not use.
    Locals { functions: u32, locals: u32 },
    /// `count` types with `values` parameters and results each.
    Types { count: u32, values: u32 },
    /// `functions` functions with a type of `values` parameters, all of them exported.
    Escaping { functions: u32, values: u32 },
    /// `count` globals, each with the value of an expression of `operators` additions.
    Globals { count: u32, operators: u32 },
    /// `count` active element segments with `elements` elements at an offset of `operators`
    /// additions.
    Elements {
        count: u32,
        elements: u32,
        operators: u32,
    },
    /// `count` passive element segments with `elements` elements.
    PassiveElements { count: u32, elements: u32 },
    /// `count` active data segments of one byte at an offset of `operators` additions.
    Data { count: u32, operators: u32 },
    /// A group of `count` types of functions, which no host allows.
    TypeGroup { count: u32 },
    /// A passive data segment of `bytes` bytes.
    PassiveData { bytes: u32 },
    /// `count` exports of the target, with names of `bytes` bytes.
    Exports { count: u32, bytes: u32 },
    /// `count` imports that no host grants, with names of `bytes` bytes.
    Imports { count: u32, bytes: u32 },
    /// `depth` functions that call one another and then trap, each with a name of about `bytes`
    /// bytes. If it is `mangled`, the name is one of Rust's in which each type is a pair of the one
    /// before, so that it expands to many times its length.
    Names {
        depth: u32,
        bytes: u32,
        #[serde(default)]
        mangled: bool,
    },
    /// Names of `bytes` bytes for `count` locals in each of `functions` functions.
    LocalNames {
        functions: u32,
        count: u32,
        bytes: u32,
    },
    /// The section `callbox.targets`.
    Metadata(Vec<Piece>),
    /// `count` custom sections of `bytes` bytes, whose names have `name` bytes.
    CustomSections { count: u32, bytes: u32, name: u32 },
    /// The target calls the host's function `function` `count` times with these arguments.
    HostCalls {
        function: String,
        arguments: Vec<i32>,
        results: u32,
        count: i32,
    },
    /// The target calls itself without an end.
    Recursion {},
    /// The target grows its memory by `pages` pages without an end.
    Growth { pages: i32 },
    /// The target fills `bytes` bytes of its memory, which has `pages` pages, without an end.
    Fills { pages: i32, bytes: i32 },
    /// `count` instructions without an effect in each of `functions` functions.
    Plain { functions: u32, count: u32 },
}

/// The instruction of a [`Generator::Row`].
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RowOf {
    Loops,
    Growth,
    Fills,
    Traps,
    Stores,
}

impl Generator {
    /// The module's bytes.
    pub(crate) fn module(&self) -> Vec<u8> {
        let mut sections = Sections::new();
        match *self {
            Self::Blocks { depth, values } => blocks(&mut sections, depth, values),
            Self::BranchTables {
                functions,
                targets,
                values,
            } => {
                let block = BlockType::FunctionType(sections.add_type(0, values));
                let ty = sections.add_type(0, 0);
                for _ in 0..functions {
                    branch_table(&mut sections, ty, block, targets, values);
                }
            }
            Self::Loops { depth, locals } => loops(&mut sections, depth, locals),
            Self::Row {
                of,
                count,
                functions,
            } => row(&mut sections, of, count, functions),
            Self::Branches { count, locals } => branches(&mut sections, count, locals),
            Self::Stack { count, height } => stack(&mut sections, count, height),
            Self::Calls {
                functions,
                count,
                values,
            } => calls(&mut sections, functions, count, values),
            Self::Locals { functions, locals } => {
                let ty = sections.add_type(0, 0);
                for _ in 0..functions {
                    sections.add(ty, locals, |_| {});
                }
            }
            Self::Types { count, values } => {
                for _ in 0..count {
                    sections.add_type(values, values);
                }
            }
            Self::Escaping { functions, values } => {
                let ty = sections.add_type(values, 0);
                for i in 0..functions {
                    let function = sections.add(ty, 0, |_| {});
                    sections
                        .exports
                        .export(&format!("e{i}"), ExportKind::Func, function);
                }
            }
            Self::Globals { count, operators } => globals(&mut sections, count, operators),
            Self::Elements {
                count,
                elements,
                operators,
            } => active_elements(&mut sections, count, elements, operators),
            Self::PassiveElements { count, elements } => {
                let target = sections.target();
                for _ in 0..count {
                    let functions = vec![target; elements as usize];
                    sections
                        .elements
                        .passive(Elements::Functions(functions.into()));
                }
            }
            Self::Data { count, operators } => {
                for _ in 0..count {
                    sections.data.active(0, &offset(operators), *b"x");
                }
            }
            Self::TypeGroup { count } => {
                let ty = SubType {
                    is_final: true,
                    supertype_idx: None,
                    composite_type: CompositeType {
                        inner: CompositeInnerType::Func(FuncType::new([], [])),
                        shared: false,
                        descriptor: None,
                        describes: None,
                    },
                };
                sections.types.ty().rec(vec![ty; count as usize]);
            }
            Self::PassiveData { bytes } => {
                sections.data.passive(vec![b'x'; bytes as usize]);
            }
            Self::Exports { count, bytes } => {
                let target = sections.target();
                for i in 0..count {
                    sections
                        .exports
                        .export(&name(i, bytes), ExportKind::Func, target);
                }
            }
            Self::Imports { count, bytes } => {
                for i in 0..count {
                    let ty = EntityType::Function(TARGET);
                    sections.imports.import("env", &name(i, bytes), ty);
                    sections.count += 1;
                }
            }
            Self::Names {
                depth,
                bytes,
                mangled,
            } => {
                let name = if mangled {
                    names::expanding(bytes as usize)
                } else {
                    "n".repeat(bytes as usize)
                };
                let names = names::functions(&mut sections, depth, &name);
                return sections.finish(&[], Some(&names));
            }
            Self::LocalNames {
                functions,
                count,
                bytes,
            } => {
                let name = "n".repeat(bytes as usize);
                let names = names::locals(&mut sections, functions, count, &name);
                return sections.finish(&[], Some(&names));
            }
            Self::Metadata(ref pieces) => {
                let section = CustomSection {
                    name: "callbox.targets".into(),
                    data: join(pieces).into(),
                };
                return sections.finish(&[section], None);
            }
            Self::CustomSections { count, bytes, name } => {
                let section = CustomSection {
                    name: "n".repeat(name as usize).into(),
                    data: vec![0; bytes as usize].into(),
                };
                return sections.finish(&vec![section; count as usize], None);
            }
            Self::HostCalls {
                ref function,
                ref arguments,
                results,
                count,
            } => host_calls(&mut sections, function, arguments, results, count),
            Self::Recursion {} => endless(&mut sections, |code| {
                code.local_get(0).call(0).drop();
            }),
            Self::Growth { pages } => endless(&mut sections, |code| {
                code.i32_const(pages).memory_grow(0).drop();
            }),
            Self::Fills { pages, bytes } => endless(&mut sections, |code| {
                code.i32_const(pages).memory_grow(0).drop();
                code.i32_const(0).i32_const(1).i32_const(bytes);
                code.memory_fill(0);
            }),
            Self::Plain { functions, count } => {
                let ty = sections.add_type(0, 0);
                for _ in 0..functions {
                    sections.add(ty, 1, |code| {
                        for _ in 0..count / 4 {
                            code.local_get(0).i32_const(3).i32_mul().local_set(0);
                        }
                    });
                }
            }
        }
        sections.finish(&[], None)
    }
}

fn name(i: u32, bytes: u32) -> String {
    format!("{i:n>width$}", width = bytes as usize)
}

fn blocks(sections: &mut Sections, depth: u32, values: u32) {
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

fn branch_table(sections: &mut Sections, ty: u32, block: BlockType, targets: u32, values: u32) {
    sections.add(ty, 0, |code| {
        code.block(block);
        push(code, values);
        code.i32_const(0)
            .br_table(vec![0; targets as usize], 0)
            .end();
        drop_all(code, values);
    });
}

fn loops(sections: &mut Sections, depth: u32, locals: u32) {
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

fn one() -> u32 {
    1
}

fn row(sections: &mut Sections, of: RowOf, count: u32, functions: u32) {
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

fn branches(sections: &mut Sections, count: u32, locals: u32) {
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

fn stack(sections: &mut Sections, count: u32, height: u32) {
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

fn calls(sections: &mut Sections, functions: u32, count: u32, values: u32) {
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

fn globals(sections: &mut Sections, count: u32, operators: u32) {
    for _ in 0..count {
        let ty = GlobalType {
            val_type: ValType::I32,
            mutable: true,
            shared: false,
        };
        sections.globals.global(ty, &offset(operators));
    }
}

fn active_elements(sections: &mut Sections, count: u32, elements: u32, operators: u32) {
    sections.tables.table(TableType {
        element_type: RefType::FUNCREF,
        table64: false,
        minimum: 60_000,
        maximum: None,
        shared: false,
    });
    let target = sections.target();
    for _ in 0..count {
        let functions = vec![target; elements as usize];
        sections.elements.active(
            None,
            &offset(operators),
            Elements::Functions(functions.into()),
        );
    }
}

/// A target that repeats the code until it traps or is stopped.
fn endless(sections: &mut Sections, body: impl Fn(&mut InstructionSink<'_>)) {
    let target = sections.add(TARGET, 0, |code| {
        code.loop_(BlockType::Empty);
        body(code);
        code.br(0).end().unreachable();
    });
    sections.exports.export("f", ExportKind::Func, target);
}

fn host_calls(
    sections: &mut Sections,
    function: &str,
    arguments: &[i32],
    results: u32,
    count: i32,
) {
    let ty = sections.add_type(arguments.len() as u32, results);
    sections
        .imports
        .import("callbox:ffi/api@1.1.0", function, EntityType::Function(ty));
    sections.count += 1;
    let target = sections.add(TARGET, 1, |code| {
        code.loop_(BlockType::Empty);
        for &argument in arguments {
            code.i32_const(argument);
        }
        code.call(0);
        drop_all(code, results);
        code.local_get(1).i32_const(1).i32_add().local_tee(1);
        code.i32_const(count).i32_lt_u().br_if(0).end().i32_const(0);
    });
    sections.exports.export("f", ExportKind::Func, target);
}
