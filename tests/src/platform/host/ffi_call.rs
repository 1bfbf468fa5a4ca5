//! Calls by the JAX FFI proposal's own interface.

use anyhow::Result;
use callbox::call::TargetModule;
use callbox::jax_ffi::{self, CompiledFfiCall, FfiCalls, Function};
use callbox::{Literal, Shape, Status};

use super::{Failure, Found, HostBench, Outcome, Prepared, engine, failed};
use crate::case::{FfiCall, Phase, Step};
use crate::platform::step::options;

/// The name by which the function is called.
const NAME: &str = "call";

/// A call of one set of shapes.
struct Compiled(CompiledFfiCall);

/// A call that is mapped over a batch, and compiled for each.
struct Mapped<'c> {
    case: &'c FfiCall,
    call: jax_ffi::FfiCall,
    in_axes: &'c [Option<usize>],
}

pub(super) fn prepare<'c>(
    bench: &'c HostBench<'c>,
    case: &'c FfiCall,
) -> Result<Result<Box<dyn Prepared + 'c>, Failure>> {
    let module = match bench.load(&case.module)? {
        Ok(module) => module,
        Err(failure) => return Ok(Err(failure)),
    };
    let call = match registered(module.target_module(), case) {
        Ok(call) => call,
        Err(status) => return failed(Phase::Register, status),
    };
    if let Some(in_axes) = &case.in_axes {
        return match call.vmap(in_axes) {
            Ok(_) => Ok(Ok(Box::new(Mapped {
                case,
                call,
                in_axes,
            }))),
            Err(status) => failed(Phase::Prepare, status),
        };
    }
    match call.compile(
        bench.operand_shapes(),
        case.static_info.clone(),
        case.result.clone(),
    ) {
        Ok(compiled) => Ok(Ok(Box::new(Compiled(compiled)))),
        Err(status) => failed(Phase::Prepare, status),
    }
}

fn registered(
    module: std::sync::Arc<dyn TargetModule>,
    case: &FfiCall,
) -> Result<jax_ffi::FfiCall, Status> {
    let mut call = FfiCalls::new().call(NAME)?;
    call.register_function(Function::new(module, &case.function)?, &case.platform)?;
    Ok(call)
}

impl Prepared for Compiled {
    fn run(&self, step: &Step) -> Result<Outcome> {
        Ok(outcome(self.0.call(&step.operands, &options(step))))
    }
}

impl Prepared for Mapped<'_> {
    fn run(&self, step: &Step) -> Result<Outcome> {
        let (info, result) = (self.case.static_info.clone(), &self.case.result);
        let call = || {
            let mapped = self.call.vmap(self.in_axes)?;
            mapped.invoke(&step.operands, info, result, &options(step))
        };
        Ok(outcome(call()))
    }
}

fn outcome(result: Result<Literal, Status>) -> Outcome {
    let log = engine::take_log();
    let result = result.map_err(|status| Failure::new(Phase::Execute, status))?;
    let leaves = result
        .leaves()
        .map(|(shape, bytes)| (shape.clone(), bytes.to_vec()));
    Ok(Found::Results(leaves.collect(), log))
}

impl HostBench<'_> {
    /// The shapes of the first step's operands.
    fn operand_shapes(&self) -> Vec<Shape> {
        let operands = self.case.steps.first().map(|step| &step.operands);
        let shapes = operands.into_iter().flatten().map(|o| o.shape().clone());
        shapes.collect()
    }
}
