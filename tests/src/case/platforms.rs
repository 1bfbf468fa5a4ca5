//! Where a case runs. What does not run has a reason, which is the case's own or one of the rules below.

use std::collections::BTreeMap;

use anyhow::{Result, bail, ensure};

use super::text::PlatformsText;
use super::{Expect, Function, Step, Subject};
use crate::platform::PlatformName;

/// Where a case runs, and why not elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Platforms {
    excluded: BTreeMap<PlatformName, String>,
}

impl Platforms {
    /// Why the case is not run on a platform. `None`: it is.
    #[must_use]
    pub fn reason_against(&self, platform: PlatformName) -> Option<&str> {
        self.excluded.get(&platform).map(String::as_str)
    }
}

/// Reads what a case says of its platforms. Without a word it is for all that can run it.
pub(super) fn read(
    text: Option<PlatformsText>,
    subject: &Subject,
    steps: &[Step],
) -> Result<Platforms> {
    let obstacle = |platform: PlatformName| match platform {
        PlatformName::Host => None,
        PlatformName::Cuda => cuda_obstacle(subject),
        PlatformName::Xla => xla_obstacle(subject, steps),
    };
    let Some(text) = text else {
        let with_obstacle = |platform| Some((platform, obstacle(platform)?.to_owned()));
        let excluded = PlatformName::ALL.into_iter().filter_map(with_obstacle);
        return Ok(Platforms {
            excluded: excluded.collect(),
        });
    };
    let (named, reason) = match text {
        PlatformsText::Names(named) => {
            let reason = format!("the case is for {} only", named.join(" and "));
            (names(&named)?, reason)
        }
        PlatformsText::Only(only) => (names(&only.only)?, only.reason),
    };
    ensure!(!reason.trim().is_empty(), "expected a reason");
    for &platform in &named {
        if let Some(obstacle) = obstacle(platform) {
            bail!("expected platforms that can run the case, found {platform}: {obstacle}");
        }
    }
    let others = PlatformName::ALL.into_iter().filter(|p| !named.contains(p));
    let excluded = others.map(|platform| {
        let obstacle = obstacle(platform).map(str::to_owned);
        (platform, obstacle.unwrap_or_else(|| reason.clone()))
    });
    Ok(Platforms {
        excluded: excluded.collect(),
    })
}

/// Platforms by their names, at least one and none twice.
pub(super) fn names(names: &[String]) -> Result<Vec<PlatformName>> {
    ensure!(!names.is_empty(), "expected at least one platform");
    let mut platforms = Vec::new();
    for name in names {
        let platform: PlatformName = name.parse()?;
        ensure!(
            !platforms.contains(&platform),
            "expected {platform} once, found it twice"
        );
        platforms.push(platform);
    }
    Ok(platforms)
}

/// Why CUDA cannot run a case: its targets are native kernels, which a guest has beside its module.
fn cuda_obstacle(subject: &Subject) -> Option<&'static str> {
    let is_wasm = match subject {
        Subject::Load { .. } => return Some("the case is about a WebAssembly module's file"),
        Subject::Call { module, .. } => module.guest().is_none(),
        Subject::FfiCall(call) => call.module.guest().is_none(),
        Subject::Program { targets, .. } => targets.iter().any(|t| t.module.guest().is_none()),
    };
    is_wasm.then_some("the case's own module is WebAssembly")
}

/// Why XLA cannot run a case: it is asked for the numbers of whole programs.
fn xla_obstacle(subject: &Subject, steps: &[Step]) -> Option<&'static str> {
    let Subject::Program { text, .. } = subject else {
        return Some("the case is not a program");
    };
    let expects_results = |step: &Step| matches!(step.expect, Expect::Results(_, None));
    let names_function = |step: &Step| !matches!(step.function, Function::Ordinal(0));
    if text.contains("custom-call") {
        Some("the program has custom calls, whose targets are callbox's")
    } else if text.contains("is_scheduled=true") {
        Some("the program is what XLA made of one, and XLA does not take that back")
    } else if !steps.iter().all(expects_results) {
        Some("the case expects a status or a log, which are callbox's own")
    } else if steps.iter().any(names_function) {
        Some("XLA's programs have one function")
    } else if steps
        .iter()
        .any(|step| step.operands.iter().any(|o| o.shape().as_array().is_none()))
    {
        Some("JAX hands over arrays, and an operand is a tuple")
    } else {
        None
    }
}
