//! Compiles the guests' CUDA sources and Triton kernels to the PTX that lies beside them, or
//! checks that PTX.
//!
//! NVRTC and ptxas come from PyPI, in an environment of their own in `target/nvrtc`, and Triton in
//! `target/triton`. They need no GPU and no driver.

mod assemble;
mod fenced;
pub(crate) mod libraries;
mod machine_code;

use std::process::Command;

use anyhow::{Result, ensure};
use lexopt::Arg::Long;
use lexopt::Parser;

use crate::clang::Clang;
use crate::process::{run, say};
use crate::summary::Outcome;
use crate::venv::{Environment, Interpreter};

/// NVRTC, and the assembler of the same release. Other versions make other PTX.
const WHEELS: [&str; 2] = ["nvidia-cuda-nvrtc==13.0.88", "nvidia-cuda-nvcc==13.0.88"];

/// Triton. Other versions make other PTX.
const TRITON: &str = "triton==3.9.0";

/// Finds the sources, and compiles them by NVRTC.
const SCRIPT: &str = "xtask/src/ptx/images.py";

/// Finds the kernels in Triton, and compiles them.
const TRITON_SCRIPT: &str = "xtask/src/ptx/triton_images.py";

/// How every kernel is compiled. The oldest GPU that this NVRTC knows takes PTX of compute
/// capability 7.5, and newer ones compile it further. Products are not fused with the sums that
/// follow, so that results equal those of the same source on a CPU.
const OPTIONS: [&str; 3] = [
    "--gpu-architecture=compute_75",
    "--std=c++17",
    "--fmad=false",
];

/// Runs `cargo xtask ptx`.
pub(crate) fn ptx(parser: &mut Parser) -> Result<()> {
    let (mut check_only, mut libraries_only, mut fences_only) = (false, false, false);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("check") => check_only = true,
            Long("libraries") => libraries_only = true,
            Long("fences") => fences_only = true,
            other => return Err(other.unexpected().into()),
        }
    }
    ensure!(
        u8::from(check_only) + u8::from(libraries_only) + u8::from(fences_only) <= 1,
        "--check, --libraries and --fences cannot be combined"
    );
    if libraries_only {
        return libraries::build(&Clang::find()?);
    }
    if fences_only {
        return measure_fences(&nvrtc()?, &triton()?, false);
    }
    if !check_only {
        say("Compiling the guests' CUDA sources to PTX");
        let (nvrtc, triton) = (nvrtc()?, triton()?);
        run(&mut images(&nvrtc, &[]))?;
        run(&mut triton_images(&triton, &[]))?;
        return measure_fences(&nvrtc, &triton, false);
    }
    if let Outcome::NotRun(reason) = check()? {
        println!("   not run: {reason}");
    }
    Ok(())
}

/// Checks that the committed PTX is what the sources make, that callbox-ptx prints it as the same
/// program, which assembles, and what the fence costs. Not run without the compilers.
///
/// # Errors
/// A source does not compile, its PTX or a digest differs, the printed text is another program or
/// does not assemble, or a fence is removed by the assembler or costs more than the table says.
pub(crate) fn check() -> Result<Outcome> {
    let nvrtc = match nvrtc() {
        Ok(nvrtc) => nvrtc,
        Err(error) => return Ok(Outcome::NotRun(format!("NVRTC is missing: {error:#}"))),
    };
    run(nvrtc.python().args(["-I", "-m", "doctest", SCRIPT]))?;
    run(&mut images(&nvrtc, &["--check"]))?;
    assemble::check(&nvrtc.packages().join("nvidia/cu13/bin/ptxas"))?;
    let triton = match triton() {
        Ok(triton) => triton,
        Err(error) => return Ok(Outcome::NotRun(format!("Triton is missing: {error:#}"))),
    };
    run(&mut triton_images(&triton, &["--check"]))?;
    measure_fences(&nvrtc, &triton, true)?;
    Ok(Outcome::Ran)
}

/// The assembler of NVRTC's release, and the disassembler in Triton's wheel.
fn measure_fences(nvrtc: &Environment, triton: &Environment, is_check: bool) -> Result<()> {
    let tools = fenced::Tools {
        ptxas: &nvrtc.packages().join("nvidia/cu13/bin/ptxas"),
        nvdisasm: &triton
            .packages()
            .join("triton/backends/nvidia/bin/nvdisasm"),
    };
    fenced::check(&tools, is_check)
}

fn images(nvrtc: &Environment, options: &[&str]) -> Command {
    let mut command = nvrtc.python();
    command.args(["-I", SCRIPT]).args(options);
    command.arg(nvrtc.packages().join("nvidia/cu13/lib"));
    command.args(OPTIONS);
    command
}

fn triton_images(triton: &Environment, options: &[&str]) -> Command {
    let mut command = triton.python();
    command.args(["-I", TRITON_SCRIPT]).args(options);
    command
}

/// An environment with NVRTC and ptxas.
fn nvrtc() -> Result<Environment> {
    let interpreter = Interpreter::default_python()?;
    Environment::of("nvrtc", &interpreter, &WHEELS.map(str::to_owned), "")
}

/// An environment with Triton.
fn triton() -> Result<Environment> {
    let interpreter = Interpreter::default_python()?;
    Environment::of("triton", &interpreter, &[TRITON.to_owned()], "")
}
