//! The part of a module's call sites in one run of an executable.

use std::sync::Arc;

use super::discard::Helping;
use super::instance::{Caller, Instance};
use super::pool::Lease;
use super::prepared::Sites;
use super::purity;
use callbox_core::call::{
    BufferExecution, CallBuffers, CallOptions, Execution, Functions, Slices, Stage,
};
use callbox_core::policy::Isolation;
use callbox_core::values::Result;

/// One execution, with the instance that is leased for it.
pub struct WasmExecution<'a> {
    sites: &'a Sites,
    options: CallOptions,
    functions: Option<Arc<dyn Functions>>,
    /// The call sites that take part whose targets have stages that run once per execution.
    staged: Vec<usize>,
    /// `None` if each call has an instance of its own.
    lease: Option<Lease<'a>>,
    /// Dropped after the lease: calls that wait for an instance or memory find it in the pool.
    helping: Option<Helping>,
}

impl<'a> WasmExecution<'a> {
    /// [`PreparedCalls::begin`].
    pub(super) fn begin(
        sites: &'a Sites,
        options: &CallOptions,
        functions: Option<&Arc<dyn Functions>>,
        indices: &[usize],
    ) -> Result<Self> {
        let helping = options.helps.then(|| sites.helping(options)).transpose()?;
        // A call that runs twice has instances of its own, with all stages.
        let shares = indices.iter().any(|&site| !sites.is_checked(site));
        let mut execution = Self {
            sites,
            options: options.clone(),
            functions: functions.cloned(),
            staged: sites.with_execution_stages(indices),
            lease: None,
            helping,
        };
        if shares && sites.module.shared.policy.isolation == Isolation::Executable {
            let lease = execution.lease.insert(sites.pool.lease());
            let instance = sites.instance(
                lease,
                Caller {
                    options,
                    functions,
                    begun: None,
                },
            )?;
            sites.run_stage(instance, Stage::Prepare, &execution.staged)?;
        }
        Ok(execution)
    }

    /// The instance that began this execution. A call that breaks the instance ends it, along with
    /// the state of the execution's stages.
    fn instance(&mut self) -> Option<&mut Instance> {
        let instance = self.lease.as_mut()?.instance().as_mut()?;
        instance.is_healthy().then_some(instance)
    }

    fn caller(&self) -> Caller<'_> {
        Caller {
            options: &self.options,
            functions: self.functions.as_ref(),
            begun: None,
        }
    }
}

impl BufferExecution for WasmExecution<'_> {
    #[inline]
    fn call_buffers<B: CallBuffers>(&mut self, site: usize, buffers: &mut B) -> Result<()> {
        let sites = self.sites;
        if sites.is_checked(site) {
            return purity::call_twice(sites, site, self.caller(), buffers);
        }
        match self.instance() {
            Some(instance) => {
                instance.begin_next_call();
                sites.call(instance, site, buffers)
            }
            None => sites.call_within(site, self.caller(), buffers),
        }
    }

    fn has_broken(&mut self) -> bool {
        self.is_broken()
    }

    fn is_awaited(&self) -> bool {
        self.helping.as_ref().is_some_and(Helping::is_awaited)
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

    fn is_broken(&mut self) -> bool {
        self.lease.is_some() && self.instance().is_none()
    }

    fn call(&mut self, site: usize, operands: &[&[u8]], results: &mut [&mut [u8]]) -> Result<()> {
        self.call_buffers(site, &mut Slices { operands, results })
    }
}

impl Drop for WasmExecution<'_> {
    /// Deletes the state of the execution's stages, however it ended.
    fn drop(&mut self) {
        if self.sites.has_execution_stages
            && let Some(instance) = self.instance()
        {
            instance.end_execution();
        }
    }
}
