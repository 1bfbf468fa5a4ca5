//! A thread: its frames, and the loop that runs it until it ends or must wait.

use super::access::{access, many};
use super::code::{Call, Copied, Operation, Patch, Slot, Special};
use super::launch::Launch;
use super::spaces::{Reach, Trouble, grow};
use super::types::low_bits;
use super::{Fault, FaultKind};

/// The maximum call depth.
const DEEPEST: usize = 4096;
/// The maximum local memory of a thread in bytes, as on devices.
const MOST_LOCAL: usize = 512 << 10;

/// The state of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It can run.
    Ready,
    /// It waits at a barrier of the block.
    Barrier,
    /// It waits at a collective instruction of its warp.
    Warp,
    Done,
}

struct Frame {
    function: usize,
    /// The index of its first slot.
    base: usize,
    param_base: usize,
    local_base: usize,
    /// The instruction to run next. In a calling frame, the call.
    at: usize,
}

pub(super) struct Thread {
    pub(super) state: State,
    /// The position in the block, by dimension.
    pub(super) place: [u32; 3],
    lane: u32,
    warp: u32,
    frames: Vec<Frame>,
    slots: Vec<u64>,
    params: Vec<u8>,
    local: Vec<u8>,
}

/// The position of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) function: usize,
    pub(super) at: usize,
}

impl Thread {
    pub(super) fn new(launch: &Launch<'_>, index: u32) -> Self {
        let [x, y, _] = launch.shape.block;
        Self {
            state: State::Done,
            place: [index % x, index / x % y, index / x / y],
            lane: index % 32,
            warp: index / 32,
            frames: Vec::new(),
            slots: Vec::new(),
            params: Vec::new(),
            local: Vec::new(),
        }
    }

    /// Resets the thread to the start of the kernel.
    pub(super) fn begin(&mut self, launch: &Launch<'_>, block: [u32; 3]) {
        self.frames.clear();
        self.slots.clear();
        self.params.clear();
        self.local.clear();
        self.state = State::Ready;
        self.push(launch, launch.entry.function, block);
    }

    fn push(&mut self, launch: &Launch<'_>, index: usize, block: [u32; 3]) {
        let function = &launch.module.functions[index];
        let base = self.slots.len();
        self.slots.extend_from_slice(&launch.templates[index]);
        let param_base = self.params.len().next_multiple_of(16);
        grow(&mut self.params, param_base + function.param_bytes);
        let local_base = self.local.len().next_multiple_of(256);
        if function.local_bytes > 0 {
            grow(&mut self.local, local_base + function.local_bytes);
        }
        for (slot, patch) in &launch.rest[index] {
            let value = match patch {
                Patch::Local(offset) => local_base as u64 + offset,
                Patch::Special(special) => self.special(*special, block),
                Patch::Shared(_) | Patch::Global(_) => continue,
            };
            self.slots[base + *slot as usize] = value;
        }
        self.frames.push(Frame {
            function: index,
            base,
            param_base,
            local_base,
            at: 0,
        });
    }

    fn special(&self, special: Special, block: [u32; 3]) -> u64 {
        let own = 1_u64 << self.lane;
        match special {
            Special::Thread(dimension) => u64::from(self.place[dimension]),
            Special::Block(dimension) => u64::from(block[dimension]),
            Special::Lane => u64::from(self.lane),
            Special::Warp => u64::from(self.warp),
            Special::LanesEqual => own,
            Special::LanesBelow => own - 1,
            Special::LanesUpTo => (own - 1) | own,
            Special::LanesAbove => low_bits(!((own - 1) | own), 32),
            Special::LanesFrom => low_bits(!(own - 1), 32),
            _ => 0,
        }
    }

    /// Returns the current or last position.
    pub(super) fn position(&self) -> Position {
        self.frames
            .last()
            .map_or(Position { function: 0, at: 0 }, |frame| Position {
                function: frame.function,
                at: frame.at,
            })
    }

    /// Returns the value of a slot of the current frame.
    pub(super) fn slot(&self, slot: Slot) -> u64 {
        self.frames
            .last()
            .map_or(0, |frame| self.slots[frame.base + slot as usize])
    }

    pub(super) fn set(&mut self, slot: Slot, value: u64) {
        if let Some(frame) = self.frames.last() {
            self.slots[frame.base + slot as usize] = value;
        }
    }

    /// Continues after the instruction at which the thread waited.
    pub(super) fn go_on(&mut self) {
        self.state = State::Ready;
        if let Some(frame) = self.frames.last_mut() {
            frame.at += 1;
        }
    }

    fn copy(&mut self, copied: &[Copied], caller: (usize, usize), callee: usize, to_callee: bool) {
        let (caller, block_bytes) = caller;
        for Copied {
            caller: from,
            callee: to,
            size,
        } in copied
        {
            let outer = caller + *from as usize - block_bytes;
            let inner = callee + *to as usize;
            if to_callee {
                self.params.copy_within(outer..outer + size, inner);
            } else {
                self.params.copy_within(inner..inner + size, outer);
            }
        }
    }

    /// Makes a fault of this thread at this instruction.
    pub(super) fn fault(&self, launch: &Launch<'_>, block: [u32; 3], trouble: Trouble) -> Fault {
        let Position { function, at } = self.position();
        let function = &launch.module.functions[function];
        let line = function
            .code
            .get(at)
            .map_or(0, |instruction| instruction.line);
        let ([x, y, z], [bx, by, bz]) = (self.place, block);
        let Trouble { kind, text } = trouble;
        let name = &function.name;
        let (what, why) = text.split_once('\n').unwrap_or((&text, ""));
        let colon = if why.is_empty() { "" } else { ": " };
        let detail = format!(
            "{what} at PTX line {line} in {name}, thread ({x},{y},{z}), block ({bx},{by},{bz}){colon}{why}"
        );
        Fault { kind, detail }
    }

    /// Runs until the thread waits or ends, or for this many instructions. Returns the number of
    /// instructions.
    pub(super) fn run(
        &mut self,
        launch: &Launch<'_>,
        block: [u32; 3],
        shared: &mut [u8],
        (most, before): (u64, u64),
    ) -> Result<u64, Fault> {
        let mut taken = 0;
        while self.state == State::Ready && taken < most {
            match self.run_frame(launch, shared, most, before, &mut taken) {
                Ok(None) => {}
                Ok(Some(call)) => {
                    if let Err(trouble) = self.call(launch, block, call) {
                        return Err(self.fault(launch, block, trouble));
                    }
                }
                Err(trouble) => return Err(self.fault(launch, block, trouble)),
            }
        }
        Ok(taken)
    }

    fn call(&mut self, launch: &Launch<'_>, block: [u32; 3], call: &Call) -> Result<(), Trouble> {
        if self.frames.len() >= DEEPEST || self.local.len() > MOST_LOCAL {
            let text = format!(
                "a call, {} calls deep,\nthe thread's stack is full",
                self.frames.len()
            );
            return Err(Trouble {
                kind: FaultKind::IllegalAddress,
                text,
            });
        }
        let caller = self.callers_params(launch);
        self.push(launch, call.function, block);
        let callee = self.frames.last().map_or(0, |frame| frame.param_base);
        self.copy(&call.arguments, caller, callee, true);
        Ok(())
    }

    fn callers_params(&self, launch: &Launch<'_>) -> (usize, usize) {
        self.frames.last().map_or((0, 0), |frame| {
            (
                frame.param_base,
                launch.module.functions[frame.function].block_bytes,
            )
        })
    }

    fn leave(&mut self, launch: &Launch<'_>) {
        let Some(left) = self.frames.pop() else {
            return;
        };
        let Some(frame) = self.frames.last_mut() else {
            self.frames.push(left);
            self.state = State::Done;
            return;
        };
        let call = &launch.module.functions[frame.function].code[frame.at].operation;
        frame.at += 1;
        if let Operation::Call(call) = call {
            let caller = self.callers_params(launch);
            self.copy(&call.results, caller, left.param_base, false);
        }
        self.slots.truncate(left.base);
        self.params.truncate(left.param_base);
        self.local.truncate(left.local_base);
    }

    /// Runs in the current frame. A call or a return ends it.
    fn run_frame<'l>(
        &mut self,
        launch: &'l Launch<'l>,
        shared: &mut [u8],
        most: u64,
        before: u64,
        taken: &mut u64,
    ) -> Result<Option<&'l Call>, Trouble> {
        let Some(frame) = self.frames.last_mut() else {
            self.state = State::Done;
            return Ok(None);
        };
        let function = &launch.module.functions[frame.function];
        let slots = &mut self.slots[frame.base..];
        let mut reach = Reach {
            launch,
            shared,
            local: &mut self.local,
            params: &mut self.params,
            param_base: frame.param_base,
            block_bytes: function.block_bytes,
        };
        let mut at = frame.at;
        while *taken < most {
            let instruction = &function.code[at];
            *taken += 1;
            if let Some(guard) = instruction.guard
                && (slots[guard.slot as usize] & 1 == 1) != guard.wanted
            {
                at += 1;
                continue;
            }
            match &instruction.operation {
                Operation::Nothing => {}
                Operation::Move { to, from } => slots[*to as usize] = slots[*from as usize],
                Operation::Unary { to, from, function } => {
                    slots[*to as usize] = function(slots[*from as usize])
                }
                Operation::Binary {
                    to,
                    from: [a, b],
                    function,
                } => {
                    slots[*to as usize] = function(slots[*a as usize], slots[*b as usize]);
                }
                Operation::Ternary {
                    to,
                    from: [a, b, c],
                    function,
                } => {
                    slots[*to as usize] =
                        function(slots[*a as usize], slots[*b as usize], slots[*c as usize]);
                }
                Operation::Many { to, from, function } => many(slots, to, from, function),
                Operation::Branch { target } => {
                    at = *target as usize;
                    continue;
                }
                Operation::Return => {
                    frame.at = at;
                    self.leave(launch);
                    return Ok(None);
                }
                Operation::Exit => {
                    frame.at = at;
                    self.state = State::Done;
                    return Ok(None);
                }
                Operation::Barrier(_) => {
                    frame.at = at;
                    self.state = State::Barrier;
                    return Ok(None);
                }
                Operation::Warp(_) | Operation::Matrix(_) => {
                    frame.at = at;
                    self.state = State::Warp;
                    return Ok(None);
                }
                Operation::Call(call) => {
                    frame.at = at;
                    return Ok(Some(call));
                }
                Operation::Clock { to, bits } => {
                    slots[*to as usize] = low_bits(before + *taken, *bits)
                }
                Operation::BranchTable { index, targets } => {
                    let index = slots[*index as usize];
                    match targets.get(index as usize) {
                        Some(&target) => at = target as usize,
                        None => {
                            frame.at = at;
                            let text = format!("a branch to label {index} of {}", targets.len());
                            return Err(Trouble {
                                kind: FaultKind::IllegalInstruction,
                                text,
                            });
                        }
                    }
                    continue;
                }
                operation => {
                    if let Err(trouble) = access(operation, slots, &mut reach) {
                        frame.at = at;
                        return Err(trouble);
                    }
                }
            }
            at += 1;
        }
        frame.at = at;
        Ok(None)
    }
}
