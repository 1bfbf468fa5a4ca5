//! Binding: finds the targets of custom calls and makes the call sites that their modules prepare.
//!
//! Without `operand_layout_constraints`, arrays are handed over row-major, whatever layouts the
//! text has. XLA's layout assignment would give the call the layouts around it; callbox assigns no
//! layouts.

use std::collections::HashMap;
use std::sync::Arc;

use super::BoundCall;
use super::references::References;
use crate::Program;
use crate::instruction::{Computation, ComputationId, CustomCall, Instruction};
use crate::lapack::{owner, routine};
use callbox_core::call::{
    CallOptions, CallSite, FunctionReference, Platform, PreparedCalls, TargetModule,
};
use callbox_core::text::shortened;
use callbox_core::values::{ArrayShape, Blame, Literal, Result, Shape, Status, StatusCode};
use callbox_core::{RegisteredTarget, Registry};

/// The most arrays that the operands and results of all custom calls have, with those of the
/// functions that they name. Modules keep a record of
/// each, although a program names a whole tuple of them with a few bytes.
const MAX_ARRAYS: usize = 1 << 20;

/// The most dimensions that these arrays have together. A record has 16 bytes for each.
const MAX_DIMENSIONS: usize = 1 << 22;

/// Subtracts from what is left of a limit on all custom calls.
fn count(left: &mut usize, found: usize, most: usize, what: &str) -> Result<()> {
    *left = left.checked_sub(found).ok_or_else(|| {
        let message = format!("expected at most {most} {what}, found more");
        Status::new(StatusCode::ResourceExhausted, Blame::Caller, message)
    })?;
    Ok(())
}

/// Collects call sites by module.
pub(super) struct Binder<'a> {
    program: &'a Program,
    references: References<'a>,
    registry: &'a Registry,
    pub(super) platform: Platform,
    modules: Vec<(Arc<dyn TargetModule>, Vec<CallSite>)>,
    /// The number of arrays that further calls may have.
    arrays_left: usize,
    /// The number of dimensions that they may have together.
    dimensions_left: usize,
    /// References to functions, shared by all call sites, and the arrays and tuples of each.
    shared: HashMap<ComputationId, (Arc<FunctionReference>, usize)>,
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
            arrays_left: MAX_ARRAYS,
            dimensions_left: MAX_DIMENSIONS,
            shared: HashMap::new(),
        }
    }

    /// The target of a custom call. `None` for a function of LAPACK that callbox runs.
    fn target(
        &self,
        computation: &Computation,
        instruction: &Instruction,
        call: &CustomCall,
    ) -> Result<Option<&'a RegisteredTarget>> {
        // A message that a name is unknown compares it with all others.
        if !self.registry.has(&call.target, self.platform) {
            let shapes = instruction.operands.iter().map(|&id| computation.shape(id));
            if routine(call, &Vec::from_iter(shapes), &instruction.shape)?.is_some() {
                return Ok(None);
            }
        }
        let found = self.registry.lookup(&call.target, self.platform);
        let found = found.map_err(|status| match owner(&call.target) {
            Some(owner) if status.code() == StatusCode::NotFound => {
                status.map_message(|message| format!("{message}; {owner}"))
            }
            _ => status,
        });
        found.map(Some)
    }

    /// Adds a custom call to the call sites of its target's module. `scratch` are the leaves of
    /// its result that nothing reads. `None` for a function of LAPACK that callbox runs.
    pub(super) fn bind(
        &mut self,
        computation: &Computation,
        instruction: &Instruction,
        call: &CustomCall,
        scratch: Vec<usize>,
    ) -> Result<Option<BoundCall>> {
        let name = format!(
            "custom call %{} of {:?}",
            shortened(&instruction.name),
            shortened(&call.target)
        );
        let target = self.target(computation, instruction, call);
        let Some(target) = target.map_err(|status| status.context(&name))? else {
            return Ok(None);
        };
        let functions = self.references.functions(call);
        let functions = functions.map_err(|status| status.context(&name))?;
        let references = Vec::from_iter(functions.iter().map(|&id| self.reference(id)));
        self.count_arrays(computation, instruction, &references)
            .map_err(|status| status.context(&name))?;
        let (operands, result) = shapes(computation, instruction, call)?;
        let module = self.module(target.module());
        let references = references.into_iter().map(|(reference, _)| reference);
        let site = CallSite {
            api_version: call.api_version,
            attributes: call.attributes.clone(),
            opaque: call.opaque.clone(),
            static_info: call.static_info.clone(),
            aliasing: call.aliasing.clone(),
            literal: call.literal.as_ref().map(row_major).transpose()?,
            name,
            scratch: scratch.clone(),
            functions: references.collect(),
            called_computations: positions(&call.called_computations, &functions),
            ..CallSite::new(&target.signature().name, operands.clone(), result.clone())
        };
        let sites = &mut self.modules[module].1;
        sites.push(site);
        Ok(Some(BoundCall {
            module,
            site: sites.len() - 1,
            operands,
            result: without_layouts_of(&result, &scratch)?,
            scratch,
            calls_back: !functions.is_empty(),
        }))
    }

    /// Counts the arrays and tuples of a call and of the functions that it names, with which its
    /// module can compare them, and the dimensions of its arrays.
    fn count_arrays(
        &mut self,
        computation: &Computation,
        instruction: &Instruction,
        functions: &[(Arc<FunctionReference>, usize)],
    ) -> Result<()> {
        let operands = instruction.operands.iter().map(|&id| computation.shape(id));
        let shapes: Vec<_> = operands.chain([&instruction.shape]).collect();
        let own = shapes.iter().map(|shape| shape.size());
        let named = functions.iter().map(|(_, arrays)| *arrays);
        let arrays = own.chain(named).fold(0, usize::saturating_add);
        let what = "arrays as operands and results of custom calls and of the functions that they \
                    name";
        count(&mut self.arrays_left, arrays, MAX_ARRAYS, what)?;
        let leaves = shapes.iter().flat_map(|shape| shape.leaves());
        let dimensions = leaves.map(ArrayShape::rank).sum();
        count(
            &mut self.dimensions_left,
            dimensions,
            MAX_DIMENSIONS,
            "dimensions of operands and results of custom calls",
        )
    }

    /// Has each module prepare its call sites, all of them within `options`, whose deadline begins
    /// when they are loaded.
    pub(super) fn prepare(self, options: &mut CallOptions) -> Result<Vec<Box<dyn PreparedCalls>>> {
        for (module, sites) in &self.modules {
            module.load(sites)?;
        }
        *options = options.from_now_on();
        let modules = self.modules.into_iter();
        modules
            .map(|(module, sites)| module.prepare(sites, options))
            .collect()
    }

    /// The module's number.
    fn module(&mut self, module: &Arc<dyn TargetModule>) -> usize {
        let mut known = self.modules.iter();
        let known = known.position(|(other, _)| other.identity() == module.identity());
        known.unwrap_or_else(|| {
            self.modules.push((Arc::clone(module), Vec::new()));
            self.modules.len() - 1
        })
    }

    /// The shared reference to a function, and the arrays and tuples that it takes and gives.
    fn reference(&mut self, id: ComputationId) -> (Arc<FunctionReference>, usize) {
        let computation = &self.program.computations[id.index()];
        let reference = self.shared.entry(id).or_insert_with(|| {
            let shapes = computation.parameter_shapes();
            let arrays = shapes.chain([computation.result_shape()]).map(Shape::size);
            let arrays = arrays.sum();
            let reference = FunctionReference {
                name: computation.name.clone(),
                id: id.index(),
                parameters: computation.parameter_shapes().cloned().collect(),
                result: computation.result_shape().clone(),
            };
            (Arc::new(reference), arrays)
        });
        reference.clone()
    }
}

/// The shapes of operands and result, with the layouts in which they are handed over.
fn shapes(
    computation: &Computation,
    instruction: &Instruction,
    call: &CustomCall,
) -> Result<(Vec<Shape>, Shape)> {
    if let Some(layouts) = &call.operand_layouts {
        return Ok((layouts.clone(), instruction.shape.clone()));
    }
    let operands = instruction.operands.iter();
    let operands = operands.map(|&id| without_layouts(computation.shape(id)));
    Ok((
        operands.collect::<Result<_>>()?,
        without_layouts(&instruction.shape)?,
    ))
}

/// The position of each of `these` in `all`.
fn positions(these: &[ComputationId], all: &[ComputationId]) -> Vec<usize> {
    let numbers: HashMap<_, _> = all.iter().enumerate().map(|(i, id)| (id, i)).collect();
    these
        .iter()
        .filter_map(|id| numbers.get(id).copied())
        .collect()
}

/// The literal without its layouts, which say how its text was written. Its elements are row-major.
fn row_major(literal: &Literal) -> Result<Literal> {
    let shape = without_layouts(literal.shape())?;
    Ok(literal.clone().with_compatible_shape(&shape))
}

fn without_layouts(shape: &Shape) -> Result<Shape> {
    if shape.leaves().iter().all(|leaf| leaf.layout().is_none()) {
        return Ok(shape.clone());
    }
    shape.map_arrays(&mut |leaf| Ok(leaf.clone().without_layout()))
}

/// The shape, with the default layout for `leaves`: numbers in preorder, sorted.
fn without_layouts_of(shape: &Shape, leaves: &[usize]) -> Result<Shape> {
    if leaves.is_empty() {
        return Ok(shape.clone());
    }
    let mut numbers = 0..;
    shape.map_arrays(&mut |leaf| {
        let is_listed = numbers
            .next()
            .is_some_and(|n| leaves.binary_search(&n).is_ok());
        let leaf = leaf.clone();
        Ok(if is_listed {
            leaf.without_layout()
        } else {
            leaf
        })
    })
}
