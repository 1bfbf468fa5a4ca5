//! A declared-pure call mapped sequentially over a batch dimension.

use super::compiled::room;
use super::{CompiledFfiCall, FfiCall, Function};
use callbox::call::{CallOptions, Execution, StaticInfo};
use callbox::values::{ArrayShape, Blame, Literal, Result, Shape, Status, StatusCode};

/// The trait of targets whose results depend on operands and attributes only.
const PURE: &str = "pure";

/// An FFI call mapped over a batch.
#[derive(Debug)]
pub struct VmappedFfiCall<'a> {
    call: &'a FfiCall,
    in_axes: Vec<Option<usize>>,
}

impl<'a> VmappedFfiCall<'a> {
    pub(super) fn new(
        call: &'a FfiCall,
        function: &Function,
        in_axes: &[Option<usize>],
    ) -> Result<Self> {
        if !function.signature.has_trait(PURE) {
            return Err(Status::new(
                StatusCode::FailedPrecondition,
                Blame::Caller,
                format!(
                    "FFI call {:?}: expected a function that declares the trait {PURE:?}, without which calls cannot be mapped over a batch, found {:?}, which does not",
                    call.name(),
                    function.signature.name
                ),
            ));
        }
        if in_axes.iter().all(Option::is_none) {
            return Err(Status::invalid_argument(format!(
                "FFI call {:?}: expected at least one operand to have the batch, found none",
                call.name()
            )));
        }
        Ok(Self {
            call,
            in_axes: in_axes.to_vec(),
        })
    }

    /// Calls the function for each element of the batch, in order. `return_shape_dtype` is the
    /// shape of one call; each array of the result has the batch as its first dimension.
    ///
    /// # Errors
    /// - INVALID_ARGUMENT if the numbers of operands and axes differ, an operand lacks its
    ///   dimension, or batch sizes differ.
    /// - The first failure of a call, with the element's index in its message.
    pub fn invoke(
        &self,
        operands: &[Literal],
        static_info: Option<StaticInfo>,
        return_shape_dtype: &Shape,
        options: &CallOptions,
    ) -> Result<Literal> {
        let mapped = self.map(operands, static_info, return_shape_dtype, options);
        mapped.map_err(|status| status.context(format_args!("FFI call {:?}", self.call.name())))
    }

    fn map(
        &self,
        operands: &[Literal],
        static_info: Option<StaticInfo>,
        return_shape_dtype: &Shape,
        options: &CallOptions,
    ) -> Result<Literal> {
        let size = self.batch_size(operands)?;
        let result = with_batch(return_shape_dtype, size)?;
        if size == 0 {
            let nothing = result.leaves().iter().map(|_| Vec::new()).collect();
            return Literal::from_leaves(result, nothing);
        }
        let shapes = std::iter::zip(operands, &self.in_axes)
            .map(|(operand, axis)| without_axis(operand.shape(), *axis))
            .collect::<Result<Vec<_>>>()?;
        let compiled = self
            .call
            .compile(shapes, static_info, return_shape_dtype.clone())?;
        // The deadline applies to the whole batch, not to each call.
        let options = options.from_now_on();
        let leaves = self.run(&compiled, operands, size, &options)?;
        Literal::from_leaves(result, leaves)
    }

    fn run(
        &self,
        compiled: &CompiledFfiCall,
        operands: &[Literal],
        size: usize,
        options: &CallOptions,
    ) -> Result<Vec<Vec<u8>>> {
        let mut results = room(compiled.result(), size)?;
        let mut execution = compiled.begin(options)?;
        for element in 0..size {
            let slices: Vec<Vec<u8>> = std::iter::zip(operands, &self.in_axes)
                .flat_map(|(operand, axis)| operand.leaves().map(move |leaf| (leaf, *axis)))
                .map(|((shape, bytes), axis)| slice(shape, bytes, axis, element))
                .collect();
            let slices: Vec<&[u8]> = slices.iter().map(Vec::as_slice).collect();
            let leaves = compiled.result().leaves();
            let mut buffers: Vec<&mut [u8]> = std::iter::zip(&mut results, leaves)
                .map(|(bytes, leaf)| {
                    let width = leaf.byte_size();
                    &mut bytes[element * width..(element + 1) * width]
                })
                .collect();
            let called: Result<()> = Execution::call(&mut *execution, 0, &slices, &mut buffers);
            called.map_err(|status| status.context(format_args!("batch element {element}")))?;
        }
        drop(execution);
        Ok(results)
    }

    /// Returns the size of the batch, which must be the same for all operands that have it.
    fn batch_size(&self, operands: &[Literal]) -> Result<usize> {
        if operands.len() != self.in_axes.len() {
            return Err(Status::invalid_argument(format!(
                "expected {} operands, found {}",
                self.in_axes.len(),
                operands.len()
            )));
        }
        let mut size = None;
        for (i, (operand, axis)) in std::iter::zip(operands, &self.in_axes).enumerate() {
            let Some(axis) = *axis else {
                continue;
            };
            for (shape, _) in operand.leaves() {
                let Some(&found) = shape.dimensions().get(axis) else {
                    return Err(Status::invalid_argument(format!(
                        "operand {i}: expected a dimension {axis} for the batch, found {shape}"
                    )));
                };
                let expected = *size.get_or_insert(found);
                if expected != found {
                    return Err(Status::invalid_argument(format!(
                        "operand {i}: expected a batch of {expected}, found {found} in dimension {axis} of {shape}"
                    )));
                }
            }
        }
        size.ok_or_else(|| {
            Status::invalid_argument("expected an array to have the batch, found none")
        })
    }
}

/// Returns the shape of one element of the batch.
fn without_axis(shape: &Shape, axis: Option<usize>) -> Result<Shape> {
    let Some(axis) = axis else {
        return Ok(shape.clone());
    };
    shape.map_arrays(&mut |array| {
        let mut dimensions = array.dimensions().to_vec();
        dimensions.remove(axis);
        ArrayShape::new(array.element_type(), &dimensions)
    })
}

/// Returns the shape of the results for all elements.
fn with_batch(shape: &Shape, size: usize) -> Result<Shape> {
    shape.map_arrays(&mut |array| {
        let dimensions = [&[size], array.dimensions()].concat();
        ArrayShape::new(array.element_type(), &dimensions)
    })
}

/// Returns one element of the batch, row-major, or the whole array if the operand has no batch.
fn slice(shape: &ArrayShape, bytes: &[u8], axis: Option<usize>, element: usize) -> Vec<u8> {
    let Some(axis) = axis else {
        return bytes.to_vec();
    };
    let dimensions = shape.dimensions();
    let inner =
        dimensions[axis + 1..].iter().product::<usize>() * shape.element_type().byte_width();
    let row = dimensions[axis] * inner;
    if row == 0 {
        return Vec::new();
    }
    let rows = bytes.chunks_exact(row);
    rows.flat_map(|row| &row[element * inner..(element + 1) * inner])
        .copied()
        .collect()
}
