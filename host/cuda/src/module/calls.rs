//! Call sites of native targets.

use std::sync::Arc;

use super::execution::CudaExecution;
use super::{Code, CudaModule};
use crate::call::{CudaStage, State};
use crate::device::CudaDevice;
use crate::guard::guarded;
use crate::kernel::PlannedKernels;
use crate::queue::CudaQueue;
use callbox_core::call::batch::check_sizes;
use callbox_core::call::resolve_aliases;
use callbox_core::call::{
    CallBuffers, CallOptions, CallSite, DeviceBuffer, DeviceLeaf, DeviceQueue, DirectCalls,
    DirectModule, Execution, Functions, PreparedCalls, Stage,
};
use callbox_core::policy::Policy;
use callbox_core::values::{ArrayShape, Result, Shape, Status};

/// The call sites that an executable has of a module's targets.
#[derive(Debug)]
pub struct CudaCalls {
    pub(super) module: Arc<CudaModule>,
    pub(super) sites: Vec<Site>,
}

#[derive(Debug)]
pub(super) struct Site {
    pub(super) site: CallSite,
    /// The index of the target in the module.
    pub(super) target: usize,
    /// For each result leaf, the operand leaf that shares its memory.
    pub(super) aliases: Vec<Option<usize>>,
    /// The state that `instantiate` returned.
    pub(super) instantiated: Option<State>,
    /// The planned launches, if the target is a manifest's.
    pub(super) planned: Option<PlannedKernels>,
}

impl CudaCalls {
    pub(crate) fn new(
        module: &Arc<CudaModule>,
        sites: Vec<CallSite>,
        options: &CallOptions,
    ) -> Result<Self> {
        let sites = sites.into_iter().enumerate().map(|(number, site)| {
            if number > 0 {
                options.check()?;
            }
            let name = site.name.clone();
            Site::new(module, site, options).map_err(|status| status.context(name))
        });
        Ok(Self {
            module: Arc::clone(module),
            sites: sites.collect::<Result<_>>()?,
        })
    }
}

impl Site {
    fn new(module: &CudaModule, site: CallSite, options: &CallOptions) -> Result<Self> {
        let mut signatures = module.signatures.iter();
        let Some(target) = signatures.position(|s| s.name == site.target) else {
            return Err(Status::not_found(format!(
                "the module has no target {:?}",
                site.target
            )));
        };
        module.signatures[target].check(&site)?;
        let leaves = site.result.leaf_count();
        site.check_scratch()?;
        let aliases = resolve_aliases(&site, leaves)?;
        let mut instantiated = None;
        let mut planned = None;
        match &module.code[target] {
            Code::Rust(code) => {
                if let Some(instantiate) = &code.instantiate {
                    let stage = CudaStage {
                        site: &site,
                        stage: Stage::Instantiate,
                        instantiated: None,
                        options: None,
                    };
                    instantiated = guarded(|| instantiate(&stage))
                        .map_err(|status| status.context("instantiate"))?;
                }
            }
            Code::C(function) => function.check(&site)?,
            Code::Kernels(kernels, number) => {
                planned = Some(kernels.plan(*number, &site, &aliases, options)?)
            }
        }
        Ok(Self {
            site,
            target,
            aliases,
            instantiated,
            planned,
        })
    }
}

impl PreparedCalls for CudaCalls {
    fn begin(
        &self,
        options: &CallOptions,
        functions: Option<&Arc<dyn Functions>>,
        sites: &[usize],
    ) -> Result<Box<dyn Execution + '_>> {
        let execution = CudaExecution::begin(self, options, functions, sites)?;
        Ok(Box::new(execution))
    }
}

impl DirectModule for CudaModule {
    type Calls = CudaCalls;

    /// Native stages cannot be interrupted. The options bound the verification of fenced kernels.
    fn prepare_direct(
        module: &Arc<Self>,
        sites: Vec<CallSite>,
        options: &CallOptions,
        _: bool,
    ) -> Result<CudaCalls> {
        CudaCalls::new(module, sites, options)
    }

    fn policy(&self) -> Option<&Policy> {
        None
    }
}

impl DirectCalls for CudaCalls {
    type Run<'a> = Box<dyn Execution + 'a>;

    fn begin_run(&self, options: &CallOptions) -> Result<Self::Run<'_>> {
        let mut execution = self.begin(options, None, &[0])?;
        execution.initialize()?;
        Ok(execution)
    }

    fn call_alone<B: CallBuffers>(
        &self,
        number: usize,
        options: &CallOptions,
        buffers: &mut B,
    ) -> Result<()> {
        options.check()?;
        let device = self.module.own_device()?;
        let site = &self.sites[number].site;
        buffers.with_slices(&mut |operands, results| {
            call_on_device(device, site, operands, results, |queue, from, to| {
                let mut execution = self.begin(options, None, &[number])?;
                execution.initialize_on(queue)?;
                execution.enqueue(number, queue, from, to)
            })
        })
    }

    fn isolates(&self, _: usize) -> bool {
        false
    }
}

/// Copies operands to a device, calls `call`, waits, and copies the results back.
///
/// Results are written only if everything succeeded.
pub(super) fn call_on_device(
    device: &Arc<CudaDevice>,
    site: &CallSite,
    operands: &[&[u8]],
    results: &mut [&mut [u8]],
    call: impl FnOnce(&mut CudaQueue, &[DeviceLeaf], &[DeviceBuffer]) -> Result<()>,
) -> Result<()> {
    let [operand_sizes, result_sizes] = sizes(site);
    check_sizes("operand", operand_sizes, operands.len(), |i| {
        operands[i].len()
    })?;
    let is_scratch = |result: usize| site.is_scratch(result);
    let written = result_sizes.clone().enumerate();
    let written = written.map(|(i, size)| if is_scratch(i) { 0 } else { size });
    check_sizes("result", written, results.len(), |i| results[i].len())?;
    let mut queue = device.new_queue()?;
    let operands = operands.iter().map(|bytes| {
        Ok(DeviceLeaf {
            buffer: queue.upload(bytes)?,
            is_known: true,
        })
    });
    let operands = operands.collect::<Result<Vec<_>>>()?;
    let buffers = result_sizes.map(|size| queue.allocate(size));
    let buffers = buffers.collect::<Result<Vec<_>>>()?;
    call(&mut queue, &operands, &buffers)?;
    let found = queue.download(&buffers)?;
    for (number, (result, bytes)) in std::iter::zip(results, found).enumerate() {
        if !is_scratch(number) {
            result.copy_from_slice(&bytes);
        }
    }
    Ok(())
}

/// The sizes in bytes of a call site's operands and of its results: leaves in preorder.
pub(super) fn sizes(site: &CallSite) -> [std::vec::IntoIter<usize>; 2] {
    let of = |leaves: Vec<&ArrayShape>| {
        let sizes: Vec<usize> = leaves.into_iter().map(ArrayShape::byte_size).collect();
        sizes.into_iter()
    };
    let operands = site.operands.iter().flat_map(Shape::leaves);
    [of(operands.collect()), of(site.result.leaves())]
}
