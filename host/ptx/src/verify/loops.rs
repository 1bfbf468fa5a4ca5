//! What ends each loop: a bound that was proved, or a look at the stop word.

use super::flow::{Block, Flow};
use super::rules::{check_size, shared_bytes};
use super::solve::Solution;
use super::uniform::{Agreement, Uniformity};
use super::values::Subject;
use super::weights::weight;
use super::{Check, LoopEnd, LoopReport, Refusal, Rule, launch_refusal, variable_align};
use crate::ast::{Function, Line};
use crate::table::{Meeting, Opcode};
use crate::types::Space;

/// The most units of work that a thread takes outside of loops that look at the stop word, and the
/// most between two looks of all loops that do: some 50 ms of a device.
const MOST_WORK: i128 = 1 << 24;
/// The most turns between two looks.
const MOST_PERIOD: i128 = 1 << 10;
/// The units of work of setting an element to zero.
const ZERO: i128 = 16;
/// The loops that look share [`MOST_WORK`] as if there were at least this many.
const FEW_LOOKS: i128 = 16;
/// The units of work of a thread that noted something: it reads the record in memory of the host.
const NOTE: i128 = 1024;
/// The threads and blocks of a multiprocessor, its registers, and its bytes of shared memory: those
/// of devices that have few.
const THREADS: u64 = 2048;
const BLOCKS: u64 = 32;
const REGISTERS: u64 = 1 << 16;
const SHARED: u64 = 100 << 10;

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
    /// Who leaves together if each block looks at the stop word as it begins. All of its threads
    /// begin together.
    pub(crate) first: Option<Leaving>,
    /// The units of work of all threads of the grid that no stop ends.
    pub(crate) grid: u64,
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
pub(crate) fn plan(
    solution: &Solution<'_>,
    uniformity: &Uniformity,
    checks: &[Check],
) -> Option<Loops> {
    let flow = solution.subject.flow;
    let waits = flow.blocks.iter().map(|block| wait_of(flow, block));
    let mut nest = Nest::new(solution, uniformity, waits.collect(), checks);
    let mut longest = MOST_WORK;
    let mut total = nest.decide(longest)?;
    // Loops that follow one another may be short, and take long together.
    while total > MOST_WORK && longest > 0 {
        longest /= 4;
        total = nest.decide(longest)?;
    }
    let mut found = nest.loops()?;
    if total > MOST_WORK {
        found.refusals.push(launch_refusal(
            Rule::Size,
            format!(
                "a thread may take {total} units of work between two looks at the stop word, the \
                 limit is {MOST_WORK}: an instruction counts 1, an access of global memory 64, an \
                 atomic operation 4096"
            ),
        ));
    }
    let most = i128::from(solution.subject.limits.grid_instructions);
    let grid = work_of_grid(solution, total);
    if grid <= most {
        found.grid = u64::try_from(grid).unwrap_or(u64::MAX);
    } else {
        let waits = flow.order.iter().filter_map(|&block| nest.waits[block]);
        let leaving = first_wait(waits).map_or(Leaving::Thread, |wait| wait.leaving);
        // All threads of the block set shared memory to zero, or none.
        let has_shared = solution.subject.named.iter().any(|&id| {
            let variable = solution.subject.variable(id);
            variable.is_some_and(|variable| variable.space == Space::Shared)
        });
        found.first = Some(if has_shared { Leaving::Block } else { leaving });
    }
    Some(found)
}

/// The loops of a kernel, and what its threads do in each.
struct Nest<'n, 's> {
    solution: &'n Solution<'s>,
    uniformity: &'n Uniformity,
    waits: Vec<Option<Wait>>,
    /// Inner loops first.
    order: Vec<usize>,
    /// The units of work outside of all loops.
    outside: i128,
    turns: Vec<Turns>,
}

/// What is known of a loop.
struct Turns {
    /// The number of times that control goes back to its header, if that is proved.
    bound: Option<i128>,
    /// The next loop around it.
    parent: Option<usize>,
    /// The units of work of its own blocks, without those of inner loops.
    own: i128,
    /// The units of work of a turn, with the inner loops that do not look.
    turn: i128,
    looks: bool,
    /// Who leaves it together, once that was asked.
    leaving: Option<Result<Leaving, Refusal>>,
}

impl<'n, 's> Nest<'n, 's> {
    fn new(
        solution: &'n Solution<'s>,
        uniformity: &'n Uniformity,
        waits: Vec<Option<Wait>>,
        checks: &[Check],
    ) -> Self {
        let flow = solution.subject.flow;
        let threads = threads_of_block(solution.subject);
        let steps = flow.steps.iter();
        let weights = steps.map(|step| weight(step.instruction, &step.form, threads));
        let mut weights = Vec::from_iter(weights);
        for check in checks {
            weights[check.step] += check_size(check) as i128;
        }
        // Bounds hold only if each cycle has a block that dominates it.
        let is_reducible = flow.loops.iter().all(|one| one.is_natural);
        let turns = flow.loops.iter().map(|one| Turns {
            bound: is_reducible.then(|| solution.turns(one.header)).flatten(),
            parent: None,
            own: 0,
            turn: 0,
            looks: false,
            leaving: None,
        });
        let mut turns: Vec<Turns> = turns.collect();
        let mut order: Vec<usize> = (0..flow.loops.len()).collect();
        order.sort_by_key(|&index| flow.loops[index].body.len());
        let units = |block: usize| -> i128 {
            let steps = flow.blocks[block].first..flow.blocks[block].end;
            weights[steps].iter().sum()
        };
        // The largest loop so far that each block is in.
        let mut around: Vec<Option<usize>> = vec![None; flow.blocks.len()];
        for &index in &order {
            for &block in &flow.loops[index].body {
                match around[block].replace(index) {
                    Some(inner) => {
                        turns[inner].parent.get_or_insert(index);
                    }
                    None => turns[index].own += units(block),
                }
            }
        }
        // Nothing says which blocks a turn of an unnatural loop runs.
        for (turns, one) in std::iter::zip(&mut turns, &flow.loops) {
            if !one.is_natural {
                turns.own = flow.order.iter().map(|&block| units(block)).sum();
            }
        }
        let outside = flow.order.iter().filter(|&&block| around[block].is_none());
        let mut outside = outside.map(|&block| units(block)).sum::<i128>();
        if checks.iter().any(|check| check_size(check) > 0) {
            outside += NOTE;
        }
        Self {
            solution,
            uniformity,
            waits,
            order,
            outside: outside + zeroing(solution.subject),
            turns,
        }
    }

    /// Lets the loops that take more than `longest` units look, if they can, and those that have no
    /// bound. Returns the work outside of loops that look, and of one turn of each that does.
    fn decide(&mut self, longest: i128) -> Option<i128> {
        self.solution.subject.work.spend(self.order.len())?;
        for turns in &mut self.turns {
            turns.turn = turns.own;
        }
        let mut total = self.outside;
        for place in 0..self.order.len() {
            let index = self.order[place];
            let Turns {
                bound,
                parent,
                turn,
                ..
            } = self.turns[index];
            let all = bound.map(|bound| turn.saturating_mul(bound.saturating_add(1)));
            let short = all.filter(|all| *all <= MOST_WORK);
            self.turns[index].looks = match short {
                Some(all) => all > longest && self.leaving(index)?.is_ok(),
                None => true,
            };
            match (short.filter(|_| !self.turns[index].looks), parent) {
                (Some(all), Some(parent)) => {
                    let around = &mut self.turns[parent].turn;
                    *around = around.saturating_add(all);
                }
                (Some(all), None) => total = total.saturating_add(all),
                (None, _) => total = total.saturating_add(turn),
            }
        }
        Some(total)
    }

    fn leaving(&mut self, index: usize) -> Option<&Result<Leaving, Refusal>> {
        let turns = &mut self.turns[index];
        if turns.leaving.is_none() {
            let subject = self.solution.subject;
            subject.work.spend(subject.flow.blocks.len())?;
            let header = subject.flow.loops[index].header;
            let found = leaving(self.solution, self.uniformity, &self.waits, header);
            turns.leaving = Some(found);
        }
        turns.leaving.as_ref()
    }

    /// `None` if there is too much work.
    fn loops(&mut self) -> Option<Loops> {
        let mut found = Loops {
            looks: Vec::new(),
            reports: Vec::new(),
            refusals: Vec::new(),
            first: None,
            grid: 0,
        };
        let looking = self.turns.iter().filter(|turns| turns.looks).count() as i128;
        let share = MOST_WORK / looking.max(FEW_LOOKS);
        for index in 0..self.turns.len() {
            let header = self.solution.subject.flow.loops[index].header;
            let Turns {
                bound, turn, looks, ..
            } = self.turns[index];
            let end = if looks {
                let period = (share / turn.max(1)).clamp(1, MOST_PERIOD) as u32;
                match self.leaving(index)? {
                    Ok(leaving) => found.looks.push(Look {
                        block: header,
                        period,
                        leaving: *leaving,
                    }),
                    Err(refusal) => {
                        found.refusals.push(refusal.clone());
                        continue;
                    }
                }
                LoopEnd::StopWord { every: period }
            } else {
                let turns = bound.and_then(|bound| u64::try_from(bound).ok());
                LoopEnd::Proved {
                    turns: turns.unwrap_or(u64::MAX),
                }
            };
            let line = header_line(self.solution, header);
            found.reports.push(LoopReport { line, end });
        }
        found.reports.sort_by_key(|report| report.line);
        Some(found)
    }
}

/// The threads of a block: the most, if the launch is not known.
fn threads_of_block(subject: &Subject<'_>) -> i128 {
    if subject.open.block {
        return 1024;
    }
    let block = subject.launch.block.iter();
    block.map(|&one| i128::from(one)).product()
}

/// The units of work of a thread that sets local memory, and its part of shared memory, to zero.
fn zeroing(subject: &Subject<'_>) -> i128 {
    let block = subject.launch.block.iter().filter(|_| !subject.open.block);
    let threads: i128 = block.map(|&one| i128::from(one)).product();
    let units = subject.named.iter().filter_map(|&id| {
        let variable = subject.variable(id)?;
        let threads = match variable.space {
            Space::Local => 1,
            Space::Shared => threads.max(1),
            _ => return None,
        };
        let width = variable_align(variable).min(8);
        let stores = i128::from(subject.launch.variable_bytes(variable)) / i128::from(width);
        Some((stores / threads + 2) * ZERO)
    });
    units.sum()
}

/// The most units of work of all threads of a grid, without turns of loops that look at the stop
/// word. A block counts as its part of a multiprocessor. 0 if the launch is not known.
fn work_of_grid(solution: &Solution<'_>, of_thread: i128) -> i128 {
    let subject = solution.subject;
    if subject.open.grid || subject.open.block {
        return 0;
    }
    let count = |sizes: &[u32]| {
        let sizes = sizes.iter().map(|&one| u64::from(one));
        sizes.fold(1, u64::saturating_mul)
    };
    // A device runs whole warps.
    let threads = count(&subject.launch.block).clamp(1, THREADS);
    let threads = threads.next_multiple_of(32);
    let shared = shared_bytes(subject.module, subject.function, subject.launch);
    let together = (BLOCKS.min(THREADS / threads))
        .min(SHARED / shared.max(1))
        .min(REGISTERS / (threads * registers(subject.function)))
        .max(1);
    let of_block = i128::from(threads.max(THREADS / together));
    let blocks = i128::from(count(&subject.launch.grid));
    (blocks * of_block).saturating_mul(of_thread)
}

/// The most registers of a thread in machine code: those of the text, each twice, for an assembler
/// computes ahead.
fn registers(function: &Function) -> u64 {
    let registers = function.registers.iter();
    let words = registers.map(|register| u64::from(register.kind.bits()).div_ceil(32));
    (words.sum::<u64>() * 2).clamp(32, 255)
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
