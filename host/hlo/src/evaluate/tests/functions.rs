//! Functions of real and complex numbers, compared with exact values.

use num_complex::Complex;

use super::{row, run, to_f64};
use crate::instruction::{BinaryOperation, Opcode, UnaryOperation};
use callbox_core::values::Literal;

/// Made by `testdata/generate.py` with mpmath.
const REFERENCE: &str = include_str!("../testdata/functions.txt");

/// A function's name, the parts of its arguments and of its result, rounded once.
struct Case {
    name: &'static str,
    arguments: Vec<f64>,
    result: Vec<f64>,
}

fn cases() -> impl Iterator<Item = Case> {
    let numbers = |text: &str| {
        let bits = text
            .split_whitespace()
            .map(|x| u64::from_str_radix(x, 16).unwrap());
        bits.map(f64::from_bits).collect()
    };
    REFERENCE.lines().map(move |line| {
        let (call, result) = line.split_once(" = ").unwrap();
        let (name, arguments) = call.split_once(' ').unwrap();
        Case {
            name,
            arguments: numbers(arguments),
            result: numbers(result),
        }
    })
}

impl Case {
    fn is_complex(&self) -> bool {
        self.result.len() == 2 || self.name == "abs"
    }

    fn opcode(&self) -> Opcode {
        use UnaryOperation as U;
        Opcode::Unary(match self.name {
            "abs" => U::Abs,
            "cbrt" => U::Cbrt,
            "cosine" => U::Cosine,
            "erf" => U::Erf,
            "exponential" => U::Exponential,
            "exponential-minus-one" => U::ExponentialMinusOne,
            "log" => U::Log,
            "log-plus-one" => U::LogPlusOne,
            "logistic" => U::Logistic,
            "rsqrt" => U::Rsqrt,
            "sign" => U::Sign,
            "sine" => U::Sine,
            "sqrt" => U::Sqrt,
            "tan" => U::Tan,
            "tanh" => U::Tanh,
            "atan2" => return Opcode::Binary(BinaryOperation::Atan2),
            "divide" => return Opcode::Binary(BinaryOperation::Divide),
            "power" => return Opcode::Binary(BinaryOperation::Power),
            name => panic!("there is no {name}"),
        })
    }

    /// The result's parts in `f64`, computed in this width.
    fn found(&self, bits: u32) -> Vec<f64> {
        let (real, complex) = if bits == 64 {
            ("f64[1]", "c128[1]")
        } else {
            ("f32[1]", "c64[1]")
        };
        let operands = |parts: usize| self.arguments.chunks(parts);
        if !self.is_complex() {
            let operands = operands(1).map(|x| {
                if bits == 64 {
                    row(x)
                } else {
                    row(&[x[0] as f32])
                }
            });
            return to_f64(&run(self.opcode(), real, &operands.collect::<Vec<_>>()));
        }
        let operands = operands(2).map(|z| match bits {
            64 => row(&[Complex::new(z[0], z[1])]),
            _ => row(&[Complex::new(z[0] as f32, z[1] as f32)]),
        });
        let shape = if self.name == "abs" { real } else { complex };
        parts(&run(self.opcode(), shape, &operands.collect::<Vec<_>>()))
    }
}

fn parts(x: &Literal) -> Vec<f64> {
    match x.shape().to_string().as_str() {
        "c128[1]" => x
            .to_vec::<Complex<f64>>()
            .unwrap()
            .iter()
            .flat_map(|z| [z.re, z.im])
            .collect(),
        "c64[1]" => {
            let parts = x.to_vec::<Complex<f32>>().unwrap();
            parts
                .iter()
                .flat_map(|z| [z.re.into(), z.im.into()])
                .collect()
        }
        _ => to_f64(x),
    }
}

/// The error, in units of `f64`'s epsilon relative to the magnitude of the exact result.
fn error(found: &[f64], exact: &[f64], at_least: f64) -> f64 {
    let size = |parts: &[f64]| parts.iter().map(|x| x * x).sum::<f64>().sqrt();
    let difference = std::iter::zip(found, exact)
        .map(|(x, y)| x - y)
        .collect::<Vec<_>>();
    if found == exact {
        0.0
    } else {
        size(&difference) / size(exact).max(at_least) / f64::EPSILON
    }
}

#[test]
fn wide_results_are_off_by_few_units_in_the_last_place() {
    for case in cases() {
        let (at_least, bound) = match (case.name, case.is_complex()) {
            ("atan2", true) => (1.0, 2.0),
            (_, true) => (0.0, 3.0),
            (_, false) => (0.0, 1.0),
        };
        let (found, exact) = (case.found(64), &case.result);
        let (name, arguments) = (case.name, &case.arguments);
        let error = error(&found, exact, at_least);
        assert!(
            error <= bound,
            "{name} {arguments:?}: expected {exact:?}, found {found:?}, off by {error}"
        );
    }
}

/// For arguments of type `f32`, the result in `f64` is rounded once more, to the nearest `f32`.
#[test]
fn narrow_results_are_the_nearest_numbers() {
    let exact_in_f32 = |x: &f64| f64::from(*x as f32) == *x;
    let mut count = 0;
    for case in cases().filter(|case| case.arguments.iter().all(exact_in_f32)) {
        let nearest = case
            .result
            .iter()
            .map(|&x| f64::from(x as f32))
            .collect::<Vec<_>>();
        let found = case.found(32);
        assert_eq!(found, nearest, "{} {:?}", case.name, case.arguments);
        count += 1;
    }
    assert!(count > 80, "{count}");
}
