//! What ends each loop: a bound that was proved, or a look at the stop word.

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

pub(crate) fn plan(solution: &Solution<'_>, uniformity: &Uniformity) -> Loops {
    let flow = solution.subject.flow;
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
        let period = (MOST_TURNS / inner.max(1)).clamp(1, MOST_PERIOD) as u32;
        match leaving(solution, uniformity, one.header) {
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
        found.look_first(solution, uniformity);
    }
    found
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
    fn look_first(&mut self, solution: &Solution<'_>, uniformity: &Uniformity) {
        let Some(&block) = solution.subject.flow.order.first() else {
            return;
        };
        if self.looks.iter().any(|look| look.block == block) {
            return;
        }
        if let Ok(leaving) = leaving(solution, uniformity, block) {
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
    header: usize,
) -> Result<Leaving, Refusal> {
    let flow = solution.subject.flow;
    let mut waits: Option<(Leaving, Line, Opcode)> = None;
    for (block, is_reached) in flow.reachable(&[header], None).into_iter().enumerate() {
        if !is_reached {
            continue;
        }
        for step in &flow.steps[flow.blocks[block].first..flow.blocks[block].end] {
            let now = match step.form.meeting {
                Meeting::Nothing | Meeting::OwnWork => continue,
                Meeting::Lanes { .. } | Meeting::Warp => Leaving::Warp,
                Meeting::Block { .. } => Leaving::Block,
            };
            let is_more =
                waits.is_none_or(|(known, ..)| known == Leaving::Warp && now == Leaving::Block);
            if is_more {
                waits = Some((now, step.instruction.line, step.instruction.opcode));
            }
        }
    }
    let Some((leaving, line, opcode)) = waits else {
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
