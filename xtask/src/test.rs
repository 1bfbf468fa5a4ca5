//! Runs all tests.

use std::process::ExitCode;

use anyhow::Result;

use crate::process::{cargo, root, run_tests, workspace_tests};
use crate::summary::{self, Outcome, Step};
use crate::{conformance, faults, guests, others, ptx, python};

/// The steps, in order. Later steps use what earlier ones build.
const STEPS: [Step; 16] = [
    Step {
        name: "Build the guests",
        run: |_| guests::build().map(|()| Outcome::Ran),
    },
    Step {
        name: "Compare the committed PTX with its sources",
        run: |_| ptx::check(),
    },
    Step {
        name: "Test the guests' kernels natively",
        run: |counts| {
            run_tests(
                cargo().current_dir(root().join("guests")).arg("test"),
                counts,
            )?;
            Ok(Outcome::Ran)
        },
    },
    Step {
        name: "Test the workspace",
        run: |counts| {
            run_tests(&mut workspace_tests(), counts)?;
            Ok(Outcome::Ran)
        },
    },
    Step {
        name: "Call kernels in Zig and AssemblyScript",
        run: |_| others::test(),
    },
    Step {
        name: "Test with altered reads from guests",
        run: |counts| {
            run_tests(&mut faults::tests(), counts)?;
            Ok(Outcome::Ran)
        },
    },
    Step {
        name: "Run the cases with explicit bounds checks",
        run: conformance::with_explicit_checks,
    },
    Step {
        name: "Run the cases in worker processes",
        run: conformance::in_processes,
    },
    Step {
        name: "Run programs on XLA, as an oracle",
        run: conformance::on_xla,
    },
    Step {
        name: "Build the Python wheel",
        run: |_| python::build_wheel(),
    },
    Step {
        name: "Test Python with NumPy alone",
        run: |counts| python::test(python::Kind::Core, counts),
    },
    Step {
        name: "Test Python with the newest JAX",
        run: |counts| python::test(python::Kind::New, counts),
    },
    Step {
        name: "Build kernels in Python with the command line",
        run: python::test_command_line,
    },
    Step {
        name: "Test Python 3.13 with its newest JAX",
        run: python::test_on_newest_python,
    },
    Step {
        name: "Test Python with JAX 0.5.0",
        run: |counts| python::test(python::Kind::Old, counts),
    },
    Step {
        name: "Test Python with PyTorch",
        run: |counts| python::test(python::Kind::Torch, counts),
    },
];

pub(crate) fn test() -> Result<ExitCode> {
    Ok(summary::run(&STEPS))
}
