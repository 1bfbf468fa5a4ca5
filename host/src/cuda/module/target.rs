//! Targets in Rust.

use std::fmt;

use super::API_VERSIONS;
use crate::call::{Signature, Stage};
use crate::cuda::call::{CudaCall, CudaStage, State};
use crate::values::Result;

type Make = dyn Fn(&CudaStage<'_>) -> Result<Option<State>> + Send + Sync;
type Initialize = dyn Fn(&mut CudaCall<'_>) -> Result<Option<State>> + Send + Sync;
type Execute = dyn Fn(&mut CudaCall<'_>) -> Result<()> + Send + Sync;

/// A target in Rust: a handler for each of its stages.
///
/// The rules are typed FFI's: `instantiate` runs when a program is compiled, `prepare` and `initialize` once for each execution in which the call site takes
/// part, `execute` each time. A handler that panics costs a status.
pub struct CudaTarget {
    signature: Signature,
    pub(super) instantiate: Option<Box<Make>>,
    pub(super) prepare: Option<Box<Make>>,
    pub(super) initialize: Option<Box<Initialize>>,
    pub(super) execute: Box<Execute>,
}

impl CudaTarget {
    /// A target that has `execute` alone, takes any operands, results and attributes, and can be called by each convention but the JAX FFI
    /// proposal's.
    #[must_use]
    pub fn new(
        name: impl Into<String>,
        execute: impl Fn(&mut CudaCall<'_>) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self {
            signature: Signature {
                name: name.into(),
                api_versions: API_VERSIONS.to_vec(),
                stages: vec![Stage::Execute],
                operands: None,
                remaining_operands: false,
                results: None,
                remaining_results: false,
                attributes: None,
                documentation: String::new(),
                traits: Vec::new(),
            },
            instantiate: None,
            prepare: None,
            initialize: None,
            execute: Box::new(execute),
        }
    }

    /// Declares what this changes of its signature. The stages follow from the handlers.
    #[must_use]
    pub fn declaring(mut self, declare: impl FnOnce(&mut Signature)) -> Self {
        let (name, stages) = (self.signature.name.clone(), self.signature.stages.clone());
        declare(&mut self.signature);
        self.signature.name = name;
        self.signature.stages = stages;
        self
    }

    /// With a handler for `instantiate`, which may make a state.
    #[must_use]
    pub fn on_instantiate(
        mut self,
        handler: impl Fn(&CudaStage<'_>) -> Result<Option<State>> + Send + Sync + 'static,
    ) -> Self {
        self.instantiate = Some(Box::new(handler));
        self.has_stage(Stage::Instantiate)
    }

    /// With a handler for `prepare`, which may make a state.
    #[must_use]
    pub fn on_prepare(
        mut self,
        handler: impl Fn(&CudaStage<'_>) -> Result<Option<State>> + Send + Sync + 'static,
    ) -> Self {
        self.prepare = Some(Box::new(handler));
        self.has_stage(Stage::Prepare)
    }

    /// With a handler for `initialize`, which may make a state.
    #[must_use]
    pub fn on_initialize(
        mut self,
        handler: impl Fn(&mut CudaCall<'_>) -> Result<Option<State>> + Send + Sync + 'static,
    ) -> Self {
        self.initialize = Some(Box::new(handler));
        self.has_stage(Stage::Initialize)
    }

    fn has_stage(mut self, stage: Stage) -> Self {
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
