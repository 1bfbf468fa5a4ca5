//! Attributes, apart from what they say.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::table::{IGNORED, MEANINGFUL};
use super::*;
use crate::StatusCode;

fn read<'a>(opcode: &str, text: &'a str) -> Attributes<'a> {
    let mut cursor = Cursor::new(text);
    let attributes = Attributes::read(&mut cursor, opcode);
    let attributes = attributes
        .map_err(|diagnostic| diagnostic.into_status(text))
        .unwrap();
    assert!(cursor.is_at_end(), "{}", cursor.found());
    attributes
}

fn refuse(opcode: &str, text: &str) -> (StatusCode, String) {
    let status = Attributes::read(&mut Cursor::new(text), opcode)
        .unwrap_err()
        .into_status(text);
    (
        status.code(),
        status.message().lines().next().unwrap().to_owned(),
    )
}

#[test]
fn values_are_read_as_the_table_says() {
    let mut pad = read(
        "pad",
        ", padding=0_1x-2_-1_3, metadata={op_name=\"a}\" x=1}",
    );
    let dimension = |low, high, interior| PaddingDimension {
        low,
        high,
        interior,
    };
    assert_eq!(
        pad.padding("padding").unwrap().value,
        [dimension(0, 1, 0), dimension(-2, -1, 3)]
    );
    assert!(pad.padding("padding").is_none());
    let mut slices = read("slice", ", slice={[0:2], [1:5:2]}")
        .slices("slice")
        .unwrap()
        .value;
    assert_eq!(
        slices.pop().unwrap(),
        SliceDimension {
            start: 1,
            limit: 5,
            stride: 2
        }
    );
    let mut call = read(
        "custom-call",
        ", custom_call_target=\"a\\\"b\", operand_layout_constraints={f32[2]{0}, /*index=1*/()}, \
         output_to_operand_aliasing={{}: (0, {}), {1,0}: (2, {3})}, literal=f32[1] {2}, \
         called_computations={%a, b}, backend_config={a = \"}\"}, custom_call_has_side_effect=true, \
         control-predecessors={%c.1}, api_version=API_VERSION_ORIGINAL, sharding={{replicated}, {maximal device=0}}",
    );
    assert_eq!(call.text("custom_call_target").unwrap().value, b"a\"b");
    assert_eq!(
        call.shapes("operand_layout_constraints")
            .unwrap()
            .value
            .len(),
        2
    );
    let aliasing = call.aliasing("output_to_operand_aliasing").unwrap().value;
    assert_eq!(
        (aliasing[1].result_index.as_slice(), aliasing[1].operand),
        (&[1, 0][..], 2)
    );
    assert_eq!(
        call.literal("literal").unwrap().value.shape().to_string(),
        "f32[1]"
    );
    assert_eq!(
        call.computations("called_computations").unwrap().value[1].text,
        "b"
    );
    assert!(matches!(
        call.config("backend_config").unwrap().value,
        Config::Braces("{a = \"}\"}")
    ));
    assert!(call.flag("custom_call_has_side_effect").unwrap().value);
    assert_eq!(
        call.instructions("control-predecessors").unwrap().value[0].text,
        "c.1"
    );
    assert_eq!(
        call.word("api_version").unwrap().value,
        "API_VERSION_ORIGINAL"
    );
    assert!(call.0.is_empty());
}

#[test]
fn what_is_ignored_is_read_over() {
    let text = ", metadata={op_name=\"jit(f)/\\\"}\\\"\" stack_frame_id=3}, origin={({\"a\"}, {\"b\" {1}})}, \
                sharding={devices=[2,1]<=[2] metadata={op_name=\"a\"}}, statistics={visualizing_index=0,a=1.5}, \
                frontend_attributes={a=\"b\",c={\"d\": [1, {}]}}, backend_config={\"known_trip_count\":{\"n\":\"4\"}}, \
                result_accuracy={tolerance={atol=0.1,rtol=0.2,ulps=3}}";
    assert!(read("tanh", text).0.is_empty());
    assert!(
        read(
            "dot",
            ", operand_precision={highest,default}, algorithm=dot_bf16_bf16_f32"
        )
        .0
        .is_empty()
    );
    assert!(
        read("call", ", is_composite=true, backend_config=\"}\"")
            .0
            .is_empty()
    );
    assert!(
        read("fusion", ", output_to_operand_aliasing={{}: (0, {})}")
            .0
            .is_empty()
    );
    assert!(
        read("parameter", ", parameter_replication={true,false}")
            .0
            .is_empty()
    );
}

#[test]
fn the_tables_do_not_overlap() {
    let mut pairs = Vec::new();
    for (name, opcodes) in MEANINGFUL.iter().map(|(name, opcodes, _)| (name, opcodes)) {
        pairs.extend(opcodes.iter().map(|opcode| (*name, *opcode)));
    }
    for (name, opcodes, reason) in IGNORED {
        assert!(!reason.is_empty());
        pairs.extend(opcodes.iter().map(|opcode| (*name, *opcode)));
    }
    let count = pairs.len();
    pairs.sort_unstable();
    pairs.dedup();
    assert_eq!(pairs.len(), count);
}

#[test]
fn wrong_attributes_are_refused() {
    for (opcode, text, message) in [
        (
            "add",
            ", dimensions={0}",
            "3: expected an attribute of \"add\", found \"dimensions\"",
        ),
        (
            "reduce",
            ", dimension={0}",
            "3: expected an attribute of \"reduce\", found \"dimension\"; did you mean dimensions?",
        ),
        (
            "add",
            ", frobnicate=1",
            "3: expected an attribute of \"add\", found \"frobnicate\"",
        ),
        (
            "reduce",
            ", dimensions={0}, dimensions={0}",
            "19: expected each attribute once, found another \"dimensions\"",
        ),
        (
            "add",
            ", metadata={}, metadata={}",
            "16: expected each attribute once, found another \"metadata\"",
        ),
        (
            "add",
            ", ",
            "2: expected an attribute such as dimensions={0}, found the end of the text",
        ),
        (
            "add",
            ", metadata",
            "3: expected an attribute such as dimensions={0}, found \"metadata\"",
        ),
        (
            "add",
            ", metadata=",
            "12: expected the attribute's value, found the end of the text",
        ),
        ("reduce", ", dimensions=0", "14: expected '{', found \"0\""),
        (
            "reduce",
            ", dimensions={0 1}",
            "17: expected ',' or '}', found \"1\"",
        ),
        (
            "reduce",
            ", dimensions={0,}",
            "17: expected a number that is not negative, found '}'",
        ),
        (
            "reduce",
            ", dimensions={-1}",
            "15: expected a number that is not negative, found \"-1\"",
        ),
        (
            "reduce",
            ", to_apply={0}",
            "12: expected the name of a computation, found '{'",
        ),
        (
            "compare",
            ", direction=\"LT\"",
            "13: expected a word, found a string",
        ),
        (
            "custom-call",
            ", custom_call_target=a",
            "22: expected a string, found \"a\"",
        ),
        (
            "custom-call",
            ", custom_call_has_side_effect=1",
            "31: expected true or false, found \"1\"",
        ),
        (
            "custom-call",
            ", operand_layout_constraints={f33[2]}",
            "31: expected a shape such as f32[2,3], found \"f33\"",
        ),
        (
            "custom-call",
            ", output_to_operand_aliasing={{}: 0}",
            "35: expected '(' before the number of an operand, found \"0\"",
        ),
        (
            "pad",
            ", padding=1",
            "11: expected a padding such as 0_1x2_3_1, found \"1\"",
        ),
        (
            "pad",
            ", padding=1_2_3_4",
            "11: expected a padding such as 0_1x2_3_1, found \"1_2_3_4\"",
        ),
        (
            "pad",
            ", padding={}",
            "11: expected a padding such as 0_1x2_3_1, found \"\"",
        ),
        (
            "slice",
            ", slice={[0]}",
            "12: expected ':' and the limit of a slice, found ']'",
        ),
        (
            "slice",
            ", slice={[-1:2]}",
            "11: expected a number that is not negative, found \"-1\"",
        ),
    ] {
        let message = format!("line 1, column {message}");
        assert_eq!(refuse(opcode, text), (StatusCode::InvalidArgument, message));
    }
    let message = "line 1, column 3: the attribute \"window\" of a custom-call is not supported";
    assert_eq!(
        refuse("custom-call", ", window={size=2}"),
        (StatusCode::Unimplemented, message.into())
    );
}
