//! Launches kernels, one block after the other.

use super::block::Block;
use super::launch::Launch;
use super::{Entry, Fault, FaultKind, Memory, Module, Shape};

/// The instruction limit of [`launch`].
pub const BUDGET: u64 = 1 << 32;

/// The maximum number of threads per block on any device.
const MOST_THREADS: u64 = 1024;

/// Runs a kernel over a grid to its end.
///
/// Blocks run sequentially and threads take turns in a fixed order, so the same launch always gives
/// the same result.
///
/// # Errors
/// The fault that ended the kernel. Earlier writes remain.
pub fn launch(
    module: &Module,
    entry: &Entry,
    shape: Shape,
    parameters: &[u8],
    memory: &dyn Memory,
) -> Result<(), Fault> {
    launch_within(module, entry, shape, parameters, memory, BUDGET)
}

/// Does the same as [`launch`] with this instruction limit, over all threads.
///
/// # Errors
/// As for [`launch`], and [`FaultKind::Timeout`] when the limit is exceeded.
pub fn launch_within(
    module: &Module,
    entry: &Entry,
    shape: Shape,
    parameters: &[u8],
    memory: &dyn Memory,
    budget: u64,
) -> Result<(), Fault> {
    let threads: u64 = shape
        .block
        .iter()
        .map(|&size| u64::from(size))
        .fold(1, u64::saturating_mul);
    if threads > MOST_THREADS {
        let detail = format!(
            "{} is launched with blocks of {threads} threads, more than {MOST_THREADS}",
            entry.name
        );
        return Err(Fault {
            kind: FaultKind::IllegalInstruction,
            detail,
        });
    }
    let launch = Launch::new(module, entry, shape, parameters, memory)?;
    let mut block = Block::new(&launch, budget);
    let [x, y, z] = shape.grid;
    for z in 0..z {
        for y in 0..y {
            for x in 0..x {
                block.run([x, y, z])?;
            }
        }
    }
    Ok(())
}
