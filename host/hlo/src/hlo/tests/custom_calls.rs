//! Custom calls in text.

use super::{module, opcode, read, refuse};
use crate::instruction::{ComputationId, CustomCall, Opcode, Schedule};
use callbox_core::StatusCode;
use callbox_core::call::ApiVersion;
use callbox_core::values::{Attribute, Dictionary};

/// The custom call with these attributes.
#[track_caller]
fn call(attributes: &str) -> CustomCall {
    let instructions = format!(
        "  x = f32[2]{{0}} parameter(0)\n  y = f32[3]{{0}} parameter(1)\n  ROOT call = f32[2]{{0}} custom-call(x, y), {attributes}"
    );
    let program = read(&(module(&instructions) + "callee { ROOT x = f32[] parameter(0) }"));
    match opcode(&program, "call") {
        Opcode::CustomCall(call) => call.as_ref().clone(),
        other => unreachable!("{other:?}"),
    }
}

#[track_caller]
fn check_refused(attributes: &str, expected: &str) {
    let instructions = format!(
        "  x = f32[2]{{0}} parameter(0)\n  y = f32[3]{{0}} parameter(1)\n  ROOT call = f32[2]{{0}} custom-call(x, y), {attributes}"
    );
    let status = refuse(&module(&instructions));
    assert_eq!(status.message().lines().next(), Some(expected));
    assert_eq!(status.code(), StatusCode::InvalidArgument);
}

#[test]
fn the_default_is_the_oldest_convention() {
    let call = call("custom_call_target=\"do\\\"it\"");
    assert_eq!(
        call,
        CustomCall {
            api_version: ApiVersion::Original,
            ..CustomCall::new("do\"it")
        }
    );
}

#[test]
fn all_attributes_are_read() {
    let call = call(
        "custom_call_target=\"t\", operand_layout_constraints={f32[2]{0}, f32[3]{0}}, custom_call_has_side_effect=true, \
         output_to_operand_aliasing={{}: (0, {})}, schedule=SCHEDULE_LATEST, literal=s32[] 7, called_computations={callee, %callee}, \
         api_version=API_VERSION_STATUS_RETURNING_UNIFIED, backend_config=\"a\\000b\", sharding={replicated}, metadata={op_name=\"n\"}",
    );
    assert_eq!(call.api_version, ApiVersion::StatusReturningUnified);
    assert_eq!(call.opaque, b"a\0b");
    assert!(call.attributes.is_empty() && call.has_side_effect);
    assert_eq!(
        (
            call.aliasing[0].operand,
            call.aliasing[0].result_index.len()
        ),
        (0, 0)
    );
    assert_eq!(call.operand_layouts.unwrap()[1].to_string(), "f32[3]{0}");
    assert_eq!(
        call.called_computations,
        [ComputationId(1), ComputationId(1)]
    );
    assert_eq!(call.schedule, Schedule::Latest);
    assert_eq!(call.literal.unwrap().to_vec::<i32>().unwrap(), [7]);
    assert_eq!(
        self::call("custom_call_target=\"t\", to_apply=callee").called_computations,
        [ComputationId(1)]
    );
}

/// What JAX 0.10.2 prints for `legacy_backend_config`.
#[test]
fn the_older_conventions_get_bytes() {
    for (text, bytes) in [
        (r#""a\"b\n\\\t\'\303\251""#, "a\"b\n\\\t'é"),
        (r#"{"a": 1}"#, r#"{"a": 1}"#),
        (r#""{a""#, "{a"),
        (r#""""#, ""),
        (
            r#"{"custom_call_config":{"opaque":"x\"y","attributes":"{}"}}"#,
            "x\"y",
        ),
        (r#"{"custom_call_config":{}}"#, ""),
        (r#"{"custom_call_config":1}"#, r#"{"custom_call_config":1}"#),
    ] {
        for version in ["API_VERSION_ORIGINAL", "API_VERSION_STATUS_RETURNING"] {
            let call = call(&format!(
                "custom_call_target=\"t\", api_version={version}, backend_config={text}"
            ));
            assert_eq!(call.opaque, bytes.as_bytes(), "{text}");
            assert!(call.attributes.is_empty());
        }
    }
}

#[test]
fn typed_ffi_gets_attributes() {
    let expected = Dictionary::from([
        ("n".to_owned(), Attribute::scalar(4.0_f32)),
        ("s".to_owned(), Attribute::from("\"}")),
    ]);
    for (config, expected) in [
        (r#"{n = 4.000000e+00 : f32, s = "\22}"}"#, &expected),
        (r#""{n = 4.000000e+00 : f32, s = \"\\22}\"}""#, &expected),
        (
            r#"{"operation_queue_id":"0","custom_call_config":{"attributes":"{n = 4.000000e+00 : f32, s = \"\\22}\"}","opaque":""}}"#,
            &expected,
        ),
        ("{}", &Dictionary::new()),
        ("\"\"", &Dictionary::new()),
        (
            r#"{"custom_call_config":{"opaque":"x"}}"#,
            &Dictionary::new(),
        ),
    ] {
        let text = format!(
            "custom_call_target=\"t\", api_version=API_VERSION_TYPED_FFI, backend_config={config}"
        );
        let call = call(&text);
        assert_eq!(
            (call.api_version, &call.attributes),
            (ApiVersion::TypedFfi, expected),
            "{config}"
        );
        assert!(call.opaque.is_empty());
    }
    let none = call("custom_call_target=\"t\", api_version=API_VERSION_TYPED_FFI");
    assert!(none.attributes.is_empty());
}

#[test]
fn annotations_of_one_devices_program_are_copies() {
    let program = read(&module(
        "  x = f32[2]{0} parameter(0)\n  a = f32[2]{0} custom-call(x), custom_call_target=\"Sharding\", sharding={replicated}\n  \
         b = f32[2]{0} custom-call(a), custom_call_target=\"xla.sdy.FuncResultSharding\", custom_call_has_side_effect=true\n  \
         ROOT c = f32[1]{0} custom-call(b), custom_call_target=\"SPMDFullToShardShape\"",
    ));
    assert_eq!(*opcode(&program, "a"), Opcode::Copy);
    assert_eq!(*opcode(&program, "b"), Opcode::Copy);
    // An annotation with another shape than its operand is a call.
    assert!(matches!(opcode(&program, "c"), Opcode::CustomCall(_)));
}

#[test]
fn errors_in_attributes_have_their_place() {
    check_refused(
        "custom_call_target=\"t\", api_version=API_VERSION_TYPED_FFI, backend_config={n = 4 : f32}",
        "line 6, column 123: expected a value of f32, found \"4\"",
    );
    check_refused(
        "custom_call_target=\"t\", api_version=API_VERSION_TYPED_FFI, backend_config=\"{n = 4 : f32}\"",
        "line 6, column 118: expected a value of f32, found \"4\" at byte 5 of backend_config",
    );
    check_refused(
        "custom_call_target=\"t\", api_version=API_VERSION_TYPED_FFI, backend_config={n = 4 : i32} {}",
        "line 6, column 132: expected an instruction, found '{'",
    );
    check_refused(
        "custom_call_target=\"t\", api_version=API_VERSION_TYPED_FFI, backend_config=\"{} {}\"",
        "line 6, column 118: expected the end of the attributes, found '{' at byte 3 of backend_config",
    );
    check_refused(
        "custom_call_target=\"t\", api_version=API_VERSION_TYPED_FFI, backend_config=\"\\377\"",
        "line 6, column 118: expected attributes, found what is not UTF-8",
    );
}

#[test]
fn wrong_custom_calls_are_refused() {
    check_refused(
        "custom_call_has_side_effect=true",
        "line 6, column 25: expected the attribute custom_call_target of \"custom-call\", found none",
    );
    check_refused(
        "custom_call_target=\"\\377\"",
        "line 6, column 63: expected the name of a target, found what is not UTF-8",
    );
    check_refused(
        "custom_call_target=\"t\", api_version=API_VERSION_UNSPECIFIED",
        "line 6, column 80: expected an api_version such as API_VERSION_TYPED_FFI, found \"API_VERSION_UNSPECIFIED\"",
    );
    check_refused(
        "custom_call_target=\"t\", schedule=LATEST",
        "line 6, column 77: expected a schedule such as SCHEDULE_LATEST, found \"LATEST\"",
    );
    check_refused(
        "custom_call_target=\"t\", operand_layout_constraints={f32[2]{0}}",
        "line 6, column 95: expected layouts of 2 operands, found 1",
    );
    check_refused(
        "custom_call_target=\"t\", operand_layout_constraints={f32[2]{0}, f32[2]{0}}",
        "line 6, column 95: expected a layout of f32[3]{0}, which is operand 1, found f32[2]{0}",
    );
    check_refused(
        "custom_call_target=\"t\", to_apply=main, called_computations={}",
        "line 6, column 77: expected to_apply or called_computations of a custom-call, found both",
    );
    check_refused(
        "custom_call_target=\"t\", to_apply=mian",
        "line 6, column 77: expected a computation, found %mian; did you mean %main?",
    );
}
