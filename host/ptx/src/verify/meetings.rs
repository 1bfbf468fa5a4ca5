//! The rule on barriers and collective instructions: all threads that one waits for reach it.

use super::solve::Solution;
use super::uniform::{Agreement, Uniformity};
use super::{Refusal, Rule, refusal};
use crate::table::{Meeting, Opcode};

/// Checks all barriers and collective instructions.
pub(crate) fn check(solution: &Solution<'_>, uniformity: &Uniformity) -> Vec<Refusal> {
    let flow = solution.subject.flow;
    let mut found = Vec::new();
    for &block in &flow.order {
        for step in flow.blocks[block].first..flow.blocks[block].end {
            let agreement = uniformity.blocks[block].max(uniformity.guard(solution.subject, step));
            if let Some(reason) = problem(solution, step, agreement) {
                let instruction = flow.steps[step].instruction;
                let cure = "let all threads that it waits for reach it: branch on values that they \
                            have in common";
                found.push(refusal(instruction, Rule::Barrier, reason.to_owned(), cure));
            }
        }
    }
    found
}

/// Why an instruction may wait for threads that do not reach it, if these threads agree on whether
/// it runs.
fn problem(solution: &Solution<'_>, index: usize, agreement: Agreement) -> Option<&'static str> {
    let subject = solution.subject;
    let step = &subject.flow.steps[index];
    let threads = subject
        .launch
        .block
        .iter()
        .fold(1_u32, |all, &one| all.saturating_mul(one));
    let value = |operand: usize| {
        let operand = step.instruction.operands.get(operand);
        let contents = subject.operand(index, operand, 32, &mut |value| solution.contents(value));
        contents.as_number().value()
    };
    let is_guarded = step.instruction.guard.is_some();
    let are_whole = !subject.open.block && threads.is_multiple_of(32);
    match step.form.meeting {
        Meeting::Nothing | Meeting::OwnWork => None,
        Meeting::Block {
            barrier,
            count,
            is_arrival,
        } => {
            let is_plain = barrier.is_none_or(|operand| value(operand) == Some(0));
            if !is_plain || count.is_some() || is_arrival {
                Some("it is not barrier 0 for all threads of the block")
            } else if agreement > Agreement::Block {
                Some("not all threads of the block certainly reach it")
            } else {
                None
            }
        }
        // A lane that is not there gives a number that nothing has set.
        Meeting::Lanes { .. } if step.instruction.opcode == Opcode::Shfl && !are_whole => {
            Some("the block's last warp may not be whole")
        }
        Meeting::Lanes { mask } => {
            let present = if threads >= 32 || subject.open.block {
                u32::MAX
            } else {
                (1 << threads) - 1
            };
            let is_whole = value(mask).is_some_and(|mask| mask as u32 & present == present);
            if is_whole {
                (agreement > Agreement::Warp).then_some(LANES)
            } else {
                Some("its mask does not certainly name all lanes of the warp")
            }
        }
        Meeting::Warp if !are_whole => Some("the block's last warp may not be whole"),
        Meeting::Warp => (is_guarded || agreement > Agreement::Warp).then_some(LANES),
    }
}

const LANES: &str = "not all lanes of the warp certainly reach it";
