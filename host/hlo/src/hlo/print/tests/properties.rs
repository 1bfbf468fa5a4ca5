//! Random elements, bytes and texts, printed and read back.

use callbox_core::call::ApiVersion;
use callbox_core::values::{ArrayShape, Attribute, Dictionary, ElementType, Literal, Shape};
use proptest::prelude::*;

use super::{check, of};
use crate::{CustomCall, ProgramBuilder};

fn array_types() -> impl Strategy<Value = ElementType> {
    let types = ElementType::ALL.iter().copied();
    let types = types.filter(|t| *t != ElementType::Token);
    prop::sample::select(types.collect::<Vec<_>>())
}

/// The bytes of a few elements. In types narrower than a byte, unused bits are those of literals.
fn elements(element_type: ElementType, bytes: &[u8]) -> Vec<u8> {
    let count = bytes.len() / 16;
    let bits = element_type.bit_width();
    let narrow = |byte: u8| match element_type {
        ElementType::Pred => byte & 1,
        _ if bits >= 8 => byte,
        _ if element_type.is_signed_integral() => {
            ((byte << (8 - bits)).cast_signed() >> (8 - bits)).cast_unsigned()
        }
        _ => byte & ((1 << bits) - 1),
    };
    let bytes = &bytes[..count * element_type.byte_width()];
    bytes.iter().map(|byte| narrow(*byte)).collect()
}

proptest! {
    #[test]
    fn elements_of_all_types_survive(
        element_type in array_types(),
        bytes in prop::collection::vec(any::<u8>(), 32..96),
    ) {
        let bytes = elements(element_type, &bytes);
        let count = bytes.len() / element_type.byte_width();
        let array = ArrayShape::new(element_type, &[count, 1]).unwrap();
        let literal = Literal::from_bytes(array, bytes.clone()).unwrap();
        let scalar = ArrayShape::scalar(element_type);
        let scalar = Literal::from_bytes(scalar, bytes[..element_type.byte_width()].to_vec()).unwrap();
        let mut b = ProgramBuilder::new("main");
        let constant = b.constant(literal.clone()).unwrap();
        let options = CustomCall {
            attributes: Dictionary::from([
                ("array".to_owned(), Attribute::Array(literal)),
                ("scalar".to_owned(), Attribute::Scalar(scalar)),
            ]),
            ..CustomCall::new("t")
        };
        let shape = Shape::scalar(element_type);
        let call = b.custom_call(options, &[constant], shape).unwrap();
        check(&b.build(call).unwrap());
    }

    #[test]
    fn bytes_and_texts_survive(
        bytes in prop::collection::vec(any::<u8>(), 0..40),
        name in ".{0,8}",
        text in "[{}\"\\\\a:, ]{0,12}",
    ) {
        for opaque in [bytes.clone(), text.clone().into_bytes()] {
            let mut b = ProgramBuilder::new("main");
            let shape = Shape::scalar(ElementType::F32);
            let options = CustomCall {
                target: format!("t{name}"),
                opaque: opaque.clone(),
                ..of(ApiVersion::Original)
            };
            let first = b.custom_call(options, &[], shape.clone()).unwrap();
            let options = CustomCall {
                attributes: Dictionary::from([
                    (name.clone(), Attribute::String(opaque)),
                    (format!("{name}?"), Attribute::Dictionary(Dictionary::from([
                        (text.clone(), Attribute::Function(name.clone())),
                    ]))),
                ]),
                ..CustomCall::new("t")
            };
            let second = b.custom_call(options, &[first], shape).unwrap();
            check(&b.build(second).unwrap());
        }
    }
}
