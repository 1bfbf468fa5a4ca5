//! Gathers, scatters, and operations that slide a window.

use arbitrary::Result;
use callbox::program::{
    BinaryOperation, Comparison, ComparisonOrder, ComputationId, Convolution,
    ConvolutionDimensions, IndexedWindows, Op, WindowDimension,
};
use callbox::{ArrayShape, ElementType, Literal, Shape};

use super::{ASSOCIATIVE, Building, Step, is_rounded, made};
use crate::generate::{dimensions, permutation};
use crate::interpret::{Element, encode};

/// Indexed windows that fit an operand, with the shapes that follow from them.
struct Fitting {
    windows: IndexedWindows,
    /// The dimensions of the indices.
    indices: Vec<usize>,
    /// The window's size, by dimension of the operand.
    sizes: Vec<usize>,
    /// The dimensions of the windowed array.
    windowed: Vec<usize>,
}

impl Building<'_, '_> {
    pub(super) fn gather(&mut self) -> Step {
        let (x, shape) = self.any()?;
        let fitting = self.indexed_windows(&shape)?;
        let indices = self.indices(&fitting.indices)?;
        Ok(made(self.builder.gather(
            x,
            indices,
            fitting.windows,
            &fitting.sizes,
        )))
    }

    pub(super) fn scatter(&mut self) -> Step {
        let (x, shape) = self.any()?;
        let t = shape.element_type();
        let fitting = self.indexed_windows(&shape)?;
        let indices = self.indices(&fitting.indices)?;
        let Ok(updates) = ArrayShape::new(t, &fitting.windowed) else {
            return Ok(None);
        };
        let update = self.same(&updates)?;
        let is_double = self.u.ratio(1, 4)?;
        let Some(computation) = self.combination(t, if is_double { 2 } else { 1 })? else {
            return Ok(None);
        };
        let (mut arrays, mut all) = (vec![x], vec![update]);
        if is_double {
            arrays.push(self.same(&shape)?);
            all.push(self.same(&updates)?);
        }
        let op = self
            .builder
            .scatter(&arrays, indices, &all, fitting.windows, computation);
        Ok(made(op))
    }

    /// Builds a computation that combines `count` old elements with as many new ones: the new one,
    /// or an operation on both.
    fn combination(&mut self, t: ElementType, count: usize) -> Result<Option<ComputationId>> {
        let operation = *self.u.choose(&ASSOCIATIVE)?;
        let replaces = is_rounded(t) || self.u.ratio(1, 4)?;
        Ok(made(self.builder.computation("combination", |c| {
            let parameters = (0..2 * count).map(|i| c.parameter(i, Shape::scalar(t), ""));
            let p = parameters.collect::<callbox::Result<Vec<_>>>()?;
            let first = if replaces {
                p[count]
            } else {
                c.binary(operation, p[0], p[count])?
            };
            if count == 1 {
                return Ok(first);
            }
            c.tuple(&[first, p[3]])
        })))
    }

    /// Generates dimension numbers for windows of an operand.
    fn indexed_windows(&mut self, shape: &ArrayShape) -> Result<Fitting> {
        let rank = shape.rank();
        let order = permutation(self.u, rank)?;
        let indexed = self.u.int_in_range(0..=rank)?;
        let mut batch = dimensions(self.u)?;
        batch.truncate(2);
        let mut windows = IndexedWindows {
            index_map: order[..indexed].to_vec(),
            ..IndexedWindows::default()
        };
        let has_batch = indexed < rank && !batch.is_empty() && self.u.ratio(1, 3)?;
        let batched = has_batch.then(|| order[indexed]);
        if let Some(dimension) = batched {
            batch[0] = shape.dimensions()[dimension];
            windows.operand_batch = vec![dimension];
        }
        let mut sizes = Vec::new();
        for (dimension, &whole) in shape.dimensions().iter().enumerate() {
            let is_batch = batched == Some(dimension);
            if !is_batch && self.u.ratio(1, 2)? {
                windows.collapsed.push(dimension);
            }
            let lacks = is_batch || windows.collapsed.contains(&dimension);
            // A window that is too large is refused.
            let most = whole + usize::from(self.u.ratio(1, 24)?);
            sizes.push(if lacks {
                whole.min(1)
            } else {
                self.u.int_in_range(0..=most)?
            });
        }
        let lacks = |d: &usize| windows.collapsed.contains(d) || batched == Some(*d);
        let kept: Vec<usize> = (0..rank).filter(|d| !lacks(d)).collect();
        let windowed_rank = kept.len() + batch.len();
        let mut window_dimensions = permutation(self.u, windowed_rank)?;
        window_dimensions.truncate(kept.len());
        window_dimensions.sort_unstable();
        let (mut window, mut outer) = (kept.iter().map(|&d| sizes[d]), batch.iter().copied());
        let windowed = (0..windowed_rank).map(|i| {
            let is_window = window_dimensions.contains(&i);
            let size = if is_window {
                window.next()
            } else {
                outer.next()
            };
            size.unwrap_or(0)
        });
        let windowed = windowed.collect();
        windows.window_dimensions = window_dimensions;
        // Each number is an index vector if the vectors have no dimension.
        let mut indices = batch.clone();
        windows.index_vector = self.u.int_in_range(0..=batch.len())?;
        if indexed == 1 && self.u.arbitrary()? {
            windows.index_vector = batch.len();
        } else {
            indices.insert(windows.index_vector, indexed);
        }
        if has_batch {
            let is_after = windows.index_vector == 0 && indices.len() > batch.len();
            windows.indices_batch = vec![usize::from(is_after)];
        }
        Ok(Fitting {
            windows,
            indices,
            sizes,
            windowed,
        })
    }

    /// Generates indices, most of which are in bounds of small arrays.
    fn indices(&mut self, sizes: &[usize]) -> Result<Op> {
        use ElementType::{S8, S32, S64, U8, U32};
        let t = *self.u.choose(&[S32, S64, U32, S8, U8])?;
        let shape = ArrayShape::new(t, sizes).unwrap();
        let mut bytes = Vec::new();
        for _ in 0..shape.element_count() {
            let index = self.u.int_in_range(-2..=5_i8)?;
            bytes.extend(encode(t, Element::Integer(index.into())));
        }
        let value = Literal::from_bytes(shape, bytes).unwrap();
        let op = self.builder.constant(value).unwrap();
        self.all.push(op);
        Ok(op)
    }

    fn window_dimension(&mut self, is_dilated: bool) -> Result<WindowDimension> {
        let mut small = |least: i64, most: i64| self.u.int_in_range(least..=most);
        let plain = WindowDimension::of_size(small(1, 3)? as usize);
        Ok(WindowDimension {
            stride: small(1, 2)? as usize,
            low: small(-1, 2)?,
            high: small(-1, 2)?,
            base_dilation: if is_dilated { small(1, 3)? as usize } else { 1 },
            window_dilation: if is_dilated { small(1, 2)? as usize } else { 1 },
            ..plain
        })
    }

    fn window(&mut self, rank: usize, is_dilated: bool) -> Result<Vec<WindowDimension>> {
        (0..rank)
            .map(|_| self.window_dimension(is_dilated))
            .collect()
    }

    pub(super) fn reduce_window(&mut self) -> Step {
        let (x, shape) = self.any()?;
        let t = shape.element_type();
        let is_dilated = self.u.ratio(1, 3)?;
        let window = self.window(shape.rank(), is_dilated)?;
        let is_double = self.u.ratio(1, 4)?;
        let Some(computation) = self.combination(t, if is_double { 2 } else { 1 })? else {
            return Ok(None);
        };
        let (mut arrays, mut initial) = (vec![x], vec![self.scalar(t)?]);
        if is_double {
            arrays.push(self.same(&shape)?);
            initial.push(self.scalar(t)?);
        }
        let op = self
            .builder
            .reduce_window(&arrays, &initial, &window, computation);
        Ok(made(op))
    }

    pub(super) fn select_and_scatter(&mut self) -> Step {
        use BinaryOperation::{Add, Maximum};
        let (x, shape) = self.any()?;
        let t = shape.element_type();
        if is_rounded(t) {
            return Ok(None);
        }
        let window = self.window(shape.rank(), false)?;
        let positions = std::iter::zip(&window, shape.dimensions()).map(|(d, &size)| {
            let room = size as i64 + d.low + d.high - d.size as i64;
            usize::try_from(room).map_or(0, |room| room / d.stride + 1)
        });
        let positions: Vec<usize> = positions.collect();
        let Ok(source) = ArrayShape::new(t, &positions) else {
            return Ok(None);
        };
        let source = self.same(&source)?;
        let initial = self.scalar(t)?;
        let comparison = *self
            .u
            .choose(&[Comparison::Ge, Comparison::Lt, Comparison::Ne])?;
        let operation = *self.u.choose(&[Add, Maximum])?;
        let select = self.builder.computation("select", |c| {
            let x = c.parameter(0, Shape::scalar(t), "")?;
            let y = c.parameter(1, Shape::scalar(t), "")?;
            c.compare(comparison, ComparisonOrder::Partial, x, y)
        });
        let scatter = self.builder.computation("scatter", |c| {
            let x = c.parameter(0, Shape::scalar(t), "")?;
            let y = c.parameter(1, Shape::scalar(t), "")?;
            c.binary(operation, x, y)
        });
        let (Some(select), Some(scatter)) = (made(select), made(scatter)) else {
            return Ok(None);
        };
        let operands = [x, source, initial];
        Ok(made(
            self.builder
                .select_and_scatter(operands, &window, select, scatter),
        ))
    }

    pub(super) fn convolution(&mut self) -> Step {
        let t = self.any()?.1.element_type();
        let spatial = self.u.int_in_range(0..=2)?;
        let (feature_groups, batch_groups) = match self.u.int_in_range(0..=5)? {
            0 => (2, 1),
            1 => (1, 2),
            2 => (2, 2),
            _ => (1, 1),
        };
        let mut small = |most: usize| self.u.int_in_range(0..=most);
        let (batch, features, outputs) = (small(2)?, small(2)?, small(2)?);
        let mut window = self.window(spatial, true)?;
        for dimension in &mut window {
            dimension.is_reversed = self.u.arbitrary()?;
        }
        let mut labels = || -> Result<ConvolutionDimensions> {
            let order = permutation(self.u, spatial + 2)?;
            Ok(ConvolutionDimensions {
                outer: order[0],
                features: order[1],
                spatial: order[2..].to_vec(),
            })
        };
        let convolution = Convolution {
            input: labels()?,
            kernel: labels()?,
            output: labels()?,
            window,
            feature_groups,
            batch_groups,
        };
        let mut input = vec![0; spatial + 2];
        input[convolution.input.outer] = batch * batch_groups;
        input[convolution.input.features] = features * feature_groups;
        for &dimension in &convolution.input.spatial {
            input[dimension] = self.u.int_in_range(0..=4)?;
        }
        let mut kernel = vec![0; spatial + 2];
        kernel[convolution.kernel.outer] = outputs * feature_groups * batch_groups;
        kernel[convolution.kernel.features] = features;
        for (&at, dimension) in std::iter::zip(&convolution.kernel.spatial, &convolution.window) {
            kernel[at] = dimension.size;
        }
        let x = self.same(&ArrayShape::new(t, &input).unwrap())?;
        let kernel = self.same(&ArrayShape::new(t, &kernel).unwrap())?;
        Ok(made(self.builder.convolution(x, kernel, convolution)))
    }
}
