//! Runs programs on Host.

use anyhow::Result;
use callbox::Registry;
use callbox::call::Platform;
use callbox::program::{Executable, Program};

use super::{HostBench, engine, failed};
use crate::case::{Phase, Step, Target};
use crate::platform::{Failure, Outcome, Prepared, step};

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
        Ok(step::execute(self, step, engine::take_log))
    }
}
