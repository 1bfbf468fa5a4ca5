//! What a kernel does first and last: it sets registers and shared memory to zero, and writes the
//! record.

use std::collections::BTreeSet;

use super::writer::{emit, memory};
use super::{Fencer, Record, record, variable_operand};
use crate::ast::{Address, Base, Guard, Operand, RegisterId, Special, Statement, VariableId};
use crate::table::Opcode;
use crate::types::{Space, Type};
use crate::verify::variable_align;

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
        for (look, _, _, counter, _) in &self.slow {
            emit!(self.writer => Mov ["u32"] *counter, u64::from(look.period));
        }
        self.zero_shared();
        self.writer.append(body);
    }

    fn shared_variables(&self) -> BTreeSet<VariableId> {
        let mut found = BTreeSet::new();
        for statement in self.function.body.iter().flatten() {
            let Statement::Instruction(instruction) = statement else {
                continue;
            };
            for operand in &instruction.operands {
                let variable = match operand {
                    Operand::Variable(variable, _) => *variable,
                    Operand::Address(Address {
                        base: Base::Variable(variable),
                        ..
                    }) => *variable,
                    _ => continue,
                };
                let one = variable.find(self.module, self.function);
                if one.is_some_and(|one| one.space == Space::Shared) {
                    found.insert(variable);
                }
            }
        }
        found
    }

    /// Lets the threads of the block set all shared variables to zero, and waits for them.
    fn zero_shared(&mut self) {
        let variables = self.shared_variables();
        if variables.is_empty() {
            return;
        }
        let thread = self.thread_index();
        for variable in variables {
            let Some(found) = variable.find(self.module, self.function) else {
                continue;
            };
            let bytes = self.proof.launch.variable_bytes(found);
            let width = u64::from(variable_align(found).min(8));
            let start = self.writer.register(Type::B32);
            let from = variable_operand(self.writer.shifted_variable(variable));
            emit!(self.writer => Mov ["u32"] start, from);
            self.zero_elements(thread, start, 0, bytes / width, width);
            self.zero_elements(thread, start, bytes / width * width, bytes % width, 1);
        }
        emit!(self.writer => Barrier ["sync"] 0);
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

    /// Sets `count` elements of `width` bytes to zero, each thread every so many.
    fn zero_elements(
        &mut self,
        thread: RegisterId,
        start: RegisterId,
        offset: u64,
        count: u64,
        width: u64,
    ) {
        if count == 0 {
            return;
        }
        let threads: u64 = self
            .proof
            .launch
            .block
            .iter()
            .map(|&one| u64::from(one))
            .product();
        let writer = &mut self.writer;
        let [index, address] = [writer.register(Type::B32), writer.register(Type::B32)];
        emit!(writer => Mov ["b32"] index, thread);
        emit!(writer => Mad ["lo", "s32"] address, index, width, start);
        let [again, done] = [writer.label(), writer.label()];
        let is_in = writer.register(Type::Pred);
        writer.place(again);
        emit!(writer => Setp ["lt", "u32"] is_in, index, count);
        writer.branch(Some(Guard::unless(is_in)), done);
        let target = memory(Base::Register(address), offset as i64);
        let zero = writer.register(if width == 8 { Type::B64 } else { Type::B32 });
        writer.zero(zero, None);
        let kind = match width {
            8 => "b64",
            4 => "b32",
            2 => "b16",
            _ => "b8",
        };
        emit!(writer => St ["shared", kind] target, zero);
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
