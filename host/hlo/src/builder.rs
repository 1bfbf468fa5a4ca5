//! Programs built in code, in the manner of `xla::XlaBuilder`.
//!
//! Each operation is checked when it is added, by the verifier's own rules, so that an error
//! points at the line that made it.

mod arrays;
mod calls;
mod elementwise;
#[cfg(test)]
mod tests;
mod windows;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};

use super::instruction::{Computation, ComputationId, Instruction, InstructionId, Opcode, Program};
use super::shape_inference::infer;
use super::verify::place;
use callbox_core::text::shortened;
use callbox_core::values::{Literal, Result, Shape};

/// A handle of an instruction in the computation under construction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Op {
    scope: u64,
    instruction: InstructionId,
}

/// Builds a program, instruction by instruction.
///
/// A new builder has the entry computation open, the function with ordinal 0;
/// [`ProgramBuilder::computation`] builds further ones. Operands must be handles of the
/// computation under construction. Nothing is broadcast implicitly.
///
/// # Errors
/// Every method that adds an instruction fails if the operation does not take its operands: with
/// INVALID_ARGUMENT if XLA refuses them, too, and with UNIMPLEMENTED if XLA takes them.
///
/// ```
/// # fn main() -> callbox_core::Result<()> {
/// use callbox_hlo::{CustomCall, ProgramBuilder};
/// use callbox_core::{ElementType::F32, Shape};
///
/// let mut b = ProgramBuilder::new("do_it");
/// let param0 = b.parameter(0, Shape::array(F32, &[128])?, "p0")?;
/// let param1 = b.parameter(1, Shape::array(F32, &[2048])?, "p1")?;
/// let custom_call = b.custom_call(
///     CustomCall::new("do_custom_call"),
///     &[param0, param1],
///     Shape::array(F32, &[2048])?,
/// )?;
/// let program = b.build(custom_call)?;
///
/// let function = &program.functions()[0];
/// assert_eq!(function.name, "do_it");
/// assert_eq!(function.parameters[0].to_string(), "f32[128]");
/// assert_eq!(function.result.to_string(), "f32[2048]");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ProgramBuilder {
    name: String,
    /// The complete computations, by number. The entry computation becomes the last.
    computations: Vec<Computation>,
    computation_names: Names,
    exports: Vec<ComputationId>,
    open: Scope,
}

/// A computation under construction.
#[derive(Debug)]
struct Scope {
    /// Unique among the scopes of all builders: the handles of this scope carry it.
    key: u64,
    name: String,
    instructions: Vec<Instruction>,
    instruction_names: Names,
    /// The numbers of the parameters added so far.
    parameters: HashSet<usize>,
}

impl ProgramBuilder {
    /// A builder of a program with this name, which is also the name of the entry computation.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        let name = name.into();
        let mut computation_names = Names::default();
        Self {
            open: Scope::new(computation_names.unique(&name)),
            name,
            computations: Vec::new(),
            computation_names,
            exports: Vec::new(),
        }
    }

    /// Builds another computation, for operations that call one.
    ///
    /// `build` gets this builder with an empty computation open in it, and returns the root. A
    /// name that is taken gets a number.
    ///
    /// ```
    /// # fn main() -> callbox_core::Result<()> {
    /// use callbox_hlo::ProgramBuilder;
    /// use callbox_core::{ElementType::F32, Literal, Shape};
    ///
    /// let mut b = ProgramBuilder::new("sum");
    /// let add = b.computation("add", |c| {
    ///     let x = c.parameter(0, Shape::scalar(F32), "x")?;
    ///     let y = c.parameter(1, Shape::scalar(F32), "y")?;
    ///     c.add(x, y)
    /// })?;
    /// let values = b.parameter(0, Shape::array(F32, &[2, 3])?, "values")?;
    /// let zero = b.constant(Literal::scalar(0.0f32))?;
    /// let sum = b.reduce(&[values], &[zero], &[0, 1], add)?;
    /// assert_eq!(b.shape(sum)?.to_string(), "f32[]");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The errors of `build`; INVALID_ARGUMENT if parameter numbers have gaps.
    pub fn computation(
        &mut self,
        name: &str,
        build: impl FnOnce(&mut Self) -> Result<Op>,
    ) -> Result<ComputationId> {
        let name = self.computation_names.unique(name);
        let outer = std::mem::replace(&mut self.open, Scope::new(name));
        let root = build(self);
        let scope = std::mem::replace(&mut self.open, outer);
        let computation = scope.close(root?)?;
        let id = ComputationId::new(self.computations.len())?;
        self.computations.push(computation);
        Ok(id)
    }

    /// Exports a computation as the function with the next ordinal. The entry computation has
    /// ordinal 0 and needs no export.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if there is no such computation or if it is exported already.
    pub fn export(&mut self, computation: ComputationId) -> Result<()> {
        self.check_exists(computation)?;
        ensure!(
            !self.exports.contains(&computation),
            "expected a computation that is not exported yet, found %{}",
            shortened(&self.computations[computation.index()].name)
        );
        self.exports.push(computation);
        Ok(())
    }

    /// The program, with this root of its entry computation.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if `root` is not an instruction of the entry computation, or if parameter
    /// numbers have gaps.
    pub fn build(mut self, root: Op) -> Result<Program> {
        let entry = ComputationId::new(self.computations.len())?;
        self.computations.push(self.open.close(root)?);
        self.exports.insert(0, entry);
        Ok(Program::verified(
            self.name,
            self.computations,
            self.exports,
        )?)
    }

    /// The shape of an instruction's value.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if the handle belongs to another computation.
    pub fn shape(&self, op: Op) -> Result<&Shape> {
        let id = self.open.resolve(op)?;
        Ok(&self.open.instructions[id.index()].shape)
    }

    /// The parameter with this number. A name that is taken gets a number.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if the computation has a parameter with this number.
    pub fn parameter(&mut self, number: usize, shape: Shape, name: &str) -> Result<Op> {
        let opcode = Opcode::Parameter(number);
        if !self.open.parameters.insert(number) {
            let taken = invalid!("expected a parameter number that is not taken, found {number}");
            return Err(taken.context(place(name, &opcode, &self.open.name)));
        }
        let name = match name {
            "" => self.open.name_of(&opcode),
            _ => self.open.instruction_names.unique(name),
        };
        self.add_named(name, opcode, &[], Some(&shape))
    }

    /// A constant.
    ///
    /// # Errors
    /// See [`ProgramBuilder`].
    pub fn constant(&mut self, value: Literal) -> Result<Op> {
        self.instruction(Opcode::Constant(value), &[], None)
    }

    /// Orders `op` after `predecessor`, whether or not it reads its value.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if `op` was added before `predecessor`, or if either handle belongs to
    /// another computation.
    pub fn control_predecessor(&mut self, op: Op, predecessor: Op) -> Result<()> {
        let (id, predecessor) = (self.open.resolve(op)?, self.open.resolve(predecessor)?);
        let instructions = &mut self.open.instructions;
        ensure!(
            predecessor < id,
            "expected a control predecessor that comes before %{}, found %{}",
            shortened(&instructions[id.index()].name),
            shortened(&instructions[predecessor.index()].name)
        );
        let predecessors = &mut instructions[id.index()].control_predecessors;
        if !predecessors.contains(&predecessor) {
            predecessors.push(predecessor);
        }
        Ok(())
    }

    /// Adds an instruction, named after its opcode and a number: `add.3`.
    fn instruction(
        &mut self,
        opcode: Opcode,
        operands: &[Op],
        declared: Option<&Shape>,
    ) -> Result<Op> {
        let name = self.open.name_of(&opcode);
        self.add_named(name, opcode, operands, declared)
    }

    fn add_named(
        &mut self,
        name: String,
        opcode: Opcode,
        operands: &[Op],
        declared: Option<&Shape>,
    ) -> Result<Op> {
        let (operands, shape) = self
            .checked(&opcode, operands, declared)
            .map_err(|status| status.context(place(&name, &opcode, &self.open.name)))?;
        self.open.add(Instruction {
            name,
            shape,
            opcode,
            operands,
            control_predecessors: Vec::new(),
        })
    }

    /// The operands' ids and the result's shape of an instruction to be added.
    fn checked(
        &self,
        opcode: &Opcode,
        operands: &[Op],
        declared: Option<&Shape>,
    ) -> Result<(Vec<InstructionId>, Shape)> {
        for callee in opcode.called_computations() {
            self.check_exists(callee)?;
        }
        let ids = operands.iter().map(|&op| self.open.resolve(op));
        let ids = ids.collect::<Result<Vec<_>>>()?;
        let shapes = ids
            .iter()
            .map(|id| &self.open.instructions[id.index()].shape);
        let shape = infer(
            opcode,
            &Vec::from_iter(shapes),
            declared,
            &self.computations,
        )?;
        Ok((ids, shape))
    }

    fn check_exists(&self, computation: ComputationId) -> Result<()> {
        ensure!(
            computation.index() < self.computations.len(),
            "expected a computation of this builder, found number {} of {}",
            computation.index(),
            self.computations.len()
        );
        Ok(())
    }
}

impl Scope {
    fn new(name: String) -> Self {
        static NEXT_KEY: AtomicU64 = AtomicU64::new(0);
        Self {
            key: NEXT_KEY.fetch_add(1, Ordering::Relaxed),
            name,
            instructions: Vec::new(),
            instruction_names: Names::default(),
            parameters: HashSet::new(),
        }
    }

    fn resolve(&self, op: Op) -> Result<InstructionId> {
        ensure!(
            op.scope == self.key,
            "expected handles of computation %{}, found one of another",
            shortened(&self.name)
        );
        Ok(op.instruction)
    }

    fn name_of(&mut self, opcode: &Opcode) -> String {
        let name = format!("{}.{}", opcode.name(), self.instructions.len());
        self.instruction_names.unique(&name)
    }

    fn add(&mut self, instruction: Instruction) -> Result<Op> {
        let op = Op {
            scope: self.key,
            instruction: InstructionId::new(self.instructions.len())?,
        };
        self.instructions.push(instruction);
        Ok(op)
    }

    fn close(self, root: Op) -> Result<Computation> {
        let root = self.resolve(root)?;
        Computation::new(self.name, self.instructions, root)
    }
}

/// Names that are taken, each with the number to append when the name is requested again.
#[derive(Debug, Default)]
pub(super) struct Names(HashMap<String, usize>);

impl Names {
    /// The name, with a number appended if it is taken.
    pub(super) fn unique(&mut self, name: &str) -> String {
        let mut candidate = name.to_owned();
        while self.0.contains_key(&candidate) {
            let next = self.0.entry(name.to_owned()).or_insert(1);
            candidate = format!("{name}.{next}");
            *next += 1;
        }
        self.0.insert(candidate.clone(), 1);
        candidate
    }
}
