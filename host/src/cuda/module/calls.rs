//! Call sites of native targets, prepared, and executions in which they take part.

use std::sync::Arc;
use std::time::Instant;

use super::{Code, Conventions, CudaModule};
use crate::call::{
    CallOptions, CallSite, CancelToken, Deadline, DeviceBuffer, DeviceLeaf, DeviceQueue, Execution,
    Functions, PreparedCalls, Stage,
};
use crate::cuda::call::{CudaCall, CudaStage, State};
use crate::cuda::device::CudaDevice;
use crate::cuda::guard::guarded;
use crate::cuda::kernel::{PlannedKernels, ReadyKernels};
use crate::cuda::queue::CudaQueue;
use crate::frame::resolve_aliases;
use crate::values::{ArrayShape, Blame, Result, Shape, Status, StatusCode};

/// Call sites that one executable has of a module's targets.
#[derive(Debug)]
pub(in crate::cuda) struct CudaCalls {
    module: Arc<CudaModule>,
    sites: Vec<Site>,
}

#[derive(Debug)]
struct Site {
    site: CallSite,
    /// Which of the module's targets.
    target: usize,
    /// For each result leaf the operand leaf whose memory it shares.
    aliases: Vec<Option<usize>>,
    /// What `instantiate` made.
    instantiated: Option<State>,
    /// The launches, of kernels.
    planned: Option<PlannedKernels>,
}

impl CudaCalls {
    pub(in crate::cuda) fn new(module: &Arc<CudaModule>, sites: Vec<CallSite>) -> Result<Self> {
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
        let leaves = site.result.leaves().len();
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
            Code::Kernels(kernels, number) => planned = Some(kernels.plan(*number, &site)?),
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
            options: CallOptions {
                deadline: options.deadline.map(|d| Deadline::At(d.instant())),
                ..options.clone()
            },
            functions: functions.cloned(),
            part: sites.to_vec(),
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

/// What an execution has of a call site.
#[derive(Default)]
struct Running {
    /// What `instantiate`, `prepare` and `initialize` made.
    states: [Option<State>; 3],
    kernels: Option<Result<Arc<ReadyKernels>>>,
}

/// What came last is taken back first, as a module's is.
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
    /// The call sites that take part.
    part: Vec<usize>,
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
                // What is wrong is the call's failure, where one comes to it.
                self.running[number].kernels = Some(kernels.make_ready(planned, queue.device()));
            }
        }
        Ok(())
    }
}

impl Execution for CudaExecution<'_> {
    fn initialize(&mut self) -> Result<()> {
        let mut queue = self.calls.module.own_device()?.new_queue()?;
        self.initialize_on(&mut queue)?;
        // Calls come in queues of their own.
        queue.download(&[]).map(drop)
    }

    fn initialize_on(&mut self, queue: &mut dyn DeviceQueue) -> Result<()> {
        let queue = cuda(queue)?;
        for number in self.part.clone() {
            self.initialize_site(number, queue)?;
        }
        Ok(())
    }

    fn call(&mut self, number: usize, operands: &[&[u8]], results: &mut [&mut [u8]]) -> Result<()> {
        let calls = self.calls;
        let Some(site) = calls.sites.get(number) else {
            return Err(Status::internal("a call site that was not prepared"));
        };
        let device = calls.module.own_device()?;
        through(device, &site.site, operands, results, |queue, from, to| {
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
        let queue = cuda(queue)?;
        queue.device().check_not_lost()?;
        let calls = self.calls;
        let Some(site) = calls.sites.get(number) else {
            return Err(Status::internal("a call site that was not prepared"));
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
                // The operand's value may have other readers, and lies in memory of its own.
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
                // A handler may have swallowed what a function of the program said of it.
                check_stop(&self.options)
            }
            Code::C(function) => {
                let conventions: Conventions = calls.module.conventions;
                function.call(&site.site, queue, &operands, results, conventions)
            }
            Code::Kernels(..) => {
                let ready = running.kernels.as_ref().ok_or_else(|| {
                    Status::internal("kernels of a call site that takes no part in the execution")
                })?;
                let ready = ready.as_ref().map_err(Clone::clone)?;
                ready.launch(queue, &operands, results)
            }
        }
    }
}

/// One call site, prepared for calls of its own.
#[derive(Debug)]
pub struct CudaPreparedCall {
    calls: CudaCalls,
    device: Arc<CudaDevice>,
}

impl CudaPreparedCall {
    pub(super) fn new(calls: CudaCalls, device: Arc<CudaDevice>) -> Self {
        Self { calls, device }
    }

    /// Calls the target, with the bytes of the operands' leaves in preorder, and waits for its results.
    ///
    /// # Errors
    /// What the target reports; INVALID_ARGUMENT if the bytes do not fit the call site. Results are written only if the call succeeds.
    pub fn call(&self, operands: &[&[u8]], results: &mut [&mut [u8]]) -> Result<()> {
        self.call_with(&CallOptions::default(), operands, results)
    }

    /// The same with options. The device can't be stopped: a deadline or token stops what has not been put into its stream.
    ///
    /// # Errors
    /// As for [`CudaPreparedCall::call`]; DEADLINE_EXCEEDED and CANCELLED as the options say.
    pub fn call_with(
        &self,
        options: &CallOptions,
        operands: &[&[u8]],
        results: &mut [&mut [u8]],
    ) -> Result<()> {
        check_stop(options)?;
        let site = &self.calls.sites[0].site;
        through(&self.device, site, operands, results, |queue, from, to| {
            self.enqueue(options, queue, from, to)
        })
    }

    /// Puts a call into a queue: operands and results are leaves in preorder, in the device's memory.
    ///
    /// # Errors
    /// As for [`CudaPreparedCall::call`]. Of a call that fails, results may have been written.
    pub fn enqueue(
        &self,
        options: &CallOptions,
        queue: &mut CudaQueue,
        operands: &[DeviceLeaf],
        results: &[DeviceBuffer],
    ) -> Result<()> {
        let mut execution = self.calls.begin(options, None, &[0])?;
        execution.initialize_on(queue)?;
        execution.enqueue(0, queue, operands, results)
    }
}

/// Copies operands to a device, has something done with them there, waits, and copies the results back. Results are written only if it succeeds.
fn through(
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
    match expected == found {
        true => Ok(()),
        false => Err(Status::invalid_argument(format!(
            "expected {what} of {expected:?} bytes, found {found:?}"
        ))),
    }
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

/// The queue as CUDA's.
fn cuda(queue: &mut dyn DeviceQueue) -> Result<&mut CudaQueue> {
    let queue = queue.as_any().downcast_mut();
    queue.ok_or_else(|| {
        Status::new(
            StatusCode::FailedPrecondition,
            Blame::Caller,
            "expected a queue of a CUDA device, found another device's",
        )
    })
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
    let is_past = |deadline: Deadline| matches!(deadline, Deadline::At(at) if Instant::now() >= at);
    if options.deadline.is_some_and(is_past) {
        return stopped(
            StatusCode::DeadlineExceeded,
            "the call's deadline has passed",
        );
    }
    Ok(())
}
