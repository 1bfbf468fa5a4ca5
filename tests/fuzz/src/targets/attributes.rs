//! Attribute dictionaries, as text in `backend_config` and as values from a builder. Printed text
//! reads back the same, and the call frame matches the dictionary.

use arbitrary::Unstructured;
use callbox::frame::ArenaLayout;
use callbox::program::{CustomCall, Opcode, Program, ProgramBuilder};
use callbox::{CallSite, Dictionary, ElementType, Shape};

use super::hlo_text;
use crate::outcome::Outcome;
use crate::{Target, generate, records};

/// The target.
pub const TARGET: Target = Target {
    name: "attributes",
    run,
    max_len: 1024,
    executions: 20_000,
    words: WORDS,
};

const WORDS: &[&str] = &[
    "{",
    "}",
    "n = ",
    "4 : i32",
    "-1 : i8",
    "255 : ui8",
    "1.5 : f32",
    "0x7FC00000 : f32",
    "0xFF : f8E4M3FN",
    "1.0 : bf16",
    "true",
    "false",
    "\"text\"",
    "\\22",
    "\\\\",
    "\\0A",
    "dense<",
    "[1, 2]",
    "> : tensor<2xi32>",
    "> : tensor<f32>",
    "> : tensor<0x3xf64>",
    "dense<\"0x0000803F\">",
    "dense<(1.0,2.0)> : tensor<complex<f32>>",
    "array<i64: 1, 2>",
    "array<i1>",
    "#complex.number<:f32 1.0, 2.0>",
    "complex<f64>",
    "@f",
    "[",
    "]",
    ", ",
    ": i4",
    ": i1",
    "xi1>",
    "unit",
    "tensor<",
    "index",
    "nan",
    "inf",
    "-0.0",
    "1e400",
    "99999999999999999999",
    "a = {b = {c = 1}}",
    "\"quoted name\" = 1",
];

fn run(input: &[u8]) -> Outcome {
    match input.split_first() {
        Some((kind, text)) if kind % 2 == 0 => of_text(text),
        Some((_, bytes)) => of_bytes(bytes),
        None => of_text(input),
    }
}

/// Parses a program with one custom call that has this text as its attributes.
fn of_text(text: &[u8]) -> Outcome {
    let text = String::from_utf8_lossy(text);
    let text = format!(
        "HloModule m\n\nENTRY main {{\n  ROOT y = f32[] custom-call(), custom_call_target=\"f\", api_version=API_VERSION_TYPED_FFI, \
         backend_config={text}\n}}\n"
    );
    match Program::from_hlo_text(&text) {
        Ok(program) => {
            hlo_text::check_print(&program);
            match attributes(&program) {
                Some(attributes) => check(attributes),
                None => Outcome::of("another program"),
            }
        }
        Err(status) => Outcome::failure(&status),
    }
}

/// Checks a dictionary that a builder accepts.
fn of_bytes(bytes: &[u8]) -> Outcome {
    let mut u = Unstructured::new(bytes);
    let Ok(dictionary) = generate::dictionary(&mut u, 3) else {
        return Outcome::of("too few bytes");
    };
    let mut builder = ProgramBuilder::new("main");
    let options = CustomCall {
        attributes: dictionary.clone(),
        ..CustomCall::new("f")
    };
    let call = builder.custom_call(options, &[], Shape::scalar(ElementType::F32));
    let program = builder.build(call.unwrap()).unwrap();
    let printed = program.to_hlo_text();
    let again = Program::from_hlo_text(&printed);
    let again = again.unwrap_or_else(|status| panic!("{status}\nin what was printed:\n{printed}"));
    assert_eq!(attributes(&again), Some(&dictionary), "{printed}");
    check(&dictionary)
}

/// Returns the attributes of the custom call at the end of a program's entry.
fn attributes(program: &Program) -> Option<&Dictionary> {
    let entry = &program.computations()[program.exports()[0].index()];
    match entry.instructions()[entry.root().index()].opcode() {
        Opcode::CustomCall(call) => Some(&call.attributes),
        _ => None,
    }
}

/// Checks the call frame's attributes. Function attributes are skipped, because they become
/// numbers.
fn check(attributes: &Dictionary) -> Outcome {
    let site = CallSite::new("f", vec![], Shape::tuple(vec![]).unwrap());
    let site = site.with_attributes(attributes.clone());
    match ArenaLayout::new(&site, 1 << 24) {
        Ok(layout) => records::check_frames(&site, &layout),
        Err(status) => return Outcome::failure(&status),
    }
    let kinds = attributes.values().map(callbox::Attribute::kind);
    Outcome::of(kinds.collect::<Vec<_>>())
}
