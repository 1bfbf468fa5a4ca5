//! Prepared call sites and the instances that serve them.

mod instances;

use std::fmt;
use std::sync::{Arc, Weak};

use super::execution::WasmExecution;
use super::instance::{Caller, Instance};
use super::module::Module;
use super::pool::Pool;
use super::purity;
use super::quota::{Quota, Together};
use super::shared::Evict;
use super::site::Site;
use super::state::TABLE_ELEMENT;
use callbox_abi::ARENA_ALIGNMENT;
use callbox_core::call::batch::check_sizes;
use callbox_core::call::{
    CallBuffers, CallOptions, CallSite, DirectCalls, DirectModule, Execution, Functions,
    InstanceMemory, Mapping, Platform, PreparedCalls, Signature, Stage, TargetModule, Threads,
};
use callbox_core::policy::{Isolation, Policy};
use callbox_core::values::{Dictionary, Result, Status};

/// One executable's call sites of a module's targets, and a pool of instances for them.
///
/// An instance serves all of these call sites, one call at a time: there is one instance per
/// concurrent execution.
pub struct Sites {
    pub(super) module: Arc<Module>,
    pub(super) sites: Box<[Site]>,
    arena_size: usize,
    /// Whether a target has a stage that runs once per execution.
    pub(super) has_execution_stages: bool,
    pub(super) pool: Arc<Pool>,
    quota: Arc<Quota>,
}

impl Sites {
    /// Lays out the call sites, whose memory counts `together` with that of others. The stage
    /// `instantiate` runs within `options`.
    fn new(
        module: Arc<Module>,
        sites: Vec<CallSite>,
        options: &CallOptions,
        together: Arc<Together>,
    ) -> Result<Self> {
        module.shared.check_process("the module")?;
        let lay_out = |(number, site): (usize, &CallSite)| {
            if number > 0 {
                options.check()?;
            }
            Site::new(&module, site).map_err(|status| status.context(site.label()))
        };
        let sites = sites.iter().enumerate().map(lay_out);
        let sites = sites.collect::<Result<Box<[Site]>>>()?;
        let largest = sites
            .iter()
            .map(|site| site.layout.size())
            .max()
            .unwrap_or(0);
        let has_execution_stages = sites.iter().any(Site::has_execution_stages);
        let pool = Arc::new(Pool::new());
        let evictable: Weak<dyn Evict> = Arc::downgrade(&(Arc::clone(&pool) as Arc<dyn Evict>));
        module.shared.pools.add(Weak::clone(&evictable));
        let new = Self {
            module,
            sites,
            arena_size: largest.max(ARENA_ALIGNMENT),
            has_execution_stages,
            pool,
            quota: Arc::new(Quota::new(together, evictable)),
        };
        new.make_early(options)?;
        Ok(new)
    }

    /// Makes an instance and its state, if a call site has any, so that wrong attributes fail
    /// before the first call. Fresh instances make their state in each call.
    fn make_early(&self, options: &CallOptions) -> Result<()> {
        let early = |(_, site): &(usize, &Site)| site.is_made_early();
        let mut early = self.sites.iter().enumerate().filter(early).peekable();
        if early.peek().is_none() || self.module.shared.policy.isolation == Isolation::Fresh {
            return Ok(());
        }
        let mut lease = self.pool.lease();
        let caller = Caller {
            options,
            functions: None,
            begun: None,
        };
        let instance = self.instance(&mut lease, caller)?;
        early.try_for_each(|(index, site)| {
            let bound = instance.bind(index, site);
            bound.map_err(|status| status.context(&site.label))
        })
    }

    /// Runs a stage that runs once per execution, for each of these call sites whose target has it.
    pub(super) fn run_stage(
        &self,
        instance: &mut Instance,
        stage: Stage,
        sites: &[usize],
    ) -> Result<()> {
        sites.iter().try_for_each(|&index| {
            let ran = self.run_stage_of(instance, stage, index);
            ran.map_err(|status| match self.sites.get(index) {
                Some(site) => status.context(&site.label),
                None => status,
            })
        })
    }

    /// Runs a stage for one call site, if its target has it.
    #[inline]
    fn run_stage_of(&self, instance: &mut Instance, stage: Stage, index: usize) -> Result<()> {
        match self.sites.get(index) {
            Some(site) if site.stages.contains(&stage) => {
                instance.bind(index, site)?;
                let ran = instance.run_stage(index, site, stage);
                ran.map_err(|status| site.in_module(status))
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

    /// The call sites among these whose targets have stages that run once per execution.
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

    /// Whether each call of this call site runs twice, to check that its target is pure.
    #[inline]
    pub(super) fn is_checked(&self, index: usize) -> bool {
        self.module.shared.policy.check_pure
            && self.sites.get(index).is_some_and(|site| site.is_pure)
    }

    /// The name of a call site's target in messages.
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
        instance.end_only_call();
        instance.discard();
        outcome
    }

    /// One call as an execution of its own.
    #[inline]
    pub(super) fn call_within<B: CallBuffers>(
        &self,
        index: usize,
        caller: Caller<'_>,
        buffers: &mut B,
    ) -> Result<()> {
        if self.is_checked(index) {
            return purity::call_twice(self, index, caller, buffers);
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

    /// Runs the stages that run once per execution, and the call.
    #[inline]
    fn execute<B: CallBuffers>(
        &self,
        instance: &mut Instance,
        index: usize,
        buffers: &mut B,
    ) -> Result<()> {
        if self.has_execution_stages {
            self.run_stage_of(instance, Stage::Prepare, index)?;
            self.run_stage_of(instance, Stage::Initialize, index)?;
        }
        self.call(instance, index, buffers)
    }
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

    fn prepare(
        self: Arc<Self>,
        sites: Vec<CallSite>,
        options: &CallOptions,
    ) -> Result<Box<dyn PreparedCalls>> {
        Ok(Box::new(Sites::new(self, sites, options, Arc::default())?))
    }
}

impl DirectModule for Module {
    type Calls = Sites;

    fn prepare_direct(
        module: &Arc<Self>,
        sites: Vec<CallSite>,
        options: &CallOptions,
        _in_runs: bool,
    ) -> Result<Sites> {
        let together = Arc::clone(&module.outside_programs);
        Sites::new(Arc::clone(module), sites, options, together)
    }

    fn most_table_bytes(&self) -> usize {
        let elements = self.shared.policy.limits.table_elements;
        self.info().tables.len() * elements.saturating_mul(TABLE_ELEMENT)
    }

    fn policy(&self) -> Option<&Policy> {
        Some(&self.shared.policy)
    }
}

/// A call site of a module's target, prepared for calls outside a program.
pub type PreparedCall = callbox_core::call::PreparedCall<Sites>;

impl Module {
    /// Prepares a call site of one of the module's targets, for calls outside a program.
    ///
    /// # Errors
    /// As for [`PreparedCall::new`](callbox_core::call::PreparedCall::new).
    pub fn prepare_call(self: &Arc<Self>, site: CallSite) -> Result<PreparedCall> {
        self.prepare_mapped(site, &Mapping::default())
    }

    /// Prepares a call site whose calls are mapped over the caller's arrays.
    ///
    /// # Errors
    /// As for [`PreparedCall::new`](callbox_core::call::PreparedCall::new).
    pub fn prepare_mapped(
        self: &Arc<Self>,
        site: CallSite,
        mapping: &Mapping,
    ) -> Result<PreparedCall> {
        PreparedCall::new(self, site, mapping)
    }

    /// Prepares a call site as a part of a call, within its deadline and cancel token.
    ///
    /// # Errors
    /// As for [`PreparedCall::new_within`](callbox_core::call::PreparedCall::new_within).
    pub fn prepare_within(
        self: &Arc<Self>,
        site: CallSite,
        mapping: &Mapping,
        options: &CallOptions,
    ) -> Result<PreparedCall> {
        PreparedCall::new_within(self, site, mapping, options)
    }
}

impl PreparedCalls for Sites {
    fn begin(
        &self,
        options: &CallOptions,
        functions: Option<&Arc<dyn Functions>>,
        sites: &[usize],
    ) -> Result<Box<dyn Execution + '_>> {
        let execution = WasmExecution::begin(self, options, functions, sites)?;
        Ok(Box::new(execution))
    }
}

impl DirectCalls for Sites {
    type Run<'a> = WasmExecution<'a>;

    fn begin_run(&self, options: &CallOptions) -> Result<WasmExecution<'_>> {
        let mut execution = WasmExecution::begin(self, options, None, &[0])?;
        execution.initialize()?;
        Ok(execution)
    }

    #[inline]
    fn call_alone<B: CallBuffers>(
        &self,
        site: usize,
        options: &CallOptions,
        buffers: &mut B,
    ) -> Result<()> {
        let caller = Caller {
            options,
            functions: None,
            begun: None,
        };
        self.call_within(site, caller, buffers)
    }

    fn threads(&self) -> Option<&dyn Threads> {
        // The files that an engine may have open would be for fewer calls.
        let opens_files = !self.module.grants.directories.is_empty();
        let threads = self.module.shared.threads.as_deref();
        threads.filter(|_| !opens_files)
    }

    fn begin_help(&self, options: &CallOptions) -> Option<WasmExecution<'_>> {
        WasmExecution::begin(self, options, None, &[0]).ok()
    }

    fn isolates(&self, site: usize) -> bool {
        self.is_checked(site) || self.module.shared.policy.isolation == Isolation::Fresh
    }

    fn memory(&self) -> Option<Arc<dyn InstanceMemory>> {
        Some(Arc::clone(&self.quota) as Arc<dyn InstanceMemory>)
    }

    fn with_attributes(&self, attributes: &Dictionary) -> Result<Option<Self>> {
        let sites = self.sites.iter();
        let sites = sites.map(|site| site.with_attributes(&self.module, attributes));
        let sites: Option<Result<Box<[Site]>>> = sites.collect();
        let Some(sites) = sites.transpose()? else {
            return Ok(None);
        };
        let fits = |site: &Site| site.layout.size() <= self.arena_size;
        Ok(sites.iter().all(fits).then(|| Self {
            module: Arc::clone(&self.module),
            sites,
            arena_size: self.arena_size,
            has_execution_stages: self.has_execution_stages,
            pool: Arc::clone(&self.pool),
            quota: Arc::clone(&self.quota),
        }))
    }
}

#[cfg(test)]
mod tests;
