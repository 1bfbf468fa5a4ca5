//! The comparison of an address with what it may reach.

use super::groups::{Need, Verdicts};
use super::{Fencer, integer};
use crate::ast::{Address, Base, Guard, Instruction, Operand, RegisterId};
use crate::table::{Bytes, Opcode};
use crate::types::Type;
use crate::verify::{Check, Decision, Origin};

impl Fencer<'_> {
    /// Writes the check of one operand, and lets the instruction run only if it passes.
    pub(super) fn checked(&mut self, instruction: &mut Instruction, check: &Check) {
        let Some((group, need)) = self.groups.of(check) else {
            return;
        };
        let Decision::Checked { within, .. } = &check.decision else {
            return;
        };
        if check.access.is_collective {
            self.clamped(instruction, check, need, within);
            return;
        }
        let verdicts = match self.groups.written.get(&group) {
            Some(verdicts) => *verdicts,
            None => {
                let verdicts = self.verdicts(instruction, check, need, within);
                self.groups.written.insert(group, verdicts);
                verdicts
            }
        };
        self.zero_results(instruction, Some(verdicts.failed));
        instruction.guard = Some(verdicts.runs);
    }

    fn verdicts(
        &mut self,
        instruction: &Instruction,
        check: &Check,
        need: Need,
        within: &[Origin],
    ) -> Verdicts {
        let address = self.address(instruction, check.operand);
        let (fits, offset) = self.compared(address, need, within);
        if let Bytes::Operand(index) = check.access.bytes
            && let Some(size) = instruction.operands.get(index)
        {
            // A copy of no bytes reads nothing.
            let operands = vec![
                Operand::Register(fits),
                size.clone(),
                integer(0),
                Operand::Register(fits),
            ];
            self.writer
                .emit(None, Opcode::Setp, &["eq", "or", "u32"], operands);
        }
        let (runs, failed) = match instruction.guard {
            None => (
                fits,
                Guard {
                    predicate: fits,
                    is_negated: true,
                },
            ),
            Some(guard) => {
                // Without the guard, nothing failed.
                let failed = self.writer.register(Type::Pred);
                let runs = self.writer.register(Type::Pred);
                let own = match guard.is_negated {
                    false => Operand::Register(guard.predicate),
                    true => {
                        let own = self.writer.register(Type::Pred);
                        let from = Operand::Register(guard.predicate);
                        self.writer.emit(
                            None,
                            Opcode::Not,
                            &["pred"],
                            vec![Operand::Register(own), from],
                        );
                        Operand::Register(own)
                    }
                };
                let all = vec![
                    Operand::Register(runs),
                    Operand::Register(fits),
                    own.clone(),
                ];
                self.writer.emit(None, Opcode::And, &["pred"], all);
                let rest = vec![Operand::Register(failed), Operand::Register(runs), own];
                self.writer.emit(None, Opcode::Xor, &["pred"], rest);
                (
                    runs,
                    Guard {
                        predicate: failed,
                        is_negated: false,
                    },
                )
            }
        };
        let site = self.access_site(instruction, check);
        self.note(site, Some(failed), offset);
        Verdicts {
            runs: Guard {
                predicate: runs,
                is_negated: false,
            },
            failed,
        }
    }

    /// A collective access goes to the first bytes of its variable if it fails.
    fn clamped(
        &mut self,
        instruction: &mut Instruction,
        check: &Check,
        need: Need,
        within: &[Origin],
    ) {
        let Some(&origin) = within.first() else {
            return;
        };
        let address = self.address(instruction, check.operand);
        let (fits, offset) = self.compared(address, need, within);
        let bits = self.writer.bits(address);
        let start = self.writer.origin(origin, bits);
        let clamped = self
            .writer
            .register(if bits == 32 { Type::B32 } else { Type::B64 });
        let [add, selp] = if bits == 32 {
            ["s32", "b32"]
        } else {
            ["s64", "b64"]
        };
        let to = || Operand::Register(clamped);
        let distance = integer(need.low as u64);
        self.writer.emit(
            None,
            Opcode::Add,
            &[add],
            vec![to(), Operand::Register(address), distance],
        );
        let operands = vec![
            to(),
            to(),
            Operand::Register(start),
            Operand::Register(fits),
        ];
        self.writer.emit(None, Opcode::Selp, &[selp], operands);
        if let Some(place) = instruction.operands.get_mut(check.operand) {
            *place = Operand::Address(Address {
                base: Base::Register(clamped),
                offset: 0,
                coordinates: Vec::new(),
            });
        }
        let site = self.access_site(instruction, check);
        self.note(
            site,
            Some(Guard {
                predicate: fits,
                is_negated: true,
            }),
            offset,
        );
    }

    /// The register of an address, without the offset.
    fn address(&mut self, instruction: &Instruction, operand: usize) -> RegisterId {
        let base = match instruction.operands.get(operand) {
            Some(Operand::Address(address)) => address.base,
            _ => Base::Nothing,
        };
        let from = match base {
            Base::Register(register) => return register,
            Base::Variable(variable) => super::variable_operand(variable),
            Base::Nothing => integer(0),
        };
        let register = self.writer.register(Type::B64);
        self.writer.emit(
            None,
            Opcode::Mov,
            &["u64"],
            vec![Operand::Register(register), from],
        );
        register
    }

    /// Compares an address with what it may reach. Returns the predicate, and the offset in the
    /// only thing that it may reach.
    fn compared(
        &mut self,
        address: RegisterId,
        need: Need,
        within: &[Origin],
    ) -> (RegisterId, Option<Operand>) {
        let bits = self.writer.bits(address);
        let [signed, unsigned, plain] = if bits == 32 {
            ["s32", "u32", "b32"]
        } else {
            ["s64", "u64", "b64"]
        };
        let kind = if bits == 32 { Type::B32 } else { Type::B64 };
        let fits = self.writer.register(Type::Pred);
        let mut offset = None;
        for (index, origin) in within.iter().enumerate() {
            let start = self.writer.origin(*origin, bits);
            let distance = self.writer.register(kind);
            let there = || Operand::Register(distance);
            let operands = vec![
                there(),
                Operand::Register(address),
                Operand::Register(start),
            ];
            self.writer.emit(None, Opcode::Sub, &[signed], operands);
            // A register of 32 bits is itself compared: adding its offset may be done in 64.
            let low = if bits == 32 {
                need.low.min(0)
            } else {
                need.low
            };
            if low != 0 {
                let operands = vec![there(), there(), integer(low as u64)];
                self.writer.emit(None, Opcode::Add, &[signed], operands);
            }
            let most = i128::from(self.length(*origin)) - (need.high - low);
            let (order, limit) = match u64::try_from(most) {
                Ok(most) => ("le", most),
                // Nothing fits.
                Err(_) => ("lt", 0),
            };
            let mut operands = vec![Operand::Register(fits), there(), integer(limit)];
            if index == 0 {
                self.writer
                    .emit(None, Opcode::Setp, &[order, unsigned], operands);
            } else {
                operands.push(Operand::Register(fits));
                self.writer
                    .emit(None, Opcode::Setp, &[order, "or", unsigned], operands);
            }
            offset = (within.len() == 1).then(|| self.wide(distance));
        }
        if let Some((align, at)) = need.align {
            let rest = self.writer.register(kind);
            let mask = integer(u64::from(align) - 1);
            let operands = vec![Operand::Register(rest), Operand::Register(address), mask];
            self.writer.emit(None, Opcode::And, &[plain], operands);
            let wanted = at.wrapping_neg().rem_euclid(i64::from(align)) as u64;
            let all = Operand::Register(fits);
            let operands = vec![all.clone(), Operand::Register(rest), integer(wanted), all];
            self.writer
                .emit(None, Opcode::Setp, &["eq", "and", plain], operands);
        }
        (fits, offset)
    }

    /// A register as 64 bits.
    fn wide(&mut self, register: RegisterId) -> Operand {
        if self.writer.bits(register) == 64 {
            return Operand::Register(register);
        }
        let wide = Operand::Register(self.writer.register(Type::B64));
        let operands = vec![wide.clone(), Operand::Register(register)];
        self.writer
            .emit(None, Opcode::Cvt, &["s64", "s32"], operands);
        wide
    }

    fn length(&self, origin: Origin) -> u64 {
        match origin {
            Origin::Buffer(index) => match self.proof.launch.params.get(index) {
                Some(crate::verify::Param::Buffer { bytes, .. }) => *bytes,
                _ => 0,
            },
            Origin::Variable(variable) => {
                let found = variable.find(self.module, self.function);
                found.map_or(0, |found| self.proof.launch.variable_bytes(found))
            }
        }
    }
}
