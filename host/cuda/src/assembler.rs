//! NVIDIA's assembler in a child process.
//!
//! A driver compiles PTX in the process that loads it, and its compiler is the same as `ptxas`. Of
//! a hundred thousand random kernels of the tests, one ends `ptxas` 13.0 by SIGSEGV, which would
//! end this process. So PTX that is not trusted is assembled by `ptxas` in a child with limits on
//! time and memory, where a machine has `ptxas`, and the driver gets machine code. NVIDIA's
//! packages for JAX, PyTorch's Triton and CUDA toolkits have it.
//!
//! Input and output are memory files, which the child gets as its standard input and output.

#[cfg(target_os = "linux")]
mod child;

use std::path::PathBuf;
use std::sync::OnceLock;

use callbox_core::policy::{Assembler, Gpu};
use callbox_core::values::{Blame, Result, Status, StatusCode};

use crate::places::{self, SearchPlace, Sought, SystemSearch};

/// The search for the program.
const SOUGHT: Sought = Sought {
    variable: "CALLBOX_PTXAS",
    system: SystemSearch::Path,
    packages: &[
        "nvidia/cu13/bin",
        "nvidia/cuda_nvcc/bin",
        "triton/backends/nvidia/bin",
    ],
    toolkit: "bin",
    conda: "bin",
};

/// Finds `ptxas`. The answer stays the same for the life of the process.
///
/// If the environment variable `CALLBOX_PTXAS` is set, it names the program or its folder.
/// Otherwise the search goes through `PATH`, NVIDIA's and Triton's packages from PyPI (in the
/// virtual environment, the conda environment, the user's packages and the system's), and the CUDA
/// toolkit's folder.
///
/// # Errors
/// UNAVAILABLE, with how to install it, also on systems other than Linux.
pub fn find() -> Result<PathBuf> {
    static PROGRAM: OnceLock<Result<PathBuf>> = OnceLock::new();
    PROGRAM
        .get_or_init(|| {
            if cfg!(target_os = "linux") {
                first(&places::ambient(&SOUGHT))
            } else {
                Err(missing("it is used on Linux only"))
            }
        })
        .clone()
}

fn first(places: &[SearchPlace]) -> Result<PathBuf> {
    let files = places.iter().filter_map(|place| match place {
        SearchPlace::Loader => None,
        SearchPlace::Folder(folder) => Some(folder.join("ptxas")),
        SearchPlace::File(file) => Some(file.clone()),
    });
    let mut files = files.filter(|file| file.is_file());
    files.next().ok_or_else(|| {
        missing(
            "`pip install nvidia-cuda-nvcc` gets it, and CALLBOX_PTXAS can name it; looked on PATH, \
             in Python packages and in CUDA toolkits",
        )
    })
}

fn missing(advice: &str) -> Status {
    let message = format!("expected ptxas, NVIDIA's assembler, found none: {advice}");
    Status::new(StatusCode::Unavailable, Blame::Host, message)
}

/// Assembles PTX for a compute capability such as `(9, 0)` in a child process. `file` stands in
/// messages. Returns `None` if the policy leaves it to the driver, or if there is no `ptxas` and
/// the policy does not need one.
///
/// # Errors
/// INVALID_ARGUMENT, with the assembler's log, for text that does not assemble; ABORTED if the
/// assembler crashes; DEADLINE_EXCEEDED past the policy's `gpu.assemble_ms`; UNAVAILABLE without
/// `ptxas` if the policy needs it.
pub fn assemble(
    file: &str,
    text: &str,
    capability: (u32, u32),
    gpu: &Gpu,
) -> Result<Option<Vec<u8>>> {
    let program = match (gpu.assembler, find()) {
        (Assembler::Driver, _) | (Assembler::Any, Err(_)) => return Ok(None),
        (Assembler::Child, Err(status)) => return Err(status),
        (Assembler::Any | Assembler::Child, Ok(program)) => program,
    };
    #[cfg(target_os = "linux")]
    {
        let limits = child::Limits {
            time: gpu.assemble_time,
            memory_bytes: gpu.assemble_memory_bytes,
        };
        child::run(&program, file, text, capability, &limits).map(Some)
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (program, file, text, capability);
        Ok(None)
    }
}

#[cfg(test)]
mod tests;
