//! An FFI call with fixed shapes and static information.

use super::{FfiCall, Function};
use callbox::call::{
    ApiVersion, CallOptions, CallSite, Execution, PreparedCalls, StaticInfo, TargetModule,
};
use callbox::values::{ArrayShape, Literal, Result, Shape, Status};

/// A call prepared for operands of one set of shapes, as `jit` does. Threads may call it
/// concurrently.
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
        let without_layout = |array: &ArrayShape| Ok(array.clone().without_layout());
        let plain = |shape: &Shape| shape.map_arrays(&mut { without_layout });
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
            calls: <dyn TargetModule>::prepare(module, vec![site], &CallOptions::default())?,
            operands,
            result,
        })
    }

    /// Calls the function.
    ///
    /// # Errors
    /// - INVALID_ARGUMENT if the operands have other shapes.
    /// - The function's failure, recoverable if the function says so.
    pub fn call(&self, operands: &[Literal], options: &CallOptions) -> Result<Literal> {
        self.check(operands)?;
        let leaves = operands.iter().flat_map(Literal::leaves);
        let bytes: Vec<&[u8]> = leaves.map(|(_, bytes)| bytes).collect();
        let mut results = room(&self.result, 1)?;
        let mut buffers: Vec<&mut [u8]> = results.iter_mut().map(Vec::as_mut_slice).collect();
        self.begin(options)?.call(0, &bytes, &mut buffers)?;
        Literal::from_leaves(self.result.clone(), results)
    }

    /// Begins an execution, in which the call site can be called any number of times.
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

/// Allocates zeroed bytes for each leaf of a shape, `count` times its size.
pub(super) fn room(shape: &Shape, count: usize) -> Result<Vec<Vec<u8>>> {
    let leaves = shape.leaves();
    let bytes = leaves
        .iter()
        .map(|leaf| callbox::values::zeroed(leaf.byte_size().saturating_mul(count)));
    bytes.collect()
}
