//! HLO text: accepted text survives printing and reading again, can be compiled, and runs if it is
//! small.

use std::time::Duration;

use callbox::program::{Executable, ExecuteOptions, Opcode, Program};
use callbox::{CallOptions, Deadline, Literal, Platform, Registry, Result, Shape, Status};

use crate::Target;
use crate::outcome::Outcome;

/// The target.
pub const TARGET: Target = Target {
    name: "hlo_text",
    run,
    max_len: 4096,
    executions: 20_000,
    words: WORDS,
};

const WORDS: &[&str] = &[
    "HloModule m\n",
    "ENTRY ",
    "ROOT ",
    " = ",
    "parameter(0)",
    "constant(",
    "f32[]",
    "f32[2,3]{1,0}",
    "s32[4]",
    "pred[]",
    "u8[2]{0}",
    "bf16[2]",
    "c64[2]",
    "f8e4m3fn[2]",
    "s4[3]",
    "token[]",
    "(f32[], s32[2])",
    "tuple(",
    "get-tuple-element(",
    ", index=",
    "add(",
    "subtract(",
    "multiply(",
    "negate(",
    "while(",
    ", condition=",
    ", body=",
    "conditional(",
    ", branch_computations={",
    ", true_computation=",
    "call(",
    ", to_apply=",
    "fusion(",
    ", kind=kLoop",
    ", calls=",
    "reduce(",
    "topk(",
    ", k=2, largest=true",
    "fft(",
    ", fft_type=RFFT, fft_length={4}",
    "cholesky(",
    "triangular-solve(",
    ", left_side=true, lower=true, transpose_a=ADJOINT",
    "rng-bit-generator(",
    ", algorithm=rng_three_fry",
    "all-reduce(",
    ", replica_groups={{0}}",
    "custom_call_target=\"lapack_sgetrf_ffi\", api_version=API_VERSION_TYPED_FFI",
    ", dimensions={0}",
    "broadcast(",
    "reshape(",
    "transpose(",
    "slice(",
    ", slice={[0:1]}",
    "pad(",
    ", padding=0_1_0",
    "dot(",
    ", lhs_contracting_dims={0}",
    ", rhs_contracting_dims={0}",
    "custom-call(",
    ", custom_call_target=\"f\"",
    ", api_version=API_VERSION_TYPED_FFI",
    ", backend_config={n = 4 : i32}",
    ", backend_config=\"\\000\"",
    ", output_to_operand_aliasing={{0}: (0, {})}",
    ", frontend_attributes={callbox.exports=\"a,b\"}",
    ", schedule=SCHEDULE_LATEST",
    ", literal=",
    "iota(",
    ", iota_dimension=0",
    "compare(",
    ", direction=LT",
    ", type=TOTALORDER",
    "select(",
    "clamp(",
    "convert(",
    "bitcast-convert(",
    "concatenate(",
    "reverse(",
    "dynamic-slice(",
    ", dynamic_slice_sizes={1}",
    "map(",
    "after-all(",
    "opt-barrier(",
    ", control-predecessors={",
    "metadata={op_name=\"x\"}",
    "%",
    "{",
    "}",
    "(",
    ")",
    ",",
    "\n",
    "/*",
    "*/",
    "//",
    "-nan",
    "inf",
    "-0",
    "1e40",
    "0x",
    "{1,0:T(8,128)}",
    "<=",
    "?",
    "é",
    "\u{1b}[31m",
];

/// Programs with larger inputs or values are not run.
const MOST_BYTES: usize = 1 << 16;

fn run(input: &[u8]) -> Outcome {
    let text = String::from_utf8_lossy(input);
    let program = match Program::from_hlo_text(&text) {
        Ok(program) => program,
        Err(status) => {
            check_message(&status);
            return Outcome::failure(&status);
        }
    };
    check_print(&program);
    let ran = execute(&program);
    let opcodes = program.computations().iter().flat_map(|c| c.instructions());
    let opcodes = opcodes.map(|i| std::mem::discriminant(i.opcode()));
    let mut opcodes: Vec<_> = opcodes.collect();
    opcodes.dedup();
    match ran {
        Some(Err(status)) => Outcome::failure(&status),
        ran => Outcome::of((ran.is_some(), opcodes)),
    }
}

/// Checks that a message contains no terminal control characters.
fn check_message(status: &Status) {
    let is_safe =
        |c: char| c == '\n' || !(c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c));
    assert!(!status.message().is_empty());
    assert!(
        status.message().chars().all(is_safe),
        "{:?}",
        status.message()
    );
    assert_ne!(status.code().name(), "INTERNAL", "{status}");
}

/// Checks that the printed text reads back as the same program.
pub(crate) fn check_print(program: &Program) {
    let printed = program.to_hlo_text();
    match Program::from_hlo_text(&printed) {
        Ok(again) => {
            assert_eq!(
                again.to_hlo_text(),
                printed,
                "the print of a print is another"
            );
            assert!(
                again == *program,
                "another program is read back:\n{printed}"
            );
        }
        Err(status) => panic!("{status}\nin what was printed:\n{printed}"),
    }
}

/// Compiles a program, and runs it if it is small.
fn execute(program: &Program) -> Option<Result<Literal>> {
    let executable = match Executable::compile(program, &Registry::new(), Platform::Host) {
        Ok(executable) => executable,
        Err(status) => {
            check_message(&status);
            return Some(Err(status));
        }
    };
    let instructions = program.computations().iter().flat_map(|c| c.instructions());
    let mut bytes = 0_usize;
    for instruction in instructions {
        let leaves = instruction.shape().leaves();
        let size = leaves.iter().map(|leaf| leaf.byte_size().saturating_add(1));
        bytes = size.fold(bytes, usize::saturating_add);
        // The result of a dot does not show the amount of work.
        if matches!(instruction.opcode(), Opcode::Dot(_)) && bytes > MOST_BYTES >> 4 {
            return None;
        }
    }
    if bytes > MOST_BYTES {
        return None;
    }
    let function = &executable.functions()[0];
    let arguments = function.parameters.iter().map(zeros);
    let arguments: Vec<Literal> = arguments.collect();
    let options = ExecuteOptions {
        call: CallOptions {
            deadline: Some(Deadline::After(Duration::from_millis(20))),
            ..CallOptions::default()
        },
        ..ExecuteOptions::default()
    };
    let outcome = executable.execute(0, &arguments, &options);
    match &outcome {
        Ok(result) => assert!(
            result.shape().is_compatible(&function.result),
            "expected {}, found {}",
            function.result,
            result.shape()
        ),
        Err(status) => assert_ne!(status.code().name(), "INTERNAL", "{status}"),
    }
    Some(outcome)
}

fn zeros(shape: &Shape) -> Literal {
    match shape {
        Shape::Array(array) => {
            Literal::from_bytes(array.clone(), vec![0; array.byte_size()]).unwrap()
        }
        Shape::Tuple(tuple) => {
            Literal::tuple(tuple.elements().iter().map(zeros).collect()).unwrap()
        }
    }
}
