//! What a kernel does first and last: it sets registers and shared memory to zero, and writes the
//! record.

use std::collections::BTreeSet;

use super::{Fencer, Record, integer, record, variable_operand};
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
        if self.can_note() {
            self.writer.set_record();
            self.writer.zero(site, None);
            self.writer.zero(offset, None);
        }
        self.writer.set_origins();
        if !self.can_note()
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
            let operands = vec![Operand::Register(*counter), integer(u64::from(look.period))];
            self.writer.emit(None, Opcode::Mov, &["u32"], operands);
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
            self.writer.emit(
                None,
                Opcode::Mov,
                &["u32"],
                vec![Operand::Register(start), from],
            );
            self.zero_elements(thread, start, 0, bytes / width, width);
            self.zero_elements(thread, start, bytes / width * width, bytes % width, 1);
        }
        self.writer
            .emit(None, Opcode::Barrier, &["sync"], vec![integer(0)]);
    }

    /// The number of this thread in its block.
    fn thread_index(&mut self) -> RegisterId {
        let [width, height, _] = self.proof.launch.block;
        let index = self.writer.register(Type::B32);
        let to = || Operand::Register(index);
        let read = |special| vec![to(), Operand::Special(special)];
        self.writer
            .emit(None, Opcode::Mov, &["u32"], read(Special::TidZ));
        for (special, size) in [(Special::TidY, height), (Special::TidX, width)] {
            let next = self.writer.register(Type::B32);
            let operands = vec![Operand::Register(next), Operand::Special(special)];
            self.writer.emit(None, Opcode::Mov, &["u32"], operands);
            let operands = vec![
                to(),
                to(),
                integer(u64::from(size)),
                Operand::Register(next),
            ];
            self.writer
                .emit(None, Opcode::Mad, &["lo", "s32"], operands);
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
        let [one, place] = [index, address].map(|register| move || Operand::Register(register));
        writer.emit(
            None,
            Opcode::Mov,
            &["b32"],
            vec![one(), Operand::Register(thread)],
        );
        let operands = vec![place(), one(), integer(width), Operand::Register(start)];
        writer.emit(None, Opcode::Mad, &["lo", "s32"], operands);
        let [again, done] = [writer.label(), writer.label()];
        let is_in = writer.register(Type::Pred);
        writer.place(again);
        let operands = vec![Operand::Register(is_in), one(), integer(count)];
        writer.emit(None, Opcode::Setp, &["lt", "u32"], operands);
        writer.branch(
            Some(Guard {
                predicate: is_in,
                is_negated: true,
            }),
            done,
        );
        let target = Operand::Address(Address {
            base: Base::Register(address),
            offset: offset as i64,
            coordinates: Vec::new(),
        });
        let zero = writer.register(if width == 8 { Type::B64 } else { Type::B32 });
        writer.zero(zero, None);
        let kind = match width {
            8 => "b64",
            4 => "b32",
            2 => "b16",
            _ => "b8",
        };
        writer.emit(
            None,
            Opcode::St,
            &["shared", kind],
            vec![target, Operand::Register(zero)],
        );
        if count > threads {
            writer.emit(
                None,
                Opcode::Add,
                &["s32"],
                vec![one(), one(), integer(threads)],
            );
            let step = integer(threads * width);
            writer.emit(None, Opcode::Add, &["s32"], vec![place(), place(), step]);
            writer.branch(None, again);
        }
        writer.place(done);
    }

    /// Writes the end of the kernel: the first thread that noted something writes the record.
    pub(super) fn epilogue(&mut self) {
        if !self.can_note() {
            return;
        }
        let end = self.end;
        self.writer.place(end);
        let writer = &mut self.writer;
        let is_done = writer.register(Type::Pred);
        let guard = Some(Guard {
            predicate: is_done,
            is_negated: false,
        });
        let done = || Operand::Register(is_done);
        let site = Operand::Register(writer.site);
        writer.emit(
            None,
            Opcode::Setp,
            &["eq", "u32"],
            vec![done(), site.clone(), integer(0)],
        );
        writer.emit(guard, Opcode::Ret, &[], Vec::new());
        let before = writer.register(Type::B32);
        let operands = vec![
            Operand::Register(before),
            record(writer, Record::SITE),
            integer(0),
            site,
        ];
        writer.emit(None, Opcode::Atom, &["global", "cas", "b32"], operands);
        let operands = vec![done(), Operand::Register(before), integer(0)];
        writer.emit(None, Opcode::Setp, &["ne", "u32"], operands);
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
            let operands = vec![Operand::Register(value), Operand::Special(special)];
            writer.emit(None, Opcode::Mov, &["u32"], operands);
            let operands = vec![record(writer, place), Operand::Register(value)];
            writer.emit(None, Opcode::St, &["global", "u32"], operands);
        }
        let operands = vec![
            record(writer, Record::OFFSET),
            Operand::Register(writer.offset),
        ];
        writer.emit(None, Opcode::St, &["global", "b64"], operands);
        writer.emit(None, Opcode::Ret, &[], Vec::new());
    }
}
