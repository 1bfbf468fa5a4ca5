//! Programs.

use std::sync::Arc;

use anyhow::Result;
use callbox::Registry;
use callbox::program::{Executable, Program};

use super::{CudaBench, Manner, failed, twins};
use crate::case::{Phase, Step, Target};
use crate::platform::{Failure, Outcome, Prepared, step};

struct OnDevice(Executable);

pub(super) fn prepare<'c>(
    bench: &CudaBench<'_>,
    manner: Manner,
    text: &str,
    targets: &[Target],
) -> Result<Result<Box<dyn Prepared + 'c>, Failure>> {
    let mut registry = Registry::new();
    for target in targets {
        let module = bench
            .targets
            .module(&target.module, &target.export, manner)?;
        if let Err(status) = registry.register(&target.name, module, &target.export) {
            return failed(Phase::Register, status);
        }
    }
    let program = match Program::from_hlo_text(text) {
        Ok(program) => program,
        Err(status) => return failed(Phase::Parse, status),
    };
    let device = Arc::clone(bench.device);
    match Executable::compile_on(&program, &registry, device) {
        Ok(executable) => Ok(Ok(Box::new(OnDevice(executable)))),
        Err(status) => failed(Phase::Prepare, status),
    }
}

impl Prepared for OnDevice {
    fn run(&self, step: &Step) -> Result<Outcome> {
        Ok(step::execute(&self.0, step, twins::take_log))
    }
}
