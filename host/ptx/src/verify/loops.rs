//! What ends each loop: a bound that was proved, or a look at the stop word.

use super::flow::{Block, Flow};
use super::solve::Solution;
use super::uniform::{Agreement, Uniformity};
use super::{LoopEnd, LoopReport, Refusal, Rule};
use crate::ast::Line;
use crate::table::{Meeting, Opcode};

/// A thread takes at most this many turns without a look at the stop word.
const MOST_TURNS: i128 = 1 << 16;
/// The most turns between two looks.
const MOST_PERIOD: i128 = 1 << 10;

/// Who must leave a loop together when a stop is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaving {
    /// A thread by itself: nothing that follows waits for it.
    Thread,
    /// The lanes of a warp, by a vote.
    Warp,
    /// The threads of the block, by a barrier.
    Block,
}

/// A loop that looks at the stop word at the beginning of its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Look {
    pub(crate) block: usize,
    /// The number of turns between two looks.
    pub(crate) period: u32,
    pub(crate) leaving: Leaving,
}

pub(crate) struct Loops {
    pub(crate) looks: Vec<Look>,
    pub(crate) reports: Vec<LoopReport>,
    pub(crate) refusals: Vec<Refusal>,
    pub(crate) blocks_look: bool,
}

/// An instruction that waits for other threads.
#[derive(Clone, Copy)]
struct Wait {
    leaving: Leaving,
    line: Line,
    opcode: Opcode,
}

/// The first one that waits for all threads of the block, or else the first one.
fn first_wait(mut waits: impl Iterator<Item = Wait>) -> Option<Wait> {
    let first = waits.next()?;
    if first.leaving == Leaving::Block {
        return Some(first);
    }
    Some(
        waits
            .find(|wait| wait.leaving == Leaving::Block)
            .unwrap_or(first),
    )
}

/// The instruction of a block that others wait for.
fn wait_of(flow: &Flow<'_>, block: &Block) -> Option<Wait> {
    let waits = flow.steps[block.first..block.end]
        .iter()
        .filter_map(|step| {
            let leaving = match step.form.meeting {
                Meeting::Nothing | Meeting::OwnWork => return None,
                Meeting::Lanes { .. } | Meeting::Warp => Leaving::Warp,
                Meeting::Block { .. } => Leaving::Block,
            };
            Some(Wait {
                leaving,
                line: step.instruction.line,
                opcode: step.instruction.opcode,
            })
        });
    first_wait(waits)
}

/// `None` if there is too much work.
pub(crate) fn plan(solution: &Solution<'_>, uniformity: &Uniformity) -> Option<Loops> {
    let work = solution.subject.work;
    let flow = solution.subject.flow;
    let waits: Vec<_> = flow
        .blocks
        .iter()
        .map(|block| wait_of(flow, block))
        .collect();
    let mut found = Loops {
        looks: Vec::new(),
        reports: Vec::new(),
        refusals: Vec::new(),
        blocks_look: false,
    };
    // Bounds hold only if each cycle has a block that dominates it.
    let is_reducible = flow.loops.iter().all(|one| one.is_natural);
    let mut order: Vec<usize> = (0..flow.loops.len()).collect();
    // Inner loops first.
    order.sort_by_key(|&index| flow.loops[index].body.len());
    // Turns of each block's innermost loops that do not look, in one run of the loops around it.
    let mut totals: Vec<Option<i128>> = vec![None; flow.loops.len()];
    for (place, &index) in order.iter().enumerate() {
        let one = &flow.loops[index];
        work.spend(place)?;
        let inner: i128 = order[..place]
            .iter()
            .filter(|&&other| one.body.binary_search(&flow.loops[other].header).is_ok())
            .filter_map(|&other| totals[other])
            .sum();
        let bound = is_reducible.then(|| solution.turns(one.header)).flatten();
        let total = bound.map(|bound| (bound + 1).saturating_mul(inner.max(1)));
        let line = header_line(solution, one.header);
        if let Some(total) = total.filter(|total| *total <= MOST_TURNS) {
            totals[index] = Some(total);
            let turns = bound
                .and_then(|bound| u64::try_from(bound).ok())
                .unwrap_or(u64::MAX);
            let end = LoopEnd::Proved { turns };
            found.reports.push(LoopReport { line, end });
            continue;
        }
        work.spend(flow.blocks.len())?;
        let period = (MOST_TURNS / inner.max(1)).clamp(1, MOST_PERIOD) as u32;
        match leaving(solution, uniformity, &waits, one.header) {
            Ok(leaving) => {
                let block = one.header;
                found.looks.push(Look {
                    block,
                    period,
                    leaving,
                });
                let end = LoopEnd::StopWord { every: period };
                found.reports.push(LoopReport { line, end });
            }
            Err(refusal) => found.refusals.push(refusal),
        }
    }
    found.reports.sort_by_key(|report| report.line);
    let turns = totals.iter().flatten().fold(1, |all, turns| all + turns);
    if instructions_of_grid(solution, turns) > i128::from(solution.subject.limits.grid_instructions)
    {
        found.look_first(solution, uniformity, &waits);
    }
    Some(found)
}

/// How many instructions all threads of a grid run at most, without loops that look at the stop
/// word. 0 if the launch is not known.
fn instructions_of_grid(solution: &Solution<'_>, turns: i128) -> i128 {
    let subject = solution.subject;
    if subject.open.grid || subject.open.block {
        return 0;
    }
    let sizes = subject.launch.grid.iter().chain(&subject.launch.block);
    let threads = sizes.fold(1, |all: i128, &one| all.saturating_mul(i128::from(one)));
    let steps = subject.flow.steps.len() as i128;
    threads.saturating_mul(steps).saturating_mul(turns)
}

impl Loops {
    /// Lets each block look at the stop word as it begins. All of its threads begin together, so
    /// that this fails only if the kernel begins with a loop, which may look anyway.
    fn look_first(
        &mut self,
        solution: &Solution<'_>,
        uniformity: &Uniformity,
        waits: &[Option<Wait>],
    ) {
        let Some(&block) = solution.subject.flow.order.first() else {
            return;
        };
        if self.looks.iter().any(|look| look.block == block) {
            return;
        }
        if let Ok(leaving) = leaving(solution, uniformity, waits, block) {
            self.looks.push(Look {
                block,
                period: 1,
                leaving,
            });
            self.blocks_look = true;
        }
    }
}

fn header_line(solution: &Solution<'_>, header: usize) -> u32 {
    let flow = solution.subject.flow;
    let step = flow.steps.get(flow.blocks[header].first);
    step.map_or(0, |step| step.instruction.line.0)
}

/// Decides who leaves a loop, from what may wait for its threads in the loop and behind it.
fn leaving(
    solution: &Solution<'_>,
    uniformity: &Uniformity,
    waits: &[Option<Wait>],
    header: usize,
) -> Result<Leaving, Refusal> {
    let flow = solution.subject.flow;
    let reached = flow.reachable(&[header], None);
    let reached = std::iter::zip(waits, reached).filter(|(_, is_reached)| *is_reached);
    let Some(Wait {
        leaving,
        line,
        opcode,
    }) = first_wait(reached.filter_map(|(wait, _)| *wait))
    else {
        return Ok(Leaving::Thread);
    };
    let agreement = uniformity.blocks[header];
    let fits = match leaving {
        Leaving::Block => agreement == Agreement::Block,
        _ => agreement <= Agreement::Warp,
    };
    if fits {
        return Ok(leaving);
    }
    Err(Refusal {
        line: header_line(solution, header),
        instruction: "loop".to_owned(),
        rule: Rule::UnboundedLoop,
        reason: format!(
            "nothing bounds this loop, its threads may leave it at different times, and `{}` in \
             line {} would wait for those that were stopped",
            opcode.name(),
            line.0
        ),
        cure: "bound the loop by a constant or a scalar parameter, or let all threads of the \
               block take the same turns"
            .to_owned(),
    })
}
