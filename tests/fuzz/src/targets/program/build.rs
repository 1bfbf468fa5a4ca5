//! Builds programs from an input's bytes. Operands mostly have valid shapes; instructions that the
//! builder rejects are skipped.

mod calls;
mod elementwise;
mod movement;
mod transforms;
mod windows;

use arbitrary::{Result, Unstructured};
use callbox::program::{BinaryOperation, Op, Program, ProgramBuilder};
use callbox::{ArrayShape, ElementType, Layout, Literal, Shape, StatusCode};

use crate::generate::{self, dimensions, permutation};
use crate::interpret::Element;

/// A program and its arguments.
pub(super) struct Built {
    /// The program whose result is a tuple of all its values.
    pub(super) whole: Program,
    /// The same program, with the last value as its result.
    pub(super) last: Program,
    pub(super) arguments: Vec<Literal>,
}

/// The maximum number of instructions besides constants.
const MOST: usize = 12;

/// The maximum number of elements of an array that further instructions use.
const MOST_ELEMENTS: usize = 256;

const TYPES: [ElementType; 17] = [
    ElementType::F32,
    ElementType::S32,
    ElementType::Pred,
    ElementType::S8,
    ElementType::S16,
    ElementType::S64,
    ElementType::U8,
    ElementType::U16,
    ElementType::U32,
    ElementType::U64,
    ElementType::S4,
    ElementType::U4,
    ElementType::F16,
    ElementType::Bf16,
    ElementType::F64,
    ElementType::C64,
    ElementType::C128,
];

/// Operations that are exact on integers.
const EXACT: [BinaryOperation; 6] = {
    use BinaryOperation as B;
    [
        B::Add,
        B::Subtract,
        B::Multiply,
        B::Maximum,
        B::Minimum,
        B::Xor,
    ]
};
/// Operations that are exact on integers and whose order does not matter.
const ASSOCIATIVE: [BinaryOperation; 7] = {
    use BinaryOperation as B;
    [
        B::Add,
        B::Multiply,
        B::Maximum,
        B::Minimum,
        B::And,
        B::Or,
        B::Xor,
    ]
};

/// An instruction, or `None` if the builder rejected it.
type Step = Result<Option<Op>>;

struct Building<'u, 'b> {
    u: &'u mut Unstructured<'b>,
    builder: ProgramBuilder,
    /// All values, and the arrays among them that further instructions may use.
    all: Vec<Op>,
    arrays: Vec<(Op, ArrayShape)>,
    arguments: Vec<Literal>,
}

/// Builds a program, unless there are too few bytes.
pub(super) fn program(u: &mut Unstructured<'_>) -> Result<Option<Built>> {
    let kept = u.peek_bytes(u.len()).unwrap_or_default().to_vec();
    let (whole, arguments) = match build(u, true)? {
        Some(built) => built,
        None => return Ok(None),
    };
    let Some((last, _)) = build(&mut Unstructured::new(&kept), false)? else {
        return Ok(None);
    };
    Ok(Some(Built {
        whole,
        last,
        arguments,
    }))
}

fn build(u: &mut Unstructured<'_>, is_whole: bool) -> Result<Option<(Program, Vec<Literal>)>> {
    let mut building = Building {
        u,
        builder: ProgramBuilder::new("main"),
        all: Vec::new(),
        arrays: Vec::new(),
        arguments: Vec::new(),
    };
    for _ in 0..building.u.int_in_range(1..=3)? {
        building.parameter()?;
    }
    for _ in 0..MOST {
        if building.u.is_empty() {
            break;
        }
        let step = building.step()?;
        if let Some(op) = step {
            building.keep(op);
        }
    }
    let Some(&last) = building.all.last() else {
        return Ok(None);
    };
    let mut builder = building.builder;
    let root = if is_whole {
        builder.tuple(&building.all).unwrap()
    } else {
        last
    };
    Ok(Some((builder.build(root).unwrap(), building.arguments)))
}

/// Unwraps the builder's result. A rejection must have one of the codes for wrong arguments.
fn made<T>(made: callbox::Result<T>) -> Option<T> {
    match made {
        Ok(op) => Some(op),
        Err(status) => {
            let codes = [
                StatusCode::InvalidArgument,
                StatusCode::Unimplemented,
                StatusCode::ResourceExhausted,
            ];
            assert!(codes.contains(&status.code()), "{status}");
            None
        }
    }
}

impl Building<'_, '_> {
    fn keep(&mut self, op: Op) {
        self.all.push(op);
        if let Shape::Array(shape) = self.builder.shape(op).unwrap() {
            let is_array = shape.element_type() != ElementType::Token;
            if is_array
                && shape.element_count() <= MOST_ELEMENTS
                && TYPES.contains(&shape.element_type())
            {
                self.arrays.push((op, shape.clone()));
            }
        }
    }

    fn parameter(&mut self) -> Result<()> {
        let element_type = *self.u.choose(&TYPES)?;
        let mut shape = ArrayShape::new(element_type, &dimensions(self.u)?).unwrap();
        if shape.rank() > 1 && self.u.ratio(1, 4)? {
            let layout = permutation(self.u, shape.rank())?;
            shape = shape.with_layout(Layout::new(&layout).unwrap()).unwrap();
        }
        let value = self.value(&shape)?;
        let number = self.arguments.len();
        let op = self.builder.parameter(number, shape.into(), "").unwrap();
        self.arguments.push(value);
        self.keep(op);
        Ok(())
    }

    /// Generates an array of boundary values, small numbers and arbitrary bits.
    fn value(&mut self, shape: &ArrayShape) -> Result<Literal> {
        let t = shape.element_type();
        let mut bytes = Vec::new();
        for _ in 0..shape.element_count() {
            let element = match self.u.int_in_range(0..=7)? {
                0..3 => small(t, self.u.arbitrary()?),
                3 => self.edge(t)?,
                _ => {
                    let raw = generate::bytes(self.u, t.byte_width())?;
                    bytes.extend(raw.into_iter().map(|byte| generate::element_byte(t, byte)));
                    continue;
                }
            };
            bytes.extend(crate::interpret::encode(t, element));
        }
        Ok(Literal::from_bytes(shape.clone(), bytes).unwrap())
    }

    fn edge(&mut self, t: ElementType) -> Result<Element> {
        if t.is_pred() || t.is_integral() {
            let edges = [
                -1,
                0,
                1,
                (1 << (t.bit_width() - 1)) - 1,
                1 << (t.bit_width() - 1),
                (1 << t.bit_width()) - 1,
            ];
            return Ok(Element::Integer(*self.u.choose(&edges)?));
        }
        let edges = [
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            -0.0,
            0.5,
            -1.0,
            1.5,
            2.5,
            1e-45,
            6e-8,
            65504.0,
            3.4e38,
            1e300,
            709.0,
            -104.0,
        ];
        let x = *self.u.choose(&edges)?;
        Ok(if t.is_complex() {
            Element::Complex(num_complex::Complex::new(x, *self.u.choose(&edges)?))
        } else {
            Element::Real(x)
        })
    }

    /// Chooses an existing value.
    fn any(&mut self) -> Result<(Op, ArrayShape)> {
        // Prefer recent values, so that programs become deep.
        let count = self.arrays.len();
        let recent = count.min(4);
        let i = if self.u.ratio(2, 3)? {
            count - 1 - self.u.choose_index(recent)?
        } else {
            self.u.choose_index(count)?
        };
        Ok(self.arrays[i].clone())
    }

    /// Chooses an existing value of this shape, or makes a constant.
    fn same(&mut self, shape: &ArrayShape) -> Result<Op> {
        let fits = self
            .arrays
            .iter()
            .filter(|(_, other)| other.is_compatible(shape));
        let fits: Vec<Op> = fits.map(|(op, _)| *op).collect();
        if fits.is_empty() || self.u.ratio(1, 3)? {
            self.constant(&shape.clone().without_layout())
        } else {
            Ok(*self.u.choose(&fits)?)
        }
    }

    fn constant(&mut self, shape: &ArrayShape) -> Result<Op> {
        let value = self.value(shape)?;
        let op = self.builder.constant(value).unwrap();
        self.all.push(op);
        Ok(op)
    }

    fn scalar(&mut self, t: ElementType) -> Result<Op> {
        self.same(&ArrayShape::scalar(t))
    }

    fn step(&mut self) -> Step {
        match self.u.int_in_range(0..=38)? {
            0 => self.parameter().map(|()| None),
            1..5 => self.unary(),
            5..9 => self.binary(),
            9 => self.compare(),
            10 => self.select(),
            11 => self.clamp(),
            12 => self.reduce_precision(),
            13 => self.convert(),
            14 => self.bits(),
            15 => self.iota(),
            16 => self.broadcast(),
            17 => self.reshape(),
            18 => self.transpose(),
            19 => self.slice(),
            20 => self.dynamic(),
            21 => self.concatenate(),
            22 => self.pad(),
            23 => self.reduce(),
            24 => self.map_or_call(),
            25 => self.dot(),
            26 => self.tuple(),
            27 => self.gather(),
            28 => self.scatter(),
            29 => self.sort(),
            30 => self.top_k(),
            31 => self.reduce_window(),
            32 => self.select_and_scatter(),
            33 => self.convolution(),
            34 => self.fft(),
            35 => self.cholesky(),
            36 => self.triangular_solve(),
            37 => self.random_bits(),
            _ => self.control(),
        }
    }
}

/// Returns whether operations on this type may be rounded in several ways, so that sequences of
/// them diverge.
fn is_rounded(t: ElementType) -> bool {
    t.is_complex() || matches!(t, ElementType::F16 | ElementType::Bf16)
}

fn small(t: ElementType, x: i8) -> Element {
    match t {
        t if t.is_complex() => Element::Complex(num_complex::Complex::new(
            f64::from(x / 16),
            f64::from(x % 16) / 4.0,
        )),
        t if t.is_floating() => Element::Real(f64::from(x) / 8.0),
        _ => Element::Integer((x / 8).into()),
    }
}
