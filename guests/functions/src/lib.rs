//! Targets that call functions of the program, for the conformance cases in
//! `tests/cases/functions`.

use core::sync::atomic::{AtomicI32, Ordering};

use callbox_guest::{
    AnyOperand, AnyResult, Context, Dictionary, Failure, FunctionRef, LogLevel, Operand,
    RemainingOperands, RemainingResults, ResultBuffer, StatusCode, target,
};

/// Applies the function `func` to `a` and `b`: the example of the XLA runtime's proposal.
#[target]
fn call_ref(
    a: &Operand<f32>,
    b: &Operand<f32>,
    y: &mut ResultBuffer<f32>,
    #[attr] func: FunctionRef,
) -> Result<(), Failure> {
    func.call(&[a.into(), b.into()], &mut [y.into()])
}

/// Applies the function `func` of the dictionary `options` to `a` and `b`.
#[target]
fn call_ref_of_options(
    a: &Operand<f32>,
    b: &Operand<f32>,
    y: &mut ResultBuffer<f32>,
    #[attr] options: Dictionary,
) -> Result<(), Failure> {
    call_ref(a, b, y, options.get("func")?)
}

/// Computes `func(func(a, b), b)`, with the inner result in the target's own memory.
#[target]
fn call_twice(
    a: &Operand<f32>,
    b: &Operand<f32>,
    y: &mut ResultBuffer<f32>,
    #[attr] func: FunctionRef,
) -> Result<(), Failure> {
    let mut inner = vec![0.0_f32; a.len()];
    func.call(
        &[a.into(), b.into()],
        &mut [AnyResult::new(&mut inner, a.dimensions())?],
    )?;
    let inner = AnyOperand::new(&inner, a.dimensions())?;
    func.call(&[inner, b.into()], &mut [y.into()])
}

/// Calls the function `capture` with all operands and results: `xla.graph.launch` of the same
/// proposal.
#[target(name = "xla.graph.launch")]
fn launch(
    arguments: RemainingOperands,
    mut results: RemainingResults,
    #[attr] capture: FunctionRef,
) -> Result<(), Failure> {
    capture.call(arguments.as_slice(), results.as_mut_slice())
}

/// Returns 0 for 0, otherwise one more than the function `next` returns for `n - 1`. If that
/// function calls this target, the two recurse.
#[target]
fn descend(
    n: &Operand<i32, 0>,
    y: &mut ResultBuffer<i32, 0>,
    #[attr] next: FunctionRef,
) -> Result<(), Failure> {
    if n.value() <= 0 {
        y.set(0);
        return Ok(());
    }
    let mut below = [0_i32];
    next.call(
        &[AnyOperand::new(&[n.value() - 1], &[])?],
        &mut [AnyResult::new(&mut below, &[])?],
    )?;
    y.set(below[0] + 1);
    Ok(())
}

/// The number of calls of `depth` that this instance is in.
static DEPTH: AtomicI32 = AtomicI32::new(0);

/// Counts the calls of this target that its instance is in. Returns the result of the function
/// `func` for `x`, if there is one, otherwise the count. It is 1 if each concurrent call has its
/// own instance.
#[target]
fn depth(
    x: &Operand<i32, 0>,
    y: &mut ResultBuffer<i32, 0>,
    #[attr] func: Option<FunctionRef>,
) -> Result<(), Failure> {
    let depth = DEPTH.fetch_add(1, Ordering::Relaxed) + 1;
    let outcome = match func {
        Some(func) => func.call(&[x.into()], &mut [y.into()]),
        None => {
            y.set(depth);
            Ok(())
        }
    };
    DEPTH.fetch_sub(1, Ordering::Relaxed);
    outcome
}

/// Applies the function `func` to `x`. If it fails, returns `x`, sets `code` to the function's
/// status code and logs its message.
#[target]
fn catch(
    context: &Context,
    x: &Operand<f32>,
    y: &mut ResultBuffer<f32>,
    code: &mut ResultBuffer<i32, 0>,
    #[attr] func: FunctionRef,
) -> Result<(), Failure> {
    let outcome = func.call(&[x.into()], &mut [(&mut *y).into()]);
    code.set(
        outcome
            .as_ref()
            .map_or_else(|failure| failure.code() as i32, |()| StatusCode::Ok as i32),
    );
    if let Err(failure) = outcome {
        context.log(LogLevel::Warn, failure.message());
        y.copy_from_slice(x);
    }
    Ok(())
}

/// Applies the function `func` to `x`. If it fails, fails with a status of its own.
#[target]
fn wrap(
    x: &Operand<f32>,
    y: &mut ResultBuffer<f32>,
    #[attr] func: FunctionRef,
) -> Result<(), Failure> {
    func.call(&[x.into()], &mut [y.into()])
        .map_err(|failure| Failure::data_loss(format!("wrapped: {failure}")))
}

/// Calls the functions `first` and `second` with `x`. Returns the failure of the first, whether or
/// not the second fails.
#[target]
fn first_of_two(
    x: &Operand<f32>,
    y: &mut ResultBuffer<f32>,
    #[attr] first: FunctionRef,
    #[attr] second: FunctionRef,
) -> Result<(), Failure> {
    let outcome = first.call(&[x.into()], &mut [(&mut *y).into()]);
    // Errors are discarded.
    let _ = second.call(&[x.into()], &mut [y.into()]);
    outcome
}

/// Chains the called computations: the first gets `x`, and each other the result of the one before.
#[target]
fn chain(context: &Context, x: &Operand<f32>, y: &mut ResultBuffer<f32>) -> Result<(), Failure> {
    let mut value = x.to_vec();
    let mut next = vec![0.0_f32; x.len()];
    for function in context.called_functions() {
        function.call(
            &[AnyOperand::new(&value, x.dimensions())?],
            &mut [AnyResult::new(&mut next, x.dimensions())?],
        )?;
        core::mem::swap(&mut value, &mut next);
    }
    y.expect_dimensions(x.dimensions())?;
    y.copy_from_slice(&value);
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use callbox_guest::native::Call;
    use callbox_guest::{AnyOperand, AnyResult, Failure};

    fn add(operands: &[AnyOperand<'_>], results: &mut [AnyResult<'_>]) -> Result<(), Failure> {
        let (a, b) = (
            operands[0].as_typed::<f32>()?,
            operands[1].as_typed::<f32>()?,
        );
        results[0].as_typed::<f32>()?[0] = a[0] + b[0];
        Ok(())
    }

    #[test]
    fn a_function_is_called_once_or_twice() {
        let mut call = Call::new();
        call.operand(&[1.0_f32], &[1])
            .operand(&[10.0_f32], &[1])
            .result::<f32>(&[1])
            .function_attribute("func", add);
        assert_eq!(call.run::<super::call_ref>(), Ok(()));
        assert_eq!(call.result_elements::<f32>(0), [11.0]);
        assert_eq!(call.run::<super::call_twice>(), Ok(()));
        assert_eq!(call.result_elements::<f32>(0), [21.0]);
    }

    #[test]
    fn a_failure_is_caught() {
        let mut call = Call::new();
        call.operand(&[1.5_f32], &[1])
            .result::<f32>(&[1])
            .result::<i32>(&[])
            .function_attribute("func", |_, _| Err(Failure::out_of_range("too far")));
        assert_eq!(call.run::<super::catch>(), Ok(()));
        assert_eq!(call.result_elements::<f32>(0), [1.5]);
        assert_eq!(call.result_elements::<i32>(1), [11]);
        assert_eq!(call.log()[0].1, "too far");
    }

    #[test]
    fn a_recursion_counts() {
        let mut call = Call::new();
        call.operand(&[3], &[])
            .result::<i32>(&[])
            .function_attribute("next", |operands, results| {
                let n = operands[0].as_typed::<i32>()?[0];
                results[0].as_typed::<i32>()?[0] = 10 * n;
                Ok(())
            });
        assert_eq!(call.run::<super::descend>(), Ok(()));
        assert_eq!(call.result_elements::<i32>(0), [21]);
    }
}
