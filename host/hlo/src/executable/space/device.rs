//! Values in a device's memory.
//!
//! Only custom calls run on the device. The program's own instructions run on the host, in the
//! order of the device's queue: callbox runs custom calls and is not a compiler, and the Host
//! platform's code gives the same bits on both platforms. The price is a copy each way through
//! pinned memory, so that what should be fast on a GPU belongs in a target. Instructions that only
//! regroup buffers move no data. Control flow waits for the values that decide it.
//!
//! Results of `conditional`, `while` and `select` of tuples have sub-buffers of unknown address,
//! as in XLA. The oldest convention hands them over as null.

use std::collections::HashMap;
use std::sync::Arc;

use super::{HostSpace, Space};
use crate::evaluate::{
    Check, Pass, element_leaves, evaluate, from_layout, is_row_major, keeps_bytes, to_layout,
};
use crate::executable::plan::BoundCall;
use crate::executable::run::{Run, Stop, serving};
use crate::instruction::{Computation, Instruction, Opcode};
use callbox_core::call::{DeviceBuffer, DeviceLeaf, DeviceQueue, Execution, HostWork};
use callbox_core::text::shortened;
use callbox_core::values::{Literal, Result, Shape, Status};

/// A device's memory, and the queue of one execution on it.
pub(in crate::executable) struct DeviceSpace<'q> {
    queue: &'q mut dyn DeviceQueue,
    /// Uploaded constants, by the address of the instruction, so that loops upload them once.
    constants: HashMap<*const Instruction, DeviceValue>,
}

/// A value on a device.
#[derive(Clone, Debug)]
pub(in crate::executable) struct DeviceValue {
    shape: Shape,
    /// Its arrays, in preorder, dense and row-major.
    leaves: Vec<DeviceLeaf>,
}

impl DeviceValue {
    /// A value in these buffers.
    pub(in crate::executable) fn new(shape: Shape, buffers: Vec<DeviceBuffer>) -> Self {
        let leaf = |buffer| DeviceLeaf {
            buffer,
            is_known: true,
        };
        Self {
            shape,
            leaves: buffers.into_iter().map(leaf).collect(),
        }
    }

    /// The buffers of its leaves.
    pub(in crate::executable) fn buffers(&self) -> Vec<DeviceBuffer> {
        let buffers = self.leaves.iter().map(|leaf| Arc::clone(&leaf.buffer));
        buffers.collect()
    }

    /// An element of a tuple.
    fn element(&self, index: usize) -> Result<Self> {
        let (Some(shape), Some(leaves)) = (
            self.shape.at(&[index]),
            element_leaves(&self.shape).nth(index),
        ) else {
            return Err(Status::internal("a tuple without the element"));
        };
        Ok(Self {
            shape: shape.clone(),
            leaves: self.leaves[leaves].to_vec(),
        })
    }
}

impl<'q> DeviceSpace<'q> {
    /// The memory of the queue's device.
    pub(in crate::executable) fn new(queue: &'q mut dyn DeviceQueue) -> Self {
        Self {
            queue,
            constants: HashMap::new(),
        }
    }

    /// Copies a literal to the device.
    pub(in crate::executable) fn upload(&mut self, literal: &Literal) -> Result<DeviceValue> {
        let leaves = literal.leaves();
        let buffers = leaves.map(|(_, bytes)| self.queue.upload(bytes));
        let buffers = buffers.collect::<Result<_>>()?;
        Ok(DeviceValue::new(literal.shape().clone(), buffers))
    }

    /// Enqueues the computation of a value of this shape on the host. It fails if the execution is
    /// over when its turn comes.
    fn compute(
        run: &mut Run<'_, Self>,
        shape: &Shape,
        operands: &[DeviceValue],
        function: impl Fn(Stop, Vec<Literal>) -> Result<Literal> + Send + Sync + 'static,
    ) -> Result<DeviceValue> {
        // Work that the queue keeps outlives the execution and what stops it: then the execution
        // that it runs in stops it.
        let stop = if run.space.queue.keeps_work() {
            Stop::never()
        } else {
            run.stop.clone()
        };
        let shapes: Vec<Shape> = operands.iter().map(|o| o.shape.clone()).collect();
        let work: HostWork = Arc::new(move |options, inputs, outputs| {
            let stop = options.map_or_else(|| stop.clone(), Stop::new);
            stop.check()?;
            let mut inputs = inputs.iter();
            let operands = shapes.iter().map(|shape| {
                let leaves = inputs.by_ref().take(shape.leaf_count());
                Literal::from_leaves(shape.clone(), leaves.map(|bytes| bytes.to_vec()).collect())
            });
            let result = function(stop, operands.collect::<Result<_>>()?)?;
            for (output, (_, bytes)) in std::iter::zip(outputs, result.leaves()) {
                output.copy_from_slice(bytes);
            }
            Ok(())
        });
        let inputs: Vec<_> = operands.iter().flat_map(DeviceValue::buffers).collect();
        let outputs = run.space.allocate(shape)?;
        run.space.queue.compute(work, &inputs, &outputs)?;
        Ok(DeviceValue::new(shape.clone(), outputs))
    }

    /// The uploaded value of a constant instruction.
    fn constant(&mut self, instruction: &Instruction, literal: &Literal) -> Result<DeviceValue> {
        let address = std::ptr::from_ref(instruction);
        if let Some(uploaded) = self.constants.get(&address) {
            return Ok(uploaded.clone());
        }
        let value = self.upload(literal)?;
        self.constants.insert(address, value.clone());
        Ok(value)
    }

    fn allocate(&mut self, shape: &Shape) -> Result<Vec<DeviceBuffer>> {
        let leaves = shape.leaves().into_iter();
        leaves
            .map(|leaf| self.queue.allocate(leaf.byte_size()))
            .collect()
    }
}

impl Space for DeviceSpace<'_> {
    type Value = DeviceValue;

    fn initialize(&mut self, execution: &mut (dyn Execution + '_)) -> Result<()> {
        execution.initialize_on(self.queue)
    }

    fn evaluate(
        run: &mut Run<'_, Self>,
        instruction: &Instruction,
        operands: &[DeviceValue],
    ) -> Result<DeviceValue> {
        let shape = &instruction.shape;
        match (&instruction.opcode, operands) {
            (Opcode::Constant(literal), []) => run.space.constant(instruction, literal),
            (Opcode::GetTupleElement(index), [tuple]) => tuple.element(*index),
            (opcode, _) if regroups(opcode, operands, shape) => Ok(DeviceValue {
                shape: shape.clone(),
                leaves: operands.iter().flat_map(|o| o.leaves.clone()).collect(),
            }),
            (opcode, _) => {
                let core = Arc::clone(run.core);
                let owned = instruction.clone();
                let function = move |stop, operands: Vec<Literal>| {
                    let mut callee = Run::alone(&core, HostSpace, stop);
                    evaluate(&owned, &operands, &mut callee)
                };
                let value = Self::compute(run, shape, operands, function)?;
                // XLA implements a select of tuples as a choice between pointers.
                let is_select = matches!(opcode, Opcode::Select);
                Ok(if is_select {
                    Self::joined(value)
                } else {
                    value
                })
            }
        }
    }

    /// Programs for devices are planned without passes.
    fn pass(
        _: &mut Run<'_, Self>,
        _: &Pass,
        _: &Computation,
        _: Vec<DeviceValue>,
    ) -> Result<Vec<DeviceValue>> {
        Err(Status::internal("a pass over values on a device"))
    }

    fn custom_call(
        run: &mut Run<'_, Self>,
        call: &BoundCall,
        instruction: &Instruction,
        operands: &[DeviceValue],
    ) -> Result<DeviceValue> {
        let mut leaves = Vec::new();
        for (operand, shape) in std::iter::zip(operands, &call.operands) {
            if is_row_major(shape) {
                leaves.extend(operand.leaves.iter().cloned());
                continue;
            }
            let to = shape.clone();
            let convert = move |_, operands: Vec<Literal>| to_layout(&operands[0], &to);
            let converted = Self::compute(run, shape, std::slice::from_ref(operand), convert)?;
            leaves.extend(converted.leaves);
        }
        let results = run.space.allocate(&call.result)?;
        serving(&mut run.executions, call)?
            .enqueue(call.site, run.space.queue, &leaves, &results)
            .map_err(|status| {
                let name = shortened(&instruction.name);
                status.context(format_args!("custom call %{name}"))
            })?;
        let result = DeviceValue::new(call.result.clone(), results);
        if is_row_major(&call.result) {
            return Ok(result);
        }
        let (from, to) = (call.result.clone(), instruction.shape.clone());
        let convert = move |_, operands: Vec<Literal>| {
            from_layout(operands[0].clone().with_compatible_shape(&from), &to)
        };
        Self::compute(run, &instruction.shape, &[result], convert)
    }

    fn read(&mut self, value: &DeviceValue) -> Result<Literal> {
        let leaves = self.queue.download(&value.buffers())?;
        Literal::from_leaves(value.shape.clone(), leaves)
    }

    fn with_compatible_shape(value: DeviceValue, shape: &Shape) -> DeviceValue {
        DeviceValue {
            shape: shape.clone(),
            ..value
        }
    }

    fn joined(mut value: DeviceValue) -> DeviceValue {
        if matches!(value.shape, Shape::Tuple(_)) {
            let leaves = value.leaves.iter_mut();
            leaves.for_each(|leaf| leaf.is_known = false);
        }
        value
    }
}

/// Whether the result consists of the operands' buffers.
fn regroups(opcode: &Opcode, operands: &[DeviceValue], shape: &Shape) -> bool {
    match (opcode, operands) {
        (Opcode::Tuple | Opcode::OptimizationBarrier, _) => true,
        (_, [operand]) => keeps_bytes(opcode, &operand.shape, shape),
        _ => false,
    }
}
