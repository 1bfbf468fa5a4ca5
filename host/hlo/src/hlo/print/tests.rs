//! Printed programs read back.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use proptest::prelude::*;

use crate::{
    BinaryOperation, Comparison, ComparisonOrder, CustomCall, DotDimensions, FusionKind,
    PaddingDimension, Program, ProgramBuilder, Schedule, SliceDimension, UnaryOperation,
};
use callbox_core::call::{Alias, ApiVersion, StaticInfo};
use callbox_core::values::{
    ArrayShape, Attribute, Dictionary, ElementType, Layout, Literal, Result, Shape,
};

#[track_caller]
fn check(program: &Program) -> String {
    let text = program.to_hlo_text();
    match Program::from_hlo_text(&text) {
        Ok(again) => assert!(again == *program, "{text}\n{again:?}\n{program:?}"),
        Err(error) => unreachable!("{error}\n{text}"),
    }
    text
}

/// Prints the only instruction besides a parameter `x`.
#[track_caller]
fn check_call(options: CustomCall, expected: &str) {
    let mut b = ProgramBuilder::new("main");
    let shape: Shape = "f32[2]".parse().unwrap();
    let x = b.parameter(0, shape.clone(), "x").unwrap();
    let call = b.custom_call(options, &[x], shape).unwrap();
    let text = check(&b.build(call).unwrap());
    let line = text.lines().find(|line| line.contains("ROOT")).unwrap();
    assert_eq!(
        line,
        format!(
            "  ROOT %custom-call.1 = f32[2] custom-call(%x), custom_call_target=\"t\"{expected}"
        )
    );
}

fn of(api_version: ApiVersion) -> CustomCall {
    CustomCall {
        api_version,
        ..CustomCall::new("t")
    }
}

#[test]
fn custom_calls_are_printed_as_xla_prints_them() {
    check_call(of(ApiVersion::Original), "");
    let all = CustomCall {
        has_side_effect: true,
        aliasing: vec![Alias {
            result_index: vec![],
            operand: 0,
            operand_index: vec![],
        }],
        literal: Some(
            Literal::tuple(vec![
                Literal::array(&[2], &[1, 2]).unwrap(),
                Literal::scalar(0.1_f32),
            ])
            .unwrap(),
        ),
        schedule: Schedule::Earliest,
        attributes: Dictionary::from([("n".to_owned(), Attribute::scalar(4.0_f32))]),
        operand_layouts: Some(vec!["f32[2]{0}".parse().unwrap()]),
        ..CustomCall::new("t")
    };
    check_call(
        all,
        ", operand_layout_constraints={f32[2]{0}}, custom_call_has_side_effect=true, \
         output_to_operand_aliasing={{}: (0, {})}, literal=(s32[2] {1, 2}, f32[] 0.1), \
         schedule=SCHEDULE_EARLIEST, api_version=API_VERSION_TYPED_FFI, backend_config={n = 4.0e0 : f32}",
    );
}

#[test]
fn bytes_are_printed_as_they_are_or_escaped() {
    for (opaque, expected) in [
        (&b"abc\0def"[..], r#""abc\000def""#),
        (b"\xff\"'\\\n", r#""\377\"\'\\\n""#),
        ("é".as_bytes(), r#""\303\251""#),
        (br#"{"a": "}"}"#, r#"{"a": "}"}"#),
        (b"{a", r#""{a""#),
        (b" {}", r#"" {}""#),
        (b"{}}", r#""{}}""#),
        (b"{\"\xff\"}", r#""{\"\377\"}""#),
        // The reader would take it for XLA:CPU's wrapper.
        (
            br#"{"custom_call_config":{"opaque":"x"}}"#,
            r#"{"custom_call_config":{"opaque":"{\"custom_call_config\":{\"opaque\":\"x\"}}"}}"#,
        ),
    ] {
        let options = CustomCall {
            opaque: opaque.to_vec(),
            ..of(ApiVersion::StatusReturningUnified)
        };
        check_call(
            options,
            &format!(
                ", api_version=API_VERSION_STATUS_RETURNING_UNIFIED, backend_config={expected}"
            ),
        );
        let options = CustomCall {
            static_info: Some(StaticInfo::Value(opaque.to_vec())),
            ..of(ApiVersion::JaxFfi)
        };
        check_call(
            options,
            &format!(", api_version=API_VERSION_JAX_FFI, backend_config={expected}"),
        );
    }
}

#[test]
fn static_information_is_printed() {
    check_call(of(ApiVersion::JaxFfi), ", api_version=API_VERSION_JAX_FFI");
    let options = CustomCall {
        static_info: Some(StaticInfo::Reference {
            constructor: "make".to_owned(),
            destructor: "dr\"op".to_owned(),
            argument: vec![],
        }),
        ..of(ApiVersion::JaxFfi)
    };
    check_call(
        options,
        ", api_version=API_VERSION_JAX_FFI, frontend_attributes={callbox.static_info.constructor=\"make\",\
         callbox.static_info.destructor=\"dr\\\"op\"}, backend_config=\"\"",
    );
}

#[test]
fn attributes_are_printed_as_mlir_prints_them() {
    let array = |literal: Literal| Attribute::Array(literal);
    let bytes = |shape: &str, bytes: &[u8]| {
        Literal::from_bytes(shape.parse().unwrap(), bytes.to_vec()).unwrap()
    };
    let many: Vec<i16> = (0..101).collect();
    for (value, expected) in [
        (Attribute::scalar(true), "true"),
        (Attribute::scalar(-3_i64), "-3 : i64"),
        (Attribute::scalar(u64::MAX), "18446744073709551615 : ui64"),
        (Attribute::scalar(0.1_f32), "1.0e-1 : f32"),
        (Attribute::scalar(-0.0), "-0.0e0 : f64"),
        (Attribute::scalar(f32::NAN), "0x7FC00000 : f32"),
        (
            Attribute::scalar(f64::NEG_INFINITY),
            "0xFFF0000000000000 : f64",
        ),
        (Attribute::Scalar(bytes("s4[]", &[0xf8])), "-8 : i4"),
        (Attribute::Scalar(bytes("s1[]", &[0xff])), "-1 : si1"),
        (
            Attribute::Scalar(bytes("f8e4m3fn[]", &[0x7f])),
            "0x7F : f8E4M3FN",
        ),
        (
            Attribute::Scalar(bytes("bf16[]", &[0x80, 0x3f])),
            "1.0e0 : bf16",
        ),
        (
            Attribute::scalar(num_complex::Complex::new(1.5_f32, f32::NAN)),
            "#complex.number<:f32 1.5e0, 0x7FC00000>",
        ),
        (Attribute::from("a\"\\\n\0é}"), r#""a\22\\\0A\00\C3\A9}""#),
        (
            array(Literal::array(&[2, 2], &[1, 0, 0, 1]).unwrap()),
            "dense<[[1, 0], [0, 1]]> : tensor<2x2xi32>",
        ),
        (
            array(Literal::array(&[3], &[1.0_f32; 3]).unwrap()),
            "dense<1.0e0> : tensor<3xf32>",
        ),
        (array(Literal::scalar(3_u8)), "dense<3> : tensor<ui8>"),
        (
            array(Literal::array::<f32>(&[2, 0], &[]).unwrap()),
            "dense<> : tensor<2x0xf32>",
        ),
        (
            array(Literal::array(&[2], &[true, false]).unwrap()),
            "dense<[true, false]> : tensor<2xi1>",
        ),
        (
            array(bytes(
                "c64[2]",
                &[0, 0, 128, 63, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 128],
            )),
            "dense<[(1.0e0,0.0e0), (0.0e0,-0.0e0)]> : tensor<2xcomplex<f32>>",
        ),
        (Attribute::Function("main".to_owned()), "@main"),
        (Attribute::Function("no such".to_owned()), "@\"no such\""),
        (
            Attribute::Dictionary(Dictionary::from([
                ("x-y".to_owned(), Attribute::scalar(1_i8)),
                ("x.y$".to_owned(), Attribute::Dictionary(Dictionary::new())),
            ])),
            "{\"x-y\" = 1 : i8, x.y$ = {}}",
        ),
    ] {
        let options = CustomCall {
            attributes: Dictionary::from([("a".to_owned(), value)]),
            ..CustomCall::new("t")
        };
        check_call(
            options,
            &format!(", api_version=API_VERSION_TYPED_FFI, backend_config={{a = {expected}}}"),
        );
    }
    // More than a hundred elements are printed as bytes, also those of types narrower than a byte.
    for literal in [
        Literal::array(&[101], &many).unwrap(),
        bytes("s4[102]", &[0xf8, 7, 0].repeat(34)),
        bytes("u1[102]", &[0, 1].repeat(51)),
        bytes("pred[102]", &[0, 1].repeat(51)),
    ] {
        let mut b = ProgramBuilder::new("main");
        let options = CustomCall {
            attributes: Dictionary::from([("a".to_owned(), Attribute::Array(literal))]),
            ..CustomCall::new("t")
        };
        let call = b.custom_call(options, &[], "f32[]".parse().unwrap());
        let text = check(&b.build(call.unwrap()).unwrap());
        assert!(text.contains("dense<\"0x"), "{text}");
    }
}

/// Names become names that HLO text can have, references follow, and valid names stay.
#[test]
fn names_are_made_printable() {
    let mut b = ProgramBuilder::new("my main");
    let scalar = || Shape::scalar(ElementType::F32);
    let odd = b
        .computation("a b", |c| c.parameter(0, scalar(), "1 x"))
        .unwrap();
    let taken = b
        .computation("a_b", |c| c.parameter(0, scalar(), "ROOT"))
        .unwrap();
    b.export(odd).unwrap();
    let x = b.parameter(0, scalar(), "é").unwrap();
    let options = CustomCall {
        attributes: Dictionary::from([
            ("f".to_owned(), Attribute::Function("a b".to_owned())),
            ("g".to_owned(), Attribute::Function("a_b".to_owned())),
        ]),
        called_computations: vec![odd, taken],
        ..CustomCall::new("t")
    };
    let call = b.custom_call(options, &[x], scalar()).unwrap();
    let program = b.build(call).unwrap();
    let text = program.to_hlo_text();
    let again = Program::from_hlo_text(&text).unwrap();
    assert_eq!(
        text,
        "HloModule my_main, entry_computation_layout={(f32[])->f32[]}, \
         frontend_attributes={callbox.exports=\"my_main,a_b.1\"}

%a_b.1 {
  ROOT %__x = f32[] parameter(0)
}

%a_b {
  ROOT %ROOT = f32[] parameter(0)
}

ENTRY %my_main {
  %_ = f32[] parameter(0)
  ROOT %custom-call.1 = f32[] custom-call(%_), custom_call_target=\"t\", called_computations={%a_b.1, %a_b}, \
         api_version=API_VERSION_TYPED_FFI, backend_config={f = @a_b.1, g = @a_b}
}
"
    );
    assert_eq!(again.exports(), program.exports());
    assert_eq!(check(&again), text);
}

/// One of each opcode.
#[test]
fn every_opcode_survives() {
    let mut b = ProgramBuilder::new("main");
    let ops = all_opcodes(&mut b).unwrap();
    let root = b.tuple(&ops).unwrap();
    let text = check(&b.build(root).unwrap());
    for part in [
        "slice={[0:2], [0:3:2]}",
        "padding=0_1_2x-1_0",
        "direction=LT, type=TOTALORDER",
        "true_computation=%double, false_computation=%double",
        "branch_computations={%double, %double, %double}",
        "lhs_contracting_dims={1}, rhs_contracting_dims={1}",
        "control-predecessors={%x}",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

fn all_opcodes(b: &mut ProgramBuilder) -> Result<Vec<crate::Op>> {
    let scalar = || Shape::scalar(ElementType::F32);
    let double = b.computation("double", |c| {
        let x = c.parameter(0, scalar(), "x")?;
        c.add(x, x)
    })?;
    let add = b.computation("add", |c| {
        let (x, y) = (
            c.parameter(0, scalar(), "x")?,
            c.parameter(1, scalar(), "y")?,
        );
        c.add(x, y)
    })?;
    let never = b.computation("never", |c| {
        c.parameter(0, scalar(), "x")?;
        c.constant(Literal::scalar(false))
    })?;
    let layout = Layout::new(&[0, 1])?;
    let shape = ArrayShape::new(ElementType::F32, &[2, 3])?.with_layout(layout)?;
    let x = b.parameter(0, shape.clone().into(), "x")?;
    let s = b.parameter(1, scalar(), "s")?;
    let i = b.parameter(2, Shape::scalar(ElementType::S32), "i")?;
    let p = b.parameter(3, Shape::scalar(ElementType::Pred), "p")?;
    let mut ops = vec![
        b.constant(Literal::tuple(vec![
            Literal::array(&[2, 1, 2], &[true, false, true, true])?,
            Literal::scalar(true),
            Literal::tuple(vec![])?,
        ])?)?,
        b.unary(UnaryOperation::Cosine, x)?,
        b.binary(BinaryOperation::Atan2, x, x)?,
        b.compare(Comparison::Lt, ComparisonOrder::Total, x, x)?,
        b.compare(Comparison::Ge, ComparisonOrder::Partial, i, i)?,
        b.select(p, x, x)?,
        b.clamp(s, x, s)?,
        b.reduce_precision(x, 5, 10)?,
        b.convert(x, ElementType::Bf16)?,
        b.bitcast_convert(x, ElementType::U32)?,
        b.bitcast(x, "f32[3,2]{1,0}".parse()?)?,
        b.iota("s32[2,3]".parse()?, 1)?,
        b.broadcast(s, &[4], &[])?,
        b.reshape(x, &[6])?,
        b.transpose(x, &[1, 0])?,
        b.reverse(x, &[0, 1])?,
        b.copy(x)?,
        b.dynamic_slice(x, &[i, i], &[1, 2])?,
        b.concatenate(&[x, x], 1)?,
        b.reduce(&[x], &[s], &[0, 1], add)?,
        b.map(&[x], double)?,
        b.call(double, &[s])?,
        b.fusion(FusionKind::Loop, double, &[s])?,
        b.while_loop(never, double, s)?,
        b.conditional(p, &[(double, s), (double, s)])?,
        b.conditional(i, &[(double, s), (double, s), (double, s)])?,
        b.optimization_barrier(&[x, s])?,
    ];
    let slice = |limit, stride| SliceDimension {
        start: 0,
        limit,
        stride,
    };
    ops.push(b.slice(x, &[slice(2, 1), slice(3, 2)])?);
    let padding = |low, high, interior| PaddingDimension {
        low,
        high,
        interior,
    };
    ops.push(b.pad(x, s, &[padding(0, 1, 2), padding(-1, 0, 0)])?);
    ops.push(b.pad(s, s, &[])?);
    let dot = DotDimensions {
        lhs_contracting: vec![1],
        rhs_contracting: vec![1],
        ..DotDimensions::default()
    };
    ops.push(b.dot(x, x, dot, None)?);
    let part = b.dynamic_slice(x, &[i, i], &[1, 1])?;
    ops.push(b.dynamic_update_slice(x, part, &[i, i])?);
    let token = b.after_all(&[])?;
    b.control_predecessor(token, x)?;
    let tuple = b.tuple(&[token, x])?;
    ops.extend([token, b.get_tuple_element(tuple, 1)?]);
    Ok(ops)
}

#[test]
fn arrays_without_elements_survive_whatever_their_size() {
    for (shape, expected) in [
        ("f32[0]", "{}"),
        ("f32[3,0]", "{}"),
        ("f32[2,0,5]", "{}"),
        ("f32[1000000,1000000,0]", "{}"),
    ] {
        let mut b = ProgramBuilder::new("main");
        let literal = Literal::from_bytes(shape.parse().unwrap(), vec![]).unwrap();
        let constant = b.constant(literal).unwrap();
        let text = check(&b.build(constant).unwrap());
        assert!(text.contains(&format!("constant({expected})")), "{text}");
    }
}

#[test]
fn the_largest_rank_is_printed() {
    let dimensions = vec![1; 255];
    let mut b = ProgramBuilder::new("main");
    let constant = b
        .constant(Literal::array(&dimensions, &[7]).unwrap())
        .unwrap();
    check(&b.build(constant).unwrap());
}

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
