//! An FFI call with its shapes and its static information settled.

use super::{FfiCall, Function};
use crate::call::{
    ApiVersion, CallOptions, CallSite, Execution, PreparedCalls, StaticInfo, TargetModule,
};
use crate::values::{ArrayShape, Literal, Result, Shape, Status};

/// Calls of an FFI call's function on operands of one set of shapes: what `jit` makes of it. It can be called from many threads
/// at once.
#[derive(Debug)]
pub struct CompiledFfiCall {
    calls: Box<dyn PreparedCalls>,
    operands: Vec<Shape>,
    result: Shape,
}

impl CompiledFfiCall {
    pub(super) fn new(
        call: &FfiCall,
        function: &Function,
        operands: Vec<Shape>,
        static_info: Option<StaticInfo>,
        result: Shape,
    ) -> Result<Self> {
        // The proposal: "Here we'll generate MHLO that uses default layouts".
        let without_layout = |array: &ArrayShape| Ok(array.clone().without_layout().into());
        let plain = |shape: &Shape| map_arrays(shape, &without_layout);
        let operands = operands.iter().map(plain).collect::<Result<Vec<_>>>()?;
        let result = plain(&result)?;
        let site = CallSite {
            name: format!("FFI call {:?}", call.name()),
            api_version: ApiVersion::JaxFfi,
            static_info,
            ..CallSite::new(&function.signature.name, operands.clone(), result.clone())
        };
        let module = function.module.clone();
        Ok(Self {
            calls: <dyn TargetModule>::prepare(module, vec![site])?,
            operands,
            result,
        })
    }

    /// Calls the function.
    ///
    /// # Errors
    /// - INVALID_ARGUMENT if the operands do not have the shapes.
    /// - What the function fails with, recoverable if it says so.
    pub fn call(&self, operands: &[Literal], options: &CallOptions) -> Result<Literal> {
        self.check(operands)?;
        let leaves = operands.iter().flat_map(Literal::leaves);
        let bytes: Vec<&[u8]> = leaves.map(|(_, bytes)| bytes).collect();
        let mut results = room(&self.result, 1)?;
        let mut buffers: Vec<&mut [u8]> = results.iter_mut().map(Vec::as_mut_slice).collect();
        self.begin(options)?.call(0, &bytes, &mut buffers)?;
        Literal::from_leaves(self.result.clone(), results)
    }

    /// Begins an execution, in which the one call site can be called any number of times.
    pub(super) fn begin(&self, options: &CallOptions) -> Result<Box<dyn Execution + '_>> {
        let mut execution = self.calls.begin(options, None, &[0])?;
        execution.initialize()?;
        Ok(execution)
    }

    pub(super) fn result(&self) -> &Shape {
        &self.result
    }

    fn check(&self, operands: &[Literal]) -> Result<()> {
        if operands.len() != self.operands.len() {
            return Err(Status::invalid_argument(format!(
                "expected {} operands, found {}",
                self.operands.len(),
                operands.len()
            )));
        }
        for (i, (expected, found)) in std::iter::zip(&self.operands, operands).enumerate() {
            if !expected.is_compatible(found.shape()) {
                return Err(Status::invalid_argument(format!(
                    "operand {i}: expected {expected}, found {}",
                    found.shape()
                )));
            }
        }
        Ok(())
    }
}

/// The same nest of tuples of other arrays. A shape has at most 64 tuples one in the other.
pub(super) fn map_arrays(
    shape: &Shape,
    map: &dyn Fn(&ArrayShape) -> Result<Shape>,
) -> Result<Shape> {
    match shape {
        Shape::Array(array) => map(array),
        Shape::Tuple(tuple) => {
            let elements = tuple.elements().iter().map(|e| map_arrays(e, map));
            Shape::tuple(elements.collect::<Result<_>>()?)
        }
    }
}

/// Zeroed bytes for each leaf of a shape, `count` times.
pub(super) fn room(shape: &Shape, count: usize) -> Result<Vec<Vec<u8>>> {
    let leaves = shape.leaves();
    let bytes = leaves
        .iter()
        .map(|leaf| crate::values::zeroed(leaf.byte_size().saturating_mul(count)));
    bytes.collect()
}
