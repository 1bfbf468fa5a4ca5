//! Operands of instructions.

use crate::ast::{Address, Base, Immediate, Opcode, Operand, Special, VariableId};
use crate::error::Found;
use crate::lexer::{Kind, quoted};

use super::body::{Body, Target};

impl<'a> Body<'_, '_, 'a> {
    /// Reads the operands of a load or a store. Triton writes a single register in braces.
    pub(super) fn memory_operands(&mut self) -> Result<Vec<Operand>, Found> {
        let mut operands = self.operands()?;
        for operand in &mut operands {
            if let Operand::Vector(elements) = operand
                && let [single] = elements.as_slice()
            {
                *operand = single.clone();
            }
        }
        Ok(operands)
    }

    /// Reads operands and the semicolon.
    pub(super) fn operands(&mut self) -> Result<Vec<Operand>, Found> {
        let mut operands = Vec::new();
        if self.reader.cursor.takes(';') {
            return Ok(operands);
        }
        loop {
            let first = self.operand()?;
            operands.push(if self.reader.cursor.takes('|') {
                let second = self.scalar()?;
                Operand::Pair(Box::new([first, second]))
            } else {
                first
            });
            self.check_count(operands.len())?;
            if !self.reader.cursor.takes(',') {
                self.reader.cursor.expect(';')?;
                return Ok(operands);
            }
        }
    }

    fn check_count(&self, count: usize) -> Result<(), Found> {
        let most = self.reader.limits.operands;
        if count <= most {
            return Ok(());
        }
        let message = format!("more than {most} operands or elements of a vector (`operands`)");
        Err(Found::new(self.reader.cursor.place(), message))
    }

    fn operand(&mut self) -> Result<Operand, Found> {
        match self.reader.cursor.peek() {
            Kind::Mark('{') => self.vector().map(Operand::Vector),
            Kind::Mark('[') => self.address(),
            _ => self.scalar(),
        }
    }

    fn vector(&mut self) -> Result<Vec<Operand>, Found> {
        self.reader.cursor.expect('{')?;
        let mut elements = vec![self.scalar()?];
        while self.reader.cursor.takes(',') {
            elements.push(self.scalar()?);
            self.check_count(elements.len())?;
        }
        self.reader.cursor.expect('}')?;
        Ok(elements)
    }

    fn address(&mut self) -> Result<Operand, Found> {
        self.reader.cursor.expect('[')?;
        let place = self.reader.cursor.place();
        let (base, first) = match self.scalar()? {
            Operand::Register(register) => (Base::Register(register), 0),
            Operand::Variable(variable, offset) => (Base::Variable(variable), offset),
            Operand::Immediate(Immediate::Integer(value)) => (Base::Nothing, value.cast_signed()),
            _ => {
                let message = "an address was expected in the brackets".to_owned();
                return Err(Found::new(place, message));
            }
        };
        let offset = first.wrapping_add(self.reader.cursor.offset()?);
        let coordinates = if self.reader.cursor.takes(',') {
            self.vector()?
        } else {
            Vec::new()
        };
        self.reader.cursor.expect(']')?;
        Ok(Operand::Address(Address {
            base,
            offset,
            coordinates,
        }))
    }

    /// Reads an operand without braces and brackets.
    fn scalar(&mut self) -> Result<Operand, Found> {
        match self.reader.cursor.peek() {
            Kind::Mark('!') => {
                self.reader.cursor.advance();
                self.predicate().map(Operand::Not)
            }
            Kind::Word(word) => {
                let place = self.reader.cursor.place();
                self.reader.cursor.advance();
                self.named(word)?.ok_or_else(|| {
                    let what = if word.starts_with('%') {
                        "no register that is declared or known"
                    } else {
                        "no register and no variable that is declared"
                    };
                    Found::new(place, format!("`{}` is {what}", quoted(word)))
                })
            }
            Kind::Number(_) | Kind::Mark('-') => {
                self.reader.cursor.number().map(Operand::Immediate)
            }
            _ => self.reader.cursor.expected("an operand"),
        }
    }

    fn named(&mut self, word: &'a str) -> Result<Option<Operand>, Found> {
        if word == "_" {
            return Ok(Some(Operand::Discard));
        }
        if let Some((register, _)) = self.register(word) {
            return Ok(Some(Operand::Register(register)));
        }
        if let Some(variable) = self.variable(word) {
            let offset = self.reader.cursor.offset()?;
            return Ok(Some(Operand::Variable(variable, offset)));
        }
        if let Some(special) = Special::from_name(word) {
            return Ok(Some(Operand::Special(special)));
        }
        let function = self.reader.functions.get(word);
        Ok(function.map(|&function| Operand::Function(function)))
    }

    /// Reads the operands of `bra` and `brx.idx`. Their labels are added at the end of the body.
    pub(super) fn branch_operands(&mut self, opcode: Opcode) -> Result<Vec<Operand>, Found> {
        let mut operands = Vec::new();
        if opcode == Opcode::Brx {
            operands.push(self.scalar()?);
            self.reader.cursor.expect(',')?;
        }
        let place = self.reader.cursor.place();
        let name = self.reader.cursor.word("a label")?;
        let target = if opcode == Opcode::Brx {
            Target::Table(name)
        } else {
            Target::Label(name)
        };
        self.note_target(place, target);
        self.reader.cursor.expect(';')?;
        Ok(operands)
    }

    /// Reads `(results), function, (arguments);` as three operands.
    pub(super) fn call_operands(&mut self) -> Result<Vec<Operand>, Found> {
        let has_results = self.reader.cursor.peek() == Kind::Mark('(');
        let results = if has_results {
            self.call_parameters()?
        } else {
            Vec::new()
        };
        if has_results {
            self.reader.cursor.expect(',')?;
        }
        let place = self.reader.cursor.place();
        let name = self.reader.cursor.word("the name of a function")?;
        let Some(&function) = self.reader.functions.get(name) else {
            let message = format!(
                "`{}` is called, and no function of that name is declared before",
                quoted(name)
            );
            return Err(Found::new(place, message));
        };
        let arguments = if self.reader.cursor.takes(',') {
            self.call_parameters()?
        } else {
            Vec::new()
        };
        if !self.reader.cursor.takes(';') {
            return self
                .reader
                .cursor
                .expected("`;` (calls through a pointer are not supported)");
        }
        Ok(vec![
            Operand::Parameters(results),
            Operand::Function(function),
            Operand::Parameters(arguments),
        ])
    }

    fn call_parameters(&mut self) -> Result<Vec<VariableId>, Found> {
        let mut parameters = Vec::new();
        self.reader.cursor.expect('(')?;
        while !self.reader.cursor.takes(')') {
            let place = self.reader.cursor.place();
            let name = self.reader.cursor.word("the name of a parameter")?;
            let Some(variable) = self.variable(name) else {
                let message = format!("`{}` is no `.param` that is declared here", quoted(name));
                return Err(Found::new(place, message));
            };
            parameters.push(variable);
            self.check_count(parameters.len())?;
            if !self.reader.cursor.takes(',') {
                self.reader.cursor.expect(')')?;
                break;
            }
        }
        Ok(parameters)
    }
}
