//! Runs calls of one target.

use anyhow::{Result, ensure};
use callbox::call::CallSite;
use callbox::{ArrayShape, Shape};

use super::layout::{from_layout, to_layout};
use super::results::Results;
use super::{HostBench, backend, engine, failed, options};
use crate::case::{Phase, Step};
use crate::module::ModuleSource;
use crate::platform::{Failure, Found, Outcome, Prepared};

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
        let operands = operands(self.site, step);
        let operands: Vec<&[u8]> = operands.iter().map(Vec::as_slice).collect();
        let shapes = self.site.result.leaves();
        // Nobody reads it: it has no buffer and is no result.
        let is_scratch = |leaf: usize| self.site.scratch.contains(&leaf);
        let sizes = shapes.iter().enumerate().map(|(leaf, shape)| {
            if is_scratch(leaf) {
                0
            } else {
                shape.byte_size()
            }
        });
        let mut results = Results::new(sizes.collect());
        let outcome = self
            .prepared
            .call_with(&options(step), &operands, &mut results.buffers());
        let log = engine::take_log();
        ensure!(!results.were_left(), "a call wrote beside its results");
        Ok(match outcome {
            Ok(()) => {
                let leaves = std::iter::zip(shapes, results.contents()).enumerate();
                let leaves = leaves.filter(|(leaf, _)| !is_scratch(*leaf));
                let leaves =
                    leaves.map(|(_, (shape, bytes))| (shape.clone(), from_layout(shape, bytes)));
                Ok(Found::Results(leaves.collect(), log))
            }
            Err(status) => Err(Failure {
                wrote_results: results.are_touched(),
                ..Failure::new(Phase::Execute, status)
            }),
        })
    }
}

/// The operands' leaves, in the call site's layouts where they have its shapes.
fn operands(site: &CallSite, step: &Step) -> Vec<Vec<u8>> {
    let declared: Vec<&ArrayShape> = site.operands.iter().flat_map(Shape::leaves).collect();
    let leaves = step.operands.iter().flat_map(|operand| operand.leaves());
    leaves
        .enumerate()
        .map(|(i, (shape, bytes))| match declared.get(i) {
            Some(declared) if declared.is_compatible(shape) => to_layout(declared, bytes),
            _ => bytes.to_vec(),
        })
        .collect()
}
