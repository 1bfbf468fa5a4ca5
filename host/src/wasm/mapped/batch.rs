//! A batch: the elements of the arrays that a caller has, each of them a call.

use std::fmt;

use super::{begin, map_arrays, together};
use crate::call::{CallBuffers, CallOptions, CallSite};
use crate::policy::Isolation;
use crate::values::{ArrayShape, Result, Shape, Status};
use crate::wasm::execution::WasmExecution;
use crate::wasm::prepared::{Sites, check_sizes};

/// What happens after an element whose call failed.
pub(super) type Failed<'a, B> = dyn FnMut(&mut B, usize, Status) -> Result<()> + 'a;

/// How the elements of a batch lie in a caller's arrays.
#[derive(Clone, Debug)]
pub(super) struct Batch {
    /// The sizes of the batch's dimensions.
    pub(super) sizes: Box<[usize]>,
    /// How many elements it has.
    pub(super) count: usize,
    pub(super) operands: Box<[Leaf]>,
    pub(super) results: Box<[Leaf]>,
}

/// An array with a batch.
#[derive(Clone, Debug)]
pub(super) struct Leaf {
    /// Its size in bytes.
    pub(super) whole: usize,
    /// How many bytes an element takes.
    pub(super) size: usize,
    /// By how many bytes an index in each of the batch's dimensions moves on, for an array that is the same along some of them.
    pub(super) strides: Option<Box<[usize]>>,
}

impl Batch {
    /// The call site of one element, and where the elements lie.
    pub(super) fn split(site: &CallSite, dimensions: usize) -> Result<(CallSite, Self)> {
        let operands: Vec<_> = site.operands.iter().flat_map(Shape::leaves).collect();
        let results = site.result.leaves();
        let ranks = operands.iter().enumerate().map(|leaf| ("operand", leaf));
        let ranks = ranks.chain(results.iter().enumerate().map(|leaf| ("result", leaf)));
        for (what, (i, shape)) in ranks {
            if shape.rank() < dimensions {
                return Err(Status::invalid_argument(format!(
                    "{what} {i}: expected a batch of {dimensions} dimensions before its own, found {shape}"
                )));
            }
        }
        let sizes = match results.first() {
            Some(first) => first.dimensions()[..dimensions].to_vec(),
            None => sizes_of_operands(&operands, dimensions),
        };
        check_results(&results, &sizes)?;
        check_operands(&operands, &sizes)?;
        let count = sizes
            .iter()
            .try_fold(1, |count: usize, size| count.checked_mul(*size));
        let count = count.ok_or_else(|| {
            let most = usize::MAX;
            Status::invalid_argument(format!(
                "expected a batch of at most {most} elements, found the sizes {sizes:?}"
            ))
        })?;

        let mut strip = |array: &ArrayShape| {
            ArrayShape::new(array.element_type(), &array.dimensions()[dimensions..])
        };
        let own = site.operands.iter();
        let own = own.map(|shape| map_arrays(shape, &mut strip));
        let own = own.collect::<Result<_>>()?;
        let element = CallSite {
            operands: own,
            result: map_arrays(&site.result, &mut strip)?,
            ..site.clone()
        };
        let operands = operands.into_iter().map(|shape| Leaf::new(shape, &sizes));
        let results = results.into_iter().enumerate().map(|(leaf, shape)| {
            match site.scratch.contains(&leaf) {
                true => Leaf::NONE,
                false => Leaf::new(shape, &sizes),
            }
        });
        let batch = Self {
            operands: operands.collect(),
            results: results.collect(),
            count,
            sizes: sizes.into(),
        };
        Ok((element, batch))
    }

    /// Calls the target for each element.
    pub(super) fn call<B: CallBuffers>(
        &self,
        sites: &Sites,
        options: &CallOptions,
        buffers: &mut B,
        failed: &mut Failed<'_, B>,
    ) -> Result<()> {
        self.check(buffers)?;
        let options = together(options);
        let mut execution = None;
        let mut position = vec![0; self.sizes.len()];
        for number in 0..self.count {
            let mut element = Element {
                batch: self,
                number,
                position: &position,
                buffers,
            };
            if let Err(status) = call_element(sites, &options, &mut execution, &mut element) {
                if execution.as_mut().is_some_and(WasmExecution::is_broken) {
                    // Another takes its place, if more elements follow.
                    execution = None;
                }
                let status = status.context(format_args!("batch element {}", At(&position)));
                failed(buffers, number, status)?;
            }
            self.advance(&mut position);
        }
        Ok(())
    }

    /// Checks that the caller's buffers are as many and as long as its shapes say.
    pub(super) fn check<B: CallBuffers>(&self, buffers: &B) -> Result<()> {
        let sizes = self.operands.iter().map(|leaf| leaf.whole);
        check_sizes("operand", sizes, buffers.operands(), |i| {
            buffers.operand_size(i)
        })?;
        let sizes = self.results.iter().map(|leaf| leaf.whole);
        check_sizes("result", sizes, buffers.results(), |i| {
            buffers.result_size(i)
        })
    }

    /// The next element's position.
    fn advance(&self, position: &mut [usize]) {
        for (index, size) in std::iter::zip(position, &self.sizes).rev() {
            *index += 1;
            if *index < *size {
                return;
            }
            *index = 0;
        }
    }

    /// The position of the element with this number.
    pub(super) fn position(&self, number: usize) -> Vec<usize> {
        let mut rest = number;
        let indices = self.sizes.iter().rev().map(|&size| {
            let index = rest % size.max(1);
            rest /= size.max(1);
            index
        });
        let mut position: Vec<_> = indices.collect();
        position.reverse();
        position
    }
}

impl Leaf {
    /// A result that nobody reads.
    const NONE: Self = Self {
        whole: 0,
        size: 0,
        strides: None,
    };

    /// An array whose first dimensions are these sizes or 1.
    fn new(shape: &ArrayShape, sizes: &[usize]) -> Self {
        let (batch, own) = shape.dimensions().split_at(sizes.len());
        let size = match own.contains(&0) {
            true => 0,
            false => own.iter().product::<usize>() * shape.element_type().byte_width(),
        };
        let strides = (batch != sizes).then(|| {
            let mut stride = size;
            let strides = batch.iter().rev().map(|&size| {
                let moved = if size == 1 { 0 } else { stride };
                stride *= size;
                moved
            });
            let mut strides: Box<[_]> = strides.collect();
            strides.reverse();
            strides
        });
        Self {
            whole: shape.byte_size(),
            size,
            strides,
        }
    }

    /// Where an element begins.
    #[inline]
    fn offset(&self, number: usize, position: &[usize]) -> usize {
        match &self.strides {
            None => number * self.size,
            Some(strides) => std::iter::zip(strides, position)
                .map(|(stride, index)| stride * index)
                .sum(),
        }
    }
}

/// An element of a batch.
struct Element<'a, B> {
    batch: &'a Batch,
    number: usize,
    position: &'a [usize],
    buffers: &'a mut B,
}

impl<B: CallBuffers> CallBuffers for Element<'_, B> {
    #[inline]
    fn operands(&self) -> usize {
        self.batch.operands.len()
    }

    #[inline]
    fn operand_size(&self, operand: usize) -> usize {
        self.batch.operands[operand].size
    }

    #[inline]
    fn read(&self, operand: usize, at: usize, into: &mut [u8]) {
        let start = self.batch.operands[operand].offset(self.number, self.position);
        self.buffers.read(operand, start + at, into);
    }

    #[inline]
    fn results(&self) -> usize {
        self.batch.results.len()
    }

    #[inline]
    fn result_size(&self, result: usize) -> usize {
        self.batch.results[result].size
    }

    #[inline]
    fn write(&mut self, result: usize, at: usize, bytes: &[u8]) {
        let start = self.batch.results[result].offset(self.number, self.position);
        self.buffers.write(result, start + at, bytes);
    }
}

/// Calls the target in the execution that is under way, or begins one.
fn call_element<'a, B: CallBuffers>(
    sites: &'a Sites,
    options: &CallOptions,
    execution: &mut Option<WasmExecution<'a>>,
    element: &mut B,
) -> Result<()> {
    // What has an instance for each call has no use for one that is set aside.
    if sites.is_checked(0) || sites.module.shared.policy.isolation == Isolation::Fresh {
        return sites.call_alone(0, (options, None), element);
    }
    let execution = match execution {
        Some(execution) => execution,
        none => none.insert(begin(sites, options)?),
    };
    execution.call_buffers(0, element)
}

/// An element's position in a batch: its number, if there is one dimension.
pub(super) struct At<'a>(pub(super) &'a [usize]);

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [index] => index.fmt(f),
            indices => {
                let indices: Vec<_> = indices.iter().map(usize::to_string).collect();
                write!(f, "({})", indices.join(", "))
            }
        }
    }
}

/// The sizes other than 1 that operands have.
fn sizes_of_operands(operands: &[&ArrayShape], dimensions: usize) -> Vec<usize> {
    let size = |dimension: usize| {
        let mut sizes = operands.iter().map(|shape| shape.dimensions()[dimension]);
        sizes.find(|size| *size != 1).unwrap_or(1)
    };
    (0..dimensions).map(size).collect()
}

fn check_results(results: &[&ArrayShape], sizes: &[usize]) -> Result<()> {
    for (i, shape) in results.iter().enumerate() {
        if shape.dimensions()[..sizes.len()] != *sizes {
            return Err(Status::invalid_argument(format!(
                "result {i}: expected the batch sizes {sizes:?}, which result 0 has, found {shape}"
            )));
        }
    }
    Ok(())
}

fn check_operands(operands: &[&ArrayShape], sizes: &[usize]) -> Result<()> {
    for (i, shape) in operands.iter().enumerate() {
        let pairs = std::iter::zip(shape.dimensions(), sizes).enumerate();
        for (dimension, (found, size)) in pairs {
            if found != size && *found != 1 {
                return Err(Status::invalid_argument(format!(
                    "operand {i}: expected a batch dimension {dimension} of size {size} or 1, found {shape}"
                )));
            }
        }
    }
    Ok(())
}
