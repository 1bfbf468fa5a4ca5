//! The control flow of an entry: blocks, dominators, and loops.

use std::collections::BTreeMap;

use super::work::Work;
use crate::ast::{Instruction, LabelId, Operand, RegisterId, Statement};
use crate::table::{Control, Form};

/// An instruction and its place in the body.
pub(crate) struct Step<'a> {
    pub(crate) instruction: &'a Instruction,
    pub(crate) form: Form,
}

/// A condition on an edge: this predicate has this value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Condition {
    pub(crate) predicate: RegisterId,
    pub(crate) is: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Edge {
    pub(crate) to: usize,
    pub(crate) condition: Option<Condition>,
}

/// Instructions that run one after the other.
#[derive(Debug, Default)]
pub(crate) struct Block {
    pub(crate) first: usize,
    /// One past the last instruction.
    pub(crate) end: usize,
    pub(crate) next: Vec<Edge>,
    /// Reachable blocks that lead here.
    pub(crate) before: Vec<usize>,
    /// Whether a thread can end here.
    pub(crate) leaves: bool,
}

pub(crate) struct Flow<'a> {
    pub(crate) steps: Vec<Step<'a>>,
    pub(crate) blocks: Vec<Block>,
    /// Reachable blocks in reverse postorder.
    pub(crate) order: Vec<usize>,
    /// The place of each block in `order`. `None` if it is unreachable.
    pub(crate) place: Vec<Option<usize>>,
    /// The immediate dominator of each block; the first block's is itself.
    pub(crate) dominator: Vec<usize>,
    /// For each block its number in the tree of dominators and the size of its subtree, whose
    /// blocks have the numbers that follow.
    subtrees: Vec<(usize, usize)>,
    /// The first block that all ways to the end pass through.
    pub(crate) joins: Vec<Option<usize>>,
    pub(crate) loops: Vec<Loop>,
}

/// A loop: all cycles through one block that dominates them.
#[derive(Debug)]
pub(crate) struct Loop {
    pub(crate) header: usize,
    /// All blocks of the loop, sorted.
    pub(crate) body: Vec<usize>,
    /// Whether the header dominates the latches. Otherwise `body` is the header alone, and nothing
    /// is known about the loop.
    pub(crate) is_natural: bool,
}

impl<'a> Flow<'a> {
    /// Splits a body into blocks.
    pub(crate) fn new(body: &'a [Statement], forms: Vec<Form>) -> Self {
        let mut steps = Vec::with_capacity(forms.len());
        let mut forms = forms.into_iter();
        for statement in body {
            if let Statement::Instruction(instruction) = statement
                && let Some(form) = forms.next()
            {
                steps.push(Step { instruction, form });
            }
        }
        let (mut blocks, labels) = split(body, &steps);
        connect(&mut blocks, &steps, &labels);
        Self {
            steps,
            blocks,
            order: Vec::new(),
            place: Vec::new(),
            dominator: Vec::new(),
            subtrees: Vec::new(),
            joins: Vec::new(),
            loops: Vec::new(),
        }
    }

    /// Finds what leads where. `None` if the loops have more than `most` blocks together (nested
    /// loops repeat the blocks of the inner ones), or if there is too much work.
    pub(crate) fn linked(mut self, most: usize, work: &Work<'_>) -> Option<Self> {
        let blocks = &self.blocks;
        self.order = reverse_postorder(blocks.len(), 0, |block, index| {
            let edge = blocks.get(block).and_then(|block| block.next.get(index));
            edge.map(|edge| edge.to)
        });
        self.place = vec![None; self.blocks.len()];
        for (index, &block) in self.order.iter().enumerate() {
            self.place[block] = Some(index);
        }
        for &from in &self.order {
            let targets: Vec<usize> = self.blocks[from].next.iter().map(|edge| edge.to).collect();
            for to in targets {
                self.blocks[to].before.push(from);
            }
        }
        let before: Vec<Vec<usize>> = self
            .blocks
            .iter()
            .map(|block| block.before.clone())
            .collect();
        self.dominator = dominators(&self.order, &self.place, &before, work)?;
        self.subtrees = subtrees(&self.order, &self.dominator);
        self.joins = post_dominators(&self.blocks, &self.place, work)?;
        self.loops = self.find_loops(most)?;
        Some(self)
    }

    /// Whether all ways to block `b` pass through block `a`.
    pub(crate) fn dominates(&self, a: usize, b: usize) -> bool {
        let ((first, size), (number, _)) = (self.subtrees[a], self.subtrees[b]);
        let is_reachable = self.place[a].is_some() && self.place[b].is_some();
        is_reachable && (first..first + size).contains(&number)
    }

    fn find_loops(&self, most: usize) -> Option<Vec<Loop>> {
        let mut latches: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for &from in &self.order {
            for edge in &self.blocks[from].next {
                if self.place[edge.to] <= self.place[from] {
                    latches.entry(edge.to).or_default().push(from);
                }
            }
        }
        let mut loops = Vec::with_capacity(latches.len());
        let mut left = most;
        for (header, latches) in latches {
            let is_natural = latches.iter().all(|&latch| self.dominates(header, latch));
            let body = if is_natural {
                self.loop_body(header, &latches)
            } else {
                vec![header]
            };
            left = left.checked_sub(body.len())?;
            loops.push(Loop {
                header,
                body,
                is_natural,
            });
        }
        Some(loops)
    }

    fn loop_body(&self, header: usize, latches: &[usize]) -> Vec<usize> {
        let mut is_in = vec![false; self.blocks.len()];
        is_in[header] = true;
        let mut open = latches.to_vec();
        let mut body = vec![header];
        while let Some(block) = open.pop() {
            if !is_in[block] {
                is_in[block] = true;
                body.push(block);
                open.extend(&self.blocks[block].before);
            }
        }
        body.sort_unstable();
        body
    }

    /// The blocks that control can reach from these, without entering `end`.
    pub(crate) fn reachable(&self, from: &[usize], end: Option<usize>) -> Vec<bool> {
        let mut found = vec![false; self.blocks.len()];
        let mut open = from.to_vec();
        while let Some(block) = open.pop() {
            if Some(block) != end && !found[block] {
                found[block] = true;
                open.extend(self.blocks[block].next.iter().map(|edge| edge.to));
            }
        }
        found
    }
}

fn split(body: &[Statement], steps: &[Step<'_>]) -> (Vec<Block>, BTreeMap<LabelId, usize>) {
    let mut blocks = vec![Block::default()];
    let mut labels = BTreeMap::new();
    let mut step = 0;
    let mut ends = false;
    for one in body {
        let current = blocks.len() - 1;
        let is_empty = blocks[current].first == step && blocks[current].end == step;
        let begins = match one {
            Statement::Label(_) => !is_empty,
            Statement::Instruction(_) => ends,
        };
        if begins {
            blocks.push(Block {
                first: step,
                end: step,
                ..Block::default()
            });
        }
        let current = blocks.len() - 1;
        match one {
            Statement::Label(label) => {
                labels.insert(*label, current);
                ends = false;
            }
            Statement::Instruction(_) => {
                ends = steps.get(step).is_some_and(|step| {
                    !matches!(
                        step.form.control,
                        Control::Next | Control::Trap | Control::Call
                    )
                });
                step += 1;
                blocks[current].end = step;
            }
        }
    }
    (blocks, labels)
}

fn connect(blocks: &mut [Block], steps: &[Step<'_>], labels: &BTreeMap<LabelId, usize>) {
    let count = blocks.len();
    for (index, block) in blocks.iter_mut().enumerate() {
        let last = block.end.checked_sub(1).filter(|&last| last >= block.first);
        let last = last.and_then(|last| steps.get(last));
        let control = last.map_or(Control::Next, |last| last.form.control);
        let guard = last.and_then(|last| last.instruction.guard);
        let condition = |holds: bool| {
            guard.map(|guard| Condition {
                predicate: guard.predicate,
                is: guard.is_negated != holds,
            })
        };
        let goes_on = match control {
            Control::Branch | Control::BranchTable | Control::Return | Control::Exit => {
                guard.is_some()
            }
            Control::Next | Control::Trap | Control::Call => true,
        };
        let mut next = Vec::new();
        if control == Control::Branch
            && let Some(Operand::Label(label)) =
                last.and_then(|last| last.instruction.operands.first())
            && let Some(&to) = labels.get(label)
        {
            let condition = condition(true);
            next.push(Edge { to, condition });
        }
        if matches!(control, Control::Return | Control::Exit) {
            block.leaves = true;
        }
        if goes_on && index + 1 < count {
            let condition = if control == Control::Next {
                None
            } else {
                condition(false)
            };
            let condition = condition.filter(|_| !matches!(control, Control::Trap | Control::Call));
            match next.iter_mut().find(|edge| edge.to == index + 1) {
                Some(edge) => edge.condition = None,
                None => next.push(Edge {
                    to: index + 1,
                    condition,
                }),
            }
        } else if goes_on {
            block.leaves = true;
        }
        block.next = next;
    }
}

fn reverse_postorder(
    count: usize,
    start: usize,
    next: impl Fn(usize, usize) -> Option<usize>,
) -> Vec<usize> {
    let mut seen = vec![false; count];
    let mut order = Vec::new();
    let mut open = vec![(start, 0)];
    seen[start] = true;
    while let Some((block, index)) = open.pop() {
        match next(block, index) {
            Some(to) => {
                open.push((block, index + 1));
                if !seen[to] {
                    seen[to] = true;
                    open.push((to, 0));
                }
            }
            None => order.push(block),
        }
    }
    order.reverse();
    order
}

/// Immediate dominators, by the algorithm of Cooper, Harvey and Kennedy. It takes cubic time for
/// some flows. `None` if there is too much work.
fn dominators(
    order: &[usize],
    place: &[Option<usize>],
    before: &[Vec<usize>],
    work: &Work<'_>,
) -> Option<Vec<usize>> {
    const NONE: usize = usize::MAX;
    let mut found = vec![NONE; place.len()];
    let Some(&start) = order.first() else {
        return Some(found);
    };
    found[start] = start;
    let place_of = |block: usize| place[block].unwrap_or(NONE);
    let mut changes = true;
    while changes {
        changes = false;
        for &block in order.iter().skip(1) {
            let mut new = NONE;
            let mut steps = before[block].len();
            for &from in &before[block] {
                if found[from] == NONE {
                    continue;
                }
                if new == NONE {
                    new = from;
                    continue;
                }
                let (mut a, mut b) = (from, new);
                while a != b {
                    while place_of(a) > place_of(b) {
                        a = found[a];
                        steps += 1;
                    }
                    while place_of(b) > place_of(a) {
                        b = found[b];
                        steps += 1;
                    }
                }
                new = a;
            }
            work.spend(steps)?;
            if new != NONE && found[block] != new {
                found[block] = new;
                changes = true;
            }
        }
    }
    Some(found)
}

/// [`Flow::subtrees`].
fn subtrees(order: &[usize], dominator: &[usize]) -> Vec<(usize, usize)> {
    let mut sizes = vec![1; dominator.len()];
    for &block in order.iter().skip(1).rev() {
        sizes[dominator[block]] += sizes[block];
    }
    // The number of the next child of each block, which comes after the block in `order`.
    let mut next = vec![1; dominator.len()];
    let mut numbers = vec![0; dominator.len()];
    for &block in order.iter().skip(1) {
        let parent = dominator[block];
        numbers[block] = next[parent];
        next[parent] += sizes[block];
        next[block] = numbers[block] + 1;
    }
    numbers.into_iter().zip(sizes).collect()
}

/// The immediate post-dominator of each block, if it is a block and not the end. `None` if there is
/// too much work.
fn post_dominators(
    blocks: &[Block],
    place: &[Option<usize>],
    work: &Work<'_>,
) -> Option<Vec<Option<usize>>> {
    let end = blocks.len();
    let mut before = vec![Vec::new(); end + 1];
    let mut next = vec![Vec::new(); end + 1];
    for (index, block) in blocks
        .iter()
        .enumerate()
        .filter(|(index, _)| place[*index].is_some())
    {
        // Backwards: what comes next comes before.
        next[index].clone_from(&block.before);
        before[index] = block.next.iter().map(|edge| edge.to).collect();
        if block.leaves {
            before[index].push(end);
            next[end].push(index);
        }
    }
    let order = reverse_postorder(end + 1, end, |block, index| next[block].get(index).copied());
    let mut place = vec![None; end + 1];
    for (index, &block) in order.iter().enumerate() {
        place[block] = Some(index);
    }
    let found = dominators(&order, &place, &before, work)?;
    let joins = (0..end).map(|block| found.get(block).copied().filter(|&join| join < end));
    Some(joins.collect())
}
