//! One run of an executable, as far as a module's call sites take part in it.

use std::sync::Arc;

use super::instance::Instance;
use super::pool::Lease;
use super::prepared::Sites;
use crate::call::{CallBuffers, CallOptions, Execution, Functions, PreparedCalls, Slices, Stage};
use crate::policy::Isolation;
use crate::values::Result;

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

/// One execution, with the instance that is set aside for it.
pub(super) struct WasmExecution<'a> {
    sites: &'a Sites,
    options: CallOptions,
    functions: Option<Arc<dyn Functions>>,
    /// The call sites that take part whose targets have stages that run once for each execution.
    staged: Vec<usize>,
    /// `None` if each call gets an instance of its own.
    lease: Option<Lease<'a>>,
}

impl<'a> WasmExecution<'a> {
    /// [`PreparedCalls::begin`].
    pub(super) fn begin(
        sites: &'a Sites,
        options: &CallOptions,
        functions: Option<&Arc<dyn Functions>>,
        indices: &[usize],
    ) -> Result<Self> {
        let mut execution = Self {
            sites,
            options: options.clone(),
            functions: functions.cloned(),
            staged: sites.with_execution_stages(indices),
            lease: None,
        };
        if sites.module.shared.policy.isolation == Isolation::Executable {
            let lease = execution.lease.insert(sites.pool.lease());
            let instance = sites.instance(lease, (options, functions))?;
            sites.run_stage(instance, Stage::Prepare, &execution.staged)?;
        }
        Ok(execution)
    }

    /// The instance that began this execution. It is gone after a call that broke it, and with it what its stages left.
    fn instance(&mut self) -> Option<&mut Instance> {
        let instance = self.lease.as_mut()?.instance().as_mut()?;
        instance.is_healthy().then_some(instance)
    }

    /// Whether a call broke the instance that began this execution.
    pub(super) fn is_broken(&mut self) -> bool {
        self.lease.is_some() && self.instance().is_none()
    }

    /// [`Execution::call`], of buffers of any kind.
    #[inline]
    pub(super) fn call_buffers<B: CallBuffers>(
        &mut self,
        site: usize,
        buffers: &mut B,
    ) -> Result<()> {
        let sites = self.sites;
        if sites.is_checked(site) {
            let caller = (&self.options, self.functions.as_ref());
            return sites.call_twice(site, caller, buffers);
        }
        match self.instance() {
            Some(instance) => {
                instance.begin_next_call();
                sites.call(instance, site, buffers)
            }
            None => {
                let caller = (&self.options, self.functions.as_ref());
                sites.call_alone(site, caller, buffers)
            }
        }
    }
}

impl Execution for WasmExecution<'_> {
    fn initialize(&mut self) -> Result<()> {
        let (sites, staged) = (self.sites, std::mem::take(&mut self.staged));
        match self.instance() {
            Some(instance) => sites.run_stage(instance, Stage::Initialize, &staged),
            None => Ok(()),
        }
    }

    fn call(&mut self, site: usize, operands: &[&[u8]], results: &mut [&mut [u8]]) -> Result<()> {
        self.call_buffers(site, &mut Slices { operands, results })
    }
}

impl Drop for WasmExecution<'_> {
    /// What the execution's stages left is taken back, however it ended.
    fn drop(&mut self) {
        if self.sites.has_execution_stages
            && let Some(instance) = self.instance()
        {
            instance.end_execution();
        }
    }
}
