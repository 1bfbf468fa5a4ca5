//! What a kernel does first and last: it sets registers, local and shared memory to zero, and
//! writes the record.

use super::writer::{emit, memory};
use super::{Fencer, Record, record, variable_operand};
use crate::ast::{Base, Guard, Operand, RegisterId, Special, Statement, VariableId};
use crate::table::Opcode;
use crate::types::{Space, Type};
use crate::verify::variable_align;

/// The most stores that set a local variable to zero without a loop.
const MOST_STORES: u64 = 32;

/// A variable that is set to zero.
struct Zeros {
    /// Its index in the new function.
    variable: VariableId,
    /// The number of this thread in its block, if the variable is shared, and not local.
    thread: Option<RegisterId>,
}

impl Fencer<'_> {
    /// Writes what comes before the body.
    pub(super) fn prologue(&mut self) {
        let body = self.writer.take_body();
        self.writer.line = crate::ast::Line(0);
        let (site, offset) = (self.writer.site, self.writer.offset);
        if self.can_note {
            self.writer.set_record();
            self.writer.zero(site, None);
            self.writer.zero(offset, None);
        }
        self.writer.set_origins();
        self.writer.set_zeros();
        if !self.can_note
            && self
                .proof
                .plan
                .zeroed
                .iter()
                .any(|register| self.writer.bits(*register) == 1)
        {
            self.writer.zero(site, None);
        }
        for register in &self.proof.plan.zeroed {
            self.writer.zero(*register, None);
        }
        self.zero_carry();
        for (look, _, _, counter, _) in &self.slow {
            emit!(self.writer => Mov ["u32"] *counter, u64::from(look.period));
        }
        if let Some(leaving) = self.proof.plan.first_look {
            let go = self.writer.label();
            self.leave_or_go(leaving, go, self.first_line());
            self.writer.place(go);
        }
        self.zero_local();
        self.zero_shared();
        self.writer.append(body);
    }

    /// Sets the carry to zero, where the kernel reads it: it would be that of an earlier kernel.
    fn zero_carry(&mut self) {
        let mut body = self.function.body.iter().flatten();
        let reads_carry = body.any(|statement| match statement {
            Statement::Instruction(instruction) => matches!(
                instruction.opcode,
                Opcode::Addc | Opcode::Subc | Opcode::Madc
            ),
            Statement::Label(_) => false,
        });
        if reads_carry {
            let sum = self.writer.register(Type::B32);
            emit!(self.writer => Add ["cc", "u32"] sum, 0, 0);
        }
    }

    /// The line of the author's first instruction.
    fn first_line(&self) -> u32 {
        let body = self.function.body.iter().flatten();
        let mut lines = body.filter_map(|statement| match statement {
            Statement::Instruction(instruction) => Some(instruction.line.0),
            Statement::Label(_) => None,
        });
        lines.next().unwrap_or(0)
    }

    /// The variables of a space that the body names, with their sizes and alignments.
    fn variables_in(&self, space: Space) -> Vec<(VariableId, u64, u64)> {
        let named = self.proof.plan.named.iter();
        let found = named.filter_map(|&id| {
            let variable = id.find(self.module, self.function)?;
            let bytes = self.proof.launch.variable_bytes(variable);
            let align = u64::from(variable_align(variable));
            (variable.space == space).then_some((id, bytes, align))
        });
        found.collect()
    }

    /// Lets the threads of the block set all shared variables to zero, and waits for them.
    fn zero_shared(&mut self) {
        let variables = self.variables_in(Space::Shared);
        if variables.is_empty() {
            return;
        }
        let thread = self.thread_index();
        for (variable, bytes, align) in variables {
            self.zero_variable(variable, Some(thread), bytes, align);
        }
        emit!(self.writer => Barrier ["sync"] 0);
    }

    /// Sets the thread's local variables to zero.
    fn zero_local(&mut self) {
        for (variable, bytes, align) in self.variables_in(Space::Local) {
            self.zero_variable(variable, None, bytes, align);
        }
    }

    /// Sets a variable to zero: a shared one by all threads of the block, of which this is one.
    fn zero_variable(
        &mut self,
        variable: VariableId,
        thread: Option<RegisterId>,
        bytes: u64,
        align: u64,
    ) {
        let variable = self.writer.shifted_variable(variable);
        let width = align.min(8);
        let zeros = Zeros { variable, thread };
        self.zero_elements(&zeros, 0, bytes / width, width);
        self.zero_elements(&zeros, bytes / width * width, bytes % width, 1);
    }

    /// The number of this thread in its block.
    fn thread_index(&mut self) -> RegisterId {
        let [width, height, _] = self.proof.launch.block;
        let index = self.writer.register(Type::B32);
        let writer = &mut self.writer;
        emit!(writer => Mov ["u32"] index, Operand::Special(Special::TidZ));
        for (special, size) in [(Special::TidY, height), (Special::TidX, width)] {
            let next = writer.register(Type::B32);
            emit!(writer => Mov ["u32"] next, Operand::Special(special));
            emit!(writer => Mad ["lo", "s32"] index, index, u64::from(size), next);
        }
        index
    }

    /// Sets `count` elements of `width` bytes to zero. Each thread sets every so many of a shared
    /// variable.
    fn zero_elements(&mut self, zeros: &Zeros, offset: u64, count: u64, width: u64) {
        if count == 0 {
            return;
        }
        let Zeros { variable, thread } = *zeros;
        let block = self.proof.launch.block.iter();
        let (space, threads) = match thread {
            Some(_) => ("shared", block.map(|&one| u64::from(one)).product()),
            None => ("local", 1),
        };
        let writer = &mut self.writer;
        let kind = match width {
            8 => "b64",
            4 => "b32",
            2 => "b16",
            _ => "b8",
        };
        let zero = writer.register(if width == 8 { Type::B64 } else { Type::B32 });
        writer.zero(zero, None);
        if thread.is_none() && count <= MOST_STORES {
            // An assembler can keep elements at known places in registers.
            for element in 0..count {
                let target = memory(Base::Variable(variable), (offset + element * width) as i64);
                emit!(writer => St [space, kind] target, zero);
            }
            return;
        }
        let [index, address] = [writer.register(Type::B32), writer.register(Type::B32)];
        emit!(writer => Mov ["u32"] address, variable_operand(variable));
        match thread {
            Some(thread) => {
                emit!(writer => Mov ["b32"] index, thread);
                emit!(writer => Mad ["lo", "s32"] address, index, width, address);
            }
            None => writer.zero(index, None),
        }
        let [again, done] = [writer.label(), writer.label()];
        let is_in = writer.register(Type::Pred);
        writer.place(again);
        emit!(writer => Setp ["lt", "u32"] is_in, index, count);
        writer.branch(Some(Guard::unless(is_in)), done);
        let target = memory(Base::Register(address), offset as i64);
        emit!(writer => St [space, kind] target, zero);
        if count > threads {
            emit!(writer => Add ["s32"] index, index, threads);
            emit!(writer => Add ["s32"] address, address, threads * width);
            writer.branch(None, again);
        }
        writer.place(done);
    }

    /// Writes the end of the kernel: the first thread that noted something writes the record.
    pub(super) fn epilogue(&mut self) {
        if !self.can_note {
            return;
        }
        let end = self.end;
        self.writer.place(end);
        let writer = &mut self.writer;
        let (site, offset) = (writer.site, writer.offset);
        let is_done = writer.register(Type::Pred);
        let guard = Some(Guard::when(is_done));
        emit!(writer => Setp ["eq", "u32"] is_done, site, 0);
        writer.emit(guard, Opcode::Ret, &[], Vec::new());
        let before = writer.register(Type::B32);
        let noted = record(writer, Record::SITE);
        // Where a whole grid fails or is stopped, an atomic operation of each thread on memory of
        // the host would take longer than the grid.
        emit!(writer => Ld ["volatile", "global", "u32"] before, noted.clone());
        emit!(writer => Setp ["ne", "u32"] is_done, before, 0);
        writer.emit(guard, Opcode::Ret, &[], Vec::new());
        emit!(writer => Atom ["global", "cas", "b32"] before, noted, 0, site);
        emit!(writer => Setp ["ne", "u32"] is_done, before, 0);
        writer.emit(guard, Opcode::Ret, &[], Vec::new());
        let specials = [
            (Special::TidX, Record::THREAD),
            (Special::TidY, Record::THREAD + 4),
            (Special::TidZ, Record::THREAD + 8),
            (Special::CtaidX, Record::BLOCK),
            (Special::CtaidY, Record::BLOCK + 4),
            (Special::CtaidZ, Record::BLOCK + 8),
        ];
        for (special, place) in specials {
            let value = writer.register(Type::B32);
            let to = record(writer, place);
            emit!(writer => Mov ["u32"] value, Operand::Special(special));
            emit!(writer => St ["global", "u32"] to, value);
        }
        let to = record(writer, Record::OFFSET);
        emit!(writer => St ["global", "b64"] to, offset);
        emit!(writer => Ret []);
    }
}
