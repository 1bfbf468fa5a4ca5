//! Runs calls of one target on Host.

use anyhow::Result;
use callbox::call::CallSite;

use super::{HostBench, backend, engine, failed};
use crate::case::{Phase, Step};
use crate::module::ModuleSource;
use crate::platform::{Failure, Outcome, Prepared, step};

struct Call<'c> {
    site: &'c CallSite,
    prepared: backend::Call,
}

pub(super) fn prepare<'c>(
    bench: &'c HostBench<'_>,
    module: &ModuleSource,
    site: &'c CallSite,
) -> Result<Result<Box<dyn Prepared + 'c>, Failure>> {
    let module = match bench.load(module)? {
        Ok(module) => module,
        Err(failure) => return Ok(Err(failure)),
    };
    match module.prepare_call(site.clone()) {
        Ok(prepared) => Ok(Ok(Box::new(Call { site, prepared }))),
        Err(status) => failed(Phase::Prepare, status),
    }
}

impl Prepared for Call<'_> {
    fn run(&self, step: &Step) -> Result<Outcome> {
        step::call(
            self.site,
            step,
            |options, operands, results| self.prepared.call_with(options, operands, results),
            engine::take_log,
        )
    }
}
