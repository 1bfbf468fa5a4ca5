//! Runs all tests.

use anyhow::Result;

use crate::process::{cargo, root, run, say, tests};
use crate::{conformance, faults, guests, ptx, python};

pub(crate) fn test() -> Result<()> {
    guests::build()?;

    ptx::check()?;

    say("Testing the guests' kernels natively");
    run(cargo().current_dir(root().join("guests")).arg("test"))?;

    say("Testing the workspace");
    run(&mut tests())?;

    say("Testing with what the host reads from guests altered");
    run(&mut faults::tests())?;

    conformance::ways()?;
    conformance::oracle()?;
    python::test()
}
