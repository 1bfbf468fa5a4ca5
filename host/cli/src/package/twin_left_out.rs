//! Native twins in a `callbox` that was built without the feature `cuda`: they are not read.

use callbox::Result;
use callbox::call::Signature;
use callbox_package::Package;

/// The native twin of a package, of which there is none.
pub(crate) enum Twin {}

impl Twin {
    /// The targets of the twin, with the kernels that each launches.
    pub(crate) fn targets(&self) -> std::iter::Empty<(String, String)> {
        match *self {}
    }

    /// How the twin can be loaded, for a person.
    pub(crate) fn grade(&self) -> String {
        match *self {}
    }
}

pub(crate) fn read(_: &Package<'_>, _: &[Signature]) -> Result<Option<Twin>> {
    Ok(None)
}
