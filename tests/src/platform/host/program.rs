//! Runs programs.

use anyhow::Result;
use callbox::Registry;
use callbox::call::Platform;
use callbox::program::{Executable, ExecuteOptions, Program};

use super::{HostBench, engine, failed, options};
use crate::case::{Function, Phase, Step, Target};
use crate::platform::{Failure, Found, Outcome, Prepared};

pub(super) fn prepare<'c>(
    bench: &HostBench<'_>,
    text: &str,
    targets: &[Target],
) -> Result<Result<Box<dyn Prepared + 'c>, Failure>> {
    let mut registry = Registry::new();
    for target in targets {
        let module = match bench.load(&target.module)? {
            Ok(module) => module.target_module(),
            Err(failure) => return Ok(Err(failure)),
        };
        if let Err(status) = registry.register(&target.name, module, &target.export) {
            return failed(Phase::Register, status);
        }
    }
    let program = match Program::from_hlo_text(text) {
        Ok(program) => program,
        Err(status) => return failed(Phase::Parse, status),
    };
    match Executable::compile(&program, &registry, Platform::Host) {
        Ok(executable) => Ok(Ok(Box::new(executable))),
        Err(status) => failed(Phase::Prepare, status),
    }
}

impl Prepared for Executable {
    fn run(&self, step: &Step) -> Result<Outcome> {
        let options = ExecuteOptions {
            call: options(step),
            ..ExecuteOptions::default()
        };
        let outcome = match &step.function {
            Function::Ordinal(ordinal) => self.execute(*ordinal, &step.operands, &options),
            Function::Name(name) => self.execute_named(name, &step.operands, &options),
        };
        let log = engine::take_log();
        Ok(match outcome {
            Ok(result) => {
                let leaves = result.leaves();
                let leaves = leaves.map(|(shape, bytes)| (shape.clone(), bytes.to_vec()));
                Ok(Found::Results(leaves.collect(), log))
            }
            Err(status) => Err(Failure::new(Phase::Execute, status)),
        })
    }
}
