//! Errors: the position, the line and the caret.

use super::{TWO, module, parse, refuse};
use callbox_core::StatusCode;

#[track_caller]
fn check(text: &str, expected: &str) {
    let status = refuse(text);
    assert_eq!(status.message().lines().next(), Some(expected));
    assert_eq!(status.code(), StatusCode::InvalidArgument);
}

#[test]
fn the_line_is_shown_with_a_caret() {
    let text = module("  p0 = f32[2] parameter(0)\n  x = f32[2] add(p0,, p0)");
    let status = refuse(&text);
    assert_eq!(
        status.message(),
        "line 5, column 21: expected an operand, found ','\n    x = f32[2] add(p0,, p0)\n                      ^"
    );
    let status = refuse(&module(
        "  p0 = f32[2] parameter(0)\n  x = f32[2] infeed(p0)",
    ));
    assert_eq!(status.code(), StatusCode::Unimplemented);
    assert_eq!(
        status.message(),
        "line 5, column 14: instruction \"infeed\" is not supported\n    x = f32[2] infeed(p0)\n               ^"
    );
}

#[test]
fn stable_hlo_is_told_apart() {
    for text in [
        "module @jit_f attributes {a = 1} {\n}",
        "#loc1 = loc(\"x\")\nmodule @jit_f {}",
    ] {
        check(
            text,
            "line 1, column 1: expected HLO text, found StableHLO: print it with \
             lowered.compiler_ir(\"hlo\").as_hlo_text(print_large_constants=True)",
        );
    }
}

#[test]
fn attributes_have_known_words() {
    for (instruction, expected) in [
        (
            "y = c64[4] fft(x), fft_type=DCT, fft_length={4}",
            "31: expected a kind of transform such as RFFT, found \"DCT\"",
        ),
        (
            "y = c64[4] fft(x), fft_type=FFT",
            "14: expected the attribute fft_length of \"fft\", found none",
        ),
        (
            "y = (c64[2], s32[2]) topk(x), k=2",
            "24: expected the attribute largest of \"topk\", found none",
        ),
        (
            "y = c64[4] triangular-solve(x, x), transpose_a=YES",
            "50: expected NO_TRANSPOSE, TRANSPOSE or ADJOINT, found \"YES\"",
        ),
        (
            "y = (c64[4], u8[]) rng-bit-generator(x), algorithm=rng_best",
            "54: expected an algorithm such as rng_philox, found \"rng_best\"",
        ),
    ] {
        let text = module(&format!("  x = c64[4] parameter(0)\n  {instruction}"));
        check(&text, &format!("line 5, column {expected}"));
    }
}

#[test]
fn names_are_looked_up() {
    check(
        &module("  x.1 = f32[] parameter(0)\n  ROOT y = f32[] add(x.1, x.2)"),
        "line 5, column 27: expected an instruction of computation %main, found %x.2; did you mean %x.1?",
    );
    check(
        &module("  x.1 = f32[] parameter(0)\n  ROOT y = f32[] add(x.1, frobnicate)"),
        "line 5, column 27: expected an instruction of computation %main, found %frobnicate",
    );
    check(
        &module("  x = f32[] parameter(0)\n  y = f32[] negate(x), control-predecessors={z}"),
        "line 5, column 46: expected an instruction of computation %main, found %z",
    );
    check(
        &module("  x = f32[] parameter(0)\n  y = f32[] call(x), to_apply=foo"),
        "line 5, column 31: expected a computation, found %foo",
    );
    check(
        &module("  x = f32[2] parameter(0)\n  y = f32[3] negate(f32[3]{0} x)"),
        "line 5, column 31: expected %x of shape f32[2], found f32[3]{0}",
    );
}

#[test]
fn names_are_unique() {
    check(
        &module("  x = f32[] parameter(0)\n  x = f32[] negate(x)"),
        "line 5, column 3: expected the name of another instruction, found %x, which is in line 4",
    );
    check(
        "HloModule m\nf { ROOT x = f32[] parameter(0) }\n%f { ROOT x = f32[] parameter(0) }\nENTRY g { x = f32[] parameter(0) }",
        "line 3, column 1: expected the name of another computation, found %f, which is in line 2",
    );
    check(
        &module("  x = f32[] parameter(0)\n  y = f32[] parameter(0)"),
        "line 5, column 3: expected one parameter(0) in computation %main, found another, after %x in line 4",
    );
    check(
        &module("  x = f32[] parameter(0)\n  y = f32[] parameter(18446744073709551615)"),
        "line 5, column 3: expected parameter(1) in computation %main, found parameter(18446744073709551615)",
    );
    check(
        &module("  x = f32[] parameter(1)"),
        "line 4, column 3: expected parameter(0) in computation %main, found parameter(1)",
    );
}

#[test]
fn there_is_one_entry() {
    check(
        "HloModule m\nf { ROOT x = f32[] parameter(0) }\n",
        "line 2, column 34: expected a computation marked ENTRY, found none",
    );
    check(
        "HloModule m",
        "line 1, column 12: expected a computation marked ENTRY, found none",
    );
    check(
        "HloModule m\nENTRY f { x = f32[] parameter(0) }\nENTRY g { x = f32[] parameter(0) }",
        "line 3, column 7: expected one computation marked ENTRY, found another, after the one in line 2",
    );
}

#[test]
fn exports_are_computations() {
    let header = |exports: &str| {
        let header = format!("HloModule m, frontend_attributes={{callbox.exports=\"{exports}\"}}");
        TWO.replacen('{', &header, 1)
    };
    check(
        &header("add,mull"),
        "line 1, column 51: expected a computation, found %mull; did you mean %mul?",
    );
    check(
        &header(""),
        "line 1, column 51: expected a computation, found %",
    );
    check(
        &header("add,add"),
        "line 1, column 51: expected each computation once, found another %add",
    );
}

#[test]
fn cycles_are_named() {
    check(
        &module(
            "  x = f32[] parameter(0)\n  a = f32[] add(x, b)\n  b = f32[] negate(c)\n  ROOT c = f32[] negate(a)",
        ),
        "line 5, column 3: expected instructions that do not need themselves, found %a -> %b -> %c -> %a",
    );
    check(
        &module("  x = f32[] negate(x)"),
        "line 4, column 3: expected instructions that do not need themselves, found %x -> %x",
    );
    check(
        &module(
            "  x = f32[] parameter(0)\n  a = f32[] negate(x), control-predecessors={b}\n  b = f32[] negate(a)",
        ),
        "line 5, column 3: expected instructions that do not need themselves, found %a -> %b -> %a",
    );
    check(
        "HloModule m
f { x = f32[] parameter(0) y = f32[] call(x), to_apply=g }
g { x = f32[] parameter(0) y = f32[] call(x), to_apply=f }
ENTRY main { x = f32[] parameter(0) y = f32[] call(x), to_apply=f }",
        "line 2, column 28: instruction %y (call) in computation %f: \
         expected computations that do not call themselves, found %f -> %g -> %f",
    );
}

#[test]
fn headers_say_what_instructions_say() {
    let with_header =
        |header: &str| format!("HloModule m\nENTRY f {header} {{\n  x = f32[2] parameter(0)\n}}");
    assert!(parse(&with_header("(y: f32[2]) -> f32[2]{0}")).is_ok());
    check(
        &with_header("() -> f32[2]"),
        "line 2, column 9: expected 1 parameters in the header of %f, found 0",
    );
    check(
        &with_header("(x: f32[3]) -> f32[2]"),
        "line 2, column 9: expected f32[2] for parameter 0 in the header, found f32[3]",
    );
    check(
        &with_header("(x: f32[2]) -> (f32[2])"),
        "line 2, column 9: expected f32[2] for the result in the header, found (f32[2])",
    );
    check(
        "HloModule m, entry_computation_layout={(f32[2]{0})->f32[3]{0}}\nENTRY f { x = f32[2] parameter(0) }",
        "line 1, column 40: expected f32[2] for the result in the entry_computation_layout, found f32[3]{0}",
    );
}

#[test]
fn attributes_are_complete() {
    for (instruction, message) in [
        (
            "reduce(x, x), dimensions={0}",
            "expected the attribute to_apply of \"reduce\", found none",
        ),
        (
            "transpose(x)",
            "expected the attribute dimensions of \"transpose\", found none",
        ),
        (
            "broadcast(x)",
            "expected the attribute dimensions of \"broadcast\", found none",
        ),
        (
            "while(x), body=main",
            "expected the attribute condition of \"while\", found none",
        ),
        (
            "fusion(x), calls=main",
            "expected the attribute kind of \"fusion\", found none",
        ),
        (
            "compare(x, x)",
            "expected the attribute direction of \"compare\", found none",
        ),
        (
            "conditional(p, x, x), true_computation=main",
            "expected the attribute false_computation of \"conditional\", found none",
        ),
        (
            "conditional(p, x, x), branch_computations={main, main}",
            "expected true_computation and false_computation alone, for a predicate, found other attributes",
        ),
        (
            "conditional(i, x, x), true_computation=main, false_computation=main",
            "expected branch_computations alone, for an index, found other attributes",
        ),
    ] {
        let text = format!(
            "  x = f32[2] parameter(0)\n  p = pred[] parameter(1)\n  i = s32[] parameter(2)\n  y = f32[2] {instruction}"
        );
        check(&module(&text), &format!("line 7, column 14: {message}"));
    }
}

#[test]
fn words_are_checked() {
    for (instruction, message) in [
        (
            "compare(x, x), direction=lt",
            "39: expected a direction such as LT, found \"lt\"",
        ),
        (
            "compare(x, x), direction=LT, type=FLOATS",
            "48: expected FLOAT, TOTALORDER, SIGNED or UNSIGNED, found \"FLOATS\"",
        ),
        (
            "compare(x, x), direction=LT, type=SIGNED",
            "48: expected a type of comparison for f32, found SIGNED",
        ),
        (
            "fusion(x), calls=main, kind=kFoo",
            "42: expected a kind of fusion such as kLoop, found \"kFoo\"",
        ),
        (
            "concatenate(x), dimensions={0,1}",
            "41: expected one dimension, found 2",
        ),
        (
            "map(x), dimensions={1,0}, to_apply=main",
            "33: expected all dimensions in order, found [1, 0]",
        ),
        (
            "reduce-precision(x), exponent_bits=4294967296, mantissa_bits=1",
            "49: expected a number of bits, found 4294967296",
        ),
    ] {
        let text = format!("  x = f32[2] parameter(0)\n  y = f32[2] {instruction}");
        check(&module(&text), &format!("line 5, column {message}"));
    }
}

/// Errors of the verifier show the position of the instruction.
#[test]
fn wrong_shapes_are_shown() {
    let text = "HloModule m
f { x = f32[2] parameter(0) y = f32[2] negate(x) }
ENTRY main {
  x = f32[2] parameter(0)
  y = f32[3] negate(x)
}";
    let status = refuse(text);
    assert_eq!(status.code(), StatusCode::InvalidArgument);
    assert_eq!(
        status.message(),
        "line 5, column 3: instruction %y (negate) in computation %main: expected the shape f32[2], found f32[3]\n    \
         y = f32[3] negate(x)\n    ^"
    );
}

#[test]
fn long_names_are_cut() {
    let long = "x".repeat(200);
    let text = module(&format!("  x = f32[] negate({long})"));
    let expected = format!(
        "line 4, column 20: expected an instruction of computation %main, found %{}...",
        "x".repeat(80)
    );
    check(&text, &expected);
}

#[test]
fn texts_have_a_largest_size() {
    let text = " ".repeat(super::super::MAX_TEXT_BYTES + 1);
    let status = refuse(&text);
    assert_eq!(status.code(), StatusCode::ResourceExhausted);
    assert_eq!(
        status.message(),
        "expected a text of at most 268435456 bytes, found 268435457"
    );
}

/// Texts that would overflow the stack of a reader that recurses.
#[test]
fn depth_is_bounded() {
    let deep = |open: &str| open.repeat(200_000);
    for text in [
        module(&format!("x = {} parameter(0)", deep("("))),
        module(&format!("x = f32[2] constant({})", deep("{"))),
        module(&format!(
            "x = f32[] custom-call(), custom_call_target=\"t\", literal={}",
            deep("(")
        )),
        module(&format!("x = f32[] add(), metadata={}", deep("{"))),
        module(&format!("x = f32[] add({}", deep("("))),
        module(&format!(
            "x = f32[] custom-call(), custom_call_target=\"t\", api_version=API_VERSION_TYPED_FFI, backend_config={}{}",
            deep("{a = "),
            deep("}")
        )),
        module(&format!(
            "x = f32[] custom-call(), custom_call_target=\"t\", backend_config={{\"custom_call_config\":{}{}}}",
            deep("{\"a\":"),
            deep("}")
        )),
        format!("HloModule m, frontend_attributes={{a={}", deep("{")),
    ] {
        // The last but one is valid: opaque bytes may be anything.
        drop(parse(&text));
    }
}
