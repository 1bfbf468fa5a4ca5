#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::{Executable, ExecuteOptions, Program};
use callbox_core::Registry;
use callbox_core::call::{CallOptions, Platform};
use callbox_core::values::{ArrayShape, ElementType, Literal};

const COLUMNS: usize = 101;

/// A program on `rows` rows of [`COLUMNS`] elements. With 100 rows its instructions are passes,
/// with ten they are not.
fn program(rows: usize) -> String {
    let text = r#"HloModule m
ENTRY main {
  x = f32[ROWS,101] parameter(0)
  two = f32[] constant(2)
  twos = f32[ROWS,101] broadcast(two), dimensions={}
  double = f32[ROWS,101] multiply(x, twos)
  column = f32[ROWS] parameter(1)
  of_rows = f32[ROWS,101] broadcast(column), dimensions={0}
  shifted = f32[ROWS,101] subtract(double, of_rows)
  row = f32[101] parameter(2)
  of_columns = f32[ROWS,101] broadcast(row), dimensions={1}
  grown = f32[ROWS,101] exponential(of_columns)
  largest = f32[ROWS,101] maximum(shifted, grown)
  low = f32[] constant(-0.5)
  high = f32[] constant(3)
  clamped = f32[ROWS,101] clamp(low, largest, high)
  less = pred[ROWS,101] compare(clamped, shifted), direction=LT
  chosen = f32[ROWS,101] select(less, clamped, shifted)
  copied = f32[ROWS,101] copy(chosen)
  bits = u32[ROWS,101] bitcast-convert(copied)
  half = bf16[ROWS,101] convert(copied)
  same = bf16[ROWS,101] convert(half)
  rounded = f32[ROWS,101] reduce-precision(clamped), exponent_bits=5, mantissa_bits=4
  squashed = f32[ROWS,101] tanh(rounded)
  turned = f32[101,ROWS] transpose(shifted), dimensions={1,0}
  back = f32[ROWS,101] transpose(turned), dimensions={1,0}
  log = f32[ROWS,101] log(back)
  ROOT t = (f32[ROWS,101], u32[ROWS,101], bf16[ROWS,101], pred[ROWS,101], f32[ROWS,101], f32[ROWS,101]) tuple(squashed, bits, same, less, log, shifted)
}"#;
    text.replace("ROWS", &rows.to_string())
}

fn floats(dimensions: &[usize], from: usize) -> Literal {
    let shape = ArrayShape::new(ElementType::F32, dimensions).unwrap();
    let numbers = (from..from + shape.element_count()).map(|i| match i % 1013 {
        0 => f32::NAN,
        1 => f32::INFINITY,
        2 => -0.0,
        3 => 1e-42,
        other => (other as f32 - 500.0) / 97.0,
    });
    Literal::from_bytes(shape, numbers.flat_map(f32::to_le_bytes).collect()).unwrap()
}

fn executable(rows: usize) -> Executable {
    let text = program(rows);
    let program = Program::from_hlo_text(&text).unwrap();
    Executable::compile(&program, &Registry::new(), Platform::Host).unwrap()
}

fn arguments(rows: usize, first: usize) -> [Literal; 3] {
    [
        floats(&[rows, COLUMNS], first * COLUMNS),
        floats(&[rows], 40 + first),
        floats(&[COLUMNS], 400),
    ]
}

#[test]
fn a_pass_gives_the_bits_of_single_instructions() {
    let (large, small) = (executable(100), executable(10));
    let mut expected = vec![Vec::new(); 6];
    for first in (0..100).step_by(10) {
        let part = small.execute(0, &arguments(10, first), &ExecuteOptions::default());
        let part = part.unwrap();
        for (all, (_, part)) in std::iter::zip(&mut expected, part.leaves()) {
            all.extend_from_slice(part);
        }
    }
    for threads in [1, 3] {
        let options = ExecuteOptions {
            call: CallOptions {
                threads: Some(threads),
                ..CallOptions::default()
            },
            ..ExecuteOptions::default()
        };
        let found = large.execute(0, &arguments(100, 0), &options).unwrap();
        let found = Vec::from_iter(found.leaves().map(|(_, bytes)| bytes.to_vec()));
        assert!(found == expected, "the bits differ with {threads} threads");
    }
}

#[test]
fn a_broadcast_that_transposes_is_right() {
    let text = "HloModule m\nENTRY main {\n  x = f32[100,120] parameter(0)\n  \
        t = f32[120,100] broadcast(x), dimensions={1,0}\n  \
        ROOT y = f32[120,100] negate(t)\n}";
    let program = Program::from_hlo_text(text).unwrap();
    let executable = Executable::compile(&program, &Registry::new(), Platform::Host).unwrap();
    let shape = ArrayShape::new(ElementType::F32, &[100, 120]).unwrap();
    let x = Vec::from_iter((0..12_000).map(|i| i as f32));
    let bytes = x.iter().copied().flat_map(f32::to_le_bytes).collect();
    let x = Literal::from_bytes(shape, bytes).unwrap();
    let found = executable.execute(0, &[x], &ExecuteOptions::default());
    let transposed = (0..120).flat_map(|r| (0..100).map(move |c| -((c * 120 + r) as f32)));
    let expected = Vec::from_iter(transposed.flat_map(f32::to_le_bytes));
    assert!(found.unwrap().bytes() == Some(expected.as_slice()));
}

/// The loop's body and the fusion read a value for the last time. The argument, and the value that
/// is read again, keep their elements.
#[test]
fn results_take_memory_only_of_values_that_nothing_reads() {
    let text = "HloModule m\n\
        body {\n  s = (s32[], f32[100,101]) parameter(0)\n  n = s32[] get-tuple-element(s), index=0\n  \
        one = s32[] constant(1)\n  m = s32[] subtract(n, one)\n  \
        v = f32[100,101] get-tuple-element(s), index=1\n  w = f32[100,101] add(v, v)\n  \
        ROOT t = (s32[], f32[100,101]) tuple(m, w)\n}\n\
        goes_on {\n  s = (s32[], f32[100,101]) parameter(0)\n  \
        n = s32[] get-tuple-element(s), index=0\n  zero = s32[] constant(0)\n  \
        ROOT c = pred[] compare(n, zero), direction=GT\n}\n\
        fused {\n  a = f32[100,101] parameter(0)\n  b = f32[100,101] parameter(1)\n  \
        ROOT d = f32[100,101] subtract(a, b)\n}\n\
        ENTRY main {\n  x = f32[100,101] parameter(0)\n  y = f32[100,101] negate(x)\n  \
        k = s32[] constant(3)\n  start = (s32[], f32[100,101]) tuple(k, y)\n  \
        end = (s32[], f32[100,101]) while(start), condition=goes_on, body=body\n  \
        grown = f32[100,101] get-tuple-element(end), index=1\n  \
        f = f32[100,101] fusion(grown, y), kind=kLoop, calls=fused\n  \
        ROOT t = (f32[100,101], f32[100,101], f32[100,101]) tuple(f, y, x)\n}";
    let program = Program::from_hlo_text(text).unwrap();
    let executable = Executable::compile(&program, &Registry::new(), Platform::Host).unwrap();
    let shape = ArrayShape::new(ElementType::F32, &[100, COLUMNS]).unwrap();
    let bytes = (0..10_100).flat_map(|i| (i as f32).to_le_bytes());
    let x = Literal::from_bytes(shape, bytes.collect()).unwrap();
    for _ in 0..2 {
        let found = executable.execute(0, std::slice::from_ref(&x), &ExecuteOptions::default());
        for (found, factor) in std::iter::zip(found.unwrap().into_elements(), [-7.0, -1.0, 1.0]) {
            let expected = Vec::from_iter((0..10_100).map(|i| factor * i as f32));
            assert_eq!(found.to_vec::<f32>().unwrap(), expected);
        }
    }
}
