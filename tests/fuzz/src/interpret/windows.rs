//! Gathers, scatters, and operations that slide a window, from XLA's operation semantics.

use std::iter::zip;

use callbox::program::{
    BinaryOperation, ComputationId, Convolution, IndexedWindows, Program, WindowDimension,
};
use callbox::{ArrayShape, Shape};

use super::array::{Array, Tolerance, indices, number};
use super::elements::{binary, rounded};
use super::reductions::{near, size, zero};
use super::{Value, run};

/// An index of the windowed array, split: the index of its window, and the index in the window, by
/// dimension of the operand.
struct Split {
    batch: Vec<usize>,
    offset: Vec<usize>,
}

/// Splits an index of the windowed array of an operand with so many dimensions.
fn split(windows: &IndexedWindows, index: &[usize], rank: usize) -> Split {
    let (mut batch, mut in_window) = (Vec::new(), Vec::new());
    for (dimension, &i) in index.iter().enumerate() {
        if windows.window_dimensions.contains(&dimension) {
            in_window.push(i);
        } else {
            batch.push(i);
        }
    }
    let mut in_window = in_window.into_iter();
    let offset = (0..rank).map(|dimension| {
        let lacks =
            windows.collapsed.contains(&dimension) || windows.operand_batch.contains(&dimension);
        if lacks { 0 } else { in_window.next().unwrap() }
    });
    let offset = offset.collect();
    Split { batch, offset }
}

/// The first index of a window, by dimension of the operand, without clamping.
fn start(windows: &IndexedWindows, numbers: &Array, batch: &[usize], rank: usize) -> Vec<i128> {
    let vector = windows.index_vector;
    let mut start = vec![0; rank];
    for (i, &dimension) in windows.index_map.iter().enumerate() {
        let mut at = batch.to_vec();
        if vector < numbers.shape.rank() {
            at.insert(vector, i);
        }
        start[dimension] = numbers.integer(numbers.number(&at));
    }
    for (&dimension, &from) in zip(&windows.operand_batch, &windows.indices_batch) {
        start[dimension] = batch[if from > vector { from - 1 } else { from }] as i128;
    }
    start
}

pub(super) fn gather(
    shape: &ArrayShape,
    (x, numbers): (&Array, &Array),
    windows: &IndexedWindows,
    sizes: &[usize],
) -> Array {
    let rank = x.shape.rank();
    if sizes.contains(&0) {
        return Array::new(shape.clone(), vec![0; shape.byte_size()]);
    }
    let element = |index: &Vec<usize>| {
        let Split { batch, offset } = split(windows, index, rank);
        let start = start(windows, numbers, &batch, rank);
        let room = zip(x.shape.dimensions(), sizes).map(|(&whole, &size)| (whole - size) as i128);
        let from = zip(zip(start, room), offset)
            .map(|((start, most), offset)| start.clamp(0, most) as usize + offset);
        x.raw(x.number(&from.collect::<Vec<_>>())).to_vec()
    };
    let bytes = indices(shape.dimensions())
        .iter()
        .flat_map(element)
        .collect();
    Array::new(shape.clone(), bytes)
}

/// Combines the updates window by window, as XLA's evaluator does. A window that is partly out of
/// bounds is left out.
pub(super) fn scatter(
    program: &Program,
    operands: &[Value],
    windows: &IndexedWindows,
    computation: ComputationId,
) -> Vec<Value> {
    let count = operands.len() / 2;
    let mut results: Vec<Array> = operands[..count]
        .iter()
        .map(|x| x.array().clone())
        .collect();
    let numbers = operands[count].array();
    let updates: Vec<&Array> = operands[count + 1..].iter().map(Value::array).collect();
    let dimensions = results[0].shape.dimensions().to_vec();
    let all = indices(updates[0].shape.dimensions());
    let last = all.last().cloned();
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by_key(|&i| split(windows, &all[i], dimensions.len()).batch);
    for i in order {
        let Split { batch, offset } = split(windows, &all[i], dimensions.len());
        let start = start(windows, numbers, &batch, dimensions.len());
        // The last index of all is the last one of each window, too.
        let ends = split(windows, last.as_ref().unwrap(), dimensions.len()).offset;
        let fits = zip(&start, zip(&dimensions, ends))
            .all(|(&start, (&whole, end))| start >= 0 && start + (end as i128) < whole as i128);
        if !fits {
            continue;
        }
        let to: Vec<usize> = zip(start, offset)
            .map(|(start, i)| start as usize + i)
            .collect();
        let to = number(&dimensions, &to);
        let old = results.iter().map(|x| scalar(x, to));
        let new = updates.iter().map(|x| scalar(x, i));
        let arguments: Vec<Value> = old.chain(new).collect();
        for (result, value) in zip(&mut results, combined(program, computation, &arguments)) {
            set(result, to, &value);
        }
    }
    results.into_iter().map(Value::Array).collect()
}

fn scalar(x: &Array, i: usize) -> Value {
    let shape = ArrayShape::scalar(x.shape.element_type());
    Value::Array(Array::new(shape, x.raw(i).to_vec()))
}

fn set(x: &mut Array, i: usize, value: &Value) {
    let bytes = &value.array().bytes;
    x.bytes[i * bytes.len()..(i + 1) * bytes.len()].copy_from_slice(bytes);
}

fn combined(program: &Program, computation: ComputationId, arguments: &[Value]) -> Vec<Value> {
    match run(program, computation, arguments) {
        Value::Tuple(values) => values,
        one => vec![one],
    }
}

/// The index in the base area under an element of the window at a position, or `None` if it is
/// padding or between two elements of a dilated area.
fn under(
    window: &[WindowDimension],
    position: &[usize],
    element: &[usize],
    area: &[usize],
) -> Option<Vec<usize>> {
    let dimensions = zip(zip(window, area), zip(position, element));
    dimensions
        .map(|((d, &size), (&position, &element))| {
            let element = if d.is_reversed {
                d.size - 1 - element
            } else {
                element
            };
            let at = (position * d.stride + element * d.window_dilation) as i64 - d.low;
            let dilation = d.base_dilation as i64;
            let i = at.div_euclid(dilation);
            let is_inside = at.rem_euclid(dilation) == 0 && (0..size as i64).contains(&i);
            is_inside.then_some(i as usize)
        })
        .collect()
}

fn elements(window: &[WindowDimension]) -> Vec<Vec<usize>> {
    indices(&window.iter().map(|d| d.size).collect::<Vec<_>>())
}

/// Combines the elements under the window with the initial value. Padding is left out.
pub(super) fn reduce_window(
    program: &Program,
    shape: &Shape,
    operands: &[Value],
    window: &[WindowDimension],
    computation: ComputationId,
) -> Vec<Value> {
    let (inputs, initial) = operands.split_at(operands.len() / 2);
    let inputs: Vec<&Array> = inputs.iter().map(Value::array).collect();
    let shapes = shape.leaves();
    let mut bytes = vec![Vec::new(); inputs.len()];
    for position in indices(shapes[0].dimensions()) {
        let mut sums = initial.to_vec();
        for element in elements(window) {
            let area = inputs[0].shape.dimensions();
            if let Some(from) = under(window, &position, &element, area) {
                sums.extend(inputs.iter().map(|x| scalar(x, x.number(&from))));
                sums = combined(program, computation, &sums);
            }
        }
        for (bytes, sum) in zip(&mut bytes, sums) {
            bytes.extend_from_slice(&sum.array().bytes);
        }
    }
    zip(shapes, bytes)
        .map(|(shape, bytes)| Value::Array(Array::new(shape.clone(), bytes)))
        .collect()
}

pub(super) fn select_and_scatter(
    program: &Program,
    shape: &ArrayShape,
    operands: &[Value],
    window: &[WindowDimension],
    [select, scatter]: [ComputationId; 2],
) -> Array {
    let (x, source) = (operands[0].array(), operands[1].array());
    let initial = &operands[2].array().bytes;
    let mut result = Array::new(shape.clone(), initial.repeat(shape.element_count()));
    for (i, position) in indices(source.shape.dimensions()).iter().enumerate() {
        let mut selected = None;
        for element in elements(window) {
            let Some(from) = under(window, position, &element, x.shape.dimensions()) else {
                continue;
            };
            let from = x.number(&from);
            let keeps = selected.is_some_and(|selected| {
                let pair = [scalar(x, selected), scalar(x, from)];
                run(program, select, &pair).array().bytes[0] != 0
            });
            if !keeps {
                selected = Some(from);
            }
        }
        if let Some(to) = selected {
            let pair = [scalar(&result, to), scalar(source, i)];
            let sum = run(program, scatter, &pair);
            set(&mut result, to, &sum);
        }
    }
    result
}

/// Sums products over the window and the features of the group that an output feature is in.
pub(super) fn convolution(
    shape: &ArrayShape,
    (x, kernel): (&Array, &Array),
    c: &Convolution,
) -> (Array, Tolerance) {
    let t = shape.element_type();
    let area: Vec<usize> = c
        .input
        .spatial
        .iter()
        .map(|&d| x.shape.dimensions()[d])
        .collect();
    let outputs = kernel.shape.dimensions()[c.kernel.outer];
    let features = kernel.shape.dimensions()[c.kernel.features];
    let batch = x.shape.dimensions()[c.input.outer] / c.batch_groups;
    let place = |labels: &callbox::program::ConvolutionDimensions,
                 outer: usize,
                 feature: usize,
                 spatial: &[usize]| {
        let mut index = vec![0; spatial.len() + 2];
        index[labels.outer] = outer;
        index[labels.features] = feature;
        zip(&labels.spatial, spatial).for_each(|(&d, &i)| index[d] = i);
        index
    };
    let (mut sums, mut sizes) = (Vec::new(), Vec::new());
    let mut terms = 1;
    for index in indices(shape.dimensions()) {
        let position: Vec<usize> = c.output.spatial.iter().map(|&d| index[d]).collect();
        let output = index[c.output.features];
        let group = output / (outputs / (c.feature_groups * c.batch_groups)).max(1);
        let (mut sum, mut total, mut count) = (zero(t), 0.0, 0);
        for element in elements(&c.window) {
            let Some(from) = under(&c.window, &position, &element, &area) else {
                continue;
            };
            for feature in 0..features {
                let first = if c.feature_groups > 1 {
                    group * features
                } else {
                    0
                };
                let outer = if c.batch_groups > 1 { group * batch } else { 0 };
                let outer = outer + index[c.output.outer];
                let x = x.element(x.number(&place(&c.input, outer, first + feature, &from)));
                let at = place(&c.kernel, output, feature, &element);
                let product = binary(
                    BinaryOperation::Multiply,
                    t,
                    x,
                    kernel.element(kernel.number(&at)),
                );
                total += size(product);
                sum = rounded(t, binary(BinaryOperation::Add, t, sum, rounded(t, product)));
                count += 1;
            }
        }
        sums.push(sum);
        sizes.push(total);
        terms = terms.max(count);
    }
    let array = Array::compute(shape, |i| sums[i]);
    // XLA multiplies the kernel by the zeros of the padding, or leaves both out.
    let mut kernel = (0..kernel.shape.element_count()).map(|i| size(kernel.element(i)));
    if kernel.all(f64::is_finite) {
        (array, near(t, terms, &sizes))
    } else {
        (array, Tolerance::Distance(vec![None; sums.len()]))
    }
}
