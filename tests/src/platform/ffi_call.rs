//! Calls through the JAX FFI proposal's interface, on any of callbox's platforms.

use std::sync::Arc;

use crate::jax_ffi::{self, CompiledFfiCall, FfiCalls, Function};
use anyhow::Result;
use callbox::call::{Platform, TargetModule};
use callbox::{Literal, Shape, Status};

use super::step::options;
use super::{Failure, Found, Outcome, Prepared};
use crate::case::{ExpectedLog, FfiCall, Phase, Step};

/// The name under which the function is registered.
const NAME: &str = "call";

/// A call for one set of shapes.
struct Compiled {
    call: CompiledFfiCall,
    take_log: TakeLog,
}

/// Returns and clears the messages that targets logged.
type TakeLog = fn() -> Vec<ExpectedLog>;

/// A call mapped over a batch, compiled for each set of shapes.
struct Mapped<'c> {
    case: &'c FfiCall,
    call: jax_ffi::FfiCall,
    in_axes: &'c [Option<usize>],
    take_log: TakeLog,
}

/// Prepares a case's call. The function comes from `module`; where the case says platform `cpu`, it
/// is registered for the module's own platform.
pub(super) fn prepare<'c>(
    module: Arc<dyn TargetModule>,
    case: &'c FfiCall,
    steps: &[Step],
    take_log: TakeLog,
) -> Result<Result<Box<dyn Prepared + 'c>, Failure>> {
    let failed = |phase, status| Ok(Err(Failure::new(phase, status)));
    let call = match registered(module, case) {
        Ok(call) => call,
        Err(status) => return failed(Phase::Register, status),
    };
    if let Some(in_axes) = &case.in_axes {
        return match call.vmap(in_axes) {
            Ok(_) => Ok(Ok(Box::new(Mapped {
                case,
                call,
                in_axes,
                take_log,
            }))),
            Err(status) => failed(Phase::Prepare, status),
        };
    }
    match call.compile(
        operand_shapes(steps),
        case.static_info.clone(),
        case.result.clone(),
    ) {
        Ok(call) => Ok(Ok(Box::new(Compiled { call, take_log }))),
        Err(status) => failed(Phase::Prepare, status),
    }
}

fn registered(module: Arc<dyn TargetModule>, case: &FfiCall) -> Result<jax_ffi::FfiCall, Status> {
    let platform = module.platform();
    let name = match (case.platform.parse(), platform) {
        (Ok(Platform::Host), Platform::Cuda) => "cuda",
        _ => case.platform.as_str(),
    };
    let mut call = FfiCalls::new().call(NAME)?;
    call.set_platform(platform);
    call.register_function(Function::new(module, &case.function)?, name)?;
    Ok(call)
}

impl Prepared for Compiled {
    fn run(&self, step: &Step) -> Result<Outcome> {
        let result = self.call.call(&step.operands, &options(step));
        Ok(outcome(result, self.take_log))
    }
}

impl Prepared for Mapped<'_> {
    fn run(&self, step: &Step) -> Result<Outcome> {
        let (info, result) = (self.case.static_info.clone(), &self.case.result);
        let call = || {
            let mapped = self.call.vmap(self.in_axes)?;
            mapped.invoke(&step.operands, info, result, &options(step))
        };
        Ok(outcome(call(), self.take_log))
    }
}

fn outcome(result: Result<Literal, Status>, take_log: TakeLog) -> Outcome {
    let log = take_log();
    let result = result.map_err(|status| Failure::new(Phase::Execute, status))?;
    let leaves = result
        .leaves()
        .map(|(shape, bytes)| (shape.clone(), bytes.to_vec()));
    Ok(Found::Results(leaves.collect(), log))
}

/// Returns the shapes of the first step's operands.
fn operand_shapes(steps: &[Step]) -> Vec<Shape> {
    let operands = steps.first().map(|step| &step.operands);
    let shapes = operands.into_iter().flatten().map(|o| o.shape().clone());
    shapes.collect()
}
