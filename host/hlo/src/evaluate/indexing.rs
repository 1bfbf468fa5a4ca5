//! Gather and scatter.

use std::iter::zip;

use super::apply::{apply, chosen};
use super::array::{Array, array};
use super::movement::indices as integers;
use super::strided::{Strides, copy};
use super::{Callee, bug, collected, push, zeroed};
use crate::instruction::{ComputationId, IndexedWindows};
use callbox_core::values::{ArrayShape, Literal, Result, Shape};

/// The windows that begin at the index vectors. A window that would reach past the operand is
/// moved to fit. One without elements leaves zeros.
pub(super) fn gather(
    x: &Array<'_>,
    indices: &Array<'_>,
    windows: &IndexedWindows,
    sizes: &[usize],
    shape: &ArrayShape,
) -> Result<Vec<u8>> {
    let width = x.width();
    let mut bytes = zeroed(shape.byte_size())?;
    let all = Windows::new(windows, x.dimensions(), sizes, indices, shape.dimensions())?;
    let steps = |steps: &[isize]| steps.iter().map(|step| step * width as isize).collect();
    let (from_steps, to_steps) = (steps(&all.operand_steps), steps(&all.windowed_steps));
    for window in all.positions(x.dimensions(), sizes) {
        let starts = zip(&window.starts, zip(x.dimensions(), sizes));
        let start: usize = zip(starts, &all.dense)
            .map(|((&start, (&whole, &size)), &step)| {
                let last = whole.saturating_sub(size);
                usize::try_from(start.max(0)).map_or(last, |start| start.min(last)) * step as usize
            })
            .sum();
        let from = Strides {
            start: start * width,
            steps: Vec::clone(&from_steps),
        };
        let to = Strides {
            start: window.at * width,
            steps: Vec::clone(&to_steps),
        };
        copy(&all.sizes, width, from.of(x.bytes), to.of(&mut bytes))?;
    }
    Ok(bytes)
}

/// The arrays with the updates' windows combined into them. A window that reaches past its array
/// is left out, as XLA's backends do.
pub(super) fn scatter(
    shape: &Shape,
    operands: &[Literal],
    windows: &IndexedWindows,
    computation: ComputationId,
    callee: &mut dyn Callee,
) -> Result<Literal> {
    let number = operands.len() / 2;
    let arrays = operands.iter().map(array).collect::<Result<Vec<_>>>()?;
    let ([first, ..], [indices, updates @ ..]) = arrays.split_at(number) else {
        return Err(bug("a scatter lacks operands"));
    };
    let update = updates
        .first()
        .ok_or_else(|| bug("a scatter lacks updates"))?;
    // Without this, windows that have no elements have places for them.
    if update.shape.element_count() == 0 {
        let leaves = operands[..number].iter().flat_map(Literal::shared_leaves);
        return Literal::from_shared_leaves(shape.clone(), leaves.cloned().collect()).map_err(bug);
    }
    let mut sizes = vec![1; first.dimensions().len()];
    let lacking = |i: &usize| windows.collapsed.contains(i) || windows.operand_batch.contains(i);
    let kept = (0..sizes.len()).filter(|i| !lacking(i)).collect::<Vec<_>>();
    for (&i, &from) in zip(&kept, &windows.window_dimensions) {
        sizes[i] = update.dimensions()[from];
    }
    let all = Windows::new(
        windows,
        first.dimensions(),
        &sizes,
        indices,
        update.dimensions(),
    )?;
    let targets = targets(&all, first.dimensions(), &sizes)?;
    let mut results = Vec::with_capacity(number);
    for x in &operands[..number] {
        results.push(array(x)?.bytes.to_vec());
    }
    combine(&mut results, updates, targets, computation, callee)?;
    Literal::from_leaves(shape.clone(), results).map_err(bug)
}

/// The elements that the windows in the array take, and their updates.
fn targets(
    windows: &Windows,
    dimensions: &[usize],
    sizes: &[usize],
) -> Result<Vec<(usize, usize)>> {
    let mut targets = Vec::new();
    let offsets = windows.offsets()?;
    for window in windows.positions(dimensions, sizes) {
        let mut bounds = zip(&window.starts, zip(dimensions, sizes));
        let fits = bounds
            .all(|(&start, (&whole, &size))| start >= 0 && start + size as i128 <= whole as i128);
        if fits {
            let start = zip(&window.starts, &windows.dense);
            let start: usize = start
                .map(|(&start, &step)| start as usize * step as usize)
                .sum();
            for &(to, from) in &offsets {
                push(&mut targets, (start + to, window.at + from))?;
            }
        }
    }
    Ok(targets)
}

/// Combines elements of `updates` into elements of `results`, in order: for each pair the number
/// of an element of the results and of one of the updates.
///
/// The computation is applied to many elements at once. An element that is combined into several
/// times is so in as many rounds.
pub(super) fn combine(
    results: &mut [Vec<u8>],
    updates: &[Array<'_>],
    targets: Vec<(usize, usize)>,
    computation: ComputationId,
    callee: &mut dyn Callee,
) -> Result<()> {
    let widest = targets.iter().map(|&(to, _)| to + 1).max().unwrap_or(0);
    let mut times = zeroed::<u32>(widest)?;
    let mut rounds: Vec<Vec<(usize, usize)>> = Vec::new();
    for (to, from) in targets {
        let round = times[to] as usize;
        times[to] += 1;
        match rounds.get_mut(round) {
            Some(pairs) => push(pairs, (to, from))?,
            None => push(&mut rounds, vec![(to, from)])?,
        }
    }
    for pairs in rounds {
        let old = zip(&*results, updates).map(|(bytes, update)| {
            let x = Array { bytes, ..*update };
            chosen(&x, pairs.iter().map(|&(to, _)| to))
        });
        let new = updates
            .iter()
            .map(|x| chosen(x, pairs.iter().map(|&(_, from)| from)));
        let arguments = old.chain(new).collect::<Result<Vec<_>>>()?;
        let combined = apply(computation, &arguments, pairs.len(), callee)?;
        for (bytes, line) in zip(&mut *results, &combined) {
            let line = array(line)?;
            let width = line.width();
            for (&(to, _), element) in zip(&pairs, line.bytes.chunks_exact(width.max(1))) {
                let to = bytes.get_mut(to * width..(to + 1) * width);
                to.ok_or_else(|| bug("an element is out of bounds"))?
                    .copy_from_slice(element);
            }
        }
    }
    Ok(())
}

/// Where windows lie. Steps are in elements.
struct Windows {
    /// The steps of the operand's dimensions.
    dense: Vec<isize>,
    /// The sizes of a window's dimensions that the windowed array has, and its steps there.
    sizes: Vec<usize>,
    operand_steps: Vec<isize>,
    windowed_steps: Vec<isize>,
    /// The dimensions of the indices without the index vectors', with their steps in the indices
    /// and in the windowed array.
    batch: Vec<Batch>,
    /// For each dimension of the operand, where its start comes from.
    sources: Vec<Source>,
    indices: Vec<i128>,
}

#[derive(Clone, Copy)]
struct Batch {
    size: usize,
    in_indices: usize,
    in_windowed: usize,
}

#[derive(Clone, Copy)]
enum Source {
    Zero,
    /// The number of the index vector at this distance from its first.
    Index(usize),
    /// The position along this dimension of `batch`.
    Position(usize),
}

/// One window.
struct Window {
    /// The first index in each dimension of the operand.
    starts: Vec<i128>,
    /// The first element in the windowed array.
    at: usize,
}

impl Windows {
    fn new(
        windows: &IndexedWindows,
        operand: &[usize],
        sizes: &[usize],
        indices: &Array<'_>,
        windowed: &[usize],
    ) -> Result<Self> {
        let dense = Strides::dense(operand, 1).steps;
        let in_windowed = Strides::dense(windowed, 1).steps;
        let in_indices = Strides::dense(indices.dimensions(), 1).steps;
        let mut sources = vec![Source::Zero; operand.len()];
        let vector_step = in_indices.get(windows.index_vector).copied().unwrap_or(1);
        for (i, &dimension) in windows.index_map.iter().enumerate() {
            sources[dimension] = Source::Index(i * vector_step as usize);
        }
        let dimensions = 0..indices.dimensions().len();
        let batch = dimensions
            .filter(|&i| i != windows.index_vector)
            .collect::<Vec<_>>();
        for (&dimension, from) in zip(&windows.operand_batch, &windows.indices_batch) {
            let position = batch.iter().position(|other| other == from);
            let position = position.ok_or_else(|| bug("there is no such batch dimension"))?;
            sources[dimension] = Source::Position(position);
        }
        let lacks = |i: usize| windows.collapsed.contains(&i) || windows.operand_batch.contains(&i);
        let kept = (0..operand.len())
            .filter(|&i| !lacks(i))
            .collect::<Vec<_>>();
        let outer = (0..windowed.len()).filter(|i| !windows.window_dimensions.contains(i));
        let batch = zip(&batch, outer).map(|(&i, j)| Batch {
            size: indices.dimensions()[i],
            in_indices: in_indices[i] as usize,
            in_windowed: in_windowed[j] as usize,
        });
        let window = windows.window_dimensions.iter();
        Ok(Self {
            sizes: kept.iter().map(|&i| sizes[i]).collect(),
            operand_steps: kept.iter().map(|&i| dense[i]).collect(),
            windowed_steps: window.map(|&i| in_windowed[i]).collect(),
            batch: batch.collect(),
            dense,
            sources,
            indices: integers(std::slice::from_ref(indices))?,
        })
    }

    /// All windows, in row-major order of the index vectors. There are none if they are empty.
    fn positions(&self, operand: &[usize], sizes: &[usize]) -> impl Iterator<Item = Window> {
        let is_empty = sizes.contains(&0) || zip(operand, sizes).any(|(&n, &k)| n == 0 && k > 0);
        let count = self.batch.iter().map(|batch| batch.size).product::<usize>();
        (0..if is_empty { 0 } else { count }).map(|mut number| {
            let mut along = vec![0; self.batch.len()];
            for (along, batch) in zip(&mut along, &self.batch).rev() {
                *along = number % batch.size;
                number /= batch.size;
            }
            let sum = |step: fn(&Batch) -> usize| -> usize {
                zip(&along, &self.batch)
                    .map(|(&i, batch)| i * step(batch))
                    .sum()
            };
            let first = sum(|batch| batch.in_indices);
            let start = |source: &Source| match *source {
                Source::Zero => 0,
                Source::Index(at) => self.indices.get(first + at).copied().unwrap_or(0),
                Source::Position(i) => along[i] as i128,
            };
            Window {
                starts: self.sources.iter().map(start).collect(),
                at: sum(|batch| batch.in_windowed),
            }
        })
    }

    /// The positions of a window's elements, from its first one on, in the operand and in the
    /// windowed array.
    fn offsets(&self) -> Result<Vec<(usize, usize)>> {
        let mut offsets = vec![(0, 0)];
        let steps = zip(&self.operand_steps, &self.windowed_steps);
        for (&size, (&operand, &windowed)) in zip(&self.sizes, steps) {
            let along = |(a, b): (usize, usize)| {
                (0..size).map(move |i| (a + i * operand as usize, b + i * windowed as usize))
            };
            offsets = collected(offsets.into_iter().flat_map(along))?;
        }
        Ok(offsets)
    }
}
