//! Prepared call sites and the instances that serve them.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Instant;

use super::instance::{Caller, Instance, check_stack, not_called};
use super::interrupt::Interrupted;
use super::module::Module;
use super::pool::{Lease, Pool};
use super::quota::Quota;
use super::shared::Evict;
use super::site::Site;
use super::state::DELETION;
use crate::call::{
    CallBuffers, CallOptions, CallSite, CancelToken, Deadline, Platform, PreparedCalls, Signature,
    Slices, Stage, TargetModule,
};
use crate::frame::ARENA_ALIGNMENT;
use crate::policy::Isolation;
use crate::values::{Blame, Result, Status, StatusCode, bounded};

/// One executable's call sites of a module's targets, and a pool of instances for them. An instance serves all of these call sites,
/// one call at a time, so that there are as many as there are executions at one time.
pub(super) struct Sites {
    pub(super) module: Arc<Module>,
    pub(super) sites: Box<[Site]>,
    arena_size: usize,
    /// Whether some target has a stage that runs once for each execution.
    pub(super) has_execution_stages: bool,
    pub(super) pool: Arc<Pool>,
    quota: Arc<Quota>,
}

impl Sites {
    pub(super) fn new(module: Arc<Module>, sites: Vec<CallSite>) -> Result<Self> {
        let lay_out =
            |site: &CallSite| Site::new(&module, site).map_err(|status| status.context(&site.name));
        let sites = sites.iter().map(lay_out).collect::<Result<Box<[Site]>>>()?;
        let largest = sites
            .iter()
            .map(|site| site.layout.size())
            .max()
            .unwrap_or(0);
        let has_execution_stages = sites.iter().any(Site::has_execution_stages);
        let pool = Arc::new(Pool::new());
        let evictable: Weak<dyn Evict> = Arc::downgrade(&(Arc::clone(&pool) as Arc<dyn Evict>));
        module.shared.add_pool(evictable);
        let new = Self {
            module,
            sites,
            arena_size: largest.max(ARENA_ALIGNMENT),
            has_execution_stages,
            pool,
            quota: Arc::default(),
        };
        new.make_early()?;
        Ok(new)
    }

    /// Makes what call sites have once for each executable, so that what is wrong with it is known before anything runs. Instances that
    /// serve one call each make it for that call.
    fn make_early(&self) -> Result<()> {
        let early = |(_, site): &(usize, &Site)| site.is_made_early();
        let mut early = self.sites.iter().enumerate().filter(early).peekable();
        if early.peek().is_none() || self.module.shared.policy.isolation == Isolation::Fresh {
            return Ok(());
        }
        let mut lease = self.pool.lease();
        let instance = self.instance(&mut lease, (&CallOptions::default(), None))?;
        early.try_for_each(|(index, site)| {
            let bound = instance.bind(index, site);
            bound.map_err(|status| status.context(&site.name))
        })
    }

    /// The size of the arena in each instance.
    pub(super) fn arena_size(&self) -> usize {
        self.arena_size
    }

    /// The lease's instance, or a new one in its place.
    #[inline]
    pub(super) fn instance<'i>(
        &self,
        lease: &'i mut Lease<'_>,
        caller: Caller<'_>,
    ) -> Result<&'i mut Instance> {
        match lease.instance() {
            Some(instance) => {
                instance.begin(caller);
                Ok(instance)
            }
            none => Ok(none.insert(self.new_instance(caller)?)),
        }
    }

    /// A new instance. When there is no place for it, what is being given back is waited for, and idle ones make way, one by one.
    fn new_instance(&self, caller: Caller<'_>) -> Result<Instance> {
        // Making way for an instance would not help.
        check_stack(self.module.shared.policy.limits.stack_bytes, "the module")?;
        let shared = &self.module.shared;
        let mut deadline = None;
        loop {
            let discarded = shared.discarder.done();
            let size = (self.arena_size, self.sites.len());
            let share = self.quota.share(&shared.policy.limits);
            // Making way does not help an executable that has as many as it may have.
            let can_make_way = share.is_ok();
            match share.and_then(|share| Instance::new(&self.module, size, share, caller)) {
                Err(status)
                    if status.code() == StatusCode::ResourceExhausted
                        && status.blame() == Blame::Caller =>
                {
                    let (own, deadline) = *deadline.get_or_insert_with(|| ends(caller.0));
                    // Whoever is stopped while it waits was stopped, and found no lack.
                    if caller
                        .0
                        .cancel
                        .as_ref()
                        .is_some_and(CancelToken::is_cancelled)
                    {
                        return Err(not_called(Interrupted::Cancelled, "the module"));
                    }
                    if own.is_some_and(|own| Instant::now() >= own) {
                        return Err(not_called(Interrupted::Deadline, "the module"));
                    }
                    if Instant::now() >= deadline {
                        return Err(status);
                    }
                    let has_room = shared.discarder.wait(discarded, deadline)
                        || can_make_way && shared.evict_one(deadline);
                    if !has_room {
                        return Err(status);
                    }
                }
                outcome => return outcome,
            }
        }
    }

    /// Runs a stage that runs once for each execution, for each of these call sites whose target has it.
    pub(super) fn run_stage(
        &self,
        instance: &mut Instance,
        stage: Stage,
        sites: &[usize],
    ) -> Result<()> {
        sites.iter().try_for_each(|&index| {
            let ran = self.run_stage_of(instance, stage, index);
            ran.map_err(|status| match self.sites.get(index) {
                Some(site) => status.context(&site.name),
                None => status,
            })
        })
    }

    /// The same for one call site.
    #[inline]
    fn run_stage_of(&self, instance: &mut Instance, stage: Stage, index: usize) -> Result<()> {
        match self.sites.get(index) {
            Some(site) if site.stages.contains(&stage) => {
                instance.bind(index, site)?;
                instance.run_stage(index, site, stage)
            }
            _ => Ok(()),
        }
    }

    #[inline]
    pub(super) fn call<B: CallBuffers>(
        &self,
        instance: &mut Instance,
        index: usize,
        buffers: &mut B,
    ) -> Result<()> {
        let site = self.sites.get(index).ok_or_else(|| {
            Status::invalid_argument(format!(
                "expected a call site below {}, found {index}",
                self.sites.len()
            ))
        })?;
        let places = site.layout.operands().iter().map(|place| place.size);
        check_sizes("operand", places, buffers.operands(), |i| {
            buffers.operand_size(i)
        })?;
        let sizes = site.result_sizes.iter().copied();
        check_sizes("result", sizes, buffers.results(), |i| {
            buffers.result_size(i)
        })?;
        instance.bind(index, site)?;
        instance.execute(index, site, buffers)
    }
}

/// The caller's own deadline, and until when idle instances may take back what they have while a call waits for their place: until then, and
/// not long.
fn ends(options: &CallOptions) -> (Option<Instant>, Instant) {
    let most = Instant::now() + DELETION;
    let own = options.deadline.map(Deadline::instant);
    (own, own.map_or(most, |own| own.min(most)))
}

/// Checks that the caller's buffers are as many and as long as the call site says.
#[inline]
pub(super) fn check_sizes(
    what: &str,
    sizes: impl ExactSizeIterator<Item = usize>,
    count: usize,
    length: impl Fn(usize) -> usize,
) -> Result<()> {
    if sizes.len() != count {
        return Err(wrong_buffers(format!(
            "expected {} {what} buffers, found {count}",
            sizes.len()
        )));
    }
    for (i, size) in sizes.enumerate() {
        let length = length(i);
        if size != length {
            return Err(wrong_buffers(format!(
                "{what} {i}: expected {size} bytes, found {length}"
            )));
        }
    }
    Ok(())
}

#[cold]
fn wrong_buffers(message: String) -> Status {
    Status::invalid_argument(message)
}

impl fmt::Debug for Sites {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let targets: Vec<_> = self.sites.iter().map(|site| &site.target).collect();
        f.debug_struct("Sites")
            .field("module", &self.module.info().sha256)
            .field("targets", &targets)
            .finish_non_exhaustive()
    }
}

impl TargetModule for Module {
    fn identity(&self) -> &str {
        &self.identity
    }

    fn platform(&self) -> Platform {
        Platform::Host
    }

    fn targets(&self) -> &[Signature] {
        &self.info().targets
    }

    fn prepare(self: Arc<Self>, sites: Vec<CallSite>) -> Result<Box<dyn PreparedCalls>> {
        Ok(Box::new(Sites::new(self, sites)?))
    }
}

impl Module {
    /// Prepares one call site of one of the module's targets: for calls outside a program.
    ///
    /// # Errors
    /// As for [`TargetModule::prepare`], and INVALID_ARGUMENT if the call site refers to functions: there is no program to call back.
    pub fn prepare_call(self: &Arc<Self>, site: CallSite) -> Result<PreparedCall> {
        let site = outside_a_program(site)?;
        Ok(PreparedCall::new(Sites::new(Arc::clone(self), vec![site])?))
    }
}

/// The call site, if it can be served where there is no program.
pub(super) fn outside_a_program(mut site: CallSite) -> Result<CallSite> {
    let attributes = bounded(std::mem::take(&mut site.attributes));
    site.attributes = attributes.map_err(|status| status.context(&site.name))?;
    if !site.functions.is_empty() {
        return Err(Status::invalid_argument(format!(
            "{}: expected no functions to call back, for there is no program, found {}",
            site.name,
            site.functions.len()
        )));
    }
    Ok(site)
}

impl Sites {
    /// Those of these call sites whose targets have stages that run once for each execution.
    pub(super) fn with_execution_stages(&self, sites: &[usize]) -> Vec<usize> {
        if !self.has_execution_stages {
            return Vec::new();
        }
        let has_stages = |index: &usize| {
            let site = self.sites.get(*index);
            site.is_some_and(Site::has_execution_stages)
        };
        sites.iter().copied().filter(has_stages).collect()
    }

    /// Whether what this call site's target says of its purity is checked.
    #[inline]
    pub(super) fn is_checked(&self, index: usize) -> bool {
        self.module.shared.policy.check_pure
            && self.sites.get(index).is_some_and(|site| site.is_pure)
    }

    /// How messages name a call site's target.
    pub(super) fn what(&self, index: usize) -> &str {
        self.sites.get(index).map_or("a target", |site| &site.what)
    }

    /// One call in an instance of its own.
    pub(super) fn call_fresh<B: CallBuffers>(
        &self,
        index: usize,
        caller: Caller<'_>,
        buffers: &mut B,
    ) -> Result<()> {
        let mut instance = self.new_instance(caller)?;
        let outcome = self.execute(&mut instance, index, buffers);
        instance.discard();
        outcome
    }

    /// One call as an execution of its own.
    #[inline]
    pub(super) fn call_alone<B: CallBuffers>(
        &self,
        index: usize,
        caller: Caller<'_>,
        buffers: &mut B,
    ) -> Result<()> {
        if self.is_checked(index) {
            return self.call_twice(index, caller, buffers);
        }
        match self.module.shared.policy.isolation {
            Isolation::Executable => {
                let mut lease = self.pool.lease();
                let instance = self.instance(&mut lease, caller)?;
                let outcome = self.execute(instance, index, buffers);
                if self.has_execution_stages {
                    instance.end_execution();
                }
                outcome
            }
            Isolation::Fresh => self.call_fresh(index, caller, buffers),
        }
    }

    /// The stages that run once for each execution, and the call.
    #[inline]
    fn execute<B: CallBuffers>(
        &self,
        instance: &mut Instance,
        index: usize,
        buffers: &mut B,
    ) -> Result<()> {
        self.run_stage_of(instance, Stage::Prepare, index)?;
        self.run_stage_of(instance, Stage::Initialize, index)?;
        self.call(instance, index, buffers)
    }
}

/// A call site of a module's target, laid out and checked: a call copies the operands in, calls, and copies the results out. It can
/// be called from many threads at once.
#[derive(Debug)]
pub struct PreparedCall {
    sites: Sites,
}

impl PreparedCall {
    fn new(sites: Sites) -> Self {
        Self { sites }
    }

    /// Calls the target within the limits' deadline. Operands and results are leaves in preorder, dense, little-endian, in the
    /// layouts of the call site; results in [`CallSite::scratch`] are empty. Results are written only if the call succeeds.
    ///
    /// # Errors
    /// What the target reports or how it failed; INVALID_ARGUMENT if the buffers do not fit the call site.
    pub fn call(&self, operands: &[&[u8]], results: &mut [&mut [u8]]) -> Result<()> {
        self.call_with(&CallOptions::default(), operands, results)
    }

    /// Calls the target.
    ///
    /// # Errors
    /// As for [`PreparedCall::call`], and what `options` brings about.
    pub fn call_with(
        &self,
        options: &CallOptions,
        operands: &[&[u8]],
        results: &mut [&mut [u8]],
    ) -> Result<()> {
        let mut buffers = Slices { operands, results };
        self.sites.call_alone(0, (options, None), &mut buffers)
    }
}
