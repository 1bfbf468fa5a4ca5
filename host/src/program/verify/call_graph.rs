//! Whether calls end: no computation calls itself, not even by way of others.

use super::place;
use crate::program::instruction::Computation;
use crate::values::{Result, Status};

/// How far the search is with a computation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    NotSeen,
    /// It leads to where the search is.
    Open,
    Done,
}

/// Searches depth first, with a stack of its own: programs may nest calls deeper than the thread's stack.
pub(super) fn check(computations: &[Computation]) -> Result<()> {
    let calls: Vec<_> = computations.iter().map(calls).collect();
    let mut progress = vec![Progress::NotSeen; computations.len()];
    for start in 0..computations.len() {
        if progress[start] != Progress::NotSeen {
            continue;
        }
        progress[start] = Progress::Open;
        // Each computation under way, with the next of its calls to follow.
        let mut path = vec![(start, 0)];
        while let Some((caller, next)) = path.last_mut() {
            let caller = *caller;
            let Some(&(instruction, callee)) = calls[caller].get(*next) else {
                progress[caller] = Progress::Done;
                path.pop();
                continue;
            };
            *next += 1;
            match progress[callee] {
                Progress::Done => {}
                Progress::NotSeen => {
                    progress[callee] = Progress::Open;
                    path.push((callee, 0));
                }
                Progress::Open => return Err(cycle(computations, caller, instruction, callee)),
            }
        }
    }
    Ok(())
}

/// The calls in a computation: which instruction calls which computation.
fn calls(computation: &Computation) -> Vec<(usize, usize)> {
    let instructions = computation.instructions.iter().enumerate();
    let calls = instructions.flat_map(|(number, instruction)| {
        let called = instruction.opcode.called_computations().into_iter();
        called.map(move |callee| (number, callee.index()))
    });
    calls.collect()
}

fn cycle(computations: &[Computation], caller: usize, instruction: usize, callee: usize) -> Status {
    let (caller, callee) = (&computations[caller], &computations[callee].name);
    let instruction = &caller.instructions[instruction];
    Status::invalid_argument(format!(
        "expected computations that do not call themselves, found a call of %{callee}, \
         which leads back to %{}",
        caller.name
    ))
    .context(place(&instruction.name, &instruction.opcode, &caller.name))
}
