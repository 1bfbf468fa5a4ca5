//! Runs all tests.

use anyhow::Result;

use crate::process::{cargo, root, run, say};
use crate::{conformance, guests};

pub(crate) fn test() -> Result<()> {
    guests::build()?;

    say("Testing the guests' kernels natively");
    run(cargo().current_dir(root().join("guests")).arg("test"))?;

    say("Testing the workspace");
    run(cargo().args(["test", "--workspace"]))?;

    conformance::oracle()
}
