//! Fourier transforms, the largest elements, and random bits.

use super::{arrays, declaration};
use crate::instruction::Domain;
use crate::{FftKind, RandomAlgorithm};
use callbox_core::values::{ArrayShape, ElementType, Result, Shape, Status};

/// XLA's `InferFftShape`.
pub(super) fn fft(kind: FftKind, length: &[usize], operands: &[&Shape]) -> Result<Shape> {
    let [operand] = arrays(operands)?;
    ensure!(
        (1..=3).contains(&length.len()) && length.len() <= operand.rank(),
        "expected the lengths of 1 to 3 dimensions of {operand}, found {}",
        length.len()
    );
    let to = element_type(kind, operand)?;
    let last = length.len() - 1;
    let half = match length[last] {
        0 => 0,
        whole => whole / 2 + 1,
    };
    let first = operand.rank() - length.len();
    let mut result = operand.dimensions().to_vec();
    for (i, &length) in length.iter().enumerate() {
        let (from, to) = match kind {
            FftKind::RealForward if i == last => (length, half),
            FftKind::RealInverse if i == last => (half, length),
            _ => (length, length),
        };
        ensure!(
            operand.dimensions()[first + i] == from,
            "expected {from} elements in dimension {} of {operand} for a transform of length \
             {length}",
            first + i
        );
        result[first + i] = to;
    }
    Shape::array(to, &result)
}

/// The element type of a transform's result.
fn element_type(kind: FftKind, operand: &ArrayShape) -> Result<ElementType> {
    use ElementType::{C64, C128, F32, F64};
    let from = operand.element_type();
    let (expected, to) = match (kind, from) {
        (FftKind::RealForward, F32) => ("", C64),
        (FftKind::RealForward, F64) => ("", C128),
        (FftKind::RealForward, _) => ("f32 or f64", from),
        (FftKind::RealInverse, C64) => ("", F32),
        (FftKind::RealInverse, C128) => ("", F64),
        (_, C64 | C128) => ("", from),
        _ => ("c64 or c128", from),
    };
    ensure!(
        expected.is_empty(),
        "expected elements of {expected} for {kind}, found {operand}"
    );
    Ok(to)
}

/// XLA's `InferTopKShape`.
pub(super) fn top_k(k: usize, operands: &[&Shape]) -> Result<Shape> {
    let [operand] = arrays(operands)?;
    Domain::Ordered.check(operand)?;
    let Some((&last, others)) = operand.dimensions().split_last() else {
        return Err(invalid!(
            "expected an array with dimensions, found {operand}"
        ));
    };
    ensure!(
        k <= last,
        "expected a k of at most {last} for {operand}, found {k}"
    );
    let dimensions = [others, &[k]].concat();
    Shape::tuple(vec![
        Shape::array(operand.element_type(), &dimensions)?,
        Shape::array(ElementType::S32, &dimensions)?,
    ])
}

/// The declared shape, if it is a state like the operand's and an array of integers: the checks of
/// XLA's `RngBitGeneratorExpander`.
pub(super) fn random_bits(
    algorithm: RandomAlgorithm,
    operands: &[&Shape],
    declared: Option<&Shape>,
) -> Result<Shape> {
    let [state] = arrays(operands)?;
    let declared = declaration(declared)?;
    let sizes: &[usize] = match algorithm {
        RandomAlgorithm::ThreeFry => &[2],
        RandomAlgorithm::Default | RandomAlgorithm::Philox => &[2, 3],
    };
    let size = match state.dimensions() {
        [size] if state.element_type() == ElementType::U64 => Some(*size),
        _ => None,
    };
    ensure!(
        size.is_some_and(|size| sizes.contains(&size)),
        "expected a state of {} for {algorithm}, found {state}",
        if sizes.len() == 1 {
            "u64[2]"
        } else {
            "u64[2] or u64[3]"
        }
    );
    let Some([new_state, bits]) = declared.as_tuple() else {
        return Err(invalid!(
            "expected a result of a state and an array, found {declared}"
        ));
    };
    ensure!(
        new_state.is_compatible(operands[0]),
        "expected a result with a state like the operand {state}, found {new_state}"
    );
    let bits = super::array(bits);
    let bits = bits.ok_or_else(|| invalid!("expected an array of bits, found {declared}"))?;
    let t = bits.element_type();
    if !t.is_integral() || t.bit_width() < 8 {
        return Err(Status::unimplemented(format!(
            "random bits in {bits} are not supported; callbox gives integers of 8 bits and more"
        )));
    }
    Ok(declared.clone())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, check_declared, refused, refused_declared};
    use crate::{FftKind, Opcode, RandomAlgorithm};
    use callbox_core::StatusCode::{InvalidArgument, Unimplemented};

    fn fft(kind: FftKind, length: &[usize]) -> Opcode {
        let length = length.to_vec();
        Opcode::Fft { kind, length }
    }

    #[test]
    fn transforms_have_half_a_spectrum_of_real_numbers() {
        check(&fft(FftKind::Forward, &[4]), &["c64[3,4]"], "c64[3,4]");
        check(&fft(FftKind::Inverse, &[3, 4]), &["c128[3,4]"], "c128[3,4]");
        check(&fft(FftKind::RealForward, &[4]), &["f32[3,4]"], "c64[3,3]");
        check(
            &fft(FftKind::RealForward, &[3, 5]),
            &["f64[3,5]"],
            "c128[3,3]",
        );
        check(&fft(FftKind::RealInverse, &[5]), &["c64[3,3]"], "f32[3,5]");
        check(&fft(FftKind::RealForward, &[0]), &["f32[0]"], "c64[0]");
    }

    #[test]
    fn lengths_and_types_fit_the_operand() {
        let lengths = "expected the lengths of 1 to 3 dimensions of c64[4], found ";
        for (kind, length, operand, message) in [
            (FftKind::Forward, &[][..], "c64[4]", &*format!("{lengths}0")),
            (FftKind::Forward, &[1, 4], "c64[4]", &format!("{lengths}2")),
            (
                FftKind::Forward,
                &[5],
                "c64[4]",
                "expected 5 elements in dimension 0 of c64[4] for a transform of length 5",
            ),
            (
                FftKind::RealInverse,
                &[6],
                "c64[2,3]",
                "expected 4 elements in dimension 1 of c64[2,3] for a transform of length 6",
            ),
            (
                FftKind::Forward,
                &[4],
                "f32[4]",
                "expected elements of c64 or c128 for FFT, found f32[4]",
            ),
            (
                FftKind::RealForward,
                &[4],
                "f16[4]",
                "expected elements of f32 or f64 for RFFT, found f16[4]",
            ),
        ] {
            refused(&fft(kind, length), &[operand], message);
        }
    }

    #[test]
    fn the_largest_are_of_the_last_dimension() {
        let top = |k| Opcode::TopK { k, largest: true };
        check(&top(2), &["bf16[3,5]"], "(bf16[3,2], s32[3,2])");
        check(&top(0), &["s8[5]"], "(s8[0], s32[0])");
        let message = "expected a k of at most 5 for f32[3,5], found 6";
        refused(&top(6), &["f32[3,5]"], message);
        let message = "expected an array with dimensions, found f32[]";
        refused(&top(0), &["f32[]"], message);
        let message = "expected elements that are pred, integral or floating, found c64[5]";
        refused(&top(1), &["c64[5]"], message);
    }

    #[test]
    fn states_of_random_bits_fit_the_algorithm() {
        let bits = Opcode::RngBitGenerator(RandomAlgorithm::Philox);
        let result = "(u64[3], u8[2,2])";
        check_declared(&bits, &["u64[3]"], Some(result), result);
        let three_fry = Opcode::RngBitGenerator(RandomAlgorithm::ThreeFry);
        for (opcode, state, result, message) in [
            (
                &three_fry,
                "u64[3]",
                "(u64[3], u8[])",
                "expected a state of u64[2] for rng_three_fry, found u64[3]",
            ),
            (
                &bits,
                "u32[2]",
                "(u32[2], u8[])",
                "expected a state of u64[2] or u64[3] for rng_philox, found u32[2]",
            ),
            (
                &bits,
                "u64[2]",
                "(u64[3], u8[])",
                "expected a result with a state like the operand u64[2], found u64[3]",
            ),
            (
                &bits,
                "u64[2]",
                "u8[]",
                "expected a result of a state and an array, found u8[]",
            ),
        ] {
            refused_declared(InvalidArgument, opcode, &[state], Some(result), message);
        }
        let message = "random bits in f32[4] are not supported; callbox gives integers of 8 bits \
                       and more";
        let result = Some("(u64[2], f32[4])");
        refused_declared(Unimplemented, &bits, &["u64[2]"], result, message);
    }
}
