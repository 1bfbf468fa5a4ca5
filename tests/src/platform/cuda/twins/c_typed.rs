//! Twins of `guests/c/c_typed.c`, which checks its operands and attributes itself.

use std::sync::Arc;

use callbox::call::Stage;
use callbox::cuda::{CudaCall, CudaTarget};
use callbox::{ArrayShape, Attribute, ElementType, Result, StatusCode};

use super::functions::{Value, call_checked, give as give_value, named, operands};
use super::results::{compute, floats, give, give_bytes, write_floats};
use super::words::{array, asked, dictionary, failure, invalid_argument, scalar, text};
use super::{log, twin};

pub(super) fn twins() -> Vec<(&'static str, CudaTarget)> {
    vec![
        twin("c_add_n", add_n),
        twin("c_attributes", attributes),
        stages(),
        twin("call_ref", |call| {
            let function = named(call, "func")?;
            call_all(call, function)
        }),
        twin("call_ref_and_explain", |call| {
            /// How much of the function's message is reported, in bytes.
            const ROOM: usize = 64;
            let function = named(call, "func")?;
            call_all(call, function).map_err(|status| {
                let message = status.message().as_bytes();
                let message = String::from_utf8_lossy(&message[..message.len().min(ROOM)]);
                let code = status.code().number();
                failure(
                    StatusCode::Aborted,
                    format!("func failed with code {code}: {message}"),
                )
            })
        }),
        twin("call_computations", |call| {
            let functions = &call.site().called_computations;
            check_counts(call, functions.len(), functions.len())?;
            let operands = operands(call);
            for (number, (&function, operand)) in std::iter::zip(functions, operands).enumerate() {
                let shape = call.results()[number].shape().clone();
                let found = call_checked(call, function, &[operand], &[shape])?;
                give_value(call, number, &found[0])?;
            }
            Ok(())
        }),
        twin("add_literal", add_literal),
        twin("user_data", |call| {
            check_counts(call, 0, 1)?;
            let size = call.results()[0].memory().size();
            let Some(answer) = call.user_data("answer") else {
                return Err(failure(
                    StatusCode::NotFound,
                    "there is no user data \"answer\"",
                ));
            };
            let mut bytes = answer[..answer.len().min(size)].to_vec();
            bytes.resize(size, 0);
            give_bytes(call, 0, &bytes)
        }),
    ]
}

/// Calls a function with all operands for all results.
fn call_all(call: &mut CudaCall<'_>, function: usize) -> Result<()> {
    let operands: Vec<Value> = operands(call);
    let shapes: Vec<ArrayShape> = call
        .results()
        .iter()
        .map(|result| result.shape().clone())
        .collect();
    let found = call_checked(call, function, &operands, &shapes)?;
    for (number, value) in found.iter().enumerate() {
        give_value(call, number, value)?;
    }
    Ok(())
}

fn check_counts(call: &CudaCall<'_>, operands: usize, results: usize) -> Result<()> {
    for (what, expected, found) in [
        ("arguments", operands, call.operands().len()),
        ("results", results, call.results().len()),
    ] {
        if expected != found {
            let stage = call.stage();
            return Err(invalid_argument(format!(
                "[{stage}] Wrong number of {what}: expected {expected} but got {found}"
            )));
        }
    }
    Ok(())
}

fn check_array(shape: &ArrayShape, element_type: ElementType, rank: usize) -> Result<()> {
    let found = shape.element_type();
    if found != element_type {
        return Err(invalid_argument(format!(
            "Wrong buffer dtype: expected {} but got {}",
            element_type.upper_name(),
            found.upper_name()
        )));
    }
    if shape.rank() != rank {
        return Err(invalid_argument(format!(
            "Wrong buffer rank: expected {rank} but got {}",
            shape.rank()
        )));
    }
    Ok(())
}

fn add_n(call: &mut CudaCall<'_>) -> Result<()> {
    check_counts(call, 1, 1)?;
    check_array(call.operands()[0].shape(), ElementType::F32, 1)?;
    check_array(call.results()[0].shape(), ElementType::F32, 1)?;
    let n = asked(call.attributes(), "n", scalar::<f32>)?;
    let inputs = super::results::operands(call);
    compute(call, &inputs, 0, move |inputs, y| {
        write_floats(y, floats(inputs[0]).map(|x| x + n));
        Ok(())
    })
}

fn attributes(call: &mut CudaCall<'_>) -> Result<()> {
    check_counts(call, 0, 1)?;
    check_array(call.results()[0].shape(), ElementType::S64, 1)?;
    let all = call.attributes();
    let number = asked(all, "number", scalar::<i64>)?;
    let numbers = asked(all, "numbers", array::<i32>)?;
    let rank = match all.get("numbers") {
        Some(Attribute::Array(literal)) => literal.shape().as_array().map_or(0, ArrayShape::rank),
        _ => 0,
    };
    let text = asked(all, "text", text)?;
    let inner = asked(all, "inner", dictionary)?;
    let nested = asked(inner, "number", scalar::<i64>)?;
    let found = [
        number,
        numbers.first().map_or(-1, |&first| i64::from(first)),
        numbers.len() as i64,
        rank as i64,
        text.len() as i64,
        nested,
    ];
    give(call, 0, &found)
}

/// The state of a stage of `c_stages`, which logs when it is dropped.
struct Left(Stage, i32);

impl Drop for Left {
    fn drop(&mut self) {
        log("info", format!("{} left {}", self.0, self.1));
    }
}

fn stages() -> (&'static str, CudaTarget) {
    let missing = || failure(StatusCode::Internal, "expected what the stage before left");
    let target = CudaTarget::new("c_stages", move |call| {
        check_counts(call, 0, 1)?;
        let left = [Stage::Instantiate, Stage::Prepare, Stage::Initialize].map(|stage| {
            let left = call.state::<Left>(stage);
            left.map(|left| left.1).ok_or_else(missing)
        });
        let [a, b, c] = left;
        give(call, 0, &[a?, b?, c?])
    });
    let target = target
        .on_instantiate(|stage| {
            let first = asked(&stage.site().attributes, "first", scalar::<i32>)?;
            Ok(Some(Arc::new(Left(Stage::Instantiate, first))))
        })
        .on_prepare(move |stage| {
            let left = stage.instantiated::<Left>().ok_or_else(missing)?.1;
            Ok(Some(Arc::new(Left(Stage::Prepare, left + 1))))
        })
        .on_initialize(move |call| {
            let left = call.state::<Left>(Stage::Prepare).ok_or_else(missing)?.1;
            Ok(Some(Arc::new(Left(Stage::Initialize, left + 1))))
        });
    ("c_stages", target)
}

fn add_literal(call: &mut CudaCall<'_>) -> Result<()> {
    check_counts(call, 1, 1)?;
    let literal = call.site().literal.as_ref();
    let first = literal.and_then(|literal| literal.leaves().next());
    let Some((shape, bytes)) = first else {
        return Err(failure(StatusCode::NotFound, "there is no literal"));
    };
    check_array(shape, ElementType::F32, call.operands()[0].shape().rank())?;
    if bytes.len() != call.results()[0].memory().size() {
        return Err(invalid_argument("the literal is of another size"));
    }
    let terms: Vec<f32> = floats(bytes).collect();
    let inputs = super::results::operands(call);
    compute(call, &inputs, 0, move |inputs, y| {
        write_floats(y, floats(inputs[0]).zip(&terms).map(|(x, term)| x + term));
        Ok(())
    })
}
