//! Runs a block: its threads take turns, each until it waits, ends, or has used its share of
//! instructions.

use std::collections::BTreeMap;

use super::code::{Barrier, Operation, Reduction};
use super::launch::Launch;
use super::spaces::Trouble;
use super::thread::{Position, State, Thread};
use super::{Fault, FaultKind, body::POISON, lanes, matrix};

/// The number of instructions that a thread runs per turn. Bounded turns let threads spin on each
/// other's stores.
const SHARE: u64 = 10_000;
/// Barriers per block.
const BARRIERS: u64 = 16;

pub(super) struct Block<'l> {
    launch: &'l Launch<'l>,
    threads: Vec<Thread>,
    shared: Vec<u8>,
    place: [u32; 3],
    /// The number of threads that have executed `bar.arrive`, by barrier.
    arrived: BTreeMap<u64, u64>,
    /// Instructions that the launch may still execute, and those executed so far.
    budget: u64,
    taken: u64,
}

impl<'l> Block<'l> {
    pub(super) fn new(launch: &'l Launch<'l>, budget: u64) -> Self {
        Self {
            launch,
            threads: (0..launch.threads())
                .map(|index| Thread::new(launch, index))
                .collect(),
            shared: vec![POISON; launch.shared_bytes],
            place: [0; 3],
            arrived: BTreeMap::new(),
            budget,
            taken: 0,
        }
    }

    /// Runs the block at this position of the grid to its end.
    pub(super) fn run(&mut self, place: [u32; 3]) -> Result<(), Fault> {
        self.place = place;
        self.shared.fill(POISON);
        self.arrived.clear();
        for thread in &mut self.threads {
            thread.begin(self.launch, place);
        }
        loop {
            let mut gets_on = false;
            for first in (0..self.threads.len()).step_by(32) {
                let lanes = first..(first + 32).min(self.threads.len());
                gets_on |= self.turn(lanes)?;
            }
            if self
                .threads
                .iter()
                .all(|thread| thread.state == State::Done)
            {
                return Ok(());
            }
            gets_on |= self.release()?;
            if !gets_on {
                return Err(self.stuck());
            }
        }
    }

    /// Gives each thread of a warp its turn, and executes the warp's collective operations. Returns
    /// whether anything ran.
    fn turn(&mut self, lanes: std::ops::Range<usize>) -> Result<bool, Fault> {
        let mut gets_on = false;
        loop {
            let mut has_had_enough = false;
            for thread in &mut self.threads[lanes.clone()] {
                if thread.state != State::Ready {
                    continue;
                }
                gets_on = true;
                let limits = (SHARE.min(self.budget), self.taken);
                let taken = thread.run(self.launch, self.place, &mut self.shared, limits)?;
                self.budget -= taken;
                self.taken += taken;
                if self.budget == 0 && thread.state == State::Ready {
                    let text = format!(
                        "more than {} instructions,\nthe launch takes too long",
                        self.taken
                    );
                    let trouble = Trouble {
                        kind: FaultKind::Timeout,
                        text,
                    };
                    return Err(thread.fault(self.launch, self.place, trouble));
                }
                has_had_enough |= thread.state == State::Ready;
            }
            let warp = &mut self.threads[lanes.clone()];
            let met = lanes::meet(self.launch, self.place, warp)?
                | matrix::meet(self.launch, self.place, warp, &mut self.shared)?;
            gets_on |= met;
            if has_had_enough || !met {
                return Ok(gets_on);
            }
        }
    }

    /// Returns the barrier at which a thread waits, and its number.
    fn barrier(&self, thread: &Thread) -> Option<(&'l Barrier, u64)> {
        let Position { function, at } = thread.position();
        match &self.launch.module.functions[function].code[at].operation {
            Operation::Barrier(barrier) if thread.state == State::Barrier => {
                Some((barrier, thread.slot(barrier.id)))
            }
            _ => None,
        }
    }

    /// Releases the threads of complete barriers. Returns whether there were any.
    fn release(&mut self) -> Result<bool, Fault> {
        let mut gets_on = false;
        for index in 0..self.threads.len() {
            let Some((barrier, id)) = self.barrier(&self.threads[index]) else {
                continue;
            };
            if id >= BARRIERS {
                let text = format!("barrier {id}, of {BARRIERS}");
                let trouble = Trouble {
                    kind: FaultKind::IllegalInstruction,
                    text,
                };
                return Err(self.threads[index].fault(self.launch, self.place, trouble));
            }
            if barrier.only_arrives {
                *self.arrived.entry(id).or_default() += 1;
                self.threads[index].go_on();
                gets_on = true;
            }
        }
        let mut waiting: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for (index, thread) in self.threads.iter().enumerate() {
            if let Some((_, id)) = self.barrier(thread) {
                waiting.entry(id).or_default().push(index);
            }
        }
        let alive = self
            .threads
            .iter()
            .filter(|thread| thread.state != State::Done)
            .count() as u64;
        for (id, members) in waiting {
            let counts = members.iter().filter_map(|&index| {
                let (barrier, _) = self.barrier(&self.threads[index])?;
                barrier.count.map(|count| self.threads[index].slot(count))
            });
            let wanted = counts.min().unwrap_or(alive).min(alive);
            let here = members.len() as u64 + self.arrived.get(&id).copied().unwrap_or(0);
            if here >= wanted {
                self.check_aligned(&members)?;
                self.pass(&members);
                self.arrived.remove(&id);
                gets_on = true;
            }
        }
        Ok(gets_on)
    }

    /// Checks that a warp's threads are at the same instruction, unless the instruction allows
    /// otherwise.
    fn check_aligned(&self, members: &[usize]) -> Result<(), Fault> {
        for pair in members.windows(2) {
            let [first, second] = [pair[0], pair[1]];
            let [here, there] = [first, second].map(|index| self.threads[index].position());
            let is_aligned = self
                .barrier(&self.threads[first])
                .is_some_and(|(barrier, _)| barrier.is_aligned);
            if first / 32 == second / 32 && here != there && is_aligned {
                let line = self.launch.module.functions[there.function].code[there.at].line;
                let text = format!(
                    "a barrier\nanother thread of the warp is at another one, at PTX line {line}"
                );
                let trouble = Trouble {
                    kind: FaultKind::Timeout,
                    text,
                };
                return Err(self.threads[first].fault(self.launch, self.place, trouble));
            }
        }
        Ok(())
    }

    fn pass(&mut self, members: &[usize]) {
        let predicates: Vec<bool> = members
            .iter()
            .filter_map(|&index| {
                let (barrier, _) = self.barrier(&self.threads[index])?;
                barrier
                    .reduction
                    .map(|(_, _, predicate)| self.threads[index].slot(predicate) & 1 == 1)
            })
            .collect();
        for &index in members {
            if let Some((
                Barrier {
                    reduction: Some((reduction, to, _)),
                    ..
                },
                _,
            )) = self.barrier(&self.threads[index])
            {
                let result = match reduction {
                    Reduction::Popc => predicates.iter().filter(|&&holds| holds).count() as u64,
                    Reduction::And => u64::from(predicates.iter().all(|&holds| holds)),
                    Reduction::Or => u64::from(predicates.iter().any(|&holds| holds)),
                };
                self.threads[index].set(*to, result);
            }
            self.threads[index].go_on();
        }
    }

    /// Makes the fault of a deadlock.
    fn stuck(&self) -> Fault {
        let waits = |thread: &&Thread| thread.state != State::Done;
        let mut places: BTreeMap<u32, usize> = BTreeMap::new();
        for thread in self.threads.iter().filter(waits) {
            let Position { function, at } = thread.position();
            *places
                .entry(self.launch.module.functions[function].code[at].line)
                .or_default() += 1;
        }
        let done = self.threads.len() - places.values().sum::<usize>();
        let mut text = "a wait without end\n".to_owned();
        for (line, count) in places.iter().take(4) {
            text.push_str(&format!("{count} threads wait at PTX line {line}, "));
        }
        text.push_str(&format!("and {done} are done"));
        let trouble = Trouble {
            kind: FaultKind::Timeout,
            text,
        };
        match self.threads.iter().find(waits) {
            Some(thread) => thread.fault(self.launch, self.place, trouble),
            None => Fault {
                kind: trouble.kind,
                detail: trouble.text,
            },
        }
    }
}
