//! Convolutions, as dots of many windows with the kernel.

use std::iter::zip;

use super::array::{Array, Elements};
use super::convert::convert;
use super::movement::{gather, scatter};
use super::strided::Strides;
use super::teamwork::Team;
use super::windows::{FEW_PADDED, Padded};
use super::{bug, zeroed};
use crate::DotDimensions;
use crate::instruction::{Convolution, WindowDimension};
use callbox_core::values::{ArrayShape, ElementType, Result};

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
