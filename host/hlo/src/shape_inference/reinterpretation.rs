//! Operations that keep the elements and change their type or the dimensions.

use super::{arrays, declared_array};
use callbox_core::values::{ArrayShape, ElementType, Result, Shape, Status};

/// XLA's `InferConvertShape`, without conversions from complex to real, which XLA's CPU backend
/// does not have either.
pub(super) fn convert(operands: &[&Shape], declared: Option<&Shape>) -> Result<Shape> {
    let [operand] = arrays(operands)?;
    let element_type = declared_array(declared)?.element_type();
    if operand.element_type().is_complex() && !element_type.is_complex() {
        return Err(Status::unimplemented(format!(
            "convert from complex {operand} to {element_type} is not supported"
        )));
    }
    Shape::array(element_type, operand.dimensions())
}

/// XLA's `InferBitcastConvertShape`: one wide element corresponds to a last dimension of narrow
/// ones.
pub(super) fn bitcast_convert(operands: &[&Shape], declared: Option<&Shape>) -> Result<Shape> {
    let [operand] = arrays(operands)?;
    let (from, to) = (
        operand.element_type(),
        declared_array(declared)?.element_type(),
    );
    ensure!(
        from.is_complex() == to.is_complex(),
        "expected two types of which both or none are complex, found {from} and {to}"
    );
    // XLA packs them; callbox uses a byte for each.
    if let Some(narrow) = [from, to].into_iter().find(|t| t.bit_width() < 8) {
        return Err(Status::unimplemented(format!(
            "bitcast-convert on {narrow} is not supported"
        )));
    }
    let (from_width, to_width) = (from.byte_width(), to.byte_width());
    if from_width < to_width {
        return widen(operand, to_width / from_width, to);
    }
    let ratio = from_width / to_width;
    let mut dimensions = operand.dimensions().to_vec();
    dimensions.extend((ratio > 1).then_some(ratio));
    Shape::array(to, &dimensions)
}

/// The operand without its last dimension, which is `ratio`.
fn widen(operand: &ArrayShape, ratio: usize, to: ElementType) -> Result<Shape> {
    match operand.dimensions().split_last() {
        Some((&last, dimensions)) if last == ratio => Shape::array(to, dimensions),
        _ => Err(invalid!(
            "expected a last dimension of {ratio} to make each {to}, found {operand}"
        )),
    }
}

/// The rule of XLA's verifier: both arrays have the same size in bytes.
pub(super) fn bitcast(operands: &[&Shape], declared: Option<&Shape>) -> Result<Shape> {
    let [operand] = arrays(operands)?;
    let result = declared_array(declared)?;
    ensure!(
        operand.byte_size() == result.byte_size(),
        "expected {} bytes as in {operand}, found {} in {result}",
        operand.byte_size(),
        result.byte_size()
    );
    let (from, to) = (operand.element_type(), result.element_type());
    if from != to && from.bit_width().min(to.bit_width()) < 8 {
        return Err(Status::unimplemented(format!(
            "bitcast from {from} to {to} is not supported"
        )));
    }
    Ok(Shape::Array(result.clone()))
}

/// XLA's `InferReshapeShape`.
pub(super) fn reshape(operands: &[&Shape], declared: Option<&Shape>) -> Result<Shape> {
    let [operand] = arrays(operands)?;
    let result = declared_array(declared)?;
    ensure!(
        operand.element_count() == result.element_count(),
        "expected {} elements as in {operand}, found {} in {result}",
        operand.element_count(),
        result.element_count()
    );
    Shape::array(operand.element_type(), result.dimensions())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check_declared, refused_declared};
    use crate::Opcode;
    use callbox_core::StatusCode::{InvalidArgument, Unimplemented};

    fn check(opcode: &Opcode, operand: &str, declared: &str) {
        check_declared(opcode, &[operand], Some(declared), declared);
    }

    fn refused(opcode: &Opcode, operand: &str, declared: &str, message: &str) {
        refused_declared(InvalidArgument, opcode, &[operand], Some(declared), message);
    }

    #[test]
    fn converts_take_their_type_from_the_declaration() {
        for (operand, declared) in [
            ("f32[2]", "s8[2]"),
            ("pred[]", "f64[]"),
            ("s4[2]", "f8e4m3fn[2]"),
            ("f32[2]", "c128[2]"),
            ("c64[2]", "c128[2]"),
        ] {
            check(&Opcode::Convert, operand, declared);
        }
        // Other dimensions are for the caller to find.
        check_declared(&Opcode::Convert, &["f32[2]"], Some("s8[3]"), "s8[2]");
        refused_declared(
            Unimplemented,
            &Opcode::Convert,
            &["c64[2]"],
            Some("f32[2]"),
            "convert from complex c64[2] to f32 is not supported",
        );
        refused(
            &Opcode::Convert,
            "f32[]",
            "token[]",
            "expected an array as result, found token[]",
        );
        refused_declared(
            InvalidArgument,
            &Opcode::Convert,
            &["f32[2]"],
            None,
            "expected a declared shape, found none",
        );
    }

    #[test]
    fn bitcast_converts_give_and_take_a_dimension() {
        let opcode = Opcode::BitcastConvert;
        for (operand, declared) in [
            ("f32[3]", "s32[3]"),
            ("f32[3]", "u8[3,4]"),
            ("u16[3,4]", "f64[3]"),
            ("u8[4]", "f32[]"),
            ("f64[]", "u32[2]"),
            ("c128[3]", "c64[3,2]"),
            ("pred[2]", "s8[2]"),
            ("f8e5m2[2]", "f16[]"),
        ] {
            check(&opcode, operand, declared);
        }
        refused(
            &opcode,
            "u8[3]",
            "f32[]",
            "expected a last dimension of 4 to make each f32, found u8[3]",
        );
        refused(
            &opcode,
            "u8[]",
            "u16[]",
            "expected a last dimension of 2 to make each u16, found u8[]",
        );
        refused(
            &opcode,
            "c64[3]",
            "f64[3]",
            "expected two types of which both or none are complex, found c64 and f64",
        );
        for (operand, declared) in [("s4[2]", "s8[]"), ("s8[]", "s4[2]"), ("s4[2]", "s4[2]")] {
            refused_declared(
                Unimplemented,
                &opcode,
                &[operand],
                Some(declared),
                "bitcast-convert on s4 is not supported",
            );
        }
    }

    #[test]
    fn bitcasts_keep_their_bytes() {
        check(&Opcode::Bitcast, "f32[2,3]{0,1}", "f32[3,2]{1,0}");
        check(&Opcode::Bitcast, "f32[2]{0}", "u64[]");
        check(&Opcode::Bitcast, "s4[2,3]", "s4[6]");
        refused(
            &Opcode::Bitcast,
            "f32[2]",
            "f32[3]",
            "expected 8 bytes as in f32[2], found 12 in f32[3]",
        );
        refused_declared(
            Unimplemented,
            &Opcode::Bitcast,
            &["s4[2]"],
            Some("s8[2]"),
            "bitcast from s4 to s8 is not supported",
        );
    }

    #[test]
    fn reshapes_keep_their_elements() {
        check(&Opcode::Reshape, "f32[2,3]", "f32[6]");
        check(&Opcode::Reshape, "f32[1,1]", "f32[]");
        check(&Opcode::Reshape, "u4[0,3]", "u4[7,0]");
        check_declared(&Opcode::Reshape, &["f32[2]"], Some("s32[2]"), "f32[2]");
        refused(
            &Opcode::Reshape,
            "f32[2,3]",
            "f32[5]",
            "expected 6 elements as in f32[2,3], found 5 in f32[5]",
        );
        refused(
            &Opcode::Reshape,
            "(f32[2])",
            "f32[2]",
            "expected an array as operand 0, found (f32[2])",
        );
    }
}
