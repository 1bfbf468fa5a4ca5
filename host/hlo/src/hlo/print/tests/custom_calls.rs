//! The text of custom calls: their fields, bytes and attributes.

use callbox_core::call::{Alias, ApiVersion, StaticInfo};
use callbox_core::values::{Attribute, Dictionary, Literal, Shape};

use super::{check, of};
use crate::{CustomCall, ProgramBuilder, Schedule};

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
