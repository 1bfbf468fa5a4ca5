//! `--shadow` in a `callbox` that was built without the feature `cuda`: it is refused.

use std::convert::Infallible;
use std::sync::Arc;

use crate::failure::Outcome;
use crate::left_out;

/// `--shadow`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ShadowArguments {
    /// On CUDA, also run this share of the calls as wasm
    #[arg(long, value_name = "P", value_parser = refused)]
    shadow: Option<Shadow>,
}

/// A shadow, of which there is none.
#[derive(Clone, Debug)]
pub(super) struct Shadow(Infallible);

fn refused(_: &str) -> Result<Shadow, String> {
    Err(left_out("cuda"))
}

impl ShadowArguments {
    pub(super) fn is_given(&self) -> bool {
        self.shadow.is_some()
    }

    /// That of the policy is for CUDA, too.
    pub(super) fn shadow(
        &self,
        _: Option<callbox::policy::Shadow>,
    ) -> Outcome<Option<Arc<Shadow>>> {
        Ok(self.shadow.clone().map(Arc::new))
    }
}

impl Shadow {
    pub(super) fn has_calls(&self) -> bool {
        match self.0 {}
    }

    pub(super) fn describe(&self) -> String {
        match self.0 {}
    }
}
