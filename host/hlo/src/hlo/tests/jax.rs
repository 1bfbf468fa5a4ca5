//! Texts that JAX printed, unchanged and damaged.

#![allow(
    clippy::disallowed_methods,
    reason = "the texts are files of the repository"
)]

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;

use crate::hlo::opcodes::is_unsupported;
use crate::hlo::parse;
use callbox_core::values::{Status, StatusCode};

/// The texts in a folder and those below it, by path.
fn texts(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut texts = Vec::new();
    let Ok(entries) = fs::read_dir(folder) else {
        return texts;
    };
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            texts.extend(self::texts(&path));
        } else if path.extension().is_some_and(|extension| extension == "hlo") {
            let text = fs::read_to_string(&path).unwrap();
            texts.push((path, text));
        }
    }
    texts.sort();
    texts
}

fn cases() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases/jax")
}

/// Whether a text has an instruction whose opcode callbox does not have.
fn is_unimplemented(text: &str) -> bool {
    let opcodes = text.lines().filter_map(|line| {
        let (_, instruction) = line.split_once(" = ")?;
        let (before, _) = instruction.split_once('(')?;
        Some(match before.trim() {
            // The shape is a tuple.
            "" => instruction.split_once(") ")?.1.split_once('(')?.0,
            before => before.rsplit_once(' ')?.1,
        })
    });
    opcodes.into_iter().any(is_unsupported)
}

/// Whether XLA, too, refuses an attribute of the text.
fn is_refused(path: &Path) -> bool {
    let case = fs::read_to_string(path.with_extension("json")).unwrap();
    case.contains("Unsupported attribute type for attribute")
}

#[test]
fn what_jax_prints_is_read_and_printed() {
    let mut wrong = Vec::new();
    for (path, text) in texts(&cases()) {
        let expected = if text.contains("{...}") || is_refused(&path) {
            Some(StatusCode::InvalidArgument)
        } else {
            is_unimplemented(&text).then_some(StatusCode::Unimplemented)
        };
        let read = parse(&text);
        if let Ok(program) = &read
            && parse(&program.to_hlo_text()).as_ref() != Ok(program)
        {
            wrong.push(format!("{}: printed otherwise than read", path.display()));
        }
        let status = read.err();
        if status.as_ref().map(Status::code) != expected {
            wrong.push(format!("{}: {status:?}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A short text with most constructs of the language.
const SAMPLE: &str = r#"HloModule jit_f, is_scheduled=true, entry_computation_layout={(f32[2]{0}, pred[])->(f32[2]{0}, s32[])}, frontend_attributes={callbox.exports="main.2",a={b = #c<["i"=1]>}}

FileNames
1 "a.py"

StackFrames
1 {file_location_id=1 parent_frame_id=1}

%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %z = f32[] add(%x, f32[] %y), metadata={op_name="a \"}\"" stack_frame_id=1}
}

ENTRY %main.2 (x.1: f32[2], p.1: pred[]) -> (f32[2], s32[]) {
  %x.1 = f32[2]{0} parameter(0)
  %p.1 = pred[] parameter(1), sharding={replicated}
  %c = (c64[1], s4[2]{0:E(4)}) constant(({(1, nan(0x1))}, {-8, 7}))
  %zero = f32[] constant(-1.5e-07)
  %sum = f32[] reduce(%x.1, %zero), dimensions={0}, to_apply=%add
  %pad = f32[4]{0} pad(%x.1, %zero), padding=1_0_1
  %slice = f32[2]{0} slice(%pad), slice={[0:4:2]}
  %less = pred[2]{0} compare(%slice, %x.1), direction=LT, type=FLOAT
  %call = (f32[2]{0}, /*index=1*/s32[]) custom-call(%x.1, %sum), custom_call_target="t\303\251", operand_layout_constraints={f32[2]{0}, f32[]}, output_to_operand_aliasing={{0}: (0, {})}, literal=s32[1] {3}, api_version=API_VERSION_TYPED_FFI, control-predecessors={%less}, backend_config={n = 4.0 : f32, s = "\22}", d = dense<[[1, 2]]> : tensor<1x2xi32>, e = dense<"0x0102"> : tensor<2xui8>, f = array<i64: 1, -2>, g = {h = [1, 2], i = true, j = @add, k = #complex.number<:f32 1.0, -2.5>}}
  %array = f32[2]{0} get-tuple-element(%call), index=0
  %token = token[] after-all()
  ROOT %same = (f32[2]{0}, s32[]) conditional(%p.1, %call, %call), true_computation=%same, false_computation=%same
}

%same { ROOT %t = (f32[2]{0}, s32[]) parameter(0) }, execution_thread="main"
"#;

/// Replacements for parts of a text, besides noise.
const PIECES: &[&str] = &[
    "",
    "(",
    ")",
    "{",
    "}",
    "[",
    "]",
    "<",
    ">",
    ",",
    "=",
    ":",
    "\"",
    "\\",
    "%",
    "-",
    "_",
    ".",
    "x",
    "nan(",
    "/*",
    "//",
    "0x",
    "é",
    "\0",
    "\n",
    "18446744073709551616",
    "99999999999999999999999",
    "f32[99999999999,99999999999]",
    "f32[0,9223372036854775807]",
    "dense<",
    "tensor<9223372036854775807xi8>",
    "-inf",
    "ROOT ",
    "ENTRY ",
    "parameter(18446744073709551615)",
    "%x.1",
    "%call",
    "main.2",
];

fn replacement() -> impl Strategy<Value = String> {
    prop_oneof![
        proptest::sample::select(PIECES).prop_map(str::to_owned),
        proptest::collection::vec(any::<char>(), 0..4).prop_map(String::from_iter),
    ]
}

/// The position and the length of a part of a text, and its replacement.
type Mutation = (proptest::sample::Index, usize, String);

/// The text with the parts at these places, of these lengths, replaced.
fn mutate(text: &str, mutations: &[Mutation]) -> String {
    let mut characters: Vec<char> = text.chars().collect();
    for (place, length, replacement) in mutations {
        let start = place.index(characters.len() + 1);
        let end = characters.len().min(start + length);
        characters.splice(start..end, replacement.chars());
    }
    characters.into_iter().collect()
}

#[test]
fn the_sample_is_read() {
    if let Err(status) = parse(SAMPLE) {
        panic!("{}", status.message());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    /// Every damaged text gives a program that can be printed, or an error that can be shown.
    #[test]
    fn no_text_makes_the_reader_panic(
        mutations in proptest::collection::vec((any::<proptest::sample::Index>(), 0_usize..20, replacement()), 1..6),
    ) {
        match parse(&mutate(SAMPLE, &mutations)) {
            Ok(program) => {
                let text = program.to_hlo_text();
                prop_assert!(parse(&text).is_ok_and(|again| again == program), "{text}");
            }
            Err(status) => prop_assert!(status.message().len() < 2000, "{}", status.message()),
        }
    }

    #[test]
    fn no_noise_makes_the_reader_panic(noise in proptest::collection::vec(replacement(), 0..40)) {
        prop_assert!(parse(&noise.concat()).is_err());
        let instruction = format!("HloModule m ENTRY f {{ x = {} }}", noise.concat());
        prop_assert!(parse(&instruction).is_err());
    }
}

/// Each of JAX's texts, cut off and changed at positions that the text alone determines.
#[test]
fn broken_texts_of_jax_are_refused_or_read() {
    for (number, (_, text)) in texts(&cases()).into_iter().enumerate() {
        let mut place = number.wrapping_mul(2_654_435_761) % (text.len() + 1);
        for piece in ["", "{", "\"", "(", ",", "-", "%"] {
            while !text.is_char_boundary(place) {
                place -= 1;
            }
            drop(parse(&text[..place]));
            drop(parse(&[&text[..place], piece, &text[place..]].concat()));
            place = place.wrapping_mul(31).wrapping_add(17) % (text.len() + 1);
        }
    }
}
