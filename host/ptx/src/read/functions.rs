//! Entries and device functions up to their bodies.

use crate::ast::{Function, Limits, Linkage, Variable};
use crate::error::Found;
use crate::lexer::Kind;
use crate::types::Space;

use super::body;
use super::module::Reader;

impl<'a> Reader<'_, 'a> {
    pub(super) fn function(&mut self, linkage: Linkage, is_entry: bool) -> Result<(), Found> {
        let mut names = Vec::new();
        let mut variables = Vec::new();
        if !is_entry && self.cursor.peek() == Kind::Mark('(') {
            self.parameters(&mut names, &mut variables)?;
        }
        let results = variables.len();
        let line = self.cursor.line();
        let name = self.cursor.word("the name of a function")?;
        let mut function = Function {
            name: self.module_name(name)?,
            is_entry,
            linkage,
            results,
            parameters: 0,
            limits: Limits::default(),
            variables,
            registers: Vec::new(),
            labels: Vec::new(),
            body: None,
            line,
        };
        if self.cursor.peek() == Kind::Mark('(') {
            self.parameters(&mut names, &mut function.variables)?;
        }
        function.parameters = function.variables.len() - results;
        function.limits = self.launch_limits()?;
        if self.cursor.takes(';') {
            return self.add_function(name, function);
        }
        // A function can call itself.
        let declaration = function.clone();
        if !self.functions.contains_key(name) {
            self.add_function(name, declaration)?;
        }
        let function = body::read(self, function, &names)?;
        self.add_function(name, function)
    }

    /// Reads parameters or results in parentheses.
    fn parameters(
        &mut self,
        names: &mut Vec<&'a str>,
        variables: &mut Vec<Variable>,
    ) -> Result<(), Found> {
        self.cursor.expect('(')?;
        while !self.cursor.takes(')') {
            if !self.cursor.takes_word(".param") {
                return self
                    .cursor
                    .expected("`.param` (parameters in registers are not supported)");
            }
            let declared_type = self.cursor.declared_type()?;
            let declared = self.cursor.declared()?;
            if names.contains(&declared.name) {
                return self
                    .cursor
                    .expected("a name that no other parameter has, before this,");
            }
            names.push(declared.name);
            if names.len() > self.limits.operands {
                return self.cursor.expected("at most 256 parameters");
            }
            variables.push(declared.variable(declared_type, Space::Param));
            if !self.cursor.takes(',') && self.cursor.peek() != Kind::Mark(')') {
                return self.cursor.expected("`,` or `)`");
            }
        }
        Ok(())
    }

    /// Reads `.maxntid 256, 1, 1` and similar directives up to the body.
    fn launch_limits(&mut self) -> Result<Limits, Found> {
        let mut limits = Limits::default();
        while let Kind::Word(word) = self.cursor.peek() {
            let place = self.cursor.place();
            self.cursor.advance();
            if self.cursor.skips_debug(word)? {
                continue;
            }
            match word {
                ".maxntid" => limits.maxntid = Some(self.threads()?),
                ".reqntid" => limits.reqntid = Some(self.threads()?),
                ".minnctapersm" => {
                    limits.minnctapersm = Some(self.cursor.count32("a number of blocks")?);
                }
                ".maxnctapersm" => {
                    limits.maxnctapersm = Some(self.cursor.count32("a number of blocks")?);
                }
                ".maxnreg" => limits.maxnreg = Some(self.cursor.count32("a number of registers")?),
                ".noreturn" => limits.is_noreturn = true,
                _ => {
                    let message = format!(
                        "a body in braces was expected, and `{}` found",
                        crate::lexer::quoted(word)
                    );
                    return Err(Found::new(place, message));
                }
            }
        }
        Ok(limits)
    }

    fn threads(&mut self) -> Result<[u32; 3], Found> {
        let mut threads = [1; 3];
        for (dimension, threads) in threads.iter_mut().enumerate() {
            if dimension == 0 || self.cursor.takes(',') {
                *threads = self.cursor.count32("a number of threads")?;
            } else {
                break;
            }
        }
        Ok(threads)
    }
}
