//! Launches: one block after the other.

use super::block::Block;
use super::launch::Launch;
use super::{Entry, Fault, FaultKind, Memory, Module, Shape};

/// The instructions that a launch may take in [`launch`].
pub const BUDGET: u64 = 1 << 32;

/// The most threads of a block, on any device.
const MOST_THREADS: u64 = 1024;

/// Runs a kernel over a grid, to its end. Blocks run one after the other and threads take turns in a fixed order, so that the same launch
/// gives the same result each time.
///
/// # Errors
/// What broke it off, and where. What it has written until then stays.
pub fn launch(
    module: &Module,
    entry: &Entry,
    shape: Shape,
    parameters: &[u8],
    memory: &dyn Memory,
) -> Result<(), Fault> {
    launch_within(module, entry, shape, parameters, memory, BUDGET)
}

/// [`launch`], with so many instructions at most, over all threads.
///
/// # Errors
/// As [`launch`]; [`FaultKind::Timeout`] if it takes more.
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
