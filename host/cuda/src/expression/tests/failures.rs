//! Expressions without a value, and their errors.

use super::{undeclared, value};

#[test]
fn failures_name_the_column() {
    let largest = i128::MAX.to_string();
    let overflows = [
        (format!("{largest} + 1"), 41),
        (format!("-{largest} - 2"), 42),
        (format!("{largest} * 2"), 41),
        (format!("-(-{largest} - 1)"), 1),
        (format!("(-{largest} - 1) / -1"), 48),
    ];
    for (text, column) in overflows {
        let found = value(&text, &undeclared());
        let expected = format!("{column}: expected a value from -2^127 to 2^127-1, found ");
        assert!(found.starts_with(&expected), "{text}: {found}");
    }
    let rest = value(&format!("(-{largest} - 1) % -1"), &undeclared());
    assert_eq!(rest, "0");
    for (text, expected) in [
        ("", "1: expected a value, found its end"),
        ("1 +", "4: expected a value, found its end"),
        (
            "1 2",
            "3: expected an operator or the expression's end, found 2",
        ),
        ("(1", "3: expected \")\", found its end"),
        (
            "1 < 2 < 3",
            "7: expected one comparison, found another; join them with &&",
        ),
        ("12ab", "1: expected a number below 2^127, found \"12ab\""),
        ("1_000", "1: expected a number below 2^127, found \"1_000\""),
        ("0x1f", "1: expected a number below 2^127, found \"0x1f\""),
        ("1e999", "1: expected a number below 2^127, found \"1e999\""),
        (
            "340282366920938463463374607431768211456",
            "1: expected a number below 2^127, found \"340282366920938463463374607431768211456\"",
        ),
        (
            "1 & 2",
            "3: expected a number, a name or an operator, found '&'",
        ),
        (
            "1 \u{0} 2",
            "3: expected a number, a name or an operator, found '\\0'",
        ),
        (
            "'é' == é",
            "8: expected a number, a name or an operator, found 'é'",
        ),
        (
            "'abc",
            "1: expected a text that ends with ' and has no control characters",
        ),
        (
            "'a\nb'",
            "1: expected a text that ends with ' and has no control characters",
        ),
        ("1 ? 2", "3: expected if(condition, a, b), found \"?\""),
        (
            "operand[0].elements",
            "1: expected a name, found \"operand\"; did you mean \"operands\"?",
        ),
        (
            "ceildiv(1, 2)",
            "1: expected a name, found \"ceildiv\"; did you mean \"ceil_div\"?",
        ),
        (
            "operands[0].size",
            "13: expected one of elements, bytes, rank, dims, element_size, element_type, found \"size\"",
        ),
        (
            "operands[-1].rank",
            "10: expected the number of one of the operands, such as 0",
        ),
        (
            "operands[99999999999999999999].rank",
            "10: expected the number of one of the operands, such as 0",
        ),
        ("operands.number", "10: expected count, found \"number\""),
        (
            "operands[9].rank",
            "1: expected operands[9], found 3 operands",
        ),
        (
            "operands[0].dims[2]",
            "18: expected a dimension of 2, found 2",
        ),
        (
            "operands[0].dims[-3]",
            "18: expected a dimension of 2, found -3",
        ),
        (
            "operands[0].dims[true]",
            "18: expected an integer, found a truth value",
        ),
        (
            "operands[0].element_type == 'float32'",
            "29: expected an element type such as 'f32', found \"float32\"",
        ),
        (
            "'F32' == operands[0].element_type",
            "1: expected an element type such as 'f32', found \"F32\"; did you mean \"f32\"?",
        ),
        ("1 / 0", "3: expected a divisor other than 0, found 0"),
        ("1 % (2 - 2)", "3: expected a divisor other than 0, found 0"),
        (
            "1 + ceil_div(1, 0)",
            "5: expected a divisor other than 0, found 0",
        ),
        ("min(1)", "4: expected 2 or more arguments of min, found 1"),
        (
            "ceil_div(1, 2, 3)",
            "9: expected 2 arguments of ceil_div, found 3",
        ),
        (
            "if(true, 1)",
            "12: expected if(condition, a, b): 3 arguments, found 2",
        ),
        ("1 + true", "5: expected an integer, found a truth value"),
        (
            "1.5 + 1.5",
            "1: expected an integer, found a floating-point number",
        ),
        ("1 && true", "1: expected a truth value, found an integer"),
        ("!1", "2: expected a truth value, found an integer"),
        ("-true", "2: expected a number, found a truth value"),
        (
            "1 == 1.0",
            "6: expected values of one kind to compare, found an integer and a floating-point number",
        ),
        ("'a' < 'b'", "1: expected numbers to order, found a text"),
        (
            "if(true, 1, 'a')",
            "13: expected an integer as in the other case, found a text",
        ),
        (
            "attributes.m",
            "1: expected attributes.m, found no attribute \"m\"",
        ),
        (
            "attributes.fla",
            "1: expected attributes.fla, found no attribute \"fla\"; did you mean \"flag\"?",
        ),
        (
            "attributes",
            "11: expected an attribute's name, as in attributes.n",
        ),
        (
            "attributes[0]",
            "11: expected an attribute's name, as in attributes.n",
        ),
        (
            "attributes.eps + 1",
            "1: expected an integer, found a floating-point number, 0.5",
        ),
        (
            "attributes.mode && true",
            "1: expected a truth value, found a text, same",
        ),
        ("-attributes.mode", "2: expected a number, found same"),
        (
            "attributes.n == attributes.eps",
            "1: expected values of one kind to compare, found an integer and a floating-point number",
        ),
        (
            "attributes.mode < attributes.mode",
            "1: expected numbers to order, found a text",
        ),
        (
            "attributes.strides",
            "1: expected a scalar or a string as attributes.strides, found an attribute of the kind array",
        ),
        (
            "attributes.callee",
            "1: expected a scalar or a string as attributes.callee, found an attribute of the kind function",
        ),
        (
            "attributes.strides[4]",
            "20: expected one of 4 elements, found the index 4",
        ),
        (
            "attributes.strides[-1]",
            "20: expected one of 4 elements, found the index -1",
        ),
        (
            "attributes.n[0]",
            "1: expected an array as attributes.n[...], found an attribute of the kind scalar",
        ),
        ("attributes.n.x", "14: expected count, found \"x\""),
        (
            "attributes.f8",
            "1: expected a value of s8, u8, s16, u16, s32, u32, s64, u64, f16, bf16, f32, f64, pred, found f8e5m2",
        ),
        ("has(n)", "6: expected has(attributes.NAME), found \")\""),
        ("has(attributes.a[0])", "17: expected \")\", found \"[\""),
        (
            "opaque_u32(8)",
            "12: expected 4 of 11 opaque bytes, found the offset 8",
        ),
        (
            "opaque_u32(-1)",
            "12: expected 4 of 11 opaque bytes, found the offset -1",
        ),
        (
            "opaque_u32(18446744073709551615)",
            "12: expected 4 of 11 opaque bytes, found the offset 18446744073709551615",
        ),
        ("opaque.size", "8: expected bytes, found \"size\""),
    ] {
        let found = value(text, &undeclared());
        let found = if expected.contains("did you mean") {
            found
        } else {
            found.split("; did you mean").next().unwrap().to_owned()
        };
        assert_eq!(found, expected, "{text}");
    }
}
