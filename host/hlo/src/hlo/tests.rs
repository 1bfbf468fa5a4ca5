//! Whole texts: the programs that are read, and errors.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod custom_calls;
mod errors;
mod jax;

use super::parse;
use crate::instruction::{
    BinaryOperation, Comparison, ComparisonOrder, Computation, Opcode, Program,
};
use crate::{ComputationId, DotDimensions, FusionKind};
use callbox_core::values::Status;

/// A module of one computation with these instructions.
fn module(instructions: &str) -> String {
    format!("HloModule m\n\nENTRY main {{\n{instructions}\n}}\n")
}

#[track_caller]
fn read(text: &str) -> Program {
    match parse(text) {
        Ok(program) => program,
        Err(status) => panic!("{}", status.message()),
    }
}

fn refuse(text: &str) -> Status {
    parse(text).unwrap_err()
}

/// The opcode of the entry computation's instruction of this name.
#[track_caller]
fn opcode<'a>(program: &'a Program, name: &str) -> &'a Opcode {
    let entry = &program.computations[program.exports[0].index()];
    let instruction = entry
        .instructions
        .iter()
        .find(|instruction| instruction.name == name);
    &instruction.unwrap().opcode
}

fn names(computation: &Computation) -> Vec<&str> {
    computation
        .instructions
        .iter()
        .map(|instruction| instruction.name.as_str())
        .collect()
}

#[test]
fn instructions_are_put_in_order() {
    let program = read(&module(
        "  ROOT sum = f32[] add(twice, y)\n  twice = f32[] add(x, x)\n  x = f32[] parameter(0)\n  y = f32[] parameter(1)",
    ));
    let main = &program.computations[0];
    assert_eq!(names(main), ["x", "twice", "y", "sum"]);
    assert_eq!(main.root.index(), 3);
    assert_eq!(
        main.parameters
            .iter()
            .map(|id| id.index())
            .collect::<Vec<_>>(),
        [0, 2]
    );
    let sum = &main.instructions[3];
    assert_eq!(sum.opcode, Opcode::Binary(BinaryOperation::Add));
    assert_eq!(
        sum.operands.iter().map(|id| id.index()).collect::<Vec<_>>(),
        [1, 2]
    );
}

#[test]
fn control_predecessors_come_first() {
    let program = read(&module(
        "  x = f32[] parameter(0)\n  a = f32[] negate(x), control-predecessors={b, x}\n  b = f32[] abs(x)\n  ROOT c = f32[] add(a, b)",
    ));
    let main = &program.computations[0];
    assert_eq!(names(main), ["x", "b", "a", "c"]);
    let predecessors: Vec<_> = main.instructions[2]
        .control_predecessors
        .iter()
        .map(|id| id.index())
        .collect();
    assert_eq!(predecessors, [1, 0]);
}

#[test]
fn the_last_instruction_is_the_root_unless_another_is() {
    let program = read(&module("  x = f32[] parameter(0)\n  y = f32[] negate(x)"));
    assert_eq!(program.computations[0].root.index(), 1);
    let program = read(&module(
        "  ROOT x = f32[] parameter(0)\n  y = f32[] negate(x)",
    ));
    assert_eq!(program.computations[0].root.index(), 0);
}

const TWO: &str = "{
add { x = f32[] parameter(0) y = f32[] parameter(1) ROOT z = f32[] add(x, y) }
mul { x = f32[] parameter(0) y = f32[] parameter(1) ROOT z = f32[] multiply(x, y) }
ENTRY main { x = f32[] parameter(0) ROOT y = f32[] call(x, x), to_apply=mul }
";

#[test]
fn exports_are_the_entry_or_what_the_module_names() {
    let exports = |header: &str| {
        let program = read(&TWO.replacen('{', header, 1));
        let names = program
            .exports()
            .iter()
            .map(|id| program.computations[id.index()].name.clone());
        names.collect::<Vec<_>>()
    };
    assert_eq!(exports("HloModule m"), ["main"]);
    assert_eq!(
        exports("HloModule m, frontend_attributes={a=\"b\"}"),
        ["main"]
    );
    let header = "HloModule m, frontend_attributes={callbox.exports=\"mul, add\",a={}}";
    assert_eq!(exports(header), ["mul", "add"]);
    assert_eq!(
        exports("HloModule m, frontend_attributes={callbox.exports=\"%main\"}"),
        ["main"]
    );
}

#[test]
fn calls_are_resolved_before_and_behind_their_definition() {
    let program = read(
        "HloModule m
ENTRY main.9 (p: pred[], x: f32[4]) -> f32[4] {
  p = pred[] parameter(0)
  i = s32[] convert(p)
  x = f32[4]{0} parameter(1)
  zero = f32[] constant(0)
  sum = f32[] reduce(x, zero), dimensions={0}, to_apply=%add.1
  by_predicate = f32[4]{0} conditional(p, x, x), true_computation=twice, false_computation=same
  by_index = f32[4]{0} conditional(i, x, x), branch_computations={same, %twice}
  fused = f32[4]{0} fusion(x), kind=kLoop, calls=twice
  loop = f32[4]{0} while(x), condition=never, body=twice, backend_config={\"known_trip_count\":{\"n\":\"4\"}}
  mapped = f32[4]{0} map(x, x), dimensions={0}, to_apply=add.1
  ROOT called = f32[4]{0} call(x), to_apply=twice
}
%add.1 (a: f32[], b: f32[]) -> f32[] {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
same { ROOT x = f32[4] parameter(0) }
twice { x = f32[4] parameter(0) ROOT y = f32[4] add(x, x) }
never { x = f32[4] parameter(0) ROOT y = pred[] constant(false) }
",
    );
    let [_, add, same, twice, never] = std::array::from_fn(|index| ComputationId(index as u32));
    for (name, expected) in [
        (
            "sum",
            Opcode::Reduce {
                dimensions: vec![0],
                computation: add,
            },
        ),
        ("by_predicate", Opcode::Conditional(vec![twice, same])),
        ("by_index", Opcode::Conditional(vec![same, twice])),
        ("fused", Opcode::Fusion(FusionKind::Loop, twice)),
        (
            "loop",
            Opcode::While {
                condition: never,
                body: twice,
            },
        ),
        ("mapped", Opcode::Map(add)),
        ("called", Opcode::Call(twice)),
    ] {
        assert_eq!(*opcode(&program, name), expected);
    }
}

#[test]
fn attributes_become_opcodes() {
    let program = read(&module(
        "  x = f32[2,3]{1,0} parameter(0)
  i = s32[] constant(0)
  scalar = f32[] constant(-1.5)
  iota = s32[4]{0} iota(), iota_dimension=0
  spread = f32[2]{0} broadcast(scalar)
  rows = f32[2,3]{1,0} broadcast(spread), dimensions={0}
  turned = f32[3,2]{0,1} transpose(x), dimensions={1,0}
  reversed = f32[2,3]{1,0} reverse(x), dimensions={1}
  joined = f32[2,6]{1,0} concatenate(x, rows), dimensions={1}
  dynamic = f32[1,3]{1,0} dynamic-slice(x, i, i), dynamic_slice_sizes={1,3}
  less = pred[2,3]{1,0} compare(x, rows), direction=LT
  total = pred[2,3]{1,0} compare(x, rows), direction=GE, type=TOTALORDER
  signed = pred[] compare(i, i), direction=EQ, type=SIGNED
  tuple = (f32[2,3]{1,0}, s32[]) tuple(x, i)
  second = s32[] get-tuple-element(tuple), index=1
  rounded = f32[] reduce-precision(scalar), exponent_bits=5, mantissa_bits=3
  ROOT product = f32[2,2]{1,0} dot(x, turned), lhs_contracting_dims={1}, rhs_contracting_dims={0}, operand_precision={high,high}",
    ));
    let dot = DotDimensions {
        lhs_contracting: vec![1],
        rhs_contracting: vec![0],
        ..DotDimensions::default()
    };
    for (name, expected) in [
        ("iota", Opcode::Iota(0)),
        ("spread", Opcode::Broadcast(vec![])),
        ("rows", Opcode::Broadcast(vec![0])),
        ("turned", Opcode::Transpose(vec![1, 0])),
        ("reversed", Opcode::Reverse(vec![1])),
        ("joined", Opcode::Concatenate(1)),
        ("dynamic", Opcode::DynamicSlice(vec![1, 3])),
        (
            "less",
            Opcode::Compare(Comparison::Lt, ComparisonOrder::Partial),
        ),
        (
            "total",
            Opcode::Compare(Comparison::Ge, ComparisonOrder::Total),
        ),
        (
            "signed",
            Opcode::Compare(Comparison::Eq, ComparisonOrder::Partial),
        ),
        ("second", Opcode::GetTupleElement(1)),
        (
            "rounded",
            Opcode::ReducePrecision {
                exponent_bits: 5,
                mantissa_bits: 3,
            },
        ),
        ("product", Opcode::Dot(dot)),
    ] {
        assert_eq!(*opcode(&program, name), expected);
    }
    let Opcode::Constant(literal) = opcode(&program, "scalar") else {
        panic!("{:?}", opcode(&program, "scalar"));
    };
    assert_eq!(literal.to_vec::<f32>().unwrap(), [-1.5]);
}
