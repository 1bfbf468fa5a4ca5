#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::{Expression, Facts, Kind, PARAMETER_TYPES};
use crate::call::{ApiVersion, AttributeSignature, BufferSignature, CallSite, Signature, Stage};
use crate::values::{Attribute, Dictionary, ElementType, Literal};

const ANY: [Kind; 4] = [Kind::Integer, Kind::Float, Kind::Boolean, Kind::Text];

/// A target that declares nothing.
fn undeclared() -> Signature {
    Signature {
        name: "f".to_owned(),
        api_versions: vec![ApiVersion::TypedFfi],
        stages: vec![Stage::Execute],
        operands: None,
        remaining_operands: false,
        results: None,
        remaining_results: false,
        attributes: None,
        documentation: String::new(),
        traits: Vec::new(),
    }
}

/// A target of one operand of rank 2, one result, and an attribute of each kind.
fn declared() -> Signature {
    let buffer = |rank| BufferSignature {
        name: String::new(),
        element_types: Vec::new(),
        rank,
        optional: false,
    };
    let attribute =
        |(name, kind, element_type): (&str, &str, Option<ElementType>)| AttributeSignature {
            name: name.to_owned(),
            kind: kind.to_owned(),
            element_type,
            optional: false,
        };
    let attributes = [
        ("n", "scalar", Some(ElementType::S32)),
        ("eps", "scalar", Some(ElementType::F32)),
        ("any", "scalar", None),
        ("flag", "scalar", Some(ElementType::Pred)),
        ("complex", "scalar", Some(ElementType::C64)),
        ("strides", "array", Some(ElementType::S64)),
        ("mode", "string", None),
        ("inner", "dictionary", None),
        ("callee", "function", None),
    ];
    Signature {
        operands: Some(vec![buffer(Some(2))]),
        results: Some(vec![buffer(None)]),
        attributes: Some(attributes.map(attribute).to_vec()),
        ..undeclared()
    }
}

/// A call of f32[6,35] and (s8[], (bf16[4])) to f64[2,3,5], with attributes and eleven opaque bytes.
fn site() -> CallSite {
    let shapes = ["f32[6,35]", "(s8[], (bf16[4]))"].map(|text| text.parse().unwrap());
    let mut site = CallSite::new("f", shapes.to_vec(), "f64[2,3,5]".parse().unwrap());
    let deepest = Dictionary::from([("x".to_owned(), Attribute::scalar(u64::MAX))]);
    let inner = Dictionary::from([
        ("count".to_owned(), Attribute::scalar(7_u8)),
        ("deep".to_owned(), Attribute::Dictionary(deepest)),
    ]);
    let array = |literal: Literal| Attribute::array(literal).unwrap();
    let strides = Literal::array(&[2, 2], &[35_i64, 1, -9, i64::MIN]).unwrap();
    let attributes = [
        ("n", Attribute::scalar(-12_i32)),
        ("eps", Attribute::scalar(0.5_f32)),
        ("nan", Attribute::scalar(f32::NAN)),
        ("flag", Attribute::scalar(true)),
        ("strides", array(strides)),
        ("empty", array(Literal::array::<f32>(&[0], &[]).unwrap())),
        ("mode", Attribute::from("same")),
        ("odd-name", Attribute::scalar(3_u16)),
        ("inner", Attribute::Dictionary(inner)),
        ("callee", Attribute::Function("g".to_owned())),
        ("f8", Attribute::Scalar("f8e5m2".parse().map(one).unwrap())),
    ];
    site.attributes = attributes
        .map(|(name, value)| (name.to_owned(), value))
        .into();
    // 0xfffefdfc, then 1.5 as an f32, then three bytes.
    site.opaque = [0xfc, 0xfd, 0xfe, 0xff, 0, 0, 0xc0, 0x3f, 1, 2, 3].to_vec();
    site
}

fn one(ty: ElementType) -> Literal {
    let shape = crate::values::ArrayShape::scalar(ty);
    Literal::from_bytes(shape, vec![0; ty.byte_width()]).unwrap()
}

/// The value for [`site`], or the message without the expression.
fn value(text: &str, signature: &Signature) -> String {
    let site = site();
    let facts = Facts::new(&site);
    let expression = Expression::parse(text, signature, &ANY);
    let value = expression
        .as_ref()
        .map_err(Clone::clone)
        .and_then(|expression| expression.evaluate(&facts));
    match value {
        Ok(value) => value.to_string(),
        Err(status) => {
            assert_eq!(status.code().name(), "INVALID_ARGUMENT");
            let (_, place) = status.message().split_once(", column ").unwrap();
            place.to_owned()
        }
    }
}

/// Values as Python has them: `//` and `%` round down, `-(-a // b)` rounds up.
#[test]
fn values() {
    for (text, expected) in [
        ("1 + 2 * 3 - 4", "3"),
        ("(1 + 2) * 3", "9"),
        ("2 - 3 - 4", "-5"),
        ("100 / 7 / 2", "7"),
        ("7 / 2", "3"),
        ("-7 / 2", "-4"),
        ("7 / -2", "-4"),
        ("-7 / -2", "3"),
        ("7 % 3", "1"),
        ("-7 % 3", "2"),
        ("7 % -3", "-2"),
        ("-7 % -3", "-1"),
        ("6 % -3", "0"),
        ("-6 / 3", "-2"),
        ("0x1F + 0", "31"),
        ("--5", "5"),
        ("-2 * -3", "6"),
        ("min(3, -1, 2)", "-1"),
        ("max(3, -1, 2)", "3"),
        ("ceil_div(7, 2)", "4"),
        ("ceil_div(-7, 2)", "-3"),
        ("ceil_div(8, 2)", "4"),
        ("ceil_div(0, 256)", "0"),
        ("ceil_div(7, -2)", "-3"),
        ("round_up(13, 8)", "16"),
        ("round_up(16, 8)", "16"),
        ("round_up(-13, 8)", "-8"),
        ("pow2_at_least(0)", "1"),
        ("pow2_at_least(-5)", "1"),
        ("pow2_at_least(1)", "1"),
        ("pow2_at_least(3)", "4"),
        ("pow2_at_least(1024)", "1024"),
        ("pow2_at_least(1025)", "2048"),
        ("clamp(5, 1, 3)", "3"),
        ("clamp(-5, 1, 3)", "1"),
        ("if(2 > 1, 10, 20)", "10"),
        ("if(2 < 1, 10, 20)", "20"),
        ("if(true, 1, 1 / 0)", "1"),
        ("true || 1 / 0 == 1", "true"),
        ("false && 1 / 0 == 1", "false"),
        ("false || false || true", "true"),
        ("true && true && false", "false"),
        ("true || true && false", "true"),
        ("!true == false", "true"),
        ("!(1 == 2)", "true"),
        ("1 <= 1 && 1 >= 1 && 1 != 2", "true"),
        ("0.5 < 1.5", "true"),
        ("-1.5e3", "-1500.0"),
        ("1e-2 == 0.01", "true"),
        ("'a' == 'a' && 'a' != 'b'", "true"),
        ("\t1   +1 ", "2"),
        ("operands.count", "3"),
        ("results.count", "1"),
        ("operands[0].elements", "210"),
        ("operands[0].bytes", "840"),
        ("operands[0].rank", "2"),
        ("operands[0].dims[0]", "6"),
        ("operands[0].dims[-1]", "35"),
        ("operands[0].dims[operands[0].rank - 1]", "35"),
        ("operands[0].element_size", "4"),
        ("operands[0].element_type", "f32"),
        ("operands[0].element_type == 'f32'", "true"),
        ("operands[1].element_type == 's8'", "true"),
        ("operands[1].elements", "1"),
        ("operands[2].element_size", "2"),
        ("results[0].dims[2] * results[0].dims[-3]", "10"),
        ("results[0].bytes", "240"),
        ("attributes.n", "-12"),
        ("attributes.eps", "0.5"),
        ("attributes.eps == 0.5", "true"),
        ("attributes.nan == attributes.nan", "false"),
        ("attributes.nan != attributes.nan", "true"),
        ("attributes.nan < 1.0 || attributes.nan >= 1.0", "false"),
        ("attributes.flag", "true"),
        ("attributes.mode == 'same'", "true"),
        ("attributes['odd-name']", "3"),
        ("attributes.strides[0]", "35"),
        ("attributes.strides[1 + 1]", "-9"),
        ("attributes.strides[3]", "-9223372036854775808"),
        ("attributes.strides.count", "4"),
        ("attributes.empty.count", "0"),
        ("attributes.inner.count", "7"),
        ("attributes.inner.deep.x", "18446744073709551615"),
        ("attributes['inner']['deep'].x + 1", "18446744073709551616"),
        ("has(attributes.n)", "true"),
        ("has(attributes.m)", "false"),
        ("has(attributes.inner.deep.x)", "true"),
        ("has(attributes.inner.deep.y)", "false"),
        ("has(attributes.strides.count)", "true"),
        ("has(attributes.n.x)", "false"),
        ("has(attributes.m) && attributes.m > 0", "false"),
        ("if(has(attributes.m), attributes.m, 4)", "4"),
        ("opaque.bytes", "11"),
        ("opaque[10]", "3"),
        ("opaque_u32(0)", "4294901244"),
        ("opaque_u64(0)", "4593671624212807164"),
        ("opaque_f32(4)", "1.5"),
        ("opaque_u32(opaque[8] * 4)", "1069547520"),
    ] {
        assert_eq!(value(text, &undeclared()), expected, "{text}");
    }
}

#[test]
fn failures_name_the_column() {
    let largest = i128::MAX.to_string();
    let overflows = [
        (format!("{largest} + 1"), 41),
        (format!("-{largest} - 2"), 42),
        (format!("{largest} * 2"), 41),
        (format!("-(-{largest} - 1)"), 1),
        (format!("(-{largest} - 1) / -1"), 48),
        (format!("pow2_at_least({largest})"), 1),
        (format!("round_up({largest}, 2)"), 1),
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
        ("0x", "1: expected a number below 2^127, found \"0x\""),
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
        (
            "round_up(1, -4)",
            "1: expected round_up to a multiple of 1 or more, found -4",
        ),
        (
            "clamp(1, 3, 2)",
            "1: expected clamp's least value not to be above its most, found 3 and 2",
        ),
        ("min(1)", "4: expected 2 or more arguments of min, found 1"),
        ("clamp(1, 2)", "6: expected 3 arguments of clamp, found 2"),
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
            "14: expected an array to index, found an attribute of the kind scalar",
        ),
        (
            "attributes.n.x",
            "1: expected \"x\" in it, found an attribute of the kind scalar",
        ),
        (
            "attributes.inner.deep.y",
            "1: expected attributes.inner.deep.y, found no attribute \"y\"",
        ),
        (
            "attributes.f8",
            "1: expected a value of s8, u8, s16, u16, s32, u32, s64, u64, f16, bf16, f32, f64, pred, found f8e5m2",
        ),
        ("has(n)", "6: expected has(attributes.NAME), found \")\""),
        (
            "has(attributes.a[0])",
            "15: expected names alone, found an index; .count is how many elements there are",
        ),
        (
            "opaque[11]",
            "8: expected 1 of 11 opaque bytes, found the offset 11",
        ),
        (
            "opaque_u32(8)",
            "12: expected 4 of 11 opaque bytes, found the offset 8",
        ),
        (
            "opaque_u64(-1)",
            "12: expected 8 of 11 opaque bytes, found the offset -1",
        ),
        (
            "opaque_f64(18446744073709551615)",
            "12: expected 8 of 11 opaque bytes, found the offset 18446744073709551615",
        ),
        ("opaque.size", "8: expected bytes, found \"size\""),
    ] {
        let found = value(text, &undeclared());
        let found = match expected.contains("did you mean") {
            true => found,
            false => found.split("; did you mean").next().unwrap().to_owned(),
        };
        assert_eq!(found, expected, "{text}");
    }
}

/// What is declared is known when the expression is read.
#[test]
fn references_are_held_against_the_declaration() {
    for (text, expected) in [
        ("operands[0].dims[-2] + results[0].dims[7]", Ok(())),
        (
            "operands[1].rank",
            Err("1: expected one of the 1 operands that are declared, found operands[1]"),
        ),
        (
            "results[1].rank",
            Err("1: expected one of the 1 results that are declared, found results[1]"),
        ),
        (
            "operands[0].dims[2]",
            Err("18: expected a dimension of 2, found 2"),
        ),
        (
            "operands[0].dims[-3]",
            Err("18: expected a dimension of 2, found -3"),
        ),
        ("attributes.n + 1", Ok(())),
        ("attributes.any + 1", Ok(())),
        ("attributes.strides[0] + attributes.strides.count", Ok(())),
        ("attributes.inner.x.y[3] + 1", Ok(())),
        ("attributes.mode == 'x'", Ok(())),
        (
            "has(attributes.nn)",
            Err(
                "1: expected an attribute that is declared, found attributes.nn; did you mean \"n\"?",
            ),
        ),
        (
            "attributes.stride[0]",
            Err(
                "1: expected an attribute that is declared, found attributes.stride[...]; did you mean \"strides\"?",
            ),
        ),
        (
            "attributes.eps + 1",
            Err("1: expected an integer, found a floating-point number"),
        ),
        (
            "attributes.flag + 1",
            Err("1: expected an integer, found a truth value"),
        ),
        (
            "attributes.n == attributes.eps",
            Err(
                "17: expected values of one kind to compare, found an integer and a floating-point number",
            ),
        ),
        (
            "attributes.complex",
            Err(
                "1: expected a value of s8, u8, s16, u16, s32, u32, s64, u64, f16, bf16, f32, f64, pred, found c64",
            ),
        ),
        (
            "attributes.n[0]",
            Err("1: expected nothing behind its name, found attributes.n[...] of the kind scalar"),
        ),
        (
            "attributes.strides",
            Err(
                "1: expected an element or .count of it, found attributes.strides of the kind array",
            ),
        ),
        (
            "attributes.inner",
            Err("1: expected a name in it, found attributes.inner of the kind dictionary"),
        ),
        (
            "attributes.callee",
            Err("1: expected a value, found attributes.callee of the kind function"),
        ),
        (
            "attributes.mode.count",
            Err(
                "1: expected nothing behind its name, found attributes.mode.count of the kind string",
            ),
        ),
    ] {
        let read = Expression::parse(text, &declared(), &ANY).map(|_| ());
        let found = read.map_err(|status| {
            let (_, place) = status.message().split_once(", column ").unwrap();
            place.to_owned()
        });
        assert_eq!(found, expected.map_err(str::to_owned), "{text}");
    }
    let mut takes_more = declared();
    takes_more.remaining_operands = true;
    assert!(Expression::parse("operands[1].rank", &takes_more, &ANY).is_ok());
}

#[test]
fn the_whole_has_the_kind_that_its_place_takes() {
    let message = |text: &str, kinds: &[Kind]| {
        let read = Expression::parse(text, &undeclared(), kinds);
        read.map_or_else(|status| status.message().to_owned(), |_| String::new())
    };
    assert_eq!(
        message("1 < 2", &[Kind::Integer]),
        "expression \"1 < 2\", column 1: expected an integer, found a truth value"
    );
    assert_eq!(
        message("'x'", &[Kind::Float, Kind::Integer]),
        "expression \"'x'\", column 1: expected a floating-point number or an integer, found a text"
    );
    // Known with the call site alone.
    assert_eq!(message("attributes.mode", &[Kind::Integer]), "");
    let site = site();
    let facts = Facts::new(&site);
    let read = |text| Expression::parse(text, &undeclared(), &ANY).unwrap();
    let mode = read("attributes.mode");
    assert_eq!(
        mode.size(&facts, "a size", 0, 9).unwrap_err().message(),
        "expression \"attributes.mode\", column 1: expected a size from 0 to 9, found same"
    );
    assert_eq!(
        mode.truth(&facts).unwrap_err().message(),
        "expression \"attributes.mode\", column 1: expected a truth value, found same"
    );
    for (text, size) in [
        ("0", None),
        ("1", Some(1)),
        ("9", Some(9)),
        ("10", None),
        ("-1", None),
    ] {
        let found = read(text).size(&facts, "a size", 1, 9).ok();
        assert_eq!(found, size, "{text}");
    }
    assert!(
        read("18446744073709551616")
            .size(&facts, "a size", 0, u64::MAX)
            .is_err()
    );
}

#[test]
fn hostile_texts_are_refused_at_once() {
    let deep = [
        "(".repeat(10_000),
        "-".repeat(10_000) + "1",
        "!".repeat(10_000) + "true",
        "if(".repeat(10_000),
        "opaque[".repeat(10_000),
        "operands[0].dims[".repeat(10_000),
        "attributes.a[".repeat(10_000),
    ];
    for text in deep {
        let short: String = text.chars().take(4000).collect();
        let found = value(&short, &undeclared());
        assert!(found.contains("nests at most 32 deep"), "{found}");
        let found = value(&text, &undeclared());
        assert!(
            found.starts_with("1: expected an expression of at most 4096 bytes"),
            "{found}"
        );
    }
    let long = "1+".repeat(1 << 19) + "1";
    let status = Expression::parse(&long, &undeclared(), &ANY).unwrap_err();
    assert!(status.message().len() < 500, "{status}");
    // As long as may be, and not deep.
    let chain = "1+".repeat(2047) + "1";
    assert_eq!(value(&chain, &undeclared()), "2048");
    let nested = "(".repeat(31) + "1" + &")".repeat(31);
    assert_eq!(value(&nested, &undeclared()), "1");
    let nested = format!("({nested})");
    assert!(value(&nested, &undeclared()).contains("deep"));
}

/// Every beginning of an expression, and every expression with one byte more, is read or refused.
#[test]
fn pieces_of_expressions_do_not_panic() {
    let text =
        "if(has(attributes.a['b'].c[0x1 + -2]) && 1.5e3 <= opaque_f32(4), min(1, 2) % 3, 'é')";
    for end in (0..=text.len()).filter(|&end| text.is_char_boundary(end)) {
        for more in ["", "\0", "'", "[", "(", ".", "1", "e", "é", "-", " "] {
            value_or_message(&format!("{}{more}{}", &text[..end], &text[end..]));
            value_or_message(&format!("{}{more}", &text[..end]));
        }
    }
}

fn value_or_message(text: &str) {
    let found = value(text, &undeclared());
    assert!(!found.is_empty(), "{text}");
}

/// Bytes as Python's `struct.pack` has them, and numpy for bf16.
#[test]
fn parameters_have_the_bytes_of_their_types() {
    let bytes = |text: &str, ty: &str| {
        let site = site();
        let facts = Facts::new(&site);
        let expression = Expression::parse(text, &undeclared(), &ANY).unwrap();
        let value = expression.evaluate(&facts).unwrap();
        value.encode(ty.parse().unwrap())
    };
    for (text, ty, expected) in [
        ("-1", "s8", &[0xff][..]),
        ("255", "u8", &[0xff]),
        ("-32768", "s16", &[0, 0x80]),
        ("65535", "u16", &[0xff, 0xff]),
        ("-2", "s32", &[0xfe, 0xff, 0xff, 0xff]),
        ("4294967295", "u32", &[0xff; 4]),
        ("-9223372036854775808", "s64", &[0, 0, 0, 0, 0, 0, 0, 0x80]),
        ("18446744073709551615", "u64", &[0xff; 8]),
        ("1.5", "f16", &[0x00, 0x3e]),
        ("1.5", "bf16", &[0xc0, 0x3f]),
        ("0.1", "f32", &[0xcd, 0xcc, 0xcc, 0x3d]),
        (
            "0.1",
            "f64",
            &[0x9a, 0x99, 0x99, 0x99, 0x99, 0x99, 0xb9, 0x3f],
        ),
        ("-0.0", "f32", &[0, 0, 0, 0x80]),
        ("attributes.eps", "f64", &[0, 0, 0, 0, 0, 0, 0xe0, 0x3f]),
        ("3", "f32", &[0, 0, 0x40, 0x40]),
        ("16777216", "f32", &[0, 0, 0x80, 0x4b]),
        ("true", "pred", &[1]),
        ("1 > 2", "pred", &[0]),
    ] {
        assert_eq!(bytes(text, ty).as_deref(), Ok(expected), "{text} as {ty}");
    }
    for (text, ty) in [
        ("128", "s8"),
        ("-129", "s8"),
        ("-1", "u8"),
        ("256", "u8"),
        ("4294967296", "u32"),
        ("-1", "u64"),
        ("18446744073709551616", "u64"),
        ("9223372036854775808", "s64"),
        ("16777217", "f32"),
        ("2049", "f16"),
        ("170141183460469231731687303715884105727", "f64"),
        ("1e39", "f32"),
        ("65520.0", "f16"),
        ("1.5", "u32"),
        ("true", "u8"),
        ("1", "pred"),
        ("'1'", "u8"),
        ("1", "f8e5m2"),
        ("1", "s4"),
        ("1.0", "c64"),
    ] {
        let message = bytes(text, ty).unwrap_err();
        assert!(message.starts_with(&format!("expected a value of the type {ty}, found ")));
    }
    // Every type that is said to be one has bytes.
    for ty in PARAMETER_TYPES {
        let text = if ty.is_pred() { "true" } else { "1" };
        let found = bytes(text, ty.lower_name()).unwrap();
        assert_eq!(found.len(), ty.byte_width(), "{ty}");
    }
}

/// A NaN's bits reach the kernel as they are at the call site.
#[test]
fn numbers_of_the_same_type_keep_their_bits() {
    let mut site = site();
    let signalling = f32::from_bits(0xff80_0123);
    site.attributes = [("x".to_owned(), Attribute::scalar(signalling))].into();
    let facts = Facts::new(&site);
    let x = Expression::parse("if(true, attributes.x, 0.0)", &undeclared(), &ANY).unwrap();
    let value = x.evaluate(&facts).unwrap();
    assert_eq!(
        value.encode(ElementType::F32),
        Ok(vec![0x23, 0x01, 0x80, 0xff])
    );
}

#[test]
fn texts_of_callers_are_shown_on_one_line() {
    let mut site = site();
    let text = Attribute::String(
        b"a\x1b[2J\nb\xff"
            .iter()
            .copied()
            .chain(vec![b'x'; 9999])
            .collect(),
    );
    site.attributes = [("x".to_owned(), text)].into();
    let facts = Facts::new(&site);
    let x = Expression::parse("attributes.x", &undeclared(), &ANY).unwrap();
    let shown = x.evaluate(&facts).unwrap().to_string();
    assert!(shown.starts_with("a\u{fffd}[2J b\u{fffd}xx"), "{shown}");
    assert_eq!(shown.chars().count(), 64);
}
