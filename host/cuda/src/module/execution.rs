//! Executions of native targets: the states of their stages, and their calls.
//!
//! A running kernel that is granted cannot be stopped: a deadline or a cancel token only stops work
//! that is not in a stream yet. They are checked before each call, and again after a handler has
//! run. Fenced kernels look at a stop word.

use std::sync::Arc;

use super::calls::{CudaCalls, Site, call_on_device, sizes};
use super::{Code, Conventions, CudaModule};
use crate::call::{CudaCall, CudaStage, State};
use crate::fenced::USUAL_ALIGN;
use crate::guard::guarded;
use crate::kernel::{Kernels, ReadyKernels};
use crate::queue::CudaQueue;
use callbox_core::call::batch::check_sizes;
use callbox_core::call::{
    CallOptions, CallSite, DeviceBuffer, DeviceLeaf, DeviceQueue, Execution, Functions, Stage,
};
use callbox_core::values::{Result, Status};

/// The state of a call site in an execution.
#[derive(Default)]
struct Running {
    /// The states that `instantiate`, `prepare` and `initialize` returned.
    states: [Option<State>; 3],
    kernels: Option<Result<Arc<ReadyKernels>>>,
}

/// Drops the states in reverse order, as a module's destructors run.
impl Drop for Running {
    fn drop(&mut self) {
        self.states
            .iter_mut()
            .rev()
            .for_each(|state| drop(state.take()));
    }
}

pub(super) struct CudaExecution<'e> {
    calls: &'e CudaCalls,
    options: CallOptions,
    functions: Option<Arc<dyn Functions>>,
    /// The indices of the call sites that take part.
    sites: Vec<usize>,
    running: Vec<Running>,
}

impl<'e> CudaExecution<'e> {
    /// Begins an execution of these call sites, whose stage `prepare` runs.
    pub(super) fn begin(
        calls: &'e CudaCalls,
        options: &CallOptions,
        functions: Option<&Arc<dyn Functions>>,
        sites: &[usize],
    ) -> Result<Self> {
        let mut execution = Self {
            calls,
            options: options.from_now_on(),
            functions: functions.cloned(),
            sites: sites.to_vec(),
            running: calls.sites.iter().map(|_| Running::default()).collect(),
        };
        for &number in sites {
            execution.prepare(number)?;
        }
        Ok(execution)
    }

    fn site(&self, number: usize) -> Result<&'e Site> {
        let site = self.calls.sites.get(number);
        site.ok_or_else(|| Status::internal("the call site was not prepared"))
    }

    fn prepare(&mut self, number: usize) -> Result<()> {
        let site = &self.calls.sites[number];
        let running = &mut self.running[number];
        running.states[Stage::Instantiate as usize].clone_from(&site.instantiated);
        let Code::Rust(target) = &self.calls.module.code[site.target] else {
            return Ok(());
        };
        if let Some(prepare) = &target.prepare {
            let stage = CudaStage {
                site: &site.site,
                stage: Stage::Prepare,
                instantiated: site.instantiated.as_ref(),
                options: Some(&self.options),
            };
            let made = guarded(|| prepare(&stage));
            running.states[Stage::Prepare as usize] =
                made.map_err(|status| in_stage(&site.site, Stage::Prepare, status))?;
        }
        Ok(())
    }

    fn initialize_site(&mut self, number: usize, queue: &mut CudaQueue) -> Result<()> {
        let site = &self.calls.sites[number];
        if queue.is_capturing() {
            self.calls.module.check_capturable(site.target)?;
        }
        match &self.calls.module.code[site.target] {
            Code::Rust(target) => {
                let Some(initialize) = &target.initialize else {
                    return Ok(());
                };
                let mut call = CudaCall {
                    site: &site.site,
                    stage: Stage::Initialize,
                    queue,
                    operands: &[],
                    results: &[],
                    options: &self.options,
                    functions: None,
                    states: &self.running[number].states,
                };
                let made = guarded(|| initialize(&mut call));
                let made =
                    made.map_err(|status| in_stage(&site.site, Stage::Initialize, status))?;
                self.running[number].states[Stage::Initialize as usize] = made;
            }
            Code::C(_) => {}
            Code::Kernels(kernels, _) => {
                let planned = site.planned.as_ref();
                let planned = planned.ok_or_else(|| Status::internal("kernels without a plan"))?;
                // A failure is reported by the call, if there is one.
                self.running[number].kernels =
                    Some(kernels.make_ready(planned, queue.device(), USUAL_ALIGN, &self.options));
            }
        }
        Ok(())
    }
}

impl Execution for CudaExecution<'_> {
    fn initialize(&mut self) -> Result<()> {
        let mut queue = self.calls.module.own_device()?.new_queue()?;
        self.initialize_on(&mut queue)?;
        // Calls use other queues, so the work must be done before they begin.
        queue.download(&[]).map(drop)
    }

    fn initialize_on(&mut self, queue: &mut dyn DeviceQueue) -> Result<()> {
        let queue = CudaQueue::downcast(queue)?;
        for number in self.sites.clone() {
            self.initialize_site(number, queue)?;
        }
        Ok(())
    }

    fn call(&mut self, number: usize, operands: &[&[u8]], results: &mut [&mut [u8]]) -> Result<()> {
        let site = self.site(number)?;
        let device = self.calls.module.own_device()?;
        call_on_device(device, &site.site, operands, results, |queue, from, to| {
            self.enqueue(number, queue, from, to)
        })
    }

    fn enqueue(
        &mut self,
        number: usize,
        queue: &mut dyn DeviceQueue,
        operands: &[DeviceLeaf],
        results: &[DeviceBuffer],
    ) -> Result<()> {
        self.options.check()?;
        let queue = CudaQueue::downcast(queue)?;
        queue.device().check_not_lost()?;
        let site = self.site(number)?;
        let module = &self.calls.module;
        check_capture(module, site, queue)?;
        let [operand_sizes, result_sizes] = sizes(&site.site);
        check_sizes("operand", operand_sizes, operands.len(), |i| {
            operands[i].buffer.size()
        })?;
        check_sizes("result", result_sizes, results.len(), |i| results[i].size())?;
        let buffers = operands.iter().map(|leaf| &leaf.buffer).chain(results);
        for buffer in buffers {
            queue.admit(buffer)?;
        }
        let operands = share_memory(site, queue, operands, results)?;
        let running = &self.running[number];
        match &module.code[site.target] {
            Code::Rust(target) => {
                let mut call = CudaCall {
                    site: &site.site,
                    stage: Stage::Execute,
                    queue,
                    operands: &operands,
                    results,
                    options: &self.options,
                    functions: self.functions.as_ref(),
                    states: &running.states,
                };
                guarded(|| (target.execute)(&mut call))?;
                // The handler may have ignored that a function of the program was stopped.
                self.options.check()
            }
            Code::C(function) => {
                let conventions: Conventions = module.conventions;
                function.call(&site.site, queue, &operands, results, conventions)
            }
            Code::Kernels(kernels, _) => self.launch(kernels, number, queue, &operands, results),
        }
    }
}

impl CudaExecution<'_> {
    fn launch(
        &self,
        kernels: &Kernels,
        number: usize,
        queue: &mut CudaQueue,
        operands: &[DeviceLeaf],
        results: &[DeviceBuffer],
    ) -> Result<()> {
        let site = self.site(number)?;
        let ready = self.running[number].kernels.as_ref().ok_or_else(|| {
            Status::internal("kernels of a call site that takes no part in the execution")
        })?;
        let ready = ready.as_ref().map_err(Clone::clone)?;
        let (options, bounds) = (&self.options, kernels.bounds(&self.options));
        if !kernels.is_fenced() {
            return ready.launch(queue, operands, results, options, &bounds);
        }
        let align = alignment(operands, results);
        let planned = site.planned.as_ref().filter(|_| align < USUAL_ALIGN);
        let realigned = planned
            .map(|planned| kernels.make_ready(planned, queue.device(), align, &self.options))
            .transpose()?;
        // A kernel may read its results: they must not have data of other calls.
        for (result, alias) in std::iter::zip(results, &site.aliases) {
            if alias.is_none() {
                queue.fill(result, 0)?;
            }
        }
        let ready = realigned.as_ref().unwrap_or(ready);
        ready.launch(queue, operands, results, options, &bounds)?;
        queue.end_fenced_elsewhere()
    }
}

/// The operands of a call. Those that share a result's memory are copied into it: an operand's
/// value may have other readers.
fn share_memory(
    site: &Site,
    queue: &mut CudaQueue,
    operands: &[DeviceLeaf],
    results: &[DeviceBuffer],
) -> Result<Vec<DeviceLeaf>> {
    let mut operands = operands.to_vec();
    for (result, operand) in std::iter::zip(results, &site.aliases) {
        if let Some(operand) = *operand {
            queue.copy(&operands[operand].buffer, result)?;
            operands[operand].buffer = Arc::clone(result);
        }
    }
    Ok(operands)
}

/// The power of two that divides all addresses, at most the usual alignment.
fn alignment(operands: &[DeviceLeaf], results: &[DeviceBuffer]) -> u32 {
    let operands = operands.iter().map(|leaf| leaf.buffer.address());
    let addresses = operands.chain(results.iter().map(|buffer| buffer.address()));
    let all = addresses.fold(u64::from(USUAL_ALIGN), |all, address| all | address);
    1 << all.trailing_zeros()
}

fn in_stage(site: &CallSite, stage: Stage, status: Status) -> Status {
    status.context(format_args!("{}: {stage}", site.name))
}

/// Checks that a call can be recorded, if the stream is being captured.
fn check_capture(module: &CudaModule, site: &Site, queue: &CudaQueue) -> Result<()> {
    if queue.is_capturing() {
        module.check_capturable(site.target)?;
    }
    if queue.is_captured_elsewhere()
        && let Some(planned) = &site.planned
    {
        planned.check_without_scratch(&site.site.target)?;
    }
    Ok(())
}
