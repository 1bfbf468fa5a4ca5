//! The comparison of an address with what it may reach.

use super::Fencer;
use super::groups::{Need, Verdicts};
use super::writer::{emit, memory};
use crate::ast::{Base, Guard, Instruction, Operand, RegisterId};
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
            emit!(self.writer => Setp ["eq", "or", "u32"] fits, size.clone(), 0, fits);
        }
        let (runs, failed) = match instruction.guard {
            None => (fits, Guard::unless(fits)),
            Some(guard) => {
                // Without the guard, nothing failed.
                let failed = self.writer.register(Type::Pred);
                let runs = self.writer.register(Type::Pred);
                let own = if guard.is_negated {
                    let own = self.writer.register(Type::Pred);
                    emit!(self.writer => Not ["pred"] own, guard.predicate);
                    own
                } else {
                    guard.predicate
                };
                emit!(self.writer => And ["pred"] runs, fits, own);
                emit!(self.writer => Xor ["pred"] failed, runs, own);
                (runs, Guard::when(failed))
            }
        };
        let site = self.access_site(instruction, check);
        self.note(site, Some(failed), offset);
        Verdicts {
            runs: Guard::when(runs),
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
        let clamped = self.writer.address(bits);
        let [add, selp] = if bits == 32 {
            ["s32", "b32"]
        } else {
            ["s64", "b64"]
        };
        emit!(self.writer => Add [add] clamped, address, need.low as u64);
        emit!(self.writer => Selp [selp] clamped, clamped, start, fits);
        if let Some(place) = instruction.operands.get_mut(check.operand) {
            *place = memory(Base::Register(clamped), 0);
        }
        let site = self.access_site(instruction, check);
        self.note(site, Some(Guard::unless(fits)), offset);
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
            Base::Nothing => Operand::from(0),
        };
        let register = self.writer.register(Type::B64);
        emit!(self.writer => Mov ["u64"] register, from);
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
        let fits = self.writer.register(Type::Pred);
        let mut offset = None;
        for (index, origin) in within.iter().enumerate() {
            let start = self.writer.origin(*origin, bits);
            let distance = self.writer.address(bits);
            emit!(self.writer => Sub [signed] distance, address, start);
            // A register of 32 bits is itself compared: adding its offset may be done in 64.
            let low = if bits == 32 {
                need.low.min(0)
            } else {
                need.low
            };
            if low != 0 {
                emit!(self.writer => Add [signed] distance, distance, low as u64);
            }
            let most = i128::from(self.length(*origin)) - (need.high - low);
            let (order, limit) = match u64::try_from(most) {
                Ok(most) => ("le", most),
                // Nothing fits.
                Err(_) => ("lt", 0),
            };
            if index == 0 {
                emit!(self.writer => Setp [order, unsigned] fits, distance, limit);
            } else {
                emit!(self.writer => Setp [order, "or", unsigned] fits, distance, limit, fits);
            }
            offset = (within.len() == 1).then(|| self.wide(distance));
        }
        if let Some((align, at)) = need.align {
            let rest = self.writer.address(bits);
            emit!(self.writer => And [plain] rest, address, u64::from(align) - 1);
            let wanted = at.wrapping_neg().rem_euclid(i64::from(align)) as u64;
            emit!(self.writer => Setp ["eq", "and", plain] fits, rest, wanted, fits);
        }
        (fits, offset)
    }

    /// A register as 64 bits.
    fn wide(&mut self, register: RegisterId) -> Operand {
        if self.writer.bits(register) == 64 {
            return register.into();
        }
        let wide = self.writer.register(Type::B64);
        emit!(self.writer => Cvt ["s64", "s32"] wide, register);
        wide.into()
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
