//! Targets in Rust.

use std::fmt;

use callbox_core::call::{ApiVersion, Signature, Stage};
use callbox_core::values::Result;

use crate::call::{CudaCall, CudaStage, State};

type Make = dyn Fn(&CudaStage<'_>) -> Result<Option<State>> + Send + Sync;
type Initialize = dyn Fn(&mut CudaCall<'_>) -> Result<Option<State>> + Send + Sync;
type Execute = dyn Fn(&mut CudaCall<'_>) -> Result<()> + Send + Sync;

/// A target in Rust: a handler for each of its stages.
///
/// The rules are those of typed FFI: `instantiate` runs when a program is compiled, `prepare` and
/// `initialize` run once for each execution in which the call site takes part, and `execute` runs
/// each time. A handler that panics fails with ABORTED.
pub struct CudaTarget {
    signature: Signature,
    pub(super) instantiate: Option<Box<Make>>,
    pub(super) prepare: Option<Box<Make>>,
    pub(super) initialize: Option<Box<Initialize>>,
    pub(super) execute: Box<Execute>,
}

impl CudaTarget {
    /// A target with `execute` only, which takes any operands, results and attributes.
    ///
    /// Every convention but the JAX FFI proposal's can call it.
    #[must_use]
    pub fn new(
        name: impl Into<String>,
        execute: impl Fn(&mut CudaCall<'_>) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self {
            signature: undeclared(name.into()),
            instantiate: None,
            prepare: None,
            initialize: None,
            execute: Box::new(execute),
        }
    }

    /// Changes what the target declares. Its name stays, and its stages follow from its handlers.
    #[must_use]
    pub fn declaring(mut self, declare: impl FnOnce(&mut Signature)) -> Self {
        let (name, stages) = (self.signature.name.clone(), self.signature.stages.clone());
        declare(&mut self.signature);
        self.signature.name = name;
        self.signature.stages = stages;
        self
    }

    /// Adds a handler for `instantiate`, which may return a state.
    #[must_use]
    pub fn on_instantiate(
        mut self,
        handler: impl Fn(&CudaStage<'_>) -> Result<Option<State>> + Send + Sync + 'static,
    ) -> Self {
        self.instantiate = Some(Box::new(handler));
        self.with_stage(Stage::Instantiate)
    }

    /// Adds a handler for `prepare`, which may return a state.
    #[must_use]
    pub fn on_prepare(
        mut self,
        handler: impl Fn(&CudaStage<'_>) -> Result<Option<State>> + Send + Sync + 'static,
    ) -> Self {
        self.prepare = Some(Box::new(handler));
        self.with_stage(Stage::Prepare)
    }

    /// Adds a handler for `initialize`, which may return a state.
    #[must_use]
    pub fn on_initialize(
        mut self,
        handler: impl Fn(&mut CudaCall<'_>) -> Result<Option<State>> + Send + Sync + 'static,
    ) -> Self {
        self.initialize = Some(Box::new(handler));
        self.with_stage(Stage::Initialize)
    }

    fn with_stage(mut self, stage: Stage) -> Self {
        let stages = &mut self.signature.stages;
        if !stages.contains(&stage) {
            stages.push(stage);
            stages.sort_unstable_by_key(|stage| *stage as u8);
        }
        self
    }

    pub(super) fn signature(&self) -> &Signature {
        &self.signature
    }
}

impl fmt::Debug for CudaTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaTarget")
            .field("signature", &self.signature)
            .finish_non_exhaustive()
    }
}

/// The signature of a target that declares nothing.
pub(crate) fn undeclared(name: String) -> Signature {
    Signature {
        name,
        api_versions: vec![
            ApiVersion::Original,
            ApiVersion::StatusReturning,
            ApiVersion::StatusReturningUnified,
            ApiVersion::TypedFfi,
        ],
        stages: vec![Stage::Execute],
        ..Signature::default()
    }
}
