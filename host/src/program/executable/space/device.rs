//! Values in a device's memory.
//!
//! Custom calls are what runs on the device. The program's own instructions run on the host when their turn in the queue comes, with the very code that
//! runs them on the Host platform, and so give the very same bits; those that only say which bytes belong together move nothing. Control flow waits
//! for the values that decide it.

use std::collections::HashMap;
use std::sync::Arc;

use super::{HostSpace, Space};
use crate::call::{DeviceBuffer, DeviceLeaf, DeviceQueue, Execution, HostWork};
use crate::program::evaluate::{evaluate, from_layout, keeps_bytes, to_layout};
use crate::program::executable::plan::BoundCall;
use crate::program::executable::run::{Run, Stop};
use crate::program::instruction::{Instruction, Opcode};
use crate::values::{Literal, Result, Shape, Status};

/// A device's memory, and the queue of an execution on it.
pub(in crate::program::executable) struct DeviceSpace<'q> {
    queue: &'q mut dyn DeviceQueue,
    /// Constants that are there already, by where the instruction is: a loop has them once.
    constants: HashMap<*const Instruction, DeviceValue>,
}

/// A value on a device.
#[derive(Clone, Debug)]
pub(in crate::program::executable) struct DeviceValue {
    shape: Shape,
    /// In preorder, dense and row-major.
    leaves: Vec<DeviceLeaf>,
}

impl DeviceValue {
    /// A value that lies in these buffers.
    pub(in crate::program::executable) fn new(shape: Shape, buffers: Vec<DeviceBuffer>) -> Self {
        let known = |buffer| DeviceLeaf {
            buffer,
            is_known: true,
        };
        Self {
            shape,
            leaves: buffers.into_iter().map(known).collect(),
        }
    }

    /// The buffers of its leaves.
    pub(in crate::program::executable) fn buffers(&self) -> Vec<DeviceBuffer> {
        let buffers = self.leaves.iter().map(|leaf| Arc::clone(&leaf.buffer));
        buffers.collect()
    }

    /// An element of a tuple.
    fn element(&self, index: usize) -> Result<Self> {
        let elements = match &self.shape {
            Shape::Tuple(tuple) => tuple.elements(),
            Shape::Array(_) => &[],
        };
        let Some(shape) = elements.get(index) else {
            return Err(Status::internal("an element of what is no such tuple"));
        };
        let before: usize = elements[..index].iter().map(|e| e.leaves().len()).sum();
        let count = shape.leaves().len();
        Ok(Self {
            shape: shape.clone(),
            leaves: self.leaves[before..before + count].to_vec(),
        })
    }
}

impl<'q> DeviceSpace<'q> {
    /// Values in this queue's device's memory.
    pub(in crate::program::executable) fn new(queue: &'q mut dyn DeviceQueue) -> Self {
        Self {
            queue,
            constants: HashMap::new(),
        }
    }

    /// A literal's copy on the device.
    pub(in crate::program::executable) fn upload(
        &mut self,
        literal: &Literal,
    ) -> Result<DeviceValue> {
        let leaves = literal.leaves();
        let buffers = leaves.map(|(_, bytes)| self.queue.upload(bytes));
        let buffers = buffers.collect::<Result<_>>()?;
        Ok(DeviceValue::new(literal.shape().clone(), buffers))
    }

    /// Computes a value of this shape on the host, in its turn.
    fn compute(
        &mut self,
        shape: &Shape,
        operands: &[DeviceValue],
        function: impl Fn(Vec<Literal>) -> Result<Literal> + Send + Sync + 'static,
    ) -> Result<DeviceValue> {
        let shapes: Vec<Shape> = operands.iter().map(|o| o.shape.clone()).collect();
        let work: HostWork = Arc::new(move |inputs, outputs| {
            let mut inputs = inputs.iter();
            let operands = shapes.iter().map(|shape| {
                let leaves = inputs.by_ref().take(shape.leaves().len());
                Literal::from_leaves(shape.clone(), leaves.map(|bytes| bytes.to_vec()).collect())
            });
            let result = function(operands.collect::<Result<_>>()?)?;
            for (output, (_, bytes)) in std::iter::zip(outputs, result.leaves()) {
                output.copy_from_slice(bytes);
            }
            Ok(())
        });
        let inputs: Vec<_> = operands.iter().flat_map(DeviceValue::buffers).collect();
        let outputs = self.allocate(shape)?;
        self.queue.compute(work, &inputs, &outputs)?;
        Ok(DeviceValue::new(shape.clone(), outputs))
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
            (Opcode::Constant(literal), []) => {
                let place = std::ptr::from_ref(instruction);
                if let Some(there) = run.space.constants.get(&place) {
                    return Ok(there.clone());
                }
                let value = run.space.upload(literal)?;
                run.space.constants.insert(place, value.clone());
                Ok(value)
            }
            (Opcode::Tuple | Opcode::OptimizationBarrier, _) => Ok(DeviceValue {
                shape: shape.clone(),
                leaves: operands.iter().flat_map(|o| o.leaves.clone()).collect(),
            }),
            (Opcode::GetTupleElement(index), [tuple]) => tuple.element(*index),
            (opcode, [operand]) if keeps_bytes(opcode, &operand.shape, shape) => Ok(DeviceValue {
                shape: shape.clone(),
                leaves: operand.leaves.clone(),
            }),
            _ => {
                let core = Arc::clone(run.core);
                let owned = instruction.clone();
                // What is kept outlives the execution, and what stops that does not stop others.
                let stop = match run.space.queue.keeps_work() {
                    true => Stop::never(),
                    false => run.stop.clone(),
                };
                let function = move |operands: Vec<Literal>| {
                    let mut callee = Run::alone(&core, HostSpace, stop.clone());
                    evaluate(&owned, &operands, &mut callee)
                };
                let value = run.space.compute(shape, operands, function)?;
                match instruction.opcode {
                    // A select of tuples chooses between pointers where XLA runs it.
                    Opcode::Select => Ok(Self::joined(value)),
                    _ => Ok(value),
                }
            }
        }
    }

    fn custom_call(
        run: &mut Run<'_, Self>,
        call: &BoundCall,
        instruction: &Instruction,
        operands: &[DeviceValue],
    ) -> Result<DeviceValue> {
        let mut leaves = Vec::new();
        for (operand, shape) in std::iter::zip(operands, &call.operands) {
            if shape.leaves().iter().all(|leaf| leaf.is_row_major()) {
                leaves.extend(operand.leaves.iter().cloned());
                continue;
            }
            let to = shape.clone();
            let turned =
                run.space
                    .compute(shape, std::slice::from_ref(operand), move |operands| {
                        to_layout(&operands[0], &to)
                    })?;
            leaves.extend(turned.leaves);
        }
        let results = run.space.allocate(&call.result)?;
        let execution = run.executions.get_mut(call.module);
        let Some(Some(execution)) = execution else {
            return Err(Status::internal("a module has no part in its own call"));
        };
        execution
            .enqueue(call.site, run.space.queue, &leaves, &results)
            .map_err(|status| status.context(format_args!("custom call %{}", instruction.name)))?;
        let result = DeviceValue::new(call.result.clone(), results);
        let is_row_major = |shape: &Shape| shape.leaves().iter().all(|leaf| leaf.is_row_major());
        if is_row_major(&call.result) {
            return Ok(result);
        }
        let shape = instruction.shape.clone();
        let from = call.result.clone();
        run.space.compute(
            &instruction.shape,
            std::slice::from_ref(&result),
            move |mut operands| match operands.pop() {
                Some(result) => from_layout(result.with_compatible_shape(&from), &shape),
                None => Err(Status::internal("a result that is not there")),
            },
        )
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
            value
                .leaves
                .iter_mut()
                .for_each(|leaf| leaf.is_known = false);
        }
        value
    }
}
