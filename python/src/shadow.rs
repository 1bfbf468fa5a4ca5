//! `shadow` of the policy: a share of the calls on CUDA also runs as wasm, and the results are
//! compared.
//!
//! Which calls these are is random, so that a kernel cannot know. Calls that the kernel fails are
//! not compared, nor are those that become part of a CUDA graph.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use callbox::call::{CallSite, Mapping, Signature};
use callbox::policy;
use callbox::values::zeroed;
use callbox::wasm::{ModuleFile, PreparedCall};
use callbox::{ArrayShape, Blame, CallOptions, Status, StatusCode};
use callbox_cli::comparison::{self, Tolerance, compare};

use crate::listing::quoted;
use crate::module::ModuleCore;
use crate::native::Native;
use crate::record::say;
use crate::stats::Stats;

/// The trait of targets that can be called once more.
const PURE: &str = "pure";

/// How many differences of a module are told.
const MOST_TOLD: u64 = 10;

/// Compares calls of a module.
#[derive(Debug)]
pub(crate) struct Shadow {
    policy: policy::Shadow,
    /// The tolerance of each target that is compared.
    targets: BTreeMap<String, Tolerance>,
    random: RandomState,
    calls: AtomicU64,
    told: AtomicU64,
}

impl Shadow {
    /// # Errors
    /// INVALID_ARGUMENT if no target with native code is pure, and as for reading a package.
    pub(crate) fn new(
        policy: policy::Shadow,
        file: &ModuleFile,
        native: &Native,
    ) -> callbox::Result<Self> {
        let signatures = &file.info().targets;
        let declared = match policy.tolerance() {
            Some((rtol, atol)) => {
                let given = Tolerance::new(rtol, atol).map_err(Status::invalid_argument)?;
                let names = signatures.iter().map(|target| target.name.clone());
                names.map(|name| (name, given)).collect()
            }
            None => comparison::declared(file.bytes(), signatures)?,
        };
        let with_code = signatures.iter().filter(|target| native.has(&target.name));
        let (pure, others): (Vec<&Signature>, Vec<_>) =
            with_code.partition(|target| target.has_trait(PURE));
        if pure.is_empty() {
            return Err(Status::invalid_argument(
                "`shadow` of the policy is for targets of the trait `pure`, and no target with \
                 native code is",
            ));
        }
        if !others.is_empty() {
            let others = others.iter().map(|target| target.name.as_str());
            say(&format!(
                "calls of {} are not compared: `shadow` is for targets of the trait `pure`",
                quoted(others)
            ));
        }
        let tolerance = |target: &Signature| {
            let known = declared.get(&target.name).copied();
            (target.name.clone(), known.unwrap_or_default())
        };
        Ok(Self {
            policy,
            targets: pure.into_iter().map(tolerance).collect(),
            random: RandomState::new(),
            calls: AtomicU64::new(0),
            told: AtomicU64::new(0),
        })
    }

    /// Whether to compare the next call of a target.
    pub(crate) fn chooses(&self, target: &str) -> bool {
        let share = self.policy.share();
        if share == 0.0 || !self.targets.contains_key(target) {
            return false;
        }
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        let random = self.random.hash_one(number) as f64 / u64::MAX as f64;
        random < share || share == 1.0
    }

    fn tell(&self, message: &str) {
        match self.told.fetch_add(1, Ordering::Relaxed) {
            ..MOST_TOLD => say(message),
            MOST_TOLD => say("further differences of `shadow` are counted alone"),
            _ => {}
        }
    }
}

/// A call site of native code as wasm.
#[derive(Debug)]
pub(crate) struct ShadowSite {
    shadow: Arc<Shadow>,
    call: PreparedCall,
    target: String,
    label: String,
    tolerance: Tolerance,
    /// With the dimensions of the batch.
    results: Vec<ArrayShape>,
}

impl ShadowSite {
    /// The call site as wasm. `None` if its calls are not compared, which is told if the wasm
    /// refuses it.
    pub(crate) fn new(
        module: &ModuleCore,
        target: usize,
        site: &CallSite,
        mapping: &Mapping,
        results: &[ArrayShape],
    ) -> Option<Self> {
        let shadow = Arc::clone(module.shadow.as_ref()?);
        let tolerance = *shadow.targets.get(&site.target)?;
        let label = site.label().into_owned();
        // Its results are of their own memory.
        let own = CallSite {
            aliasing: Vec::new(),
            ..site.clone()
        };
        let call = module.prepare_alone(target, own, mapping);
        let call = call.inspect_err(|status| {
            shadow.tell(&format!("{label}: its calls are not compared: {status}"));
        });
        Some(Self {
            call: call.ok()?,
            shadow,
            target: site.target.clone(),
            label,
            tolerance,
            results: results.to_vec(),
        })
    }

    /// Whether to compare the next call.
    pub(crate) fn is_chosen(&self) -> bool {
        self.shadow.chooses(&self.target)
    }

    /// Calls the wasm, and compares its results with those of the native code.
    ///
    /// # Errors
    /// INTERNAL, blamed on the guest, if they differ and the policy says that the call fails.
    pub(crate) fn compare(
        &self,
        options: &CallOptions,
        operands: &[&[u8]],
        found: &[&[u8]],
        stats: &Stats,
    ) -> callbox::Result<()> {
        let difference = match self.call(options, operands) {
            Ok(expected) => self.difference(&expected, found),
            // Limits of the wasm alone say nothing about the results.
            Err(status) if is_own(status.code()) => {
                let label = &self.label;
                self.shadow
                    .tell(&format!("{label}: a call is not compared: {status}"));
                return Ok(());
            }
            Err(status) => Some(format!("the wasm fails with {status}")),
        };
        stats.count_shadow(difference.is_some());
        let Some(difference) = difference else {
            return Ok(());
        };
        let message = format!(
            "{}: the native kernel and the wasm differ: {difference}",
            self.label
        );
        if self.shadow.policy.fails() {
            return Err(Status::new(StatusCode::Internal, Blame::Guest, message));
        }
        self.shadow.tell(&message);
        Ok(())
    }

    fn call(&self, options: &CallOptions, operands: &[&[u8]]) -> callbox::Result<Vec<Vec<u8>>> {
        // The native call has taken its own part of the caller's time.
        let options = CallOptions {
            deadline: None,
            ..options.clone()
        };
        let results = self.results.iter().map(|shape| zeroed(shape.byte_size()));
        let mut results = results.collect::<callbox::Result<Vec<Vec<u8>>>>()?;
        let mut buffers: Vec<_> = results.iter_mut().map(Vec::as_mut_slice).collect();
        self.call.call_with(&options, operands, &mut buffers)?;
        Ok(results)
    }

    fn difference(&self, expected: &[Vec<u8>], found: &[&[u8]]) -> Option<String> {
        let results = self.results.iter().zip(expected.iter().zip(found));
        results
            .enumerate()
            .find_map(|(number, (shape, (expected, found)))| {
                let compared = compare(shape, expected, (shape, found), self.tolerance);
                let difference = compared.err()?;
                Some(format!("result {number}: {difference}"))
            })
    }
}

fn is_own(code: StatusCode) -> bool {
    matches!(
        code,
        StatusCode::DeadlineExceeded
            | StatusCode::ResourceExhausted
            | StatusCode::Cancelled
            | StatusCode::Unavailable
    )
}
