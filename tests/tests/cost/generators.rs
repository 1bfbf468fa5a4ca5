//! Modules that are small to write down and expensive to load.

use serde::Deserialize;
use wasm_encoder::{
    BlockType, CompositeInnerType, CompositeType, CustomSection, Elements, EntityType, ExportKind,
    FuncType, GlobalType, InstructionSink, NameSection, RefType, SubType, TableType, ValType,
};

use crate::bodies;
use crate::names;
use crate::pieces::{Piece, join};
use crate::sections::{Sections, TARGET, drop_all, offset};
use crate::wide;

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
    /// `count` types with `values` parameters and results each, all alike or all `distinct`.
    Types {
        count: u32,
        values: u32,
        #[serde(default)]
        distinct: bool,
    },
    /// `functions` functions with a type of `values` parameters, which the host can get hold of.
    Escaping {
        functions: u32,
        values: u32,
        place: wide::Place,
    },
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
    /// A custom section.
    Custom { name: String, data: Vec<Piece> },
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
    /// What each of these adds.
    Several(Vec<Generator>),
    /// The whole module.
    Bytes(Vec<Piece>),
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

/// The custom sections of a module.
#[derive(Default)]
struct Custom {
    sections: Vec<CustomSection<'static>>,
    names: Option<NameSection>,
}

impl Custom {
    fn add(&mut self, name: &str, data: &[Piece]) {
        self.sections.push(CustomSection {
            name: name.to_owned().into(),
            data: join(data).into(),
        });
    }
}

impl Generator {
    /// The module's bytes.
    pub(crate) fn module(&self) -> Vec<u8> {
        if let Self::Bytes(pieces) = self {
            return join(pieces);
        }
        let mut sections = Sections::new();
        let mut custom = Custom::default();
        self.add_to(&mut sections, &mut custom);
        sections.finish(&custom.sections, custom.names.as_ref())
    }

    fn add_to(&self, sections: &mut Sections, custom: &mut Custom) {
        match *self {
            Self::Several(ref all) => {
                for one in all {
                    one.add_to(sections, custom);
                }
            }
            Self::Bytes(_) => panic!("a whole module is no part of another one"),
            Self::Blocks { depth, values } => bodies::blocks(sections, depth, values),
            Self::BranchTables {
                functions,
                targets,
                values,
            } => {
                let block = BlockType::FunctionType(sections.add_type(0, values));
                let ty = sections.add_type(0, 0);
                for _ in 0..functions {
                    bodies::branch_table(sections, ty, block, targets, values);
                }
            }
            Self::Loops { depth, locals } => bodies::loops(sections, depth, locals),
            Self::Row {
                of,
                count,
                functions,
            } => bodies::row(sections, of, count, functions),
            Self::Branches { count, locals } => bodies::branches(sections, count, locals),
            Self::Stack { count, height } => bodies::stack(sections, count, height),
            Self::Calls {
                functions,
                count,
                values,
            } => bodies::calls(sections, functions, count, values),
            Self::Locals { functions, locals } => {
                let ty = sections.add_type(0, 0);
                for _ in 0..functions {
                    sections.add(ty, locals, |_| {});
                }
            }
            Self::Types {
                count,
                values,
                distinct,
            } => wide::types(sections, count, values, distinct),
            Self::Escaping {
                functions,
                values,
                place,
            } => wide::escaping(sections, functions, values, place),
            Self::Globals { count, operators } => globals(sections, count, operators),
            Self::Elements {
                count,
                elements,
                operators,
            } => active_elements(sections, count, elements, operators),
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
                custom.names = Some(names::functions(sections, depth, &name));
            }
            Self::LocalNames {
                functions,
                count,
                bytes,
            } => {
                let name = "n".repeat(bytes as usize);
                custom.names = Some(names::locals(sections, functions, count, &name));
            }
            Self::Metadata(ref data) => custom.add("callbox.targets", data),
            Self::Custom { ref name, ref data } => custom.add(name, data),
            Self::CustomSections { count, bytes, name } => {
                let section = CustomSection {
                    name: "n".repeat(name as usize).into(),
                    data: vec![0; bytes as usize].into(),
                };
                custom.sections.extend(vec![section; count as usize]);
            }
            Self::HostCalls {
                ref function,
                ref arguments,
                results,
                count,
            } => host_calls(sections, function, arguments, results, count),
            Self::Recursion {} => endless(sections, |code| {
                code.local_get(0).call(0).drop();
            }),
            Self::Growth { pages } => endless(sections, |code| {
                code.i32_const(pages).memory_grow(0).drop();
            }),
            Self::Fills { pages, bytes } => endless(sections, |code| {
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
    }
}

fn one() -> u32 {
    1
}

fn name(i: u32, bytes: u32) -> String {
    format!("{i:n>width$}", width = bytes as usize)
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
