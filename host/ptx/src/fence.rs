//! Adds to a verified kernel the checks that its proof leaves open.
//!
//! [`fence`] writes a new tree. An access that is not proved is compared with the buffer or the
//! variable that its address comes from. If it is out of range or misaligned, a load reads zero, a
//! store is left out, and the thread notes the instruction. `trap` and failed assertions are noted
//! too. Collective instructions access the first bytes of the variable instead. Loops that nothing
//! bounds look at a stop word. Registers, local and shared memory begin as zeros. At its end, the
//! first thread that noted something writes it to the record.
//!
//! What the author claims of a kernel, and an assembler would believe, is left out: that the
//! threads of a warp agree on a branch (`bra.uni`) or an address (`ldu`), what a parameter points
//! to (`.ptr`), and that a function does not return.
//!
//! The comparison is what makes an access safe, not the analysis: if the analysis guesses the wrong
//! buffer, an honest kernel is stopped.
//!
//! The kernel has one more parameter, the address of a [`Record`] in global memory, which the
//! launcher sets to zeros. A launch whose record has a site failed, and its results are worthless.

mod checks;
mod groups;
mod prologue;
mod writer;

use self::writer::{Writer, emit, memory};
use crate::ast::{
    Base, Function, Guard, Instruction, LabelId, Linkage, Module, Operand, Statement, VariableId,
};
use crate::table::{Action, Opcode};
use crate::types::{Space, Type};
use crate::verify::{Check, Decision, Leaving, Look, Origin, Plan, Proof};

/// The places in the record. All numbers are little-endian.
#[derive(Clone, Copy, Debug)]
pub struct Record;

impl Record {
    /// The size of the record.
    pub const BYTES: usize = 64;
    /// The alignment of the record.
    pub const ALIGN: usize = 8;
    /// The stop word, 4 bytes. The host sets it to stop the kernel.
    pub const STOP: usize = 0;
    /// The number of the site, 4 bytes: 0 if nothing was noted, else 1 more than the index in
    /// [`Fenced::sites`].
    pub const SITE: usize = 8;
    /// The thread's index in its block: x, y and z, 4 bytes each.
    pub const THREAD: usize = 12;
    /// The block's index in the grid: x, y and z, 4 bytes each.
    pub const BLOCK: usize = 24;
    /// The offset of the access in its buffer or variable, 8 bytes, as a signed number.
    pub const OFFSET: usize = 40;
}

/// The reason for which a fence ends a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// An access out of range, misaligned, or to memory that it must not write.
    Access {
        /// The state space.
        space: Space,
        /// Whether it reads or writes.
        action: Action,
        /// The number of bytes.
        bytes: u64,
        /// The parameter that the address comes from, if one is known.
        param: Option<usize>,
    },
    /// `trap` or `brkpt`.
    Trap,
    /// A failed assertion.
    Assertion,
    /// The thread saw the stop word.
    Stopped,
}

/// A place at which a kernel can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// The line of the author's text.
    pub line: u32,
    /// The fault that is reported for it.
    pub fault: Fault,
}

/// A kernel with its fence.
#[derive(Clone, Debug)]
pub struct Fenced {
    /// A module with this kernel alone. [`crate::print`] writes it as text.
    pub module: Module,
    /// The places that a record can name. Empty if everything was proved: the kernel then does not
    /// use its record.
    pub sites: Vec<Site>,
    /// The number of instructions in the author's kernel, and in the fenced one.
    pub instructions: (usize, usize),
}

/// Adds the fence to the kernel that a proof is about. The module must be the verified one.
pub fn fence(module: &Module, proof: &Proof) -> Fenced {
    let Some(function) = module.functions.get(proof.function) else {
        return Fenced {
            module: Module {
                functions: Vec::new(),
                ..module.clone()
            },
            sites: Vec::new(),
            instructions: (0, 0),
        };
    };
    let mut fencer = Fencer::new(module, function, proof);
    fencer.body();
    let Fencer {
        writer, mut sites, ..
    } = fencer;
    let mut fenced = writer.finished(function);
    fenced.limits.maxntid = None;
    fenced.limits.is_noreturn = false;
    for variable in &mut fenced.variables {
        variable.pointer = None;
    }
    fenced.limits.reqntid = Some(proof.launch.block);
    fenced.linkage = Linkage::Visible;
    sites.shrink_to_fit();
    let count = |function: &Function| {
        let statements = function.body.iter().flatten();
        statements
            .filter(|one| matches!(one, Statement::Instruction(_)))
            .count()
    };
    let instructions = (count(function), count(&fenced));
    let mut variables = module.variables.clone();
    for variable in &mut variables {
        if variable.linkage != Linkage::Extern {
            variable.linkage = Linkage::Internal;
        }
    }
    Fenced {
        module: Module {
            functions: vec![fenced],
            variables,
            ..*module
        },
        sites,
        instructions,
    }
}

struct Fencer<'f> {
    module: &'f Module,
    function: &'f Function,
    proof: &'f Proof,
    writer: Writer,
    sites: Vec<Site>,
    /// Where a thread goes at its end, if it may have noted something.
    end: LabelId,
    /// Code to print after the body: looks at the stop word.
    slow: Vec<(Look, LabelId, LabelId, crate::ast::RegisterId, u32)>,
    groups: groups::Groups,
    /// Whether a thread may have to write to its record when it ends.
    can_note: bool,
}

impl<'f> Fencer<'f> {
    fn new(module: &'f Module, function: &'f Function, proof: &'f Proof) -> Self {
        let mut writer = Writer::new(function);
        let end = writer.label();
        Self {
            module,
            function,
            proof,
            writer,
            sites: Vec::new(),
            end,
            slow: Vec::new(),
            groups: groups::Groups::new(function, &proof.plan),
            can_note: can_note(&proof.plan),
        }
    }

    fn body(&mut self) {
        let plan = &self.proof.plan;
        let body = self.function.body.as_deref().unwrap_or_default();
        let mut step = 0;
        let mut first_of_block = None;
        for statement in body {
            match statement {
                Statement::Label(label) => self.writer.place(*label),
                Statement::Instruction(instruction) => {
                    let index = step;
                    step += 1;
                    self.writer.line = instruction.line;
                    let Some(block) = plan.blocks.get(index).copied().flatten() else {
                        continue;
                    };
                    if first_of_block != Some(block) {
                        first_of_block = Some(block);
                        if let Some(look) = plan.looks.iter().find(|look| look.block == block) {
                            self.look(*look, instruction.line.0);
                        }
                    }
                    self.step(index, instruction);
                }
            }
        }
        self.prologue();
        self.writer.line = crate::ast::Line(0);
        if self.can_note {
            // The body may end without `ret`.
            let end = self.end;
            self.writer.branch(None, end);
        } else if !self.writer.ends_with_return() {
            self.writer.emit(None, Opcode::Ret, &[], Vec::new());
        }
        self.slow_paths();
        self.epilogue();
    }

    fn site(&mut self, line: u32, fault: Fault) -> u32 {
        self.sites.push(Site { line, fault });
        u32::try_from(self.sites.len()).unwrap_or(u32::MAX)
    }

    fn step(&mut self, index: usize, instruction: &Instruction) {
        let plan = &self.proof.plan;
        if plan.exits.binary_search(&index).is_ok() {
            if self.can_note {
                let end = self.end;
                self.writer.branch(instruction.guard, end);
            } else {
                self.writer
                    .emit(instruction.guard, Opcode::Ret, &[], Vec::new());
            }
            return;
        }
        if plan.traps.binary_search(&index).is_ok() {
            let fault = if instruction.opcode == Opcode::Call {
                Fault::Assertion
            } else {
                Fault::Trap
            };
            let site = self.site(instruction.line.0, fault);
            self.note(site, instruction.guard, None);
            return;
        }
        let first = plan.checks.partition_point(|check| check.step < index);
        let end = plan.checks.partition_point(|check| check.step <= index);
        let checks = plan.checks.get(first..end).unwrap_or_default();
        if checks
            .iter()
            .any(|check| check.decision == Decision::Dropped)
        {
            return;
        }
        let mut instruction = self.writer.shifted(instruction);
        if plan.hidden.binary_search(&index).is_ok() {
            self.hide(&mut instruction);
        }
        for check in checks {
            match &check.decision {
                Decision::Proved | Decision::Dropped => {}
                Decision::Never => {
                    let site = self.access_site(&instruction, check);
                    self.note(site, instruction.guard, None);
                    self.zero_results(&instruction, instruction.guard);
                    return;
                }
                Decision::Checked { .. } => self.checked(&mut instruction, check),
            }
        }
        self.writer.push(instruction);
    }

    /// Compares registers that an assembler cannot compute: it must not count a loop's turns by
    /// this comparison, as it does as if nothing wrapped. `verify/doubts.rs` has the reasons.
    fn hide(&mut self, comparison: &mut Instruction) {
        for operand in comparison.operands.iter_mut().skip(1).take(2) {
            let Operand::Register(register) = *operand else {
                continue;
            };
            let bits = self.writer.bits(register);
            let Some((kind, name)) = [(Type::B16, "b16"), (Type::B32, "b32"), (Type::B64, "b64")]
                .into_iter()
                .find(|(kind, _)| kind.bits() == bits)
            else {
                continue;
            };
            let hidden = self.writer.register(kind);
            let zero = self.writer.unknown_zero(kind);
            emit!(self.writer => Xor [name] hidden, register, zero);
            *operand = hidden.into();
        }
    }

    fn access_site(&mut self, instruction: &Instruction, check: &Check) -> u32 {
        let fault = Fault::Access {
            space: check.access.space,
            action: check.access.action,
            bytes: check.bytes,
            param: check.origin.and_then(Origin::param),
        };
        self.site(instruction.line.0, fault)
    }

    /// Notes a site, unless the thread noted one before.
    fn note(&mut self, site: u32, guard: Option<Guard>, offset: Option<Operand>) {
        let writer = &mut self.writer;
        let (noted, is_first) = (writer.site, writer.register(Type::Pred));
        match guard.map(predicate) {
            None => emit!(writer => Setp ["eq", "u32"] is_first, noted, 0),
            Some(guard) => emit!(writer => Setp ["eq", "and", "u32"] is_first, noted, 0, guard),
        }
        let first = Some(Guard::when(is_first));
        let site = vec![noted.into(), Operand::from(u64::from(site))];
        writer.emit(first, Opcode::Mov, &["u32"], site);
        if let Some(offset) = offset {
            let operands = vec![writer.offset.into(), offset];
            writer.emit(first, Opcode::Mov, &["b64"], operands);
        }
    }

    /// Sets the registers that an instruction would have written to zero.
    fn zero_results(&mut self, instruction: &Instruction, guard: Option<Guard>) {
        let results = match instruction.opcode {
            Opcode::Ld | Opcode::Ldu | Opcode::Atom | Opcode::Wmma | Opcode::Ldmatrix => {
                instruction.operands.first()
            }
            _ => None,
        };
        for part in results.map_or(&[][..], Operand::parts) {
            if let Operand::Register(register) = part {
                self.writer.zero(*register, guard);
            }
        }
    }

    fn look(&mut self, look: Look, line: u32) {
        let counter = self.writer.register(Type::U32);
        let [slow, back] = [self.writer.label(), self.writer.label()];
        let is_due = self.writer.register(Type::Pred);
        emit!(self.writer => Sub ["u32"] counter, counter, 1);
        emit!(self.writer => Setp ["eq", "u32"] is_due, counter, 0);
        self.writer.branch(Some(Guard::when(is_due)), slow);
        self.writer.place(back);
        self.slow.push((look, slow, back, counter, line));
    }

    fn slow_paths(&mut self) {
        for (look, slow, back, counter, line) in std::mem::take(&mut self.slow) {
            self.writer.place(slow);
            emit!(self.writer => Mov ["u32"] counter, u64::from(look.period));
            self.leave_or_go(look.leaving, back, line);
        }
    }

    /// Reads the stop word. Without a stop, control goes to `back`.
    fn leave_or_go(&mut self, leaving: Leaving, back: LabelId, line: u32) {
        let site = self.site(line, Fault::Stopped);
        let writer = &mut self.writer;
        let [word, stop] = [writer.register(Type::U32), writer.register(Type::Pred)];
        let place = record(writer, Record::STOP);
        emit!(writer => Ld ["volatile", "global", "u32"] word, place);
        emit!(writer => Setp ["ne", "u32"] stop, word, 0);
        match leaving {
            Leaving::Thread => {}
            Leaving::Warp => {
                let lanes = u64::from(u32::MAX);
                emit!(writer => Vote ["sync", "any", "pred"] stop, stop, lanes);
            }
            Leaving::Block => emit!(writer => Barrier ["red", "or", "pred"] stop, 0, stop),
        }
        writer.branch(Some(Guard::unless(stop)), back);
        self.note(site, None, None);
        let end = self.end;
        self.writer.branch(None, end);
    }
}

/// [`Fencer::can_note`], which is known before the body is written.
fn can_note(plan: &Plan) -> bool {
    let is_checked =
        |check: &Check| matches!(check.decision, Decision::Checked { .. } | Decision::Never);
    let looks = !plan.looks.is_empty() || plan.first_look.is_some();
    plan.checks.iter().any(is_checked) || looks || !plan.traps.is_empty()
}

/// A guard as an operand.
fn predicate(guard: Guard) -> Operand {
    if guard.is_negated {
        Operand::Not(guard.predicate)
    } else {
        Operand::Register(guard.predicate)
    }
}

/// A place in the record.
fn record(writer: &Writer, offset: usize) -> Operand {
    memory(Base::Register(writer.record), offset as i64)
}

fn variable_operand(variable: VariableId) -> Operand {
    Operand::Variable(variable, 0)
}
