//! Targets that misbehave, each in one way, and one that does not.
//!
//! Every target takes an F32 operand of any shape and has a result of that shape, so that a program
//! can replace one by another. The module is for WebAssembly only: natively there is no sandbox to
//! test.
#![cfg(target_arch = "wasm32")]

mod raw;

use callbox_guest::{Context, Failure, LogLevel, Operand, ResultBuffer, StatusCode, target};

/// Copies `x` to `y`.
#[target(pure)]
fn healthy(x: &Operand<f32>, y: &mut ResultBuffer<f32>) -> Result<(), Failure> {
    y.expect_dimensions(x.dimensions())?;
    y.copy_from_slice(x);
    Ok(())
}

/// Fails with the status code of number `code` and the message `message`.
#[target]
fn fail(
    _x: &Operand<f32>,
    _y: &mut ResultBuffer<f32>,
    #[attr] code: i32,
    #[attr] message: &str,
    #[attr] recoverable: Option<bool>,
) -> Result<(), Failure> {
    let code = u32::try_from(code).ok().and_then(StatusCode::from_number);
    let Some(code) = code.filter(|code| *code != StatusCode::Ok) else {
        return Err(Failure::invalid_argument(
            "expected a status code from 1 to 16",
        ));
    };
    let failure = Failure::new(code, message.to_owned());
    Err(match recoverable {
        Some(true) => failure.recoverable(),
        _ => failure,
    })
}

/// Panics.
#[target]
#[allow(clippy::panic, reason = "the panic is the fault")]
fn panic(x: &Operand<f32>, _y: &mut ResultBuffer<f32>) {
    panic!("a panic with {} elements", x.len());
}

/// Writes half of its result, then panics by indexing past its end.
#[target]
fn index_out_of_bounds(x: &Operand<f32>, y: &mut ResultBuffer<f32>) {
    y[..x.len() / 2].fill(-1.0);
    y[x.len()] = 1.0;
}

/// Executes the instruction `unreachable`.
#[target]
fn unreachable(_x: &Operand<f32>, _y: &mut ResultBuffer<f32>) {
    raw::unreachable();
}

/// Reads beyond the end of its memory.
#[target]
fn read_out_of_bounds(_x: &Operand<f32>, y: &mut ResultBuffer<f32>) {
    y.fill(f32::from_bits(raw::read_out_of_bounds()));
}

/// Writes beyond the end of its memory.
#[target]
fn write_out_of_bounds(_x: &Operand<f32>, _y: &mut ResultBuffer<f32>) {
    raw::write_out_of_bounds();
}

/// Divides an integer by zero.
#[target]
fn divide_by_zero(_x: &Operand<f32>, y: &mut ResultBuffer<f32>) {
    y.fill(raw::divide_by_zero() as f32);
}

/// Never returns.
#[target]
fn infinite_loop(_x: &Operand<f32>, _y: &mut ResultBuffer<f32>) {
    loop {
        core::hint::spin_loop();
    }
}

/// Recurses infinitely.
#[target]
fn infinite_recursion(x: &Operand<f32>, y: &mut ResultBuffer<f32>) {
    y.fill(descend(x.len() as f64) as f32);
}

/// Grows its memory until the host refuses, then panics.
#[target]
#[allow(clippy::panic, reason = "the panic reports that memory is exhausted")]
fn grow_memory(_x: &Operand<f32>, _y: &mut ResultBuffer<f32>) {
    panic!("memory.grow was refused at {} pages", raw::grow_memory());
}

/// Fails with a message of 1 MiB.
#[target]
fn huge_message(_x: &Operand<f32>, _y: &mut ResultBuffer<f32>) -> Result<(), Failure> {
    Err(Failure::internal("0123456789abcdef".repeat(1 << 16)))
}

/// Logs 10,000 lines of 1 KiB, then copies `x` to `y`.
#[target]
fn log_flood(
    context: &Context,
    x: &Operand<f32>,
    y: &mut ResultBuffer<f32>,
) -> Result<(), Failure> {
    let line = "0123456789abcdef".repeat(64);
    for _ in 0..10_000 {
        context.log(LogLevel::Info, &line);
    }
    healthy(x, y)
}

/// Recurses infinitely. The condition is never true, which the compiler cannot know.
#[inline(never)]
fn descend(depth: f64) -> f64 {
    if depth.is_nan() {
        return depth;
    }
    // Uses the result, so that the call is not a tail call, which would become a loop.
    descend(depth + 1.0).sqrt() + depth
}
