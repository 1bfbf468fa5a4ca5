//! From an instruction's text to an operation: the mnemonic, its operands, and who decodes which.

mod bits;
mod carry;
mod compare;
mod control;
mod convert;
mod float;
mod half;
mod integer;
mod memory;
mod operands;
mod warp;

pub(super) use self::operands::Operand;

use super::body::Body;
use super::code::{Binary, Many, Operation, Slot, Ternary, Unary};
use super::cursor::Cursor;
use super::module::ParseError;
use super::rounding::Rounding;
use super::types::{Type, low_bits};

/// An instruction's name and what stands behind its points. What decodes it takes the parts away, and what nobody took is an error.
pub(super) struct Mnemonic<'a> {
    text: &'a str,
    name: &'a str,
    parts: Vec<&'a str>,
}

impl<'a> Mnemonic<'a> {
    fn new(text: &'a str) -> Self {
        let mut parts = text.split('.');
        Self {
            text,
            name: parts.next().unwrap_or_default(),
            parts: parts.collect(),
        }
    }

    /// Whether it has this part.
    fn takes(&mut self, part: &str) -> bool {
        let found = self.parts.iter().position(|&other| other == part);
        found.map(|at| self.parts.remove(at)).is_some()
    }

    /// The first of its parts that this knows.
    fn take<T>(&mut self, known: impl Fn(&'a str) -> Option<T>) -> Option<T> {
        let (at, value) = self
            .parts
            .iter()
            .enumerate()
            .find_map(|(at, &part)| known(part).map(|value| (at, value)))?;
        self.parts.remove(at);
        Some(value)
    }

    /// The next type.
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

    /// An error about a type that the instruction does not have.
    fn no_type<T>(&self, kind: Type) -> Result<T, String> {
        Err(format!("type {kind:?} is not supported here"))
    }
}

/// What an instruction is decoded to.
type Decoded = Result<Operation, String>;

/// Reads one instruction, whose mnemonic was read.
pub(super) fn instruction<'a>(
    body: &mut Body<'a, '_>,
    cursor: &mut Cursor<'a>,
    text: &'a str,
) -> Result<(), ParseError> {
    let mut mnemonic = Mnemonic::new(text);
    match mnemonic.name {
        "bra" | "brx" => return control::branch(body, cursor, &mut mnemonic),
        "call" => return control::call(body, cursor, &mut mnemonic),
        _ => {}
    }
    let operands = operands::read(body, cursor)?;
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

fn one<'a>(body: &mut Body<'a, '_>, op: &mut Mnemonic<'a>, operands: &[Operand<'a>]) -> Decoded {
    match op.name {
        "ld" | "ldu" | "st" | "atom" | "red" | "cvta" | "isspacep" | "prefetch" | "prefetchu" => {
            memory::decode(body, op, operands)
        }
        "shfl" | "vote" | "activemask" | "match" | "redux" | "bar" | "barrier" => {
            warp::decode(body, op, operands)
        }
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

/// The operands, if there are as many as the instruction has.
fn exactly<'o, 'a, const N: usize>(
    operands: &'o [Operand<'a>],
) -> Result<&'o [Operand<'a>; N], String> {
    operands
        .try_into()
        .map_err(|_| format!("{N} operands were expected, and {} found", operands.len()))
}

fn unary<'a>(
    body: &mut Body<'a, '_>,
    operands: &[Operand<'a>],
    kind: Type,
    function: Unary,
) -> Decoded {
    let [to, from] = exactly(operands)?;
    Ok(Operation::Unary {
        to: body.target(to)?,
        from: body.value(from, kind)?,
        function,
    })
}

fn binary<'a>(
    body: &mut Body<'a, '_>,
    operands: &[Operand<'a>],
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

fn ternary<'a>(
    body: &mut Body<'a, '_>,
    operands: &[Operand<'a>],
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

/// An integer type, as functions over slots take it.
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

/// Evaluates an expression with `$T` the Rust type of an integer type of PTX.
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

/// The mask of a type's bits.
fn all_ones(kind: Type) -> u64 {
    low_bits(u64::MAX, kind.bits())
}
