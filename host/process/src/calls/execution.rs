//! Executions: a worker leased for calls of several call sites, whose stages share state.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Caller, Question, Share, Sites, at_least, beginning, check_before};
use crate::child::{Asking, GRACE};
use crate::message::Request;
use crate::pool::Lease;
use callbox_core::call::{CallOptions, Execution, Functions, PreparedCalls};
use callbox_core::policy::Isolation;
use callbox_core::values::Result;

/// The time that a worker may take to end an execution, in which the guest's deleters run.
const DELETION: Duration = Duration::from_secs(1);

impl PreparedCalls for Sites {
    fn begin(
        &self,
        options: &CallOptions,
        functions: Option<&Arc<dyn Functions>>,
        sites: &[usize],
    ) -> Result<Box<dyn Execution + '_>> {
        let caller = Caller::new(options, functions);
        let mut execution = ProcessExecution {
            sites: self,
            options: options.clone(),
            functions: functions.cloned(),
            end: caller.end,
            lease: None,
        };
        if self.module.shared.policy.isolation == Isolation::Executable {
            check_before(options, caller.end, "the module")?;
            execution.lease = Some(self.lease(caller, "the module")?);
            let request = Request::Begin {
                beginning: beginning(caller),
                sites: sites.to_vec(),
            };
            let begun = execution.ask(&request);
            if begun.is_err() {
                // The worker has no execution to end.
                execution.lease = None;
            }
            begun?;
        }
        Ok(Box::new(execution))
    }
}

/// One execution, with the worker that is leased for it.
struct ProcessExecution<'a> {
    sites: &'a Sites,
    options: CallOptions,
    functions: Option<Arc<dyn Functions>>,
    /// The deadline of the caller.
    end: Option<Instant>,
    /// `None` if each call leases a worker of its own.
    lease: Option<(Lease, Share<'a>)>,
}

impl ProcessExecution<'_> {
    /// Sends a request that belongs to no call of the execution.
    fn ask(&mut self, request: &Request) -> Result<()> {
        let asking = Asking {
            what: "the module",
            until: self.sites.until(self.end),
            deadline: self.sites.deadline(&self.options),
            cancel: self.options.cancel.as_ref(),
            functions: self.functions.as_ref(),
            callable: &self.sites.functions,
            fuel: self.options.fuel.as_ref(),
            calls: self.sites.sites.len(),
        };
        match self.lease.as_mut().and_then(|(lease, _)| lease.process()) {
            Some(process) => process.ask(request, asking),
            None => Ok(()),
        }
    }
}

impl Execution for ProcessExecution<'_> {
    fn initialize(&mut self) -> Result<()> {
        self.ask(&Request::Initialize)
    }

    fn is_broken(&mut self) -> bool {
        let isolation = self.sites.module.shared.policy.isolation;
        isolation == Isolation::Executable
            && (self.lease.as_mut()).is_none_or(|(lease, _)| lease.process().is_none())
    }

    fn call(&mut self, site: usize, operands: &[&[u8]], results: &mut [&mut [u8]]) -> Result<()> {
        let sites = self.sites;
        let process = self.lease.as_mut().and_then(|(lease, _)| lease.process());
        // If a call lost the worker, the state of the execution's stages is lost with it.
        let Some(process) = process else {
            let caller = Caller {
                options: &self.options,
                functions: self.functions.as_ref(),
                end: self.end,
            };
            return sites.call_within(site, caller, operands, results);
        };
        let question = Question {
            request: Request::Call { site },
            asking: Asking {
                what: sites.what(site),
                until: sites.until(self.end),
                deadline: self.sites.deadline(&self.options),
                cancel: self.options.cancel.as_ref(),
                functions: self.functions.as_ref(),
                callable: sites.functions_of(site),
                fuel: self.options.fuel.as_ref(),
                calls: 1,
            },
        };
        check_before(&self.options, self.end, question.asking.what)?;
        sites.call(process, site, &question, operands, results)
    }
}

impl Drop for ProcessExecution<'_> {
    /// Ends the execution in the worker, which runs the guest's deleters in what is left of the
    /// time.
    fn drop(&mut self) {
        if let Some(process) = self.lease.as_mut().and_then(|(lease, _)| lease.process()) {
            let most = Instant::now() + DELETION;
            let end = self.end.map_or(most, |end| end.min(most));
            let asking = Asking {
                cancel: self.options.cancel.as_ref(),
                fuel: self.options.fuel.as_ref(),
                ..Asking::plain("the execution's end", Some(at_least(end + GRACE)))
            };
            // A worker that does not answer is killed, and its memory is freed.
            let _ = process.ask(&Request::End, asking);
        }
    }
}
