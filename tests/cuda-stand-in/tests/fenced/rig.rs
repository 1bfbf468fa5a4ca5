//! Verifies, fences and runs kernels. The stand-in judges: an access outside its own buffers is a
//! fault.

use callbox_cuda_stand_in::fenced;
pub(crate) use callbox_cuda_stand_in::fenced::{BUDGET, Failure, Outcome};
use callbox_ptx::fence::Fenced;
use callbox_ptx::verify::{Launch, Limits, Proof, Refusal, verify};
use callbox_ptx_cases::content;
use callbox_ptx_cases::launch::KernelData;

/// Reads and verifies a kernel. The error of the reader is a refusal, too.
pub(crate) fn verified(
    text: &str,
    entry: &str,
    launch: &Launch,
) -> Result<(callbox_ptx::ast::Module, Proof), Vec<Refusal>> {
    verified_within(text, entry, launch, &Limits::default())
}

/// Reads and verifies a kernel within limits.
pub(crate) fn verified_within(
    text: &str,
    entry: &str,
    launch: &Launch,
    limits: &Limits,
) -> Result<(callbox_ptx::ast::Module, Proof), Vec<Refusal>> {
    let module = callbox_ptx::read(text, "kernel.ptx", &callbox_ptx::Limits::default()).map_err(
        |error| {
            vec![Refusal {
                line: error.line,
                instruction: "text".to_owned(),
                rule: callbox_ptx::verify::Rule::Module,
                reason: error.message,
                cure: String::new(),
            }]
        },
    )?;
    let proof = verify(&module, entry, launch, limits)?;
    Ok((module, proof))
}

/// Runs a fenced kernel. The stop word is set after so many looks.
pub(crate) fn run(
    fenced: &Fenced,
    entry: &str,
    launch: &Launch,
    looks: u64,
    budget: u64,
) -> Result<Outcome, Failure> {
    fenced::run(fenced, entry, launch, looks, budget, content)
}

/// Runs a kernel as its author wrote it.
pub(crate) fn run_unfenced(
    text: &str,
    entry: &str,
    launch: &Launch,
) -> Result<Vec<Vec<u8>>, String> {
    fenced::run_unfenced(text, entry, launch, content)
}

pub(crate) fn root() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub(crate) fn kernels() -> Vec<KernelData> {
    callbox_ptx_cases::launch::kernels(&root()).unwrap()
}
