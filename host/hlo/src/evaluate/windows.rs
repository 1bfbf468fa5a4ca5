//! Operations that slide a window over an array.
//!
//! Each element of the window is a strided slice of the padded array, with an element for each
//! position of the window: as many steps as the window has elements, each for all positions.

use std::iter::zip;

use super::apply::{apply, line};
use super::array::{Array, Elements, array, repeat};
use super::convert::convert;
use super::elementwise::chosen;
use super::indexing::combine;
use super::movement::{gather, pad, scatter};
use super::strided::Strides;
use super::teamwork::Team;
use super::{Callee, bug, with_capacity, zeroed};
use crate::DotDimensions;
use crate::instruction::{
    ComputationId, Convolution, PaddingDimension, SliceDimension, WindowDimension,
};
use callbox_core::values::{
    ArrayShape, Blame, ElementType, Literal, Result, Shape, Status, StatusCode,
};

/// Reduces each position of the window, in row-major order of its elements. Padding is left out, as
/// XLA's backends do.
pub(super) fn reduce_window(
    shape: &Shape,
    operands: &[Literal],
    window: &[WindowDimension],
    computation: ComputationId,
    callee: &mut dyn Callee,
) -> Result<Literal> {
    let (inputs, initial) = operands.split_at(operands.len() / 2);
    let leaves = shape.leaves();
    let result = leaves
        .first()
        .ok_or_else(|| bug("a reduction has no result"))?;
    let count = result.element_count();
    if count == 0 {
        let leaves = vec![Vec::new(); leaves.len()];
        return Literal::from_leaves(shape.clone(), leaves).map_err(bug);
    }
    let mut padded = Vec::with_capacity(inputs.len());
    let mut sums = Vec::with_capacity(inputs.len());
    let mut few = FEW_PADDED;
    for (x, initial) in zip(inputs, initial) {
        callee.check()?;
        let (x, initial) = (array(x)?, array(initial)?);
        padded.push(Padded::new(&x, &initial, window, &mut few)?);
        sums.push(line(x.shape.element_type(), repeat(initial.bytes, count)?)?);
    }
    let inside = match inputs.first() {
        Some(x) if has_padding(window) => Some(inside(&array(x)?, window, &mut few)?),
        _ => None,
    };
    for offset in Offsets::of(window) {
        let mut arguments = sums.clone();
        for x in &padded {
            arguments.push(x.part(window, &offset, result.dimensions())?);
        }
        let combined = apply(computation, &arguments, count, callee)?;
        sums = match &inside {
            Some(inside) => {
                let inside = inside.part(window, &offset, result.dimensions())?;
                let pairs = zip(&combined, &sums);
                let kept = pairs.map(|(new, old)| replaced(&inside, new, old));
                kept.collect::<Result<_>>()?
            }
            None => combined,
        };
    }
    let leaves = sums.iter().map(|sum| Ok(array(sum)?.bytes.to_vec()));
    Literal::from_leaves(shape.clone(), leaves.collect::<Result<_>>()?).map_err(bug)
}

/// Whether a position of the window can have elements that are not of the array.
fn has_padding(window: &[WindowDimension]) -> bool {
    let mut dimensions = window.iter();
    dimensions.any(|d| d.low > 0 || d.high > 0 || d.base_dilation > 1)
}

/// True for each element of `x`, and false for the padding.
fn inside(x: &Array<'_>, window: &[WindowDimension], few: &mut usize) -> Result<Padded> {
    let of = |sizes: &[usize]| ArrayShape::new(ElementType::Pred, sizes).map_err(bug);
    let trues = Array {
        shape: &of(x.dimensions())?,
        bytes: &repeat(&[1], x.shape.element_count())?,
    };
    let padding = Array {
        shape: &of(&[])?,
        bytes: &[0],
    };
    Padded::new(&trues, &padding, window, few)
}

/// The elements of `new` where `which` is true, and of `old` elsewhere.
fn replaced(which: &Literal, new: &Literal, old: &Literal) -> Result<Literal> {
    let (which, new, old) = (array(which)?, array(new)?, array(old)?);
    let bytes = chosen(which.bytes, new.bytes, old.bytes, new.width())?;
    line(new.shape.element_type(), bytes)
}

/// An array of the initial value, with each element of the source combined where the window at
/// its position selects an element of the operand.
pub(super) fn select_and_scatter(
    shape: &Shape,
    operands: &[Literal],
    window: &[WindowDimension],
    [select, combination]: [ComputationId; 2],
    callee: &mut dyn Callee,
) -> Result<Literal> {
    let [x, source, initial] = operands else {
        return Err(bug("select-and-scatter lacks operands"));
    };
    let (x, source, initial) = (array(x)?, array(source)?, array(initial)?);
    let mut result = vec![repeat(initial.bytes, x.shape.element_count())?];
    let selected = selected([&x, &source, &initial], window, select, callee)?;
    let targets = selected.iter().enumerate();
    let targets = targets.filter(|(_, number)| **number != 0);
    let targets = targets.map(|(from, &number)| (number as usize - 1, from));
    combine(
        &mut result,
        &[source],
        targets.collect(),
        combination,
        callee,
    )?;
    Literal::from_leaves(shape.clone(), result).map_err(bug)
}

/// For each element of the source, the number of the element of `x` that its window selects,
/// counted from 1, and 0 if the window has only padding.
fn selected(
    [x, source, initial]: [&Array<'_>; 3],
    window: &[WindowDimension],
    select: ComputationId,
    callee: &mut dyn Callee,
) -> Result<Vec<u64>> {
    let count = source.shape.element_count();
    let mut few = FEW_PADDED;
    let values = Padded::new(x, initial, window, &mut few)?;
    // The number of each element, and 0 for the padding.
    let mut numbers = with_capacity(8 * x.shape.element_count())?;
    numbers.extend((1..=x.shape.element_count() as u64).flat_map(u64::to_le_bytes));
    let numbered = ArrayShape::new(ElementType::U64, x.dimensions()).map_err(bug)?;
    let numbers = Padded::new(
        &Array {
            shape: &numbered,
            bytes: &numbers,
        },
        &Array {
            shape: &ArrayShape::new(ElementType::U64, &[]).map_err(bug)?,
            bytes: &[0; 8],
        },
        window,
        &mut few,
    )?;
    let mut selected = zeroed::<u64>(count)?;
    let mut best = line(x.shape.element_type(), repeat(initial.bytes, count)?)?;
    if count == 0 {
        return Ok(selected);
    }
    for offset in Offsets::of(window) {
        let candidate = values.part(window, &offset, source.dimensions())?;
        let number = numbers.part(window, &offset, source.dimensions())?;
        let number = number.to_vec::<u64>()?;
        let keeps = apply(select, &[best.clone(), candidate.clone()], count, callee)?;
        let keeps = keeps
            .first()
            .ok_or_else(|| bug("a selection has no result"))?;
        let mut bytes = array(&best)?.bytes.to_vec();
        let taken = zip(
            bytes.chunks_exact_mut(x.width()),
            array(&candidate)?.bytes.chunks_exact(x.width()),
        );
        let choices = zip(zip(&mut selected, number), array(keeps)?.bytes);
        for ((to, from), ((selected, number), &keeps)) in zip(taken, choices) {
            if number != 0 && (*selected == 0 || keeps == 0) {
                to.copy_from_slice(from);
                *selected = number;
            }
        }
        best = line(x.shape.element_type(), bytes)?;
    }
    Ok(selected)
}

/// The bytes of windows whose products are computed at a time, about.
const PIECE: usize = 64 << 20;

/// The bytes that an element of a product takes beside its own.
const WIDE: usize = 16;

/// The sums of products of the window's elements and the kernel, as dots of many windows with the
/// kernel.
pub(super) fn convolution(
    [x, kernel]: [Array<'_>; 2],
    convolution: &Convolution,
    shape: &ArrayShape,
    team: Team<'_>,
) -> Result<Vec<u8>> {
    let mut bytes = zeroed(shape.byte_size())?;
    if bytes.is_empty() {
        return Ok(bytes);
    }
    let sizes = ConvolutionSizes::of(convolution, [&x, &kernel], shape);
    let (groups, outputs) = (sizes.groups, sizes.outputs);
    let inner = sizes.features * sizes.elements.iter().product::<usize>();
    let of = |element_type, sizes: &[usize]| ArrayShape::new(element_type, sizes).map_err(bug);
    let kernel = Array {
        shape: &of(x.shape.element_type(), &[groups, inner, outputs])?,
        bytes: &kernels(&kernel, convolution, &sizes)?,
    };
    let windows = Windows::of(&x, convolution, &sizes)?;
    // The batch and the positions, which are parted until the windows of a part are few.
    let along = [&[sizes.batch], &*sizes.positions].concat();
    let of_window = (groups * inner).saturating_mul(x.width() + WIDE);
    let parts = Tiles::of(&along, PIECE / of_window.max(1));
    for (starts, along) in parts {
        team.check.check()?;
        let products = super::dot::dot(
            &Array {
                shape: &of(
                    x.shape.element_type(),
                    &[groups, along.iter().product(), inner],
                )?,
                bytes: &windows.gather(&along, &starts)?,
            },
            &kernel,
            &DotDimensions {
                lhs_batch: vec![0],
                rhs_batch: vec![0],
                lhs_contracting: vec![2],
                rhs_contracting: vec![1],
            },
            shape.element_type(),
            team,
        )?;
        let products = Array {
            shape: &of(
                shape.element_type(),
                &[&[groups], &*along, &[outputs]].concat(),
            )?,
            bytes: &products,
        };
        let places = starts.iter().enumerate();
        let places = places.fold(
            places_of_products(convolution, shape, outputs),
            |to, (i, &start)| to.moved(1 + i, start),
        );
        scatter(&products, &mut bytes, places)?;
    }
    Ok(bytes)
}

/// Where the products of each group, batch element, position and output lie in the result.
fn places_of_products(convolution: &Convolution, shape: &ArrayShape, outputs: usize) -> Strides {
    let output = &convolution.output;
    let to = Strides::dense(shape.dimensions(), shape.element_type().byte_width()).steps;
    let mut steps = vec![to[output.features] * outputs as isize, to[output.outer]];
    steps.extend(output.spatial.iter().map(|&at| to[at]));
    steps.push(to[output.features]);
    Strides { start: 0, steps }
}

/// The sizes of a convolution. Those of batch, features and outputs are of one group.
struct ConvolutionSizes {
    groups: usize,
    batch: usize,
    features: usize,
    outputs: usize,
    /// The positions of the window in each spatial dimension.
    positions: Vec<usize>,
    /// The elements of the window in each spatial dimension.
    elements: Vec<usize>,
}

impl ConvolutionSizes {
    fn of(convolution: &Convolution, [x, kernel]: [&Array<'_>; 2], result: &ArrayShape) -> Self {
        let Convolution {
            window,
            input,
            output,
            feature_groups,
            batch_groups,
            ..
        } = convolution;
        let groups = feature_groups * batch_groups;
        let positions = output.spatial.iter().map(|&at| result.dimensions()[at]);
        Self {
            groups,
            batch: x.dimensions()[input.outer] / batch_groups,
            features: x.dimensions()[input.features] / feature_groups,
            outputs: kernel.dimensions()[convolution.kernel.outer] / groups,
            positions: positions.collect(),
            elements: window.iter().map(|dimension| dimension.size).collect(),
        }
    }
}

/// The elements of all windows: group of the batch, group of features, batch, position, element,
/// feature.
struct Windows {
    padded: Padded,
    from: Strides,
    /// The sizes before those of the batch and the positions, and behind them.
    head: [usize; 2],
    tail: Vec<usize>,
}

impl Windows {
    fn of(x: &Array<'_>, convolution: &Convolution, sizes: &ConvolutionSizes) -> Result<Self> {
        let Convolution { window, input, .. } = convolution;
        let zero = zero(x.shape.element_type())?;
        let zero = Array {
            shape: &ArrayShape::new(x.shape.element_type(), &[]).map_err(bug)?,
            bytes: &zero,
        };
        let mut all = vec![WindowDimension::of_size(1); x.dimensions().len()];
        for (&at, dimension) in zip(&input.spatial, window) {
            all[at] = *dimension;
        }
        let padded = Padded::new(x, &zero, &all, &mut { FEW_PADDED })?;
        let dense = Strides::dense(padded.shape.dimensions(), x.width()).steps;
        let mut from = Strides {
            start: 0,
            steps: vec![
                dense[input.outer] * sizes.batch as isize,
                dense[input.features] * sizes.features as isize,
                dense[input.outer],
            ],
        };
        let spatial = || zip(window, &input.spatial).map(|(dimension, &at)| (dimension, dense[at]));
        // A step that overflows is of one position or one element: more of them lie within the
        // array.
        from.steps.extend(
            spatial().map(|(dimension, step)| step.wrapping_mul(dimension.stride as isize)),
        );
        for (dimension, step) in spatial() {
            let step = step.wrapping_mul(dimension.window_dilation as isize);
            if dimension.is_reversed {
                from.start += (dimension.size - 1).wrapping_mul(step as usize);
            }
            from.steps.push(if dimension.is_reversed {
                step.wrapping_neg()
            } else {
                step
            });
        }
        from.steps.push(dense[input.features]);
        Ok(Self {
            padded,
            from,
            head: [convolution.batch_groups, convolution.feature_groups],
            tail: [&*sizes.elements, &[sizes.features]].concat(),
        })
    }

    /// The windows of a batch and of positions of these sizes, which begin at `starts`.
    fn gather(&self, along: &[usize], starts: &[usize]) -> Result<Vec<u8>> {
        let sizes = [&self.head, along, &*self.tail].concat();
        let starts = starts.iter().enumerate();
        let from = starts.fold(self.from.clone(), |from, (i, &start)| {
            from.moved(self.head.len() + i, start)
        });
        gather(&self.padded.array(), &sizes, from)
    }
}

/// The tiles of an array of positions: where each begins, and its sizes.
struct Tiles {
    sizes: Vec<usize>,
    tile: Vec<usize>,
    next: Option<Vec<usize>>,
}

impl Tiles {
    /// Tiles of at most `most` positions, or of one.
    fn of(sizes: &[usize], most: usize) -> Self {
        let mut tile = sizes.to_vec();
        while tile
            .iter()
            .fold(1, |all: usize, &one| all.saturating_mul(one))
            > most
            && let Some(longest) = tile.iter_mut().max()
            && *longest > 1
        {
            *longest = longest.div_ceil(2);
        }
        Self {
            sizes: sizes.to_vec(),
            tile,
            next: (!sizes.contains(&0)).then(|| vec![0; sizes.len()]),
        }
    }
}

impl Iterator for Tiles {
    type Item = (Vec<usize>, Vec<usize>);

    fn next(&mut self) -> Option<Self::Item> {
        let starts = self.next.take()?;
        let left = zip(&self.sizes, &starts).map(|(size, start)| size - start);
        let sizes = zip(left, &self.tile)
            .map(|(left, &tile)| left.min(tile))
            .collect();
        let mut following = starts.clone();
        for (start, (&size, &tile)) in zip(&mut following, zip(&self.sizes, &self.tile)).rev() {
            *start += tile;
            if *start < size {
                self.next = Some(following);
                break;
            }
            *start = 0;
        }
        Some((starts, sizes))
    }
}

/// The elements of the kernel: group, element, feature, output.
fn kernels(
    kernel: &Array<'_>,
    convolution: &Convolution,
    sizes: &ConvolutionSizes,
) -> Result<Vec<u8>> {
    let labels = &convolution.kernel;
    let dense = Strides::dense(kernel.dimensions(), kernel.width()).steps;
    let mut steps = vec![dense[labels.outer] * sizes.outputs as isize];
    steps.extend(labels.spatial.iter().map(|&at| dense[at]));
    steps.extend([dense[labels.features], dense[labels.outer]]);
    let &ConvolutionSizes {
        groups,
        features,
        outputs,
        ..
    } = sizes;
    let sizes = [&[groups], &*sizes.elements, &[features, outputs]].concat();
    gather(kernel, &sizes, Strides { start: 0, steps })
}

/// The bytes of a zero.
fn zero(element_type: ElementType) -> Result<Vec<u8>> {
    let zero = Elements {
        element_type: ElementType::U64,
        bytes: &[0; 8],
    };
    convert(zero, element_type)
}

/// The most elements that padding and dilation may make of each: the first number if the padded
/// array is not large, and otherwise the second.
const MOST_PADDED: [usize; 2] = [64, 8];
const LARGE_PADDED: usize = 1 << 26;
/// The elements that they may make of all arrays of an instruction beyond that.
const FEW_PADDED: usize = 1 << 22;

/// An array with the padding and the base dilation of a window.
struct Padded {
    shape: ArrayShape,
    bytes: Vec<u8>,
}

impl Padded {
    /// Takes the elements beyond [`MOST_PADDED`] for each one of `x` off `few`.
    fn new(
        x: &Array<'_>,
        value: &Array<'_>,
        window: &[WindowDimension],
        few: &mut usize,
    ) -> Result<Self> {
        let padding = window.iter().map(|dimension| PaddingDimension {
            low: dimension.low,
            high: dimension.high,
            // A dilation that is no such number has no two elements to part.
            interior: i64::try_from(dimension.base_dilation).unwrap_or(i64::MAX) - 1,
        });
        let padding = Vec::from_iter(padding);
        let sizes = zip(&padding, x.dimensions()).map(|(padding, &size)| {
            let between = size.saturating_sub(1) as i128 * i128::from(padding.interior);
            let size = size as i128 + between + i128::from(padding.low) + i128::from(padding.high);
            usize::try_from(size.max(0)).map_err(bug)
        });
        let sizes = sizes.collect::<Result<Vec<_>>>()?;
        let count = sizes.iter().map(|&size| size as u128);
        let count = count.fold(1, u128::saturating_mul);
        let [most, least] = MOST_PADDED.map(|each| x.shape.element_count().saturating_mul(each));
        let usual = most.min(LARGE_PADDED).max(least);
        let most = usual.saturating_add(*few);
        if count > most as u128 {
            return Err(Status::new(
                StatusCode::ResourceExhausted,
                Blame::Caller,
                format!(
                    "expected a window for which {} is padded and dilated to at most {most} elements, found {count}",
                    x.shape
                ),
            ));
        }
        *few -= (count as usize).saturating_sub(usual);
        let shape = ArrayShape::new(x.shape.element_type(), &sizes)?;
        let bytes = pad(x, value, &shape, &padding)?;
        Ok(Self { shape, bytes })
    }

    fn array(&self) -> Array<'_> {
        Array {
            shape: &self.shape,
            bytes: &self.bytes,
        }
    }

    /// The element of the window at `offset`, for each of the window's positions.
    fn part(
        &self,
        window: &[WindowDimension],
        offset: &[usize],
        positions: &[usize],
    ) -> Result<Literal> {
        let slices = zip(window, offset).map(|(dimension, &offset)| SliceDimension {
            start: offset * dimension.window_dilation,
            limit: 0,
            stride: dimension.stride,
        });
        let bytes = super::movement::slice(&self.array(), positions, &Vec::from_iter(slices))?;
        line(self.shape.element_type(), bytes)
    }
}

/// The elements of a window, in row-major order.
struct Offsets {
    sizes: Vec<usize>,
    next: Option<Vec<usize>>,
}

impl Offsets {
    fn of(window: &[WindowDimension]) -> Self {
        let sizes = Vec::from_iter(window.iter().map(|dimension| dimension.size));
        let next = Some(vec![0; sizes.len()]);
        Self { sizes, next }
    }
}

impl Iterator for Offsets {
    type Item = Vec<usize>;

    fn next(&mut self) -> Option<Vec<usize>> {
        let current = self.next.take()?;
        let mut following = current.clone();
        for (offset, &size) in zip(&mut following, &self.sizes).rev() {
            *offset += 1;
            if *offset < size {
                self.next = Some(following);
                return Some(current);
            }
            *offset = 0;
        }
        Some(current)
    }
}
