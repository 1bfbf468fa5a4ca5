//! Runs calls of one target.

use anyhow::Result;
use callbox::call::CallSite;
use callbox::wasm::PreparedCall;
use callbox::{ArrayShape, Shape};

use super::layout::{from_layout, to_layout};
use super::{Bench, Failure, Found, Outcome, options};
use crate::case::{Phase, Step};
use crate::module::ModuleSource;

/// What result buffers hold before a call, so that one shows that was written to.
const UNTOUCHED: u8 = 0xa5;

pub(super) fn run(
    bench: &Bench,
    module: &ModuleSource,
    site: &CallSite,
    steps: &[Step],
) -> Result<Vec<Outcome>> {
    let module = match bench.load(module)? {
        Ok(module) => module,
        Err(failure) => return Ok(vec![Err(failure)]),
    };
    let call = match module.prepare_call(site.clone()) {
        Ok(call) => call,
        Err(status) => return Ok(vec![Err(Failure::new(Phase::Prepare, status))]),
    };
    Ok(steps
        .iter()
        .map(|step| run_step(bench, &call, site, step))
        .collect())
}

fn run_step(bench: &Bench, call: &PreparedCall, site: &CallSite, step: &Step) -> Outcome {
    let operands = operands(site, step);
    let operands: Vec<&[u8]> = operands.iter().map(Vec::as_slice).collect();
    let shapes = site.result.leaves();
    let mut buffers: Vec<Vec<u8>> = shapes
        .iter()
        .map(|shape| vec![UNTOUCHED; shape.byte_size()])
        .collect();
    let mut results: Vec<&mut [u8]> = buffers.iter_mut().map(Vec::as_mut_slice).collect();
    match call.call_with(&options(step), &operands, &mut results) {
        Ok(()) => {
            let leaves = std::iter::zip(shapes, &buffers);
            let leaves = leaves.map(|(shape, bytes)| (shape.clone(), from_layout(shape, bytes)));
            Ok(Found::Results(leaves.collect(), bench.take_log()))
        }
        Err(status) => Err(Failure {
            wrote_results: buffers.iter().flatten().any(|&byte| byte != UNTOUCHED),
            ..Failure::new(Phase::Execute, status)
        }),
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
