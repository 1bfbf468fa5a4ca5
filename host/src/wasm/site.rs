//! A call site as a module's target sees it.

use super::module::Module;
use super::text::clean_message;
use crate::call::{ApiVersion, CallSite, Stage};
use crate::frame::ArenaLayout;
use crate::values::{Result, Status};

/// A call site, laid out.
pub(super) struct Site {
    pub(super) target: String,
    /// How messages name it.
    pub(super) what: String,
    pub(super) stages: Vec<Stage>,
    pub(super) layout: ArenaLayout,
}

impl Site {
    /// Checks a call site against the target's signature, and lays it out.
    pub(super) fn new(module: &Module, site: &CallSite) -> Result<Self> {
        let limit = module.shared.limits.message_bytes;
        let target = module.target(&site.target)?;
        target
            .check(site)
            .map_err(|status| clean_message(status, limit))?;
        if site.api_version != ApiVersion::TypedFfi {
            return Err(Status::unimplemented(format!(
                "{} is not supported on the platform Host yet; supported is {}",
                site.api_version,
                ApiVersion::TypedFfi
            )));
        }
        Ok(Self {
            target: target.name.clone(),
            what: format!("target {:?}", target.name),
            stages: target.stages.clone(),
            layout: ArenaLayout::new(site, module.shared.limits.memory_bytes)?,
        })
    }
}
