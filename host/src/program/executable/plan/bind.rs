//! Custom calls and their targets: what a program says of a call, as its target's module gets it.

use std::collections::HashMap;
use std::sync::Arc;

use super::BoundCall;
use super::references::References;
use crate::call::{CallSite, FunctionReference, Platform, PreparedCalls, TargetModule};
use crate::program::Program;
use crate::program::instruction::{Computation, ComputationId, CustomCall, Instruction};
use crate::registry::Registry;
use crate::values::{ArrayShape, Literal, Result, Shape};

/// Collects call sites by module.
pub(super) struct Binder<'a> {
    program: &'a Program,
    references: References<'a>,
    registry: &'a Registry,
    platform: Platform,
    modules: Vec<(Arc<dyn TargetModule>, Vec<CallSite>)>,
    /// Functions that call sites refer to, each once for all of them.
    shared: HashMap<ComputationId, Arc<FunctionReference>>,
}

impl<'a> Binder<'a> {
    pub(super) fn new(
        program: &'a Program,
        references: References<'a>,
        registry: &'a Registry,
        platform: Platform,
    ) -> Self {
        Self {
            program,
            references,
            registry,
            platform,
            modules: Vec::new(),
            shared: HashMap::new(),
        }
    }

    /// Looks a call's target up, and adds the call to those of its module. `scratch` is what nobody reads of its result.
    pub(super) fn bind(
        &mut self,
        computation: &Computation,
        instruction: &Instruction,
        call: &CustomCall,
        scratch: Vec<usize>,
    ) -> Result<BoundCall> {
        let name = format!("custom call %{} of {:?}", instruction.name, call.target);
        let target = self.registry.lookup(&call.target, self.platform);
        let target = target.map_err(|status| status.context(&name))?;
        let functions = self.references.functions(call);
        let functions = functions.map_err(|status| status.context(&name))?;
        let (operands, result) = handed_over(computation, instruction, call)?;
        let bound = BoundCall {
            module: self.module(target.module()),
            site: 0,
            operands: operands.clone(),
            result: without_layouts_of(&result, &scratch)?,
            scratch: scratch.clone(),
            calls_back: !functions.is_empty(),
        };
        let site = CallSite {
            name,
            scratch,
            functions: functions.iter().map(|&id| self.reference(id)).collect(),
            called_computations: positions(&call.called_computations, &functions),
            ..call_site(&target.signature().name, operands, result, call)?
        };
        let sites = &mut self.modules[bound.module].1;
        sites.push(site);
        Ok(BoundCall {
            site: sites.len() - 1,
            ..bound
        })
    }

    /// Has each module prepare its call sites.
    pub(super) fn prepare(self) -> Result<Vec<Box<dyn PreparedCalls>>> {
        let modules = self.modules.into_iter();
        modules
            .map(|(module, sites)| module.prepare(sites))
            .collect()
    }

    /// The number of a module among those that have call sites.
    fn module(&mut self, module: &Arc<dyn TargetModule>) -> usize {
        let identity = module.identity();
        let mut known = self.modules.iter();
        match known.position(|(other, _)| other.identity() == identity) {
            Some(number) => number,
            None => {
                self.modules.push((Arc::clone(module), Vec::new()));
                self.modules.len() - 1
            }
        }
    }

    /// A function's reference, which all call sites share.
    fn reference(&mut self, id: ComputationId) -> Arc<FunctionReference> {
        let computation = &self.program.computations[id.index()];
        let reference = self.shared.entry(id).or_insert_with(|| {
            Arc::new(FunctionReference {
                name: computation.name.clone(),
                id: id.index(),
                parameters: computation.parameter_shapes().cloned().collect(),
                result: computation.result_shape().clone(),
            })
        });
        Arc::clone(reference)
    }
}

/// The shapes of operands and result as they are handed over: without layout constraints, row-major.
fn handed_over(
    computation: &Computation,
    instruction: &Instruction,
    call: &CustomCall,
) -> Result<(Vec<Shape>, Shape)> {
    if let Some(shapes) = &call.operand_layouts {
        return Ok((shapes.clone(), instruction.shape.clone()));
    }
    let operands = instruction.operands.iter();
    let shapes = operands.map(|id| without_layouts(&computation.instructions[id.index()].shape));
    Ok((
        shapes.collect::<Result<_>>()?,
        without_layouts(&instruction.shape)?,
    ))
}

/// What an instruction's attributes say of a call.
fn call_site(
    target: &str,
    operands: Vec<Shape>,
    result: Shape,
    call: &CustomCall,
) -> Result<CallSite> {
    Ok(CallSite {
        api_version: call.api_version,
        attributes: call.attributes.clone(),
        opaque: call.opaque.clone(),
        static_info: call.static_info.clone(),
        aliasing: call.aliasing.clone(),
        literal: call.literal.as_ref().map(row_major).transpose()?,
        ..CallSite::new(target, operands, result)
    })
}

/// Where these are among all.
fn positions(these: &[ComputationId], all: &[ComputationId]) -> Vec<usize> {
    let numbers: HashMap<_, _> = all.iter().enumerate().map(|(i, id)| (id, i)).collect();
    these
        .iter()
        .filter_map(|id| numbers.get(id).copied())
        .collect()
}

/// A literal's elements are row-major whatever its layout, which is that of the text.
fn row_major(literal: &Literal) -> Result<Literal> {
    let shape = without_layouts(literal.shape())?;
    Ok(literal.clone().with_compatible_shape(&shape))
}

fn without_layouts(shape: &Shape) -> Result<Shape> {
    map_leaves(shape, &mut |leaf| leaf.clone().without_layout())
}

/// The shape with these leaves, by number in preorder and sorted, in the default layout.
fn without_layouts_of(shape: &Shape, leaves: &[usize]) -> Result<Shape> {
    let mut number = 0;
    map_leaves(shape, &mut |leaf| {
        number += 1;
        match leaves.binary_search(&(number - 1)) {
            Ok(_) => leaf.clone().without_layout(),
            Err(_) => leaf.clone(),
        }
    })
}

/// Tuples nest no deeper than [`Shape::tuple`] lets them.
fn map_leaves(shape: &Shape, map: &mut impl FnMut(&ArrayShape) -> ArrayShape) -> Result<Shape> {
    match shape {
        Shape::Array(array) => Ok(map(array).into()),
        Shape::Tuple(tuple) => {
            let elements = tuple
                .elements()
                .iter()
                .map(|element| map_leaves(element, map));
            Shape::tuple(elements.collect::<Result<_>>()?)
        }
    }
}
