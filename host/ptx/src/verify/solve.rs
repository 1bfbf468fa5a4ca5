//! The contents of all values: evaluation until nothing changes.

mod inductions;

use std::cell::Cell;
use std::collections::BTreeSet;

pub(crate) use self::inductions::Induction;

use super::doubts::Doubts;
use super::facts::Place;
use super::range::Range;
use super::ssa::{Definition, ValueId};
use super::values::{Contents, Subject};
use crate::ast::{Immediate, Operand};
use crate::table::Opcode;

/// A join's range may grow this often before it is widened, and be widened this often before it
/// becomes everything.
const GROWTH: u32 = 2;
const WIDENINGS: u32 = 6;
/// Passes that make ranges smaller again.
const NARROWINGS: usize = 2;
/// The most conditions that hold at one place.
const MOST_CONDITIONS: usize = 16;

pub(crate) struct Solution<'s> {
    pub(crate) subject: &'s Subject<'s>,
    contents: Vec<Option<Contents>>,
    /// For each join that its loop changes by a constant: that constant, and the most turns.
    inductions: Vec<Option<Induction>>,
    /// The contents of these joins before the first turn.
    starts: Vec<Option<Contents>>,
    /// The contents of all values as computed before the inductions were known.
    before: Vec<Option<Contents>>,
    /// The conditions that hold in each block, the nearest last.
    conditions: Vec<Vec<(ValueId, bool)>>,
    /// The branches whose conditions say nothing.
    doubts: Doubts,
    /// The work that is left for all places together.
    work: Cell<u32>,
}

/// The most values and conditions that are looked at again at all places of a pass: some
/// hundred milliseconds.
const WORK: u32 = 4_000_000;

/// The passes that doubt only the exits found to be far. The next doubts all: each exit may be far
/// only because the one before it is doubted, and a pass takes up to [`WORK`].
const BELIEVING_PASSES: usize = 4;

/// The steps of computing what one value can be.
const EVALUATION: usize = 16;

/// The contents that arrive at a join.
struct Incoming {
    join: ValueId,
    contents: Contents,
    /// The contents that arrive from outside of the loop, if the join is an induction.
    start: Option<Contents>,
}

impl<'s> Solution<'s> {
    /// Takes one from the work that is left for all places. Returns whether there was any.
    pub(crate) fn spend(&self) -> bool {
        let left = self.work.get().checked_sub(1);
        self.work.set(left.unwrap_or(0));
        self.subject.work.spend_of_budget(1);
        left.is_some()
    }

    /// Solves, and solves again without the conditions of exits that cannot be believed, until all
    /// that are used can be. `None` if there is too much work.
    pub(crate) fn new(subject: &'s Subject<'s>) -> Option<Self> {
        let mut doubts = Doubts::default();
        let mut passes = 0;
        loop {
            let mut solution = Self::without(subject, doubts)?;
            let mut more = solution.doubts.clone();
            let has_grown = more.grow(&solution, passes < BELIEVING_PASSES)?;
            if !has_grown {
                solution.doubts = more;
                return Some(solution);
            }
            doubts = more;
            passes += 1;
        }
    }

    /// Solves without these branches' conditions.
    fn without(subject: &'s Subject<'s>, doubts: Doubts) -> Option<Self> {
        let count = subject.ssa.values.len();
        let mut solution = Self {
            subject,
            contents: vec![None; count],
            inductions: vec![None; count],
            starts: vec![None; count],
            before: vec![None; count],
            conditions: conditions(subject, &doubts),
            doubts,
            work: Cell::new(WORK),
        };
        solution.solve()?;
        solution.bound_inductions();
        if solution.inductions.iter().any(Option::is_some) {
            solution.before = std::mem::replace(&mut solution.contents, vec![None; count]);
            solution.solve()?;
            for &block in &subject.flow.order {
                for one in solution.joined(block) {
                    solution.starts[one.join.at()] = one.start;
                }
            }
        }
        Some(solution)
    }

    /// The branches whose conditions say nothing.
    pub(crate) fn doubts(&self) -> &Doubts {
        &self.doubts
    }

    /// The contents of a join before the first turn of its loop, and the change of each turn.
    pub(crate) fn induction(&self, join: ValueId) -> Option<(Contents, Induction)> {
        Some((self.starts[join.at()]?, self.inductions[join.at()]?))
    }

    pub(crate) fn contents(&self, value: ValueId) -> Contents {
        let found = self.contents.get(value.at()).copied().flatten();
        found.unwrap_or_else(|| Contents::full(self.subject.bits(value)))
    }

    /// The facts that hold when a step runs under these conditions: its guard has let it run.
    pub(crate) fn place_of_step(
        &self,
        block: usize,
        step: usize,
        more: &[(ValueId, bool)],
    ) -> Place<'_, 's> {
        let mut conditions = self.conditions[block].clone();
        conditions.extend(more);
        if let Some(guard) = self.subject.flow.steps[step].instruction.guard
            && let Some(value) = self.subject.read(step, guard.predicate)
        {
            conditions.push((value, !guard.is_negated));
        }
        Place::with(self, &conditions)
    }

    /// `None` if there is too much work: a join may change the one before it, as often as there are
    /// joins.
    fn solve(&mut self) -> Option<()> {
        let thresholds = self.thresholds();
        let subject = self.subject;
        let mut changes = vec![0_u32; subject.ssa.values.len()];
        loop {
            let mut has_changed = false;
            for &block in &subject.flow.order {
                subject.work.spend(EVALUATION * subject.values_of(block))?;
                for one in self.joined(block) {
                    has_changed |= self.grow(one.join, one.contents, &mut changes, &thresholds);
                }
                self.evaluate_block(block);
            }
            if !has_changed {
                break;
            }
        }
        for _ in 0..NARROWINGS {
            for &block in &subject.flow.order {
                for Incoming { join, contents, .. } in self.joined(block) {
                    let before = self.contents[join.at()];
                    self.contents[join.at()] =
                        Some(before.map_or(contents, |before| before.meet(contents)));
                }
                self.evaluate_block(block);
            }
        }
        Some(())
    }

    fn evaluate_block(&mut self, block: usize) {
        let subject = self.subject;
        let steps = subject.flow.blocks[block].first..subject.flow.blocks[block].end;
        for value in steps.flat_map(|step| &subject.ssa.defines[step]) {
            let found = subject.evaluate(*value, &mut |part| self.contents_so_far(part));
            self.contents[value.at()] = Some(found);
        }
    }

    fn contents_so_far(&self, value: ValueId) -> Contents {
        match self.contents[value.at()] {
            Some(contents) => contents,
            None => match self.subject.ssa.values[value.at()].definition {
                Definition::Zero => Contents::number(Range::constant(self.subject.bits(value), 0)),
                _ => Contents::full(self.subject.bits(value)),
            },
        }
    }

    /// Extends the contents of a join. Returns whether they changed.
    fn grow(
        &mut self,
        join: ValueId,
        found: Contents,
        changes: &mut [u32],
        thresholds: &[i128],
    ) -> bool {
        let Some(before) = self.contents[join.at()] else {
            self.contents[join.at()] = Some(found);
            return true;
        };
        let mut now = before.union(found);
        if now == before {
            return false;
        }
        let count = &mut changes[join.at()];
        *count += 1;
        if *count > GROWTH + WIDENINGS {
            now = if now.origin == before.origin && *count < 2 * (GROWTH + WIDENINGS) {
                Contents {
                    range: Range::full(now.range.bits),
                    ..now
                }
            } else {
                Contents::full(now.range.bits)
            };
        } else if *count > GROWTH && now.origin == before.origin {
            now.range = now.range.widened(before.range, thresholds);
        }
        self.contents[join.at()] = Some(now);
        now != before
    }

    /// The union of what comes into each join of a block, where anything has come yet.
    fn joined(&self, block: usize) -> Vec<Incoming> {
        let flow = self.subject.flow;
        let ways = &flow.blocks[block].before;
        let mut places: Vec<Option<Place<'_, 's>>> = ways.iter().map(|_| None).collect();
        let mut found = Vec::new();
        for &join in &self.subject.ssa.joins[block] {
            let Definition::Join { from, .. } = &self.subject.ssa.values[join.at()].definition
            else {
                continue;
            };
            let induction = self.inductions[join.at()];
            let mut all: Option<Contents> = None;
            for (index, part) in from.iter().enumerate() {
                let contents = match ways.get(index) {
                    Some(&way) if induction.is_some() && flow.dominates(block, way) => continue,
                    Some(&way) => self.on_edge(*part, way, block, places.get_mut(index)),
                    None => Some(self.contents_so_far(*part)),
                };
                if let Some(contents) = contents {
                    all = Some(all.map_or(contents, |all| all.union(contents)));
                }
            }
            let Some(all) = all else { continue };
            let contents = match induction.map(|induction| induction.after(all, 0, induction.turns))
            {
                None => all,
                Some(induced) => match self.before[join.at()] {
                    Some(before) => before.meet(induced),
                    None => induced,
                },
            };
            found.push(Incoming {
                join,
                contents,
                start: induction.is_some().then_some(all),
            });
        }
        found
    }

    /// The contents of a value when control takes an edge. `None` if it has not been evaluated.
    fn on_edge<'p>(
        &'p self,
        value: ValueId,
        from: usize,
        to: usize,
        place: Option<&mut Option<Place<'p, 's>>>,
    ) -> Option<Contents> {
        let is_zero = matches!(
            self.subject.ssa.values[value.at()].definition,
            Definition::Zero
        );
        let everywhere = if is_zero {
            self.contents_so_far(value)
        } else {
            self.contents[value.at()]?
        };
        if everywhere.range.value().is_some() || self.subject.bits(value) < 16 {
            return Some(everywhere);
        }
        let place = place?.get_or_insert_with(|| {
            let mut conditions = self.conditions[from].clone();
            conditions.extend(edge_condition(self.subject, &self.doubts, from, to));
            Place::with(self, &conditions)
        });
        Some(everywhere.meet(place.contents(value)))
    }

    /// Numbers that comparisons use, and their neighbours: where ranges of loops end.
    fn thresholds(&self) -> Vec<i128> {
        let subject = self.subject;
        let mut found = BTreeSet::new();
        for bits in [16, 31, 32, 63, 64] {
            found.insert((1_i128 << bits) - 1);
            found.insert(-(1_i128 << bits));
        }
        found.insert(0);
        for step in &subject.flow.steps {
            if step.instruction.opcode != Opcode::Setp || found.len() > 512 {
                continue;
            }
            for operand in step.instruction.operands.iter().skip(1) {
                if let Operand::Immediate(Immediate::Integer(value)) = operand {
                    let value = i128::from(*value as i64);
                    found.extend([value - 1, value, value + 1]);
                }
            }
        }
        for param in &subject.launch.params {
            if let super::Param::Value(bytes) = param
                && bytes.len() <= 8
                && found.len() < 1024
            {
                let value = bytes
                    .iter()
                    .rev()
                    .fold(0, |word, &byte| (word << 8) | i128::from(byte));
                found.extend([value - 1, value, value + 1]);
            }
        }
        found.into_iter().collect()
    }
}

/// The conditions that hold in each block, the nearest last.
fn conditions(subject: &Subject<'_>, doubts: &Doubts) -> Vec<Vec<(ValueId, bool)>> {
    let flow = subject.flow;
    let mut found = vec![Vec::new(); flow.blocks.len()];
    for &block in &flow.order {
        let above = flow.dominator[block];
        if above == block {
            continue;
        }
        let mut all = found[above].clone();
        if flow.blocks[block].before == [above] {
            all.extend(edge_condition(subject, doubts, above, block));
        }
        if all.len() > MOST_CONDITIONS {
            all.remove(0);
        }
        found[block] = all;
    }
    found
}

/// The predicate that has a known value where control goes from one block to another.
fn edge_condition(
    subject: &Subject<'_>,
    doubts: &Doubts,
    from: usize,
    to: usize,
) -> Option<(ValueId, bool)> {
    if !doubts.believes(from) {
        return None;
    }
    let block = &subject.flow.blocks[from];
    let edge = block.next.iter().find(|edge| edge.to == to)?;
    let condition = edge.condition?;
    let value = subject.read(block.end.checked_sub(1)?, condition.predicate)?;
    Some((value, condition.is))
}
