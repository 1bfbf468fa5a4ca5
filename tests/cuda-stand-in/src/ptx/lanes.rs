//! Collective operations of a warp's lanes, executed when all participants have arrived.

use super::code::{LaneReduction, Operation, WarpKind, WarpOperation};
use super::launch::Launch;
use super::spaces::Trouble;
use super::thread::{Position, State, Thread};
use super::types::Type;
use super::{Fault, FaultKind};

/// The value that a shuffle reads from a missing lane.
const MISSING_LANE: u64 = 0xcdcd_cdcd;

fn operation<'l>(launch: &'l Launch<'l>, thread: &Thread) -> Option<&'l WarpOperation> {
    let Position { function, at } = thread.position();
    match &launch.module.functions[function].code[at].operation {
        Operation::Warp(operation) if thread.state == State::Warp => Some(operation),
        _ => None,
    }
}

/// Executes the collective operations whose lanes have arrived. Returns whether there were any.
pub(super) fn meet(
    launch: &Launch<'_>,
    block: [u32; 3],
    lanes: &mut [Thread],
) -> Result<bool, Fault> {
    let mut has_met = false;
    for lane in 0..lanes.len() {
        let Some(first) = operation(launch, &lanes[lane]) else {
            continue;
        };
        if first.kind == WarpKind::ActiveMask {
            continue;
        }
        let mask = lanes[lane].slot(first.mask) as u32;
        if mask & (1 << lane) == 0 {
            let text = format!(
                "an instruction of lanes {mask:#010x},\nlane {lane} runs it and is not one of them"
            );
            let trouble = Trouble {
                kind: FaultKind::IllegalInstruction,
                text,
            };
            return Err(lanes[lane].fault(launch, block, trouble));
        }
        // Lanes that have ended or do not exist are not waited for.
        let members: Vec<usize> = (0..lanes.len())
            .filter(|&other| mask & (1 << other) != 0 && lanes[other].state != State::Done)
            .collect();
        let is_complete = members.iter().all(|&other| {
            operation(launch, &lanes[other]).is_some_and(|there| {
                there.kind == first.kind && lanes[other].slot(there.mask) as u32 == mask
            })
        });
        if is_complete {
            together(launch, lanes, &members);
            has_met = true;
        }
    }
    Ok(has_met || active(launch, lanes))
}

/// `activemask`: the lanes that are at the same instruction count as active together.
fn active(launch: &Launch<'_>, lanes: &mut [Thread]) -> bool {
    let is_there = |thread: &Thread| {
        operation(launch, thread).is_some_and(|there| there.kind == WarpKind::ActiveMask)
    };
    let Some(position) = lanes
        .iter()
        .find(|thread| is_there(thread))
        .map(Thread::position)
    else {
        return false;
    };
    let members: Vec<usize> = (0..lanes.len())
        .filter(|&lane| is_there(&lanes[lane]) && lanes[lane].position() == position)
        .collect();
    together(launch, lanes, &members);
    true
}

fn together(launch: &Launch<'_>, lanes: &mut [Thread], members: &[usize]) {
    // Every lane's first operand, which is a predicate in a vote.
    let mut values = [None; 32];
    for &lane in members {
        values[lane] = operation(launch, &lanes[lane]).map(|there| lanes[lane].slot(there.from[0]));
    }
    for &lane in members {
        let Some(there) = operation(launch, &lanes[lane]) else {
            continue;
        };
        let [_, second, third] = there.from.map(|slot| lanes[lane].slot(slot) as u32);
        let (result, predicate) = match there.kind {
            WarpKind::Sync => (0, 0),
            WarpKind::ShuffleUp
            | WarpKind::ShuffleDown
            | WarpKind::ShuffleXor
            | WarpKind::ShuffleIndex => {
                let (source, is_inside) = source(there.kind, lane as i32, second, third);
                (values[source].unwrap_or(MISSING_LANE), u64::from(is_inside))
            }
            kind => collected(kind, &values, values[lane].unwrap_or(0)),
        };
        let (to, second_to) = (there.to, there.predicate);
        if there.kind != WarpKind::Sync {
            lanes[lane].set(to, result);
        }
        if let Some(to) = second_to {
            lanes[lane].set(to, predicate);
        }
        lanes[lane].go_on();
    }
}

/// Returns the lane that a shuffle reads, and whether it is inside the segment. If not, the lane is
/// its own.
fn source(kind: WarpKind, lane: i32, by: u32, segments: u32) -> (usize, bool) {
    let (by, clamp, segment) = (
        (by & 31) as i32,
        (segments & 31) as i32,
        ((segments >> 8) & 31) as i32,
    );
    let last = (lane & segment) | (clamp & !segment);
    let (source, is_inside) = match kind {
        WarpKind::ShuffleUp => (lane - by, lane - by >= last),
        WarpKind::ShuffleDown => (lane + by, lane + by <= last),
        WarpKind::ShuffleXor => (lane ^ by, lane ^ by <= last),
        _ => {
            let source = (lane & segment) | (by & !segment);
            (source, source <= last)
        }
    };
    (
        (if is_inside { source } else { lane }).clamp(0, 31) as usize,
        is_inside,
    )
}

/// Computes results that are the same for all lanes, or depend on the lane's own value.
fn collected(kind: WarpKind, values: &[Option<u64>; 32], own: u64) -> (u64, u64) {
    let lanes_where = |holds: &dyn Fn(u64) -> bool| -> u64 {
        let lanes = values
            .iter()
            .enumerate()
            .filter(|(_, value)| value.is_some_and(holds));
        lanes.fold(0, |mask, (lane, _)| mask | (1 << lane))
    };
    let all = lanes_where(&|_| true);
    let same = lanes_where(&|value| value == own);
    let result = match kind {
        WarpKind::ActiveMask => all,
        WarpKind::VoteAll => u64::from(lanes_where(&|value| value != 0) == all),
        WarpKind::VoteAny => u64::from(lanes_where(&|value| value != 0) != 0),
        WarpKind::VoteUniform => u64::from(same == all),
        WarpKind::Ballot => lanes_where(&|value| value != 0),
        WarpKind::MatchAny => same,
        WarpKind::MatchAll if same == all => all,
        WarpKind::Reduce(reduction, declared) => {
            let values = values.iter().flatten().map(|&value| value as u32);
            let reduced = match (reduction, declared) {
                (LaneReduction::Add, _) => values.reduce(u32::wrapping_add),
                (LaneReduction::Min, Type::S32) => values
                    .map(|value| value as i32)
                    .min()
                    .map(|value| value as u32),
                (LaneReduction::Max, Type::S32) => values
                    .map(|value| value as i32)
                    .max()
                    .map(|value| value as u32),
                (LaneReduction::Min, _) => values.min(),
                (LaneReduction::Max, _) => values.max(),
                (LaneReduction::And, _) => values.reduce(|a, b| a & b),
                (LaneReduction::Or, _) => values.reduce(|a, b| a | b),
                (LaneReduction::Xor, _) => values.reduce(|a, b| a ^ b),
            };
            u64::from(reduced.unwrap_or(0))
        }
        _ => 0,
    };
    (result, u64::from(same == all))
}
