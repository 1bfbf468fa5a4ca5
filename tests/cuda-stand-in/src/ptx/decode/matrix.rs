//! Matrices: `mma`, `ldmatrix`, `stmatrix`.

use super::{Decoded, Mnemonic, Operand, exactly};
use crate::ptx::body::Body;
use crate::ptx::code::{Operation, Slot};
use crate::ptx::matrix::{Element, MatrixKind, MatrixOperation, Product};
use crate::ptx::types::{Space, Type};

pub(super) fn decode(body: &mut Body<'_, '_>, op: &mut Mnemonic, operands: &[Operand]) -> Decoded {
    if !op.takes("sync") || !op.takes("aligned") {
        return Err("`.sync.aligned` is missing".to_owned());
    }
    if op.name == "mma" {
        multiply(body, op, operands)
    } else {
        rows(body, op, operands)
    }
}

/// The elements of a vector, or a single register.
fn elements(operand: &Operand) -> &[Operand] {
    match operand {
        Operand::Vector(elements) => elements,
        single => std::slice::from_ref(single),
    }
}

fn targets(body: &mut Body<'_, '_>, operand: &Operand) -> Result<Box<[Slot]>, String> {
    elements(operand)
        .iter()
        .map(|element| body.target(element))
        .collect()
}

fn multiply(body: &mut Body<'_, '_>, op: &mut Mnemonic, operands: &[Operand]) -> Decoded {
    let clamps = op.takes("satfinite");
    if !op.takes("row") || !op.takes("col") {
        return Err("only `.row.col` is supported".to_owned());
    }
    let mut element = || {
        op.take(Element::from_name)
            .ok_or_else(|| "a type is missing".to_owned())
    };
    let [d, a, b, c] = [element()?, element()?, element()?, element()?];
    let Some([m, n, k]) = op.shape.map(|shape| shape.map(usize::from)) else {
        return Err("a shape such as `.m16n8k16` is missing".to_owned());
    };
    let sum = match (d, c) {
        (Element::F16 | Element::F32 | Element::F64 | Element::S32, _) if d == c => d,
        _ => return Err("the types of C and D must be equal".to_owned()),
    };
    let is_known = match (a, b) {
        (Element::F16, Element::F16) => matches!((m, n, k), (16, 8, 8 | 16)) && sum != Element::S32,
        (Element::Bf16, Element::Bf16) => {
            matches!((m, n, k), (16, 8, 8 | 16)) && sum == Element::F32
        }
        (Element::Tf32, Element::Tf32) => {
            matches!((m, n, k), (16, 8, 4 | 8)) && sum == Element::F32
        }
        (Element::S8 | Element::U8, Element::S8 | Element::U8) => {
            matches!((m, n, k), (8 | 16, 8, 16) | (16, 8, 32)) && sum == Element::S32
        }
        (Element::F64, Element::F64) => (m, n, k) == (8, 8, 4) && sum == Element::F64,
        _ => false,
    };
    if !is_known || (a == Element::F16 && sum == Element::F64) {
        return Err("this shape and these types are not supported".to_owned());
    }
    let product = Product {
        m,
        n,
        k,
        a,
        b,
        sum,
        clamps,
    };
    let [to, rest @ ..] = operands else {
        return Err("operands are missing".to_owned());
    };
    let to = targets(body, to)?;
    let mut from = Vec::new();
    let counts = product.registers();
    if rest.len() != counts.len() || to.len() != counts[2] {
        return Err(format!(
            "{} registers for D, and three more operands, were expected",
            counts[2]
        ));
    }
    for (operand, count) in rest.iter().zip(counts) {
        let elements = elements(operand);
        if elements.len() != count {
            return Err(format!(
                "{count} registers were expected, and {} found",
                elements.len()
            ));
        }
        for element in elements {
            from.push(body.value(element, Type::B64)?);
        }
    }
    Ok(matrix(
        MatrixKind::Multiply(product),
        to,
        from.into_boxed_slice(),
    ))
}

fn matrix(kind: MatrixKind, to: Box<[Slot]>, from: Box<[Slot]>) -> Operation {
    Operation::Matrix(Box::new(MatrixOperation { kind, to, from }))
}

fn rows(body: &mut Body<'_, '_>, op: &mut Mnemonic, operands: &[Operand]) -> Decoded {
    let is_transposed = op.takes("trans");
    let space = op.take(Space::from_name);
    let count = op.take(|part| match part {
        "x1" => Some(1),
        "x2" => Some(2),
        "x4" => Some(4),
        _ => None,
    });
    if op.shape != Some([8, 8, 0]) || !op.takes("b16") {
        return Err("only `.m8n8` and `.b16` are supported".to_owned());
    }
    let [first, second] = exactly(operands)?;
    let is_load = op.name == "ldmatrix";
    let (registers, place) = if is_load {
        (first, second)
    } else {
        (second, first)
    };
    if count != Some(elements(registers).len()) {
        return Err("the number of registers is not that of `.x1`, `.x2` or `.x4`".to_owned());
    }
    let address = body.address(place, space)?;
    if is_load {
        let to = targets(body, registers)?;
        return Ok(matrix(
            MatrixKind::Load {
                address,
                is_transposed,
            },
            to,
            Box::default(),
        ));
    }
    let values = elements(registers)
        .iter()
        .map(|element| body.value(element, Type::B32));
    let from = values.collect::<Result<_, _>>()?;
    Ok(matrix(
        MatrixKind::Store {
            address,
            is_transposed,
        },
        Box::default(),
        from,
    ))
}
