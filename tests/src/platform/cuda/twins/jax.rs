//! Twins of `guests/c/jax_add_n.cc` and `guests/c/jax_misc.c`, of the JAX FFI proposal's
//! convention.

use std::sync::Arc;

use callbox::call::{DeviceQueue, Stage};
use callbox::cuda::{CudaCall, CudaTarget};
use callbox::{Result, StaticInfo, StatusCode};

use super::functions::read_s32;
use super::results::{compute, floats, give_bytes, give_one, operands, result, write_floats};
use super::twin;
use super::words::failure;

pub(super) fn add_n_twins() -> Vec<(&'static str, CudaTarget)> {
    let target = CudaTarget::new("add_n", |call| {
        let n = match call.state::<f32>(Stage::Instantiate) {
            Some(&n) => n,
            None => number(static_info(call).unwrap_or_default())?,
        };
        if n < 0.0 {
            return Err(internal("Info must be >= 0"));
        }
        let inputs = operands(call);
        compute(call, &inputs, 0, move |inputs, y| {
            write_floats(y, floats(inputs[0]).map(|x| x + n));
            Ok(())
        })
    });
    let target = target.on_instantiate(|stage| match &stage.site().static_info {
        Some(StaticInfo::Reference { argument, .. }) => Ok(Some(Arc::new(number(argument)?))),
        _ => Ok(None),
    });
    vec![("add_n", target)]
}

fn number(bytes: &[u8]) -> Result<f32> {
    let bytes = bytes.try_into().ok();
    bytes
        .map(f32::from_le_bytes)
        .ok_or_else(|| internal("expected a number for static information"))
}

/// The object of static information by reference: the number of bytes it was made from.
struct Counter(i32);

fn read_counter() -> (&'static str, CudaTarget) {
    let target = CudaTarget::new("read_counter", |call| {
        let Some(&Counter(bytes)) = call.state(Stage::Instantiate) else {
            return Err(internal("the object is gone"));
        };
        let negative = read_s32(call)? < 0;
        give_one(call, 0, bytes)?;
        if negative {
            Err(internal("negative"))
        } else {
            Ok(())
        }
    });
    let target = target.on_instantiate(|stage| {
        let Some(StaticInfo::Reference {
            constructor,
            argument,
            ..
        }) = &stage.site().static_info
        else {
            return Ok(None);
        };
        match constructor.as_str() {
            "make_counter" => Ok(Some(Arc::new(Counter(argument.len() as i32)))),
            _ => {
                let message = String::from_utf8_lossy(argument);
                Err(failure(StatusCode::NotFound, message))
            }
        }
    });
    ("read_counter", target)
}

pub(super) fn misc_twins() -> Vec<(&'static str, CudaTarget)> {
    vec![
        twin("sum_and_difference", |call| {
            let inputs = operands(call);
            compute(call, &inputs, 0, |inputs, y| {
                write_floats(
                    y,
                    floats(inputs[0]).zip(floats(inputs[1])).map(|(a, b)| a + b),
                );
                Ok(())
            })?;
            compute(call, &inputs, 1, |inputs, y| {
                write_floats(
                    y,
                    floats(inputs[0]).zip(floats(inputs[1])).map(|(a, b)| a - b),
                );
                Ok(())
            })
        }),
        twin("fail", |call| {
            let how = read_s32(call)?;
            give_one(call, 0, how)?;
            match (how & 1 != 0, how & 2 != 0) {
                (true, _) => Err(internal("out of memory")),
                (false, true) => Err(internal("the matrix is singular").with_recoverable(true)),
                (false, false) => Ok(()),
            }
        }),
        read_counter(),
        twin("fail_and_continue", |call| {
            ones(call)?;
            Err(internal(""))
        }),
        twin("regroup_jax", |call| {
            for (number, input) in operands(call).into_iter().enumerate() {
                compute(call, &[input], number, |inputs, y| {
                    write_floats(y, floats(inputs[0]).map(|x| 2.0 * x));
                    Ok(())
                })?;
            }
            Ok(())
        }),
        twin("ones_jax", ones),
        twin("scratch_jax", |call| {
            let inputs = operands(call);
            compute(call, &inputs, 1, |inputs, temp| {
                write_floats(temp, floats(inputs[0]).map(|x| 2.0 * x));
                Ok(())
            })?;
            let temp = result(call, 1)?;
            compute(call, &[temp], 0, |inputs, y| {
                write_floats(y, floats(inputs[0]).map(|x| 1.0 + x));
                Ok(())
            })
        }),
        twin("in_place_jax", |call| {
            let is_in_place = call.operands()[0].address() == call.results()[0].address();
            let inputs = operands(call);
            compute(call, &inputs, 0, move |inputs, y| {
                let one_more = |x| if is_in_place { x + 1.0 } else { f32::NAN };
                write_floats(y, floats(inputs[0]).map(one_more));
                Ok(())
            })
        }),
        twin("six_jax", |call| {
            let from = Arc::clone(call.operands()[0].memory());
            let to = result(call, 0)?;
            call.queue().copy(&from, &to)
        }),
        twin("echo_info", |call| {
            let Some(info) = static_info(call) else {
                return Err(internal("there is no static information"));
            };
            // Up to the first NUL, as a C string.
            let mut bytes: Vec<u8> = info.iter().copied().take_while(|&byte| byte != 0).collect();
            bytes.resize(16, 0);
            give_bytes(call, 0, &bytes)
        }),
    ]
}

fn ones(call: &mut CudaCall<'_>) -> Result<()> {
    let bytes = 1.0_f32.to_le_bytes().repeat(4);
    give_bytes(call, 0, &bytes)
}

/// The static bytes of the call.
fn static_info<'c>(call: &CudaCall<'c>) -> Option<&'c [u8]> {
    match call.site().static_info.as_ref()? {
        StaticInfo::Value(bytes) => Some(bytes),
        StaticInfo::Reference { .. } => None,
    }
}

fn internal(message: &str) -> callbox::Status {
    failure(StatusCode::Internal, message)
}
