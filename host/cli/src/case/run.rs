//! Runs a case.

use std::sync::Arc;
use std::time::{Duration, Instant};

use callbox::call::{ApiVersion, TargetModule};
use callbox::{CallOptions, CallSite, Deadline, Literal, Result, Status};

use callbox_core::untrusted_text::shown_name;

use super::compare::compare_results;
use super::{Case, Expect, MOST_DEADLINE};
use crate::call::execute;
use crate::timing::sample;

/// How a case ended on a platform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The outcome is the expected one.
    Passed,
    /// The outcome differs from the expected one, as this text says.
    Failed(String),
    /// It was not run, for this reason.
    NotRun(String),
}

impl Case {
    /// Runs the case on a module that has its target.
    pub(crate) fn run(&self, module: &Arc<dyn TargetModule>, options: &CallOptions) -> Ending {
        let outcome = self.execute(module, options);
        match (&self.expect, outcome) {
            (Expect::Results(expected, tolerance), Ok(found)) => {
                match compare_results(expected, &found, *tolerance) {
                    Ok(()) => Ending::Passed,
                    Err(difference) => Ending::Failed(difference),
                }
            }
            (Expect::Anything, Ok(_)) => Ending::Passed,
            (Expect::Results(..) | Expect::Anything, Err(status)) => {
                Ending::Failed(status.to_string())
            }
            (Expect::Status { code, contains }, Err(status)) => {
                if status.code() == *code && status.message().contains(contains) {
                    return Ending::Passed;
                }
                let contains = if contains.is_empty() {
                    String::new()
                } else {
                    format!(" with \"{}\"", shown_name(contains))
                };
                Ending::Failed(format!(
                    "expected {}{contains}, found {status}",
                    code.name()
                ))
            }
            (Expect::Status { code, .. }, Ok(_)) => {
                Ending::Failed(format!("expected {}, found results", code.name()))
            }
        }
    }

    fn execute(&self, module: &Arc<dyn TargetModule>, options: &CallOptions) -> Result<Literal> {
        let site = self.site(module.as_ref())?;
        execute(module, site, &self.operands, &self.begun(options))
    }

    /// The options of a call, with its time begun. A case can shorten the user's deadline, not
    /// lengthen it.
    fn begun(&self, options: &CallOptions) -> CallOptions {
        let own = Deadline::After(self.deadline.unwrap_or(MOST_DEADLINE));
        let deadlines = options.deadline.into_iter().chain([own]);
        let deadlines = deadlines.map(Deadline::begin);
        CallOptions {
            deadline: deadlines.min_by_key(|one| one.instant()),
            ..options.clone()
        }
    }

    /// The call of the case.
    fn site(&self, module: &dyn TargetModule) -> Result<CallSite> {
        let shapes = self.operands.iter().map(|x| x.shape().clone()).collect();
        let mut site = CallSite::new(&self.target, shapes, self.result.clone());
        site.attributes = self.attributes.clone();
        site.opaque.clone_from(&self.opaque);
        site.api_version = self.convention(module)?;
        Ok(site)
    }

    /// Returns the least time of a call, among as many as `wants_more` asks for and as probably fit
    /// into the time of the case. `None` for a case that expects a failure.
    pub(crate) fn time(
        &self,
        module: &Arc<dyn TargetModule>,
        options: &CallOptions,
        wants_more: impl Fn(&[Duration]) -> bool,
    ) -> Result<Option<Duration>> {
        if matches!(self.expect, Expect::Status { .. }) {
            return Ok(None);
        }
        let site = self.site(module.as_ref())?;
        let options = self.begun(options);
        let end = options.deadline.map(Deadline::instant);
        let fits = |times: &[Duration]| {
            let next = Instant::now() + 2 * times.iter().max().copied().unwrap_or_default();
            end.is_none_or(|end| next < end)
        };
        let (_, times) = sample(module, &site, &self.operands, &options, |times| {
            fits(times) && wants_more(times)
        })?;
        Ok(times.into_iter().min())
    }

    /// The convention of the case, or else the only one of the target.
    fn convention(&self, module: &dyn TargetModule) -> Result<ApiVersion> {
        let mut targets = module.targets().iter();
        let target = targets.find(|known| known.name == self.target);
        let versions = target.map_or(&[][..], |target| &target.api_versions);
        match (self.api_version, versions) {
            (Some(version), _) => Ok(version),
            (None, [only]) => Ok(*only),
            (None, []) => Ok(ApiVersion::TypedFfi),
            (None, several) if several.contains(&ApiVersion::TypedFfi) => Ok(ApiVersion::TypedFfi),
            (None, several) => {
                let names: Vec<_> = several.iter().map(|version| version.name()).collect();
                Err(Status::invalid_argument(format!(
                    "the target fits several conventions: name one as `api_version` of the \
                     case's `call`: {}",
                    names.join(", ")
                )))
            }
        }
    }
}
