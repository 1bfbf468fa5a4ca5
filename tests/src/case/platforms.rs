//! The platforms that a case runs on. A case that does not run on a platform has a reason: its own,
//! or one of the rules below.

use std::collections::BTreeMap;

use anyhow::{Result, bail, ensure};

use super::text::PlatformsText;
use super::{Expect, Function, Step, Subject};
use crate::platform::PlatformName;

/// The platforms that a case runs on, with a reason for each exclusion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Platforms {
    excluded: BTreeMap<PlatformName, String>,
}

impl Platforms {
    /// Returns why the case does not run on a platform, or `None` if it does.
    #[must_use]
    pub fn reason_against(&self, platform: PlatformName) -> Option<&str> {
        self.excluded.get(&platform).map(String::as_str)
    }
}

/// Reads a case's `platforms`. Without the key, the case runs on every platform that can run it.
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

/// Reads platform names, at least one and none twice.
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

/// Returns why CUDA cannot run a case. Its targets are native kernels, which only the built guests
/// have.
fn cuda_obstacle(subject: &Subject) -> Option<&'static str> {
    let is_wasm = match subject {
        Subject::Load { .. } => return Some("the case tests the file of a WebAssembly module"),
        Subject::Call { module, .. } => module.guest().is_none(),
        Subject::FfiCall(call) => call.module.guest().is_none(),
        Subject::Program { targets, .. } => targets.iter().any(|t| t.module.guest().is_none()),
    };
    is_wasm.then_some("the case's own module is WebAssembly")
}

/// Returns why XLA cannot run a case. It computes whole programs without custom calls.
fn xla_obstacle(subject: &Subject, steps: &[Step]) -> Option<&'static str> {
    let Subject::Program { text, .. } = subject else {
        return Some("the case is not a program");
    };
    let expects_results = |step: &Step| matches!(step.expect, Expect::Results(_, None));
    let names_function = |step: &Step| !matches!(step.function, Function::Ordinal(0));
    if text.contains("custom-call") {
        Some("the program has custom calls, whose targets XLA does not have")
    } else if text.contains("is_scheduled=true") {
        Some("the program is XLA's output after optimisation, which XLA does not accept as input")
    } else if !steps.iter().all(expects_results) {
        Some("the case expects a status or a log of callbox")
    } else if steps.iter().any(names_function) {
        Some("a program of XLA has one function only")
    } else if steps
        .iter()
        .any(|step| step.operands.iter().any(|o| o.shape().as_array().is_none()))
    {
        Some("an operand is a tuple, and JAX passes arrays only")
    } else {
        None
    }
}
