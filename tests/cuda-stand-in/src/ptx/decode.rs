//! Decodes instructions: splits the mnemonic, reads the operands, and dispatches to the decoders.

mod bits;
mod carry;
mod compare;
mod control;
mod convert;
mod float;
mod half;
mod integer;
mod matrix;
mod memory;
mod operands;
mod warp;

pub(super) use self::half::decode_half;
pub(super) use self::operands::Operand;

use callbox_ptx::ast::{self, Modifier};
use callbox_ptx::instruction_name;

use super::body::Body;
use super::code::{Binary, Many, Operation, Slot, Ternary, Unary};
use super::module::ParseError;
use super::rounding::Rounding;
use super::types::{Type, low_bits};

/// An instruction's name and its suffixes. Decoders remove the suffixes they know; any that remains
/// is an error.
pub(super) struct Mnemonic {
    text: String,
    name: &'static str,
    parts: Vec<&'static str>,
    /// The shape of a matrix.
    shape: Option<[u16; 3]>,
}

impl Mnemonic {
    fn new(instruction: &ast::Instruction) -> Self {
        let mut shapes = instruction
            .modifiers
            .iter()
            .filter_map(|modifier| match modifier {
                Modifier::Shape(shape) => Some(*shape),
                Modifier::Name(_) => None,
            });
        Self {
            text: instruction_name(instruction),
            name: instruction.opcode.name(),
            parts: instruction.names().collect(),
            shape: shapes.next(),
        }
    }

    /// Removes this suffix. Returns whether it was present.
    fn takes(&mut self, part: &str) -> bool {
        let found = self.parts.iter().position(|&other| other == part);
        found.map(|at| self.parts.remove(at)).is_some()
    }

    /// Removes the first suffix that `known` accepts.
    fn take<T>(&mut self, known: impl Fn(&'static str) -> Option<T>) -> Option<T> {
        let (at, value) = self
            .parts
            .iter()
            .enumerate()
            .find_map(|(at, &part)| known(part).map(|value| (at, value)))?;
        self.parts.remove(at);
        Some(value)
    }

    /// Removes the next type.
    fn kind(&mut self) -> Result<Type, String> {
        self.take(Type::from_name)
            .ok_or_else(|| "a type is missing".to_owned())
    }

    fn rounding(&mut self) -> Option<Rounding> {
        self.take(|part| match part {
            "rn" => Some(Rounding::Nearest),
            "rz" => Some(Rounding::Zero),
            "rm" => Some(Rounding::Down),
            "rp" => Some(Rounding::Up),
            _ => None,
        })
    }

    /// Makes an error about a type that the instruction does not support.
    fn no_type<T>(&self, kind: Type) -> Result<T, String> {
        Err(format!("type {kind:?} is not supported here"))
    }
}

/// The result of decoding an instruction.
type Decoded = Result<Operation, String>;

/// Decodes one instruction.
pub(super) fn instruction(
    body: &mut Body<'_, '_>,
    instruction: &ast::Instruction,
) -> Result<(), ParseError> {
    let mut mnemonic = Mnemonic::new(instruction);
    match mnemonic.name {
        "bra" | "brx" => return control::branch(body, &mut mnemonic, &instruction.operands),
        "call" => return control::call(body, &mut mnemonic, &instruction.operands),
        _ => {}
    }
    let operands = match operands::lower(body, &instruction.operands) {
        Ok(operands) => operands,
        Err(message) => return body.fail(message),
    };
    let decoded =
        one(body, &mut mnemonic, &operands).and_then(|operation| match mnemonic.parts.first() {
            None => Ok(operation),
            Some(part) => Err(format!("`.{part}` is not supported here")),
        });
    match decoded {
        Ok(operation) => {
            body.emit(operation);
            Ok(())
        }
        Err(message) => body.fail(format!("`{}`: {message}", mnemonic.text)),
    }
}

fn one(body: &mut Body<'_, '_>, op: &mut Mnemonic, operands: &[Operand]) -> Decoded {
    match op.name {
        "ld" | "ldu" | "st" | "atom" | "red" | "cvta" | "isspacep" | "prefetch" | "prefetchu" => {
            memory::decode(body, op, operands)
        }
        "shfl" | "vote" | "activemask" | "match" | "redux" | "bar" | "barrier" => {
            warp::decode(body, op, operands)
        }
        "mma" | "ldmatrix" | "stmatrix" => matrix::decode(body, op, operands),
        "cp" => memory::copy(body, op, operands),
        "mov" | "ret" | "exit" | "trap" | "brkpt" | "membar" | "fence" | "nanosleep" | "selp"
        | "slct" => control::decode(body, op, operands),
        "setp" | "set" => compare::decode(body, op, operands),
        "cvt" => convert::decode(body, op, operands),
        "addc" | "subc" | "madc" => carry::decode(body, op, operands),
        "add" | "sub" | "mad" if op.parts.contains(&"cc") => carry::decode(body, op, operands),
        "and" | "or" | "xor" | "not" | "cnot" | "shl" | "shr" | "bfe" | "bfi" | "bfind"
        | "brev" | "clz" | "popc" | "prmt" | "lop3" | "shf" | "fns" => {
            bits::decode(body, op, operands)
        }
        "mul24" | "mad24" | "sad" | "rem" | "dp4a" | "dp2a" => integer::decode(body, op, operands),
        "rcp" | "sqrt" | "rsqrt" | "ex2" | "lg2" | "sin" | "cos" | "tanh" | "testp"
        | "copysign" | "fma" | "add" | "sub" | "mul" | "mad" | "div" | "min" | "max" | "abs"
        | "neg" => match op.parts.iter().rev().find_map(|part| Type::from_name(part)) {
            Some(Type::F16 | Type::F16x2 | Type::Bf16 | Type::Bf16x2) => {
                half::decode(body, op, operands)
            }
            Some(Type::F32 | Type::F64) => float::decode(body, op, operands),
            _ => integer::decode(body, op, operands),
        },
        _ => Err("this instruction is not supported".to_owned()),
    }
}

/// Returns the operands, if their number is right.
fn exactly<const N: usize>(operands: &[Operand]) -> Result<&[Operand; N], String> {
    operands
        .try_into()
        .map_err(|_| format!("{N} operands were expected, and {} found", operands.len()))
}

fn unary(body: &mut Body<'_, '_>, operands: &[Operand], kind: Type, function: Unary) -> Decoded {
    let [to, from] = exactly(operands)?;
    Ok(Operation::Unary {
        to: body.target(to)?,
        from: body.value(from, kind)?,
        function,
    })
}

fn binary(
    body: &mut Body<'_, '_>,
    operands: &[Operand],
    kinds: [Type; 2],
    function: Binary,
) -> Decoded {
    let [to, a, b] = exactly(operands)?;
    let from = [body.value(a, kinds[0])?, body.value(b, kinds[1])?];
    Ok(Operation::Binary {
        to: body.target(to)?,
        from,
        function,
    })
}

fn ternary(
    body: &mut Body<'_, '_>,
    operands: &[Operand],
    kinds: [Type; 3],
    function: Ternary,
) -> Decoded {
    let [to, a, b, c] = exactly(operands)?;
    let from = [
        body.value(a, kinds[0])?,
        body.value(b, kinds[1])?,
        body.value(c, kinds[2])?,
    ];
    Ok(Operation::Ternary {
        to: body.target(to)?,
        from,
        function,
    })
}

fn many(to: Vec<Slot>, from: Vec<Slot>, function: Many) -> Operation {
    Operation::Many {
        to: to.into_boxed_slice(),
        from: from.into_boxed_slice(),
        function,
    }
}

/// An integer type of PTX, as operations on slots use it.
trait Integer: Copy + Ord + Send + Sync + 'static {
    fn take(slot: u64) -> Self;
    fn give(self) -> u64;
}

macro_rules! integers {
    ($($signed:ty, $unsigned:ty;)*) => {
        $(
            impl Integer for $signed {
                fn take(slot: u64) -> Self {
                    slot as Self
                }
                fn give(self) -> u64 {
                    u64::from(self as $unsigned)
                }
            }
            impl Integer for $unsigned {
                fn take(slot: u64) -> Self {
                    slot as Self
                }
                fn give(self) -> u64 {
                    u64::from(self)
                }
            }
        )*
    };
}

integers! {
    i16, u16;
    i32, u32;
    i64, u64;
}

/// Evaluates an expression with `$T` as the Rust type of a PTX integer type.
macro_rules! with_integer {
    ($op:expr, $kind:expr, $T:ident => $made:expr) => {
        match $kind {
            Type::S16 => {
                type $T = i16;
                $made
            }
            Type::S32 => {
                type $T = i32;
                $made
            }
            Type::S64 => {
                type $T = i64;
                $made
            }
            Type::U16 | Type::B16 => {
                type $T = u16;
                $made
            }
            Type::U32 | Type::B32 => {
                type $T = u32;
                $made
            }
            Type::U64 | Type::B64 => {
                type $T = u64;
                $made
            }
            other => return $op.no_type(other),
        }
    };
}
use with_integer;

fn of_one<T: Integer>(function: impl Fn(T) -> T + Send + Sync + 'static) -> Unary {
    Box::new(move |a| function(T::take(a)).give())
}

fn of_two<T: Integer>(function: impl Fn(T, T) -> T + Send + Sync + 'static) -> Binary {
    Box::new(move |a, b| function(T::take(a), T::take(b)).give())
}

/// Returns the mask of a type's bits.
fn all_ones(kind: Type) -> u64 {
    low_bits(u64::MAX, kind.bits())
}
