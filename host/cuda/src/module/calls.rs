//! Call sites of native targets, and their executions.
//!
//! A running kernel that is granted cannot be stopped: a deadline or a cancel token only stops work
//! that is not in a stream yet. They are checked before each call, and again after a handler has
//! run. Fenced kernels look at a stop word.

use std::sync::Arc;
use std::time::Instant;

use super::{Code, Conventions, CudaModule};
use crate::call::{CudaCall, CudaStage, State};
use crate::device::CudaDevice;
use crate::fenced::USUAL_ALIGN;
use crate::guard::guarded;
use crate::kernel::{PlannedKernels, ReadyKernels};
use crate::queue::CudaQueue;
use callbox_core::call::resolve_aliases;
use callbox_core::call::{
    CallBuffers, CallOptions, CallSite, CancelToken, Deadline, DeviceBuffer, DeviceLeaf,
    DeviceQueue, DirectCalls, DirectModule, Execution, Functions, PreparedCalls, Stage,
};
use callbox_core::policy::Policy;
use callbox_core::values::{ArrayShape, Blame, Result, Shape, Status, StatusCode};

/// The call sites that an executable has of a module's targets.
#[derive(Debug)]
pub struct CudaCalls {
    module: Arc<CudaModule>,
    sites: Vec<Site>,
}

#[derive(Debug)]
struct Site {
    site: CallSite,
    /// The index of the target in the module.
    target: usize,
    /// For each result leaf, the operand leaf that shares its memory.
    aliases: Vec<Option<usize>>,
    /// The state that `instantiate` returned.
    instantiated: Option<State>,
    /// The planned launches, if the target is a manifest's.
    planned: Option<PlannedKernels>,
}

impl CudaCalls {
    pub(crate) fn new(module: &Arc<CudaModule>, sites: Vec<CallSite>) -> Result<Self> {
        let sites = sites.into_iter().map(|site| {
            let name = site.name.clone();
            Site::new(module, site).map_err(|status| status.context(name))
        });
        Ok(Self {
            module: Arc::clone(module),
            sites: sites.collect::<Result<_>>()?,
        })
    }
}

impl Site {
    fn new(module: &CudaModule, site: CallSite) -> Result<Self> {
        let mut signatures = module.signatures.iter();
        let Some(target) = signatures.position(|s| s.name == site.target) else {
            return Err(Status::not_found(format!(
                "the module has no target {:?}",
                site.target
            )));
        };
        module.signatures[target].check(&site)?;
        let leaves = site.result.leaf_count();
        if let Some(leaf) = site.scratch.iter().find(|&&leaf| leaf >= leaves) {
            return Err(Status::invalid_argument(format!(
                "expected scratch to name one of the {leaves} leaves of the result, found {leaf}"
            )));
        }
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
                planned = Some(kernels.plan(*number, &site, &aliases)?)
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
        let mut execution = CudaExecution {
            calls: self,
            options: options.from_now_on(),
            functions: functions.cloned(),
            sites: sites.to_vec(),
            running: Vec::new(),
        };
        execution
            .running
            .resize_with(self.sites.len(), Running::default);
        for &number in sites {
            execution.prepare(number)?;
        }
        Ok(Box::new(execution))
    }
}

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

struct CudaExecution<'e> {
    calls: &'e CudaCalls,
    options: CallOptions,
    functions: Option<Arc<dyn Functions>>,
    /// The indices of the call sites that take part.
    sites: Vec<usize>,
    running: Vec<Running>,
}

impl CudaExecution<'_> {
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
                    Some(kernels.make_ready(planned, queue.device(), USUAL_ALIGN));
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
        let calls = self.calls;
        let Some(site) = calls.sites.get(number) else {
            return Err(Status::internal("the call site was not prepared"));
        };
        let device = calls.module.own_device()?;
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
        check_stop(&self.options)?;
        let queue = CudaQueue::downcast(queue)?;
        queue.device().check_not_lost()?;
        let calls = self.calls;
        let Some(site) = calls.sites.get(number) else {
            return Err(Status::internal("the call site was not prepared"));
        };
        if queue.is_capturing() {
            calls.module.check_capturable(site.target)?;
        }
        if queue.is_captured_elsewhere()
            && let Some(planned) = &site.planned
        {
            planned.check_without_scratch(&site.site.target)?;
        }
        check_sizes(&site.site, operands, results)?;
        let buffers = operands.iter().map(|leaf| &leaf.buffer).chain(results);
        for buffer in buffers {
            queue.admit(buffer)?;
        }
        let mut operands = operands.to_vec();
        for (result, operand) in site.aliases.iter().enumerate() {
            if let Some(operand) = *operand {
                // The operand's value may have other readers, so it has memory of its own.
                queue.copy(&operands[operand].buffer, &results[result])?;
                operands[operand].buffer = Arc::clone(&results[result]);
            }
        }
        let running = &self.running[number];
        match &calls.module.code[site.target] {
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
                check_stop(&self.options)
            }
            Code::C(function) => {
                let conventions: Conventions = calls.module.conventions;
                function.call(&site.site, queue, &operands, results, conventions)
            }
            Code::Kernels(kernels, _) => {
                let ready = running.kernels.as_ref().ok_or_else(|| {
                    Status::internal("kernels of a call site that takes no part in the execution")
                })?;
                let ready = ready.as_ref().map_err(Clone::clone)?;
                let bounds = kernels.bounds(&self.options);
                if !kernels.is_fenced() {
                    return ready.launch(queue, &operands, results, &bounds);
                }
                let align = alignment(&operands, results);
                let planned = site.planned.as_ref().filter(|_| align < USUAL_ALIGN);
                let realigned = planned
                    .map(|planned| kernels.make_ready(planned, queue.device(), align))
                    .transpose()?;
                // A kernel may read its results: they must not have data of other calls.
                for (result, alias) in std::iter::zip(results, &site.aliases) {
                    if alias.is_none() {
                        queue.fill(result, 0)?;
                    }
                }
                let ready = realigned.as_ref().unwrap_or(ready);
                ready.launch(queue, &operands, results, &bounds)?;
                queue.end_fenced_elsewhere()
            }
        }
    }
}

impl DirectModule for CudaModule {
    type Calls = CudaCalls;

    /// Native stages cannot be interrupted, so that the options bound nothing here.
    fn prepare_direct(
        module: &Arc<Self>,
        sites: Vec<CallSite>,
        _: &CallOptions,
        _: bool,
    ) -> Result<CudaCalls> {
        CudaCalls::new(module, sites)
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
        check_stop(options)?;
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
fn call_on_device(
    device: &Arc<CudaDevice>,
    site: &CallSite,
    operands: &[&[u8]],
    results: &mut [&mut [u8]],
    call: impl FnOnce(&mut CudaQueue, &[DeviceLeaf], &[DeviceBuffer]) -> Result<()>,
) -> Result<()> {
    let shapes = site.operands.iter().flat_map(Shape::leaves);
    let expected: Vec<usize> = shapes.map(|shape| shape.byte_size()).collect();
    let found: Vec<usize> = operands.iter().map(|bytes| bytes.len()).collect();
    expect_sizes("operands", &expected, &found)?;
    let leaves = site.result.leaves();
    let sizes: Vec<usize> = leaves.iter().map(|shape| shape.byte_size()).collect();
    let mut expected = sizes.clone();
    for &scratch in &site.scratch {
        expected[scratch] = 0;
    }
    let found: Vec<usize> = results.iter().map(|bytes| bytes.len()).collect();
    expect_sizes("results", &expected, &found)?;
    let mut queue = device.new_queue()?;
    let operands = operands.iter().map(|bytes| {
        Ok(DeviceLeaf {
            buffer: queue.upload(bytes)?,
            is_known: true,
        })
    });
    let operands = operands.collect::<Result<Vec<_>>>()?;
    let buffers = sizes.iter().map(|&size| queue.allocate(size));
    let buffers = buffers.collect::<Result<Vec<_>>>()?;
    call(&mut queue, &operands, &buffers)?;
    let found = queue.download(&buffers)?;
    for (number, (result, bytes)) in std::iter::zip(results, found).enumerate() {
        if !site.scratch.contains(&number) {
            result.copy_from_slice(&bytes);
        }
    }
    Ok(())
}

fn expect_sizes(what: &str, expected: &[usize], found: &[usize]) -> Result<()> {
    if expected == found {
        return Ok(());
    }
    Err(Status::invalid_argument(format!(
        "expected {what} of {expected:?} bytes, found {found:?}"
    )))
}

fn check_sizes(site: &CallSite, operands: &[DeviceLeaf], results: &[DeviceBuffer]) -> Result<()> {
    let shapes = || site.operands.iter().flat_map(Shape::leaves);
    let expected = || shapes().map(ArrayShape::byte_size);
    let found = || operands.iter().map(|leaf| leaf.buffer.size());
    if !expected().eq(found()) {
        let (expected, found) = (expected().collect::<Vec<_>>(), found().collect::<Vec<_>>());
        return expect_sizes("operands", &expected, &found);
    }
    let expected = || site.result.leaves().into_iter().map(ArrayShape::byte_size);
    let found = || results.iter().map(|buffer| buffer.size());
    if !expected().eq(found()) {
        let (expected, found) = (expected().collect::<Vec<_>>(), found().collect::<Vec<_>>());
        return expect_sizes("results", &expected, &found);
    }
    Ok(())
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

fn check_stop(options: &CallOptions) -> Result<()> {
    let stopped = |code, message| Err(Status::new(code, Blame::Caller, message));
    if options
        .cancel
        .as_ref()
        .is_some_and(CancelToken::is_cancelled)
    {
        return stopped(StatusCode::Cancelled, "the call was cancelled");
    }
    let end = options.deadline.and_then(Deadline::end);
    if end.is_some_and(|end| Instant::now() >= end) {
        return stopped(
            StatusCode::DeadlineExceeded,
            "the call's deadline has passed",
        );
    }
    Ok(())
}
