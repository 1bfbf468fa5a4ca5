//! The syntax of attributes, apart from their meaning.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;
use crate::instruction::Comparison;
use callbox_core::StatusCode;

fn attributes<'a>(opcode: &'a str, cursor: &mut Cursor<'a>) -> Parsed<Attributes<'a>> {
    Attributes::read(
        cursor,
        Name {
            text: opcode,
            at: 0,
        },
    )
}

fn read<'a>(opcode: &'a str, text: &'a str) -> Attributes<'a> {
    let mut cursor = Cursor::new(text);
    let attributes = attributes(opcode, &mut cursor);
    let attributes = attributes
        .map_err(|diagnostic| diagnostic.into_status(text))
        .unwrap();
    assert!(cursor.is_at_end(), "{}", cursor.found());
    attributes
}

/// Reads the attributes, and takes those that the tests have.
fn take_all(opcode: &str, text: &str) -> Parsed<()> {
    let mut attributes = attributes(opcode, &mut Cursor::new(text))?;
    attributes.take("dimensions", numbers)?;
    attributes.take("to_apply", computation)?;
    attributes.take("direction", |c| {
        word(c, Comparison::from_name, "a direction")
    })?;
    attributes.take("custom_call_target", |c| utf8(c, "the name of a target"))?;
    attributes.take("custom_call_has_side_effect", flag)?;
    attributes.take("operand_layout_constraints", |c| c.list(Cursor::shape))?;
    attributes.take("output_to_operand_aliasing", |c| c.list(alias))?;
    attributes.take("padding", padding)?;
    attributes.take("slice", |c| c.list(slice))?;
    attributes.take("index", Cursor::number)?;
    Ok(())
}

fn refuse(opcode: &str, text: &str) -> (StatusCode, String) {
    let status = take_all(opcode, text).unwrap_err().into_status(text);
    (
        status.code(),
        status.message().lines().next().unwrap().to_owned(),
    )
}

/// Takes an attribute that the text has.
#[track_caller]
fn take<'a, T>(
    attributes: &mut Attributes<'a>,
    name: &str,
    read: impl FnOnce(&mut Cursor<'a>) -> Parsed<T>,
) -> T {
    attributes.require(name, read).unwrap().value
}

#[test]
fn values_are_read_when_they_are_taken() {
    let text = ", padding=0_1x-2_-1_3, metadata={op_name=\"a}\" x=1}";
    let mut pad = read("pad", text);
    let dimension = |low, high, interior| PaddingDimension {
        low,
        high,
        interior,
    };
    assert_eq!(
        take(&mut pad, "padding", padding),
        [dimension(0, 1, 0), dimension(-2, -1, 3)]
    );
    assert!(pad.take("padding", padding).unwrap().is_none());
    let mut slices = read("slice", ", slice={[0:2], [1:5:2]}");
    let expected = SliceDimension {
        start: 1,
        limit: 5,
        stride: 2,
    };
    assert_eq!(take(&mut slices, "slice", |c| c.list(slice))[1], expected);
    let mut call = read(
        "custom-call",
        ", custom_call_target=\"a\\\"b\", operand_layout_constraints={f32[2]{0}, /*index=1*/()}, \
         output_to_operand_aliasing={{}: (0, {}), {1,0}: (2, {3})}, literal=f32[1] {2}, \
         called_computations={%a, b}, backend_config={a = \"}\"}, custom_call_has_side_effect=true, \
         control-predecessors={%c.1}, to_apply=%d.2, sharding={{replicated}, {maximal device=0}}",
    );
    let call = &mut call;
    assert_eq!(take(call, "custom_call_target", |c| utf8(c, "")), "a\"b");
    let layouts = take(call, "operand_layout_constraints", |c| {
        c.list(Cursor::shape)
    });
    assert_eq!(layouts.len(), 2);
    let aliasing = take(call, "output_to_operand_aliasing", |c| c.list(alias));
    assert_eq!(
        (aliasing[1].result_index.as_slice(), aliasing[1].operand),
        (&[1, 0][..], 2)
    );
    let literal = take(call, "literal", read_literal_with_shape);
    assert_eq!(literal.shape().to_string(), "f32[1]");
    let called = take(call, "called_computations", |c| c.list(computation));
    assert_eq!((called[0].text, called[1].text), ("a", "b"));
    assert!(matches!(
        take(call, "backend_config", config),
        Config::Braces("{a = \"}\"}")
    ));
    assert!(take(call, "custom_call_has_side_effect", flag));
    let predecessors = take(call, CONTROL_PREDECESSORS, |c| c.list(|c| c.name("")));
    assert_eq!(predecessors[0].text, "c.1");
    assert_eq!(take(call, "to_apply", computation).text, "d.2");
    assert!(call.unread.is_empty());
}

#[test]
fn what_is_ignored_is_read_over() {
    let text = ", metadata={op_name=\"jit(f)/\\\"}\\\"\" stack_frame_id=3}, origin={({\"a\"}, {\"b\" {1}})}, \
                sharding={devices=[2,1]<=[2] metadata={op_name=\"a\"}}, statistics={visualizing_index=0,a=1.5}, \
                frontend_attributes={a=\"b\",c={\"d\": [1, {}]}}, backend_config={\"known_trip_count\":{\"n\":\"4\"}}, \
                result_accuracy={tolerance={atol=0.1,rtol=0.2,ulps=3}}";
    assert!(read("tanh", text).unread.is_empty());
    assert!(
        read(
            "dot",
            ", operand_precision={highest,default}, algorithm=dot_bf16_bf16_f32"
        )
        .unread
        .is_empty()
    );
    assert!(
        read("call", ", is_composite=true, backend_config=\"}\"")
            .unread
            .is_empty()
    );
    assert!(
        read("fusion", ", output_to_operand_aliasing={{}: (0, {})}")
            .unread
            .is_empty()
    );
    assert!(
        read("parameter", ", parameter_replication={true,false}")
            .unread
            .is_empty()
    );
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
            "get-tuple-element",
            ", index=1x",
            "10: expected the end of the attribute, found \"x\"",
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
