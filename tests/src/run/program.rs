//! Runs programs.

use std::sync::Arc;

use anyhow::Result;
use callbox::Registry;
use callbox::call::{Platform, TargetModule};
use callbox::program::{Executable, ExecuteOptions, Program};

use super::{Bench, Failure, Found, Outcome, options};
use crate::case::{Function, Phase, Step, Target};

pub(super) fn run(
    bench: &Bench,
    text: &str,
    targets: &[Target],
    steps: &[Step],
) -> Result<Vec<Outcome>> {
    let executable = match compile(bench, text, targets)? {
        Ok(executable) => executable,
        Err(failure) => return Ok(vec![Err(failure)]),
    };
    Ok(steps
        .iter()
        .map(|step| run_step(bench, &executable, step))
        .collect())
}

fn compile(bench: &Bench, text: &str, targets: &[Target]) -> Result<Result<Executable, Failure>> {
    let mut registry = Registry::new();
    for target in targets {
        let module = match bench.load(&target.module)? {
            Ok(module) => module as Arc<dyn TargetModule>,
            Err(failure) => return Ok(Err(failure)),
        };
        if let Err(status) = registry.register(&target.name, module, &target.export) {
            return Ok(Err(Failure::new(Phase::Register, status)));
        }
    }
    let program = match Program::from_hlo_text(text) {
        Ok(program) => program,
        Err(status) => return Ok(Err(Failure::new(Phase::Parse, status))),
    };
    let executable = Executable::compile(&program, &registry, Platform::Host);
    Ok(executable.map_err(|status| Failure::new(Phase::Prepare, status)))
}

fn run_step(bench: &Bench, executable: &Executable, step: &Step) -> Outcome {
    let options = ExecuteOptions {
        call: options(step),
        ..ExecuteOptions::default()
    };
    let outcome = match &step.function {
        Function::Ordinal(ordinal) => executable.execute(*ordinal, &step.operands, &options),
        Function::Name(name) => executable.execute_named(name, &step.operands, &options),
    };
    let result = outcome.map_err(|status| Failure::new(Phase::Execute, status))?;
    let leaves = result
        .leaves()
        .map(|(shape, bytes)| (shape.clone(), bytes.to_vec()));
    Ok(Found::Results(leaves.collect(), bench.take_log()))
}
