//! One call site, prepared for calls outside a program.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::batch::{Batch, Failed};
use super::mapping::{Mapping, Plan, WholeCall};
use super::pieces::hides_calls;
use super::sharing::Sharing;
use super::signature::dimensions::PURE;
use super::{
    CallBuffers, CallOptions, CallSite, DeviceBuffer, DeviceLeaf, DeviceQueue, Execution,
    PreparedCalls, Signature, Slices, Stage, TargetModule, Threads,
};
use crate::policy::Policy;
use crate::values::{Dictionary, Result, Status, bounded};

/// A module whose targets can be called outside a program.
pub trait DirectModule: TargetModule {
    /// The call sites of one [`PreparedCall`].
    type Calls: DirectCalls;

    /// Prepares the call sites of one [`PreparedCall`], as [`TargetModule::prepare`] prepares those
    /// of an executable. With `in_runs` several calls are made in one [`DirectCalls::Run`].
    ///
    /// # Errors
    /// As for [`TargetModule::prepare`].
    fn prepare_direct(
        module: &Arc<Self>,
        sites: Vec<CallSite>,
        options: &CallOptions,
        in_runs: bool,
    ) -> Result<Self::Calls>;

    /// The most bytes that the tables of an instance take, beside its memory.
    fn most_table_bytes(&self) -> usize {
        0
    }

    /// The policy that the targets run under. `None` if none bounds them.
    fn policy(&self) -> Option<&Policy>;

    /// The policy whose deadline for one call bounds a preparation, too. `None` if a preparation
    /// waits for more than the guest.
    fn policy_of_preparation(&self) -> Option<&Policy> {
        self.policy()
    }
}

/// Call sites that can be called outside a program.
pub trait DirectCalls: PreparedCalls {
    /// An execution that makes several calls.
    type Run<'a>: BufferExecution
    where
        Self: 'a;

    /// Begins and initializes an execution of the call site 0.
    ///
    /// # Errors
    /// The failure of a stage, or RESOURCE_EXHAUSTED if there are too many instances.
    fn begin_run(&self, options: &CallOptions) -> Result<Self::Run<'_>>;

    /// The threads that may help with the elements or pieces of a call. `None`: the calling thread
    /// works alone.
    fn threads(&self) -> Option<&dyn Threads> {
        None
    }

    /// Begins an execution like [`begin_run`](Self::begin_run) on a thread that helps. `None` if
    /// there is no room for another instance now, or none can be made on this thread.
    fn begin_help(&self, _options: &CallOptions) -> Option<Self::Run<'_>> {
        None
    }

    /// Calls a site as an execution of its own.
    ///
    /// # Errors
    /// The failure of the target; INVALID_ARGUMENT if the buffers do not fit the call site.
    fn call_alone<B: CallBuffers>(
        &self,
        site: usize,
        options: &CallOptions,
        buffers: &mut B,
    ) -> Result<()>;

    /// Returns whether every call of this site runs in an instance of its own.
    fn isolates(&self, site: usize) -> bool;

    /// The memory of the instances that serve the call sites. `None` if they have none here.
    fn memory(&self) -> Option<Arc<dyn InstanceMemory>> {
        None
    }

    /// The same call sites with other attributes, served by the same instances. `None` if they need
    /// instances of their own.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for attributes that the target does not accept.
    fn with_attributes(&self, _attributes: &Dictionary) -> Result<Option<Self>>
    where
        Self: Sized,
    {
        Ok(None)
    }
}

/// The memory of instances.
pub trait InstanceMemory: Send + Sync + fmt::Debug {
    /// The bytes of linear memory that the instances have now, idle ones included.
    fn bytes(&self) -> usize;
}

/// An execution whose calls take buffers of any kind.
pub trait BufferExecution {
    /// [`Execution::call`], with buffers of any kind.
    ///
    /// # Errors
    /// As for [`Execution::call`].
    fn call_buffers<B: CallBuffers>(&mut self, site: usize, buffers: &mut B) -> Result<()>;

    /// [`Execution::is_broken`].
    fn has_broken(&mut self) -> bool;

    /// Whether another call waits for the instance of this execution, which helps.
    fn is_awaited(&self) -> bool {
        false
    }
}

impl BufferExecution for Box<dyn Execution + '_> {
    fn call_buffers<B: CallBuffers>(&mut self, site: usize, buffers: &mut B) -> Result<()> {
        buffers.with_slices(&mut |operands, results| self.call(site, operands, results))
    }

    fn has_broken(&mut self) -> bool {
        self.is_broken()
    }
}

/// Handles the failure of elements on a device: takes the queue, the elements and the failure.
/// `Err` ends the call.
pub type FailedOnDevice<'a> =
    dyn FnMut(&mut dyn DeviceQueue, Range<usize>, Status) -> Result<()> + 'a;

/// A call site of one target, laid out and checked: a call copies the operands in, calls the
/// target, and copies the results out. Several threads can call it at once.
///
/// With a [`Mapping`] one call becomes a call for each element of a batch, or for each piece of the
/// arrays of an elementwise target.
#[derive(Debug)]
pub struct PreparedCall<C> {
    calls: C,
    plan: Arc<Plan>,
    limits: WholeCall,
    /// The most threads that share a call.
    threads: usize,
}

impl<C: DirectCalls> PreparedCall<C> {
    /// Prepares a call site of one of the module's targets. Its shapes are those of the caller's
    /// arrays.
    ///
    /// # Errors
    /// - The failures of [`TargetModule::prepare`], for the call of one element.
    /// - INVALID_ARGUMENT if the call site refers to functions, which only a program has; for
    ///   shapes without the batch's dimensions; and, with a mapping, for layouts that are not
    ///   row-major.
    pub fn new<M>(module: &Arc<M>, site: CallSite, mapping: &Mapping) -> Result<Self>
    where
        M: DirectModule<Calls = C>,
    {
        Self::new_within(module, site, mapping, &CallOptions::default())
    }

    /// Prepares a call site as a part of a call: the stage `instantiate` runs within the deadline
    /// and the cancel token of `options`.
    ///
    /// # Errors
    /// As for [`PreparedCall::new`]; DEADLINE_EXCEEDED and CANCELLED as `options` says.
    pub fn new_within<M>(
        module: &Arc<M>,
        site: CallSite,
        mapping: &Mapping,
        options: &CallOptions,
    ) -> Result<Self>
    where
        M: DirectModule<Calls = C>,
    {
        // If the plan for pieces fails, the next one has what is left of the time.
        let options = options.begun_under(module.policy_of_preparation());
        let threads = most_threads(module.as_ref(), &site);
        Plan::candidates(module.as_ref(), outside_a_program(site)?, mapping)?.prepare(
            || options.is_over(),
            |sites, plan| {
                let in_runs = !matches!(plan, Plan::Whole | Plan::Merged(_));
                let calls = M::prepare_direct(module, sites, &options, in_runs)?;
                let limits = WholeCall::new(module.policy());
                Ok(Self {
                    calls,
                    plan: Arc::new(plan),
                    limits,
                    threads,
                })
            },
        )
    }

    /// The same call site with other attributes, served by the same instances. `None` if it needs
    /// instances of its own: then prepare it by itself.
    ///
    /// Only the attributes are checked and encoded, which takes a small part of the time that
    /// [`PreparedCall::new`] takes.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for attributes that the target does not accept; RESOURCE_EXHAUSTED for
    /// attributes that nest too deep.
    pub fn with_attributes(&self, attributes: Dictionary) -> Result<Option<Self>> {
        let calls = self.calls.with_attributes(&bounded(attributes)?)?;
        Ok(calls.map(|calls| Self {
            calls,
            plan: Arc::clone(&self.plan),
            limits: self.limits,
            threads: self.threads,
        }))
    }

    /// The memory of the instances that serve this call site. Each thread that called at the same
    /// time keeps one. Call sites that share instances return the same `Arc`.
    #[must_use]
    pub fn memory(&self) -> Option<Arc<dyn InstanceMemory>> {
        self.calls.memory()
    }

    /// Returns whether arrays pass through the target in pieces.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        matches!(*self.plan, Plan::Pieces(_))
    }

    /// Calls the target within the limits' deadline.
    ///
    /// Operands and results are leaves in preorder, dense, little-endian, in the layouts of the
    /// call site; results in [`CallSite::scratch`] are empty. Results are written only if the call
    /// succeeds.
    ///
    /// # Errors
    /// The failure of the target; INVALID_ARGUMENT if the buffers do not fit the call site.
    #[inline]
    pub fn call(&self, operands: &[&[u8]], results: &mut [&mut [u8]]) -> Result<()> {
        self.call_with(&CallOptions::default(), operands, results)
    }

    /// Calls the target with options.
    ///
    /// # Errors
    /// As for [`PreparedCall::call`]; DEADLINE_EXCEEDED and CANCELLED as `options` says.
    #[inline]
    pub fn call_with(
        &self,
        options: &CallOptions,
        operands: &[&[u8]],
        results: &mut [&mut [u8]],
    ) -> Result<()> {
        self.call_buffers(options, &mut Slices { operands, results })
    }

    /// Calls the target with buffers of any kind.
    ///
    /// Elements of a batch are called in one execution: the stages `prepare` and `initialize` run
    /// once. The deadline of `options`, or else that of the limits, bounds all elements and pieces
    /// together; so does the limits' fuel in deterministic mode. The results of an element are
    /// written if its call succeeds.
    ///
    /// # Errors
    /// The first failure, as for [`PreparedCall::call_with`]. In a batch its message begins with
    /// `batch element 3: `, or `batch element (1, 2): ` for several dimensions. A target of the
    /// trait `batched` is called once for all elements, and its message names none.
    #[inline]
    pub fn call_buffers<B: CallBuffers>(
        &self,
        options: &CallOptions,
        buffers: &mut B,
    ) -> Result<()> {
        match &*self.plan {
            Plan::Whole | Plan::Merged(_) => self.calls.call_alone(0, options, buffers),
            Plan::Batch(batch) => {
                let sharing = self.sharing(options);
                batch.call(&self.calls, &self.limits.bind(options), sharing, buffers)
            }
            Plan::Pieces(pieces) => {
                let sharing = self.sharing(options);
                pieces.call(&self.calls, &self.limits.bind(options), sharing, buffers)
            }
        }
    }

    /// Calls the target and continues after a failed element if `failed` returns `Ok`.
    ///
    /// `failed` takes the buffers, the number of the element in the batch as a range, and its
    /// failure. After a failure that broke the instance, `prepare` and `initialize` run again for
    /// the elements that follow. A target of the trait `batched` that is called once for all
    /// elements fails for all of them. Once the time or the fuel is up or the call is cancelled, or
    /// in the deterministic mode an element found no room, the rest of the elements are not called,
    /// and fail as one range.
    /// Arrays are cut into pieces within each element.
    ///
    /// # Errors
    /// The failure of `failed`; INVALID_ARGUMENT if the buffers do not fit the call site.
    pub fn call_each<B: CallBuffers>(
        &self,
        options: &CallOptions,
        buffers: &mut B,
        failed: &mut Failed<'_, B>,
    ) -> Result<()> {
        match &*self.plan {
            Plan::Whole | Plan::Merged(_) => {
                let called = self.calls.call_alone(0, options, buffers);
                called.or_else(|status| failed(buffers, 0..self.plan.elements(), status))
            }
            Plan::Batch(batch) => {
                let sharing = self.sharing(options);
                let options = self.limits.bind(options);
                batch.call_each(&self.calls, &options, sharing, buffers, failed)
            }
            Plan::Pieces(pieces) => {
                let sharing = self.sharing(options);
                let options = self.limits.bind(options);
                pieces.call_each(&self.calls, &options, sharing, buffers, failed)
            }
        }
    }

    /// The threads that may share a call with these options.
    fn sharing<'s>(&'s self, options: &'s CallOptions) -> Option<Sharing<'s>> {
        let most = options.threads.unwrap_or(usize::MAX).min(self.threads);
        if most < 2 {
            return None;
        }
        let threads = self.calls.threads()?;
        let most = most.min(threads.count().saturating_add(1));
        Some(Sharing { threads, most })
    }

    /// Puts the call into a device's queue. Operands and results are leaves in preorder, dense, in
    /// the device's memory; those of a batch are in memory borrowed from the queue's device.
    ///
    /// # Errors
    /// As for [`PreparedCall::call_buffers`]. A call that fails may have written results.
    pub fn enqueue(
        &self,
        options: &CallOptions,
        queue: &mut dyn DeviceQueue,
        operands: &[DeviceBuffer],
        results: &[DeviceBuffer],
    ) -> Result<()> {
        self.enqueue_each(options, queue, operands, results, &mut |_, _, status| {
            Err(status)
        })
    }

    /// Puts the calls into a device's queue and continues after a failed element if `failed`
    /// returns `Ok`, as [`PreparedCall::call_each`] does. Failures on the device itself are
    /// reported later, by the queue.
    ///
    /// # Errors
    /// The failure of `failed`; INVALID_ARGUMENT if the arrays do not fit the call site.
    pub fn enqueue_each(
        &self,
        options: &CallOptions,
        queue: &mut dyn DeviceQueue,
        operands: &[DeviceBuffer],
        results: &[DeviceBuffer],
        failed: &mut FailedOnDevice<'_>,
    ) -> Result<()> {
        let options = self.limits.bind(options);
        let mut execution = self.calls.begin(&options, None, &[0])?;
        execution.initialize_on(queue)?;
        let Some(batch) = self.plan.batch() else {
            let called = execution.enqueue(0, queue, &leaves(operands), results);
            return called.or_else(|status| failed(queue, 0..self.plan.elements(), status));
        };
        batch.check_device(operands, results)?;
        for number in 0..batch.count {
            let position = batch.position(number);
            let part = |(array, leaf): (&DeviceBuffer, &super::batch::Leaf)| {
                queue.part(array, leaf.range(number, &position))
            };
            let operands = operands.iter().zip(&batch.operands).map(part);
            let operands = operands.collect::<Result<Vec<_>>>()?;
            let results = results.iter().zip(&batch.results).map(part);
            let results = results.collect::<Result<Vec<_>>>()?;
            if let Err(status) = execution.enqueue(0, queue, &leaves(&operands), &results) {
                let goes_on = batch.report(&options, number, status, |elements, status| {
                    failed(queue, elements, status)
                })?;
                if !goes_on {
                    break;
                }
            }
        }
        Ok(())
    }
}

impl Plan {
    fn batch(&self) -> Option<&Batch> {
        match self {
            Self::Batch(batch) => Some(batch),
            Self::Whole | Self::Merged(_) | Self::Pieces(_) => None,
        }
    }

    /// The number of elements that one call computes.
    fn elements(&self) -> usize {
        match self {
            Self::Merged(count) => *count,
            Self::Whole | Self::Batch(_) | Self::Pieces(_) => 1,
        }
    }
}

/// The most threads that may share a call of this site: 1 unless the target is pure, has no stages
/// that run once per execution, and the policy lets nothing depend on the number of instances.
fn most_threads<M: DirectModule>(module: &M, site: &CallSite) -> usize {
    let targets = module.targets();
    let target = Signature::find(targets, &site.target);
    let (Some(target), Some(policy)) = (target, module.policy()) else {
        return 1;
    };
    let target = &targets[target];
    let per_execution = [Stage::Prepare, Stage::Initialize];
    let has_stages = target
        .stages
        .iter()
        .any(|stage| per_execution.contains(stage));
    if target.has_trait(PURE) && !has_stages && hides_calls(policy) {
        // The instances of all threads together must find room for their memory.
        let limits = &policy.limits;
        let each = limits
            .memory_bytes
            .saturating_add(module.most_table_bytes());
        let with_memory = limits.executable_memory_bytes / each.max(1);
        limits.threads.min(with_memory)
    } else {
        1
    }
}

/// Checks that a call site needs no program.
fn outside_a_program(mut site: CallSite) -> Result<CallSite> {
    let attributes = bounded(std::mem::take(&mut site.attributes));
    site.attributes = attributes.map_err(|status| status.context(site.label()))?;
    if !site.functions.is_empty() {
        return Err(Status::invalid_argument(format!(
            "{}: expected no functions to call back, for there is no program, found {}",
            site.label(),
            site.functions.len()
        )));
    }
    Ok(site)
}

/// Arrays whose addresses are known when they are enqueued.
fn leaves(buffers: &[DeviceBuffer]) -> Vec<DeviceLeaf> {
    let leaf = |buffer: &DeviceBuffer| DeviceLeaf {
        buffer: Arc::clone(buffer),
        is_known: true,
    };
    buffers.iter().map(leaf).collect()
}
