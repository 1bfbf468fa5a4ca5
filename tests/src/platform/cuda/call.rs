//! Calls of one target.

use anyhow::Result;
use callbox::call::CallSite;
use callbox::cuda::CudaPreparedCall;

use super::{CudaBench, Manner, failed, twins};
use crate::case::{Phase, Step};
use crate::module::ModuleSource;
use crate::platform::{Failure, Outcome, Prepared, step};

struct Call<'c> {
    site: &'c CallSite,
    prepared: CudaPreparedCall,
}

pub(super) fn prepare<'c>(
    bench: &'c CudaBench<'_>,
    manner: Manner,
    module: &ModuleSource,
    site: &'c CallSite,
) -> Result<Result<Box<dyn Prepared + 'c>, Failure>> {
    let module = bench.targets.module(module, &site.target, manner)?;
    match module.prepare_call(bench.device, site.clone()) {
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
            twins::take_log,
        )
    }
}
