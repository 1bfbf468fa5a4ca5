//! The functions of LAPACK that callbox has.
//!
//! On CPU, JAX lowers linear algebra to custom calls of LAPACK's functions, under names that jaxlib
//! registers: `lapack_spotrf_ffi`. callbox runs these if no module has a target of the name. The
//! functions of eigenvalues and singular values are not among them: their results depend on the
//! order of an iteration.

use callbox_core::values::{ArrayShape, Attribute, Dictionary, ElementType, Result, Shape};

use crate::Opcode;
use crate::instruction::{CustomCall, Transposition, TriangularSolve};
use crate::shape_inference::{count, infer};

/// A function of LAPACK. Matrices are in the last two dimensions; other dimensions are a batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Routine {
    /// `potrf`: the Cholesky factor of one triangle, and the order of the minor that is not
    /// positive, or 0.
    Cholesky { lower: bool },
    /// `trsm`: the solution of triangular systems.
    TriangularSolve(TriangularSolve),
    /// `getrf`: the factors L and U in one matrix, the pivots from 1 on, and the number of the
    /// first pivot that is 0, or 0.
    Lu,
    /// `geqrf`: the factor R with the reflectors below it, and their scales.
    Qr,
    /// `orgqr`, `ungqr`: the product of reflectors.
    HouseholderProduct,
}

/// The function that a custom call names, if callbox has it.
///
/// # Errors
/// INVALID_ARGUMENT if the call has other attributes or shapes than the function.
pub(crate) fn routine(
    call: &CustomCall,
    operands: &[&Shape],
    result: &Shape,
) -> Result<Option<Routine>> {
    let Some((element_type, name)) = parts(&call.target) else {
        return Ok(None);
    };
    let attributes = &call.attributes;
    let routine = match name {
        "potrf" => Routine::Cholesky {
            lower: choice(attributes, "uplo", b"LU")? == 0,
        },
        "trsm" => {
            let transposes = [
                Transposition::None,
                Transposition::Transpose,
                Transposition::Adjoint,
            ];
            Routine::TriangularSolve(TriangularSolve {
                left_side: choice(attributes, "side", b"LR")? == 0,
                lower: choice(attributes, "uplo", b"LU")? == 0,
                unit_diagonal: choice(attributes, "diag", b"UN")? == 0,
                transpose: transposes[choice(attributes, "trans_x", b"NTC")?],
            })
        }
        "getrf" => Routine::Lu,
        "geqrf" => Routine::Qr,
        "orgqr" if !element_type.is_complex() => Routine::HouseholderProduct,
        "ungqr" if element_type.is_complex() => Routine::HouseholderProduct,
        _ => return Ok(None),
    };
    let expected = shape(routine, element_type, operands)?;
    ensure!(
        expected.is_compatible(result),
        "expected the result {expected} of {}, found {result}",
        call.target
    );
    Ok(Some(routine))
}

/// Why a target has no module: it belongs to LAPACK, to Python, or to XLA itself.
pub(crate) fn owner(target: &str) -> Option<&'static str> {
    const OPTIMISED: &str = "it is XLA's own, from text after optimisation: print the program \
                             before optimisation";
    const PYTHON: &str = "it calls back into the Python process that traced the program, which \
                          callbox cannot: take the callback out of the program";
    const LAPACK: &str = "it is LAPACK's, which jaxlib links: callbox has only potrf, trsm, getrf, \
                          geqrf and orgqr, so register a module for it, or take this step out of \
                          the program";
    let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| target.starts_with(prefix));
    if starts(&["lapack_"]) {
        Some(LAPACK)
    } else if starts(&[
        "xla_ffi_python_",
        "xla_python_",
        "xla_ffi_partitioned_python_",
    ]) {
        Some(PYTHON)
    } else if starts(&["__cu", "__gpu$", "__onednn$", "__cpu$", "TopK", "__triton"]) {
        Some(OPTIMISED)
    } else {
        None
    }
}

/// The element type and the function of a name such as `lapack_spotrf_ffi`.
fn parts(target: &str) -> Option<(ElementType, &str)> {
    let name = target.strip_prefix("lapack_")?.strip_suffix("_ffi")?;
    let element_type = match name.as_bytes().first()? {
        b's' => ElementType::F32,
        b'd' => ElementType::F64,
        b'c' => ElementType::C64,
        b'z' => ElementType::C128,
        _ => return None,
    };
    Some((element_type, name.get(1..)?))
}

/// The position of an attribute's letter among those that it may have.
fn choice(attributes: &Dictionary, name: &str, letters: &[u8]) -> Result<usize> {
    let letter = match attributes.get(name) {
        Some(Attribute::Scalar(value)) => value.to_vec::<u8>().ok(),
        _ => None,
    };
    let letter = letter.and_then(|letter| letter.first().copied());
    let position = letters.iter().position(|&other| Some(other) == letter);
    position.ok_or_else(|| {
        let letters = Vec::from_iter(letters.iter().map(|&l| format!("{l} ({})", l as char)));
        let found = match (letter, attributes.contains_key(name)) {
            (Some(letter), _) => letter.to_string(),
            (None, true) => "a value of another type".to_owned(),
            (None, false) => "none".to_owned(),
        };
        invalid!(
            "expected the attribute `{name}`, a u8 among {}, found {found}",
            letters.join(", ")
        )
    })
}

/// The shape of a function's result.
fn shape(routine: Routine, element_type: ElementType, operands: &[&Shape]) -> Result<Shape> {
    let first = operands.first().and_then(|operand| operand.as_array());
    let (matrix, batch, [rows, columns]) = match first.map(|a| (a, a.dimensions())) {
        Some((a, [batch @ .., rows, columns])) if a.element_type() == element_type => {
            (Shape::Array(a.clone()), batch, [*rows, *columns])
        }
        _ => {
            let found = operands.first();
            let found = found.map_or("none".to_owned(), |found| found.to_string());
            return Err(invalid!(
                "expected matrices of {element_type} as operand 0, found {found}"
            ));
        }
    };
    let number = match routine {
        Routine::TriangularSolve(_) | Routine::HouseholderProduct => 2,
        Routine::Cholesky { .. } | Routine::Lu | Routine::Qr => 1,
    };
    ensure!(
        operands.len() == number,
        "expected {}, found {}",
        count(number, "operand"),
        operands.len()
    );
    let array = |t, last: &[usize]| Shape::array(t, &[batch, last].concat());
    let shorter = rows.min(columns);
    let info = array(ElementType::S32, &[]);
    match routine {
        Routine::Cholesky { lower } => {
            infer(&Opcode::Cholesky { lower }, operands, None, &[])?;
            Shape::tuple(vec![matrix, info?])
        }
        Routine::TriangularSolve(to) => infer(&Opcode::TriangularSolve(to), operands, None, &[]),
        Routine::Lu => Shape::tuple(vec![matrix, array(ElementType::S32, &[shorter])?, info?]),
        Routine::Qr => Shape::tuple(vec![matrix, array(element_type, &[shorter])?]),
        Routine::HouseholderProduct => {
            let scales = operands[1];
            let last = |array: &ArrayShape| array.dimensions().last().copied();
            let number = scales.as_array().and_then(last).unwrap_or(0);
            ensure!(
                number <= columns
                    && columns <= rows
                    && array(element_type, &[number])?.is_compatible(scales),
                "expected at most {columns} scales of reflectors for {matrix}, with at most as \
                 many columns as rows, found {scales}"
            );
            Ok(matrix)
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn call(target: &str, attributes: &[(&str, u8)]) -> CustomCall {
        let mut call = CustomCall::new(target);
        let attributes = attributes.iter();
        call.attributes = attributes
            .map(|&(name, letter)| (name.to_owned(), Attribute::scalar(letter)))
            .collect();
        call
    }

    fn found(call: &CustomCall, operands: &[&str], result: &str) -> Result<Option<Routine>> {
        let operands = Vec::from_iter(operands.iter().map(|text| text.parse::<Shape>().unwrap()));
        routine(call, &Vec::from_iter(&operands), &result.parse().unwrap())
    }

    #[test]
    fn names_attributes_and_shapes_are_jaxlibs() {
        let lower = call("lapack_spotrf_ffi", &[("uplo", b'L')]);
        let cholesky = found(&lower, &["f32[2,3,3]"], "(f32[2,3,3], s32[2])").unwrap();
        assert_eq!(cholesky, Some(Routine::Cholesky { lower: true }));
        let lu = call("lapack_zgetrf_ffi", &[]);
        let lu = found(&lu, &["c128[4,3]"], "(c128[4,3], s32[3], s32[])").unwrap();
        assert_eq!(lu, Some(Routine::Lu));
        for target in [
            "lapack_ssyevd_ffi",
            "lapack_cgesdd_ffi",
            "lapack_corgqr_ffi",
            "potrf",
        ] {
            let other = found(&call(target, &[]), &[], "f32[]").unwrap();
            assert_eq!(other, None, "{target}");
        }
    }

    #[test]
    fn a_call_that_does_not_fit_is_refused() {
        let lower = call("lapack_spotrf_ffi", &[("uplo", b'L')]);
        let product = call("lapack_sorgqr_ffi", &[]);
        let letters = "expected the attribute `uplo`, a u8 among 76 (L), 85 (U), found";
        for (call, operands, result, message) in [
            (
                &call("lapack_spotrf_ffi", &[]),
                &["f32[3,3]"][..],
                "f32[]",
                &*format!("{letters} none"),
            ),
            (
                &call("lapack_spotrf_ffi", &[("uplo", b'X')]),
                &["f32[3,3]"],
                "f32[]",
                &format!("{letters} 88"),
            ),
            (
                &lower,
                &["f64[3,3]"],
                "f32[]",
                "expected matrices of f32 as operand 0, found f64[3,3]",
            ),
            (
                &lower,
                &["f32[3,4]"],
                "f32[]",
                "expected square matrices, found f32[3,4]",
            ),
            (
                &lower,
                &["f32[3,3]"],
                "f32[3,3]",
                "expected the result (f32[3,3], s32[]) of lapack_spotrf_ffi, found f32[3,3]",
            ),
            (
                &lower,
                &["f32[3,3]"; 2],
                "f32[]",
                "expected 1 operand, found 2",
            ),
            (
                &product,
                &["f32[4,3]", "f32[4]"],
                "f32[4,3]",
                "expected at most 3 scales of reflectors for f32[4,3], with at most as many \
                 columns as rows, found f32[4]",
            ),
        ] {
            let status = found(call, operands, result).unwrap_err();
            assert_eq!(status.message(), message);
        }
    }
}
