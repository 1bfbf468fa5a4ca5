//! The syntax tree of a PTX module.
//!
//! The tree has no names of registers, labels or scopes: each register, label and variable of a
//! function has an index, whatever scope declared it. Registers are numbered by their first use,
//! labels by their definition, and labels that no branch names are dropped. The printer makes new
//! names from the indices. Of the author's own words, only the names of functions and of the
//! module's variables remain: letters, digits, `_` and `$`.
//!
//! Opcodes and modifiers are constants of the table of instructions ([`crate::table`]). Two trees
//! are equal if they mean the same: lines do not count.

use crate::types::{Space, Type};

pub use crate::special::Special;
pub use crate::table::{Modifier, Opcode};

/// A line of the author's text, from 1. Lines are equal to each other, so that trees of different
/// texts can be compared.
#[derive(Clone, Copy, Debug, Default)]
pub struct Line(pub u32);

impl PartialEq for Line {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Line {}

/// A module: one PTX text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// `.version`, such as (8, 0).
    pub version: (u32, u32),
    /// `.target`.
    pub target: Target,
    /// The variables of the module, outside functions.
    pub variables: Vec<Variable>,
    /// Entries and device functions, in the order of the text. A declaration and its definition
    /// are one function.
    pub functions: Vec<Function>,
}

/// `.target sm_90a`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// 90 for sm_90.
    pub architecture: u32,
    /// `a` for features of this architecture only, `f` for those of its family.
    pub features: Option<Features>,
}

/// The suffix of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Features {
    /// `a`
    Architecture,
    /// `f`
    Family,
}

/// `.visible`, `.extern`, `.weak`, `.common`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Linkage {
    /// None.
    #[default]
    Internal,
    /// `.visible`
    Visible,
    /// `.extern`
    Extern,
    /// `.weak`
    Weak,
    /// `.common`
    Common,
}

/// A variable: of the module, a parameter, or of a function's body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// The name, for a variable of the module. Empty for one of a function.
    pub name: String,
    /// Where it lies: `Global`, `Const`, `Shared`, `Local` or `Param`.
    pub space: Space,
    /// The linkage. Always `Internal` in a function.
    pub linkage: Linkage,
    /// The type of an element.
    pub element: Type,
    /// 1, or 2 and 4 for `.v2` and `.v4`.
    pub vector: u8,
    /// `.align`, a power of two.
    pub align: Option<u32>,
    /// The lengths in brackets. `None` is `[]`, which only the first can be.
    pub dimensions: Vec<Option<u64>>,
    /// `.ptr`, for a parameter that is a pointer.
    pub pointer: Option<Pointer>,
    /// The initial contents.
    pub initial: Option<Initial>,
    /// The line of the declaration.
    pub line: Line,
}

impl Variable {
    /// The work of printing it, in instructions. Numbers of its initial contents take less.
    pub(crate) fn size(&self) -> usize {
        const NUMBERS: usize = 8;
        1 + self.initial.as_ref().map_or(0, Initial::size) / NUMBERS
    }
}

/// `.ptr .global .align 16`: the memory that a parameter points to, as its author says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pointer {
    /// The state space. `Generic` if it is missing.
    pub space: Space,
    /// The alignment.
    pub align: Option<u32>,
}

/// The initial contents of a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Initial {
    /// A number.
    Number(Immediate),
    /// The address of a variable of the module, by its index.
    Address {
        /// The index in [`Module::variables`].
        variable: usize,
        /// `generic(name)`
        is_generic: bool,
        /// A number added to the address.
        addend: i64,
    },
    /// Numbers in braces.
    List(Vec<Initial>),
}

impl Initial {
    fn size(&self) -> usize {
        match self {
            Self::List(list) => 1 + list.iter().map(Self::size).sum::<usize>(),
            Self::Number(_) | Self::Address { .. } => 1,
        }
    }
}

/// An entry (kernel) or a device function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// The name. Only letters, digits, `_` and `$`.
    pub name: String,
    /// Whether it is an `.entry`.
    pub is_entry: bool,
    /// The linkage.
    pub linkage: Linkage,
    /// The results of a device function: the first variables in `variables`.
    pub results: usize,
    /// The parameters: the variables behind the results.
    pub parameters: usize,
    /// `.maxntid` and others.
    pub limits: Limits,
    /// Results, parameters, and the variables of the body.
    pub variables: Vec<Variable>,
    /// The registers that the body uses.
    pub registers: Vec<Register>,
    /// The labels that are defined in the body.
    pub labels: Vec<Label>,
    /// The body. `None` for a declaration.
    pub body: Option<Vec<Statement>>,
    /// The line of the name.
    pub line: Line,
}

/// Limits on a launch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// `.maxntid`: threads in x, y and z.
    pub maxntid: Option<[u32; 3]>,
    /// `.reqntid`
    pub reqntid: Option<[u32; 3]>,
    /// `.minnctapersm`
    pub minnctapersm: Option<u32>,
    /// `.maxnctapersm`
    pub maxnctapersm: Option<u32>,
    /// `.maxnreg`
    pub maxnreg: Option<u32>,
    /// `.noreturn`
    pub is_noreturn: bool,
}

/// A register of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Register {
    /// Its type.
    pub kind: Type,
}

/// A label of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// The line of its definition.
    pub line: Line,
}

/// The index of a register in [`Function::registers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegisterId(pub u32);

/// The index of a label in [`Function::labels`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LabelId(pub u32);

/// A variable that an operand names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum VariableId {
    /// The index in [`Module::variables`].
    Module(u32),
    /// The index in [`Function::variables`].
    Function(u32),
}

impl VariableId {
    /// Returns the variable of a function, or of its module.
    pub fn find<'m>(self, module: &'m Module, function: &'m Function) -> Option<&'m Variable> {
        match self {
            Self::Module(index) => module.variables.get(index as usize),
            Self::Function(index) => function.variables.get(index as usize),
        }
    }
}

/// A statement of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Statement {
    /// `label:`. Each label is defined once.
    Label(LabelId),
    /// An instruction.
    Instruction(Instruction),
}

/// An instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// The line of its opcode.
    pub line: Line,
    /// `@%p` or `@!%p`.
    pub guard: Option<Guard>,
    /// The name before the first point.
    pub opcode: Opcode,
    /// The modifiers, in order: `.global`, `.v4`, `.b32`.
    pub modifiers: Vec<Modifier>,
    /// The operands, in order.
    pub operands: Vec<Operand>,
}

/// The predicate of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guard {
    /// The predicate.
    pub predicate: RegisterId,
    /// `@!`: the instruction runs if the predicate is false.
    pub is_negated: bool,
}

impl Guard {
    pub(crate) fn when(predicate: RegisterId) -> Self {
        Self {
            predicate,
            is_negated: false,
        }
    }

    pub(crate) fn unless(predicate: RegisterId) -> Self {
        Self {
            predicate,
            is_negated: true,
        }
    }
}

/// An operand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operand {
    /// A register.
    Register(RegisterId),
    /// `!%p`
    Not(RegisterId),
    /// A special register, such as `%tid.x`.
    Special(Special),
    /// A number.
    Immediate(Immediate),
    /// The address of a variable: `name` or `name+4`.
    Variable(VariableId, i64),
    /// Memory, in brackets.
    Address(Address),
    /// `{a, b}`. Not nested. A load or a store of one element has none.
    Vector(Vec<Operand>),
    /// `a|b`: a register or `_`, and a predicate.
    Pair(Box<[Operand; 2]>),
    /// `_`
    Discard,
    /// The target of `bra`.
    Label(LabelId),
    /// The targets of `brx.idx`, from its `.branchtargets`.
    Labels(Vec<LabelId>),
    /// The function of `call`, by its index in [`Module::functions`].
    Function(usize),
    /// The results or arguments of `call`: `.param` variables of the body.
    Parameters(Vec<VariableId>),
}

/// `[base+offset]`, and for tensors `[base, {coordinates}]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The register or variable that the offset is added to.
    pub base: Base,
    /// A number of bytes.
    pub offset: i64,
    /// The coordinates in a tensor, for `cp.async.bulk.tensor`.
    pub coordinates: Vec<Operand>,
}

/// The base of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// A register.
    Register(RegisterId),
    /// A variable.
    Variable(VariableId),
    /// An absolute address: the offset alone.
    Nothing,
}

/// A number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Immediate {
    /// An integer of 64 bits, negative ones in two's complement.
    Integer(u64),
    /// `0f` and the eight digits of an f32.
    Single(u32),
    /// `0d` and the sixteen digits of an f64, or a decimal number.
    Double(u64),
}

impl Operand {
    /// Returns the elements of a vector, the parts of a pair, or the operand itself.
    pub fn parts(&self) -> &[Self] {
        match self {
            Self::Vector(parts) => parts,
            Self::Pair(parts) => &parts[..],
            one => std::slice::from_ref(one),
        }
    }
}

impl Instruction {
    /// Returns the modifiers that are names, without their dots.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.modifiers.iter().filter_map(|modifier| match modifier {
            Modifier::Name(name) => Some(*name),
            Modifier::Shape(_) => None,
        })
    }

    /// Returns whether a modifier has this name.
    pub fn has(&self, name: &str) -> bool {
        self.names().any(|known| known == name)
    }

    /// Returns the types among the modifiers, in order.
    pub fn kinds(&self) -> impl Iterator<Item = Type> {
        self.modifiers.iter().filter_map(|modifier| modifier.kind())
    }

    /// Returns the last type among the modifiers: that of the operation, and of the source of a
    /// conversion.
    pub fn kind(&self) -> Option<Type> {
        self.kinds().last()
    }

    /// Returns the number of elements that a load or a store moves: 1, or that of `.v2`, `.v4` and
    /// `.v8`.
    pub fn vector(&self) -> u32 {
        let counts = self.names().map(|name| match name {
            "v2" => 2,
            "v4" => 4,
            "v8" => 8,
            _ => 1,
        });
        counts.max().unwrap_or(1)
    }
}
