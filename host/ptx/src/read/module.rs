//! A module: everything outside functions.

use std::collections::HashMap;

use crate::ast::{Features, Function, Linkage, Module, Target, Variable};
use crate::error::Found;
use crate::lexer::{Kind, Token, quoted};
use crate::types::Space;

use super::Limits;
use super::cursor::Cursor;

/// Reads a module.
pub(super) struct Reader<'t, 'a> {
    pub(super) cursor: Cursor<'t, 'a>,
    pub(super) limits: &'t Limits,
    /// The module's variables so far, by name.
    pub(super) variables: HashMap<&'a str, usize>,
    /// The functions so far, by name.
    pub(super) functions: HashMap<&'a str, usize>,
    pub(super) module: Module,
}

/// The longest name of a function or a variable.
const LONGEST_NAME: usize = 4096;

impl<'t, 'a> Reader<'t, 'a> {
    pub(super) fn new(tokens: &'t [Token<'a>], limits: &'t Limits) -> Self {
        let module = Module {
            version: (0, 0),
            target: Target {
                architecture: 0,
                features: None,
            },
            variables: Vec::new(),
            functions: Vec::new(),
        };
        Self {
            cursor: Cursor::new(tokens),
            limits,
            variables: HashMap::new(),
            functions: HashMap::new(),
            module,
        }
    }

    pub(super) fn module(mut self) -> Result<Module, Found> {
        self.version()?;
        self.target()?;
        while self.cursor.peek() != Kind::End {
            self.directive()?;
        }
        Ok(self.module)
    }

    fn version(&mut self) -> Result<(), Found> {
        if !self.cursor.takes_word(".version") {
            return self.cursor.expected("`.version`");
        }
        let version = match self.cursor.peek() {
            Kind::Number(number) => number
                .split_once('.')
                .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?))),
            _ => None,
        };
        let Some(version) = version else {
            return self.cursor.expected("a version such as 9.0");
        };
        self.cursor.advance();
        self.module.version = version;
        Ok(())
    }

    fn target(&mut self) -> Result<(), Found> {
        if !self.cursor.takes_word(".target") {
            return self.cursor.expected("`.target`");
        }
        let name = match self.cursor.peek() {
            Kind::Word(word) => word.strip_prefix("sm_"),
            _ => None,
        };
        let target = name.and_then(|name| {
            let (digits, features) = match name.as_bytes().last()? {
                b'a' => (name.strip_suffix('a')?, Some(Features::Architecture)),
                b'f' => (name.strip_suffix('f')?, Some(Features::Family)),
                _ => (name, None),
            };
            let architecture = digits.parse().ok()?;
            Some(Target {
                architecture,
                features,
            })
        });
        let Some(target) = target.filter(|target| target.architecture < 1000) else {
            return self.cursor.expected("a target such as sm_75");
        };
        self.cursor.advance();
        self.module.target = target;
        // `debug` says that debug sections follow, which are dropped.
        while self.cursor.takes(',') {
            if !self.cursor.takes_word("debug") {
                return self
                    .cursor
                    .expected("`debug`, the only option of a target that is supported,");
            }
        }
        Ok(())
    }

    fn directive(&mut self) -> Result<(), Found> {
        let linkage = self.linkage()?;
        let place = self.cursor.place();
        let word = self.cursor.word("a directive")?;
        if self.cursor.skips_debug(word)? {
            return Ok(());
        }
        match word {
            ".address_size" => {
                let size = self.cursor.count32("an address size")?;
                if size != 64 {
                    let message = format!("addresses of {size} bits are not supported, only of 64");
                    return Err(Found::new(place, message));
                }
                Ok(())
            }
            ".global" => self.module_variables(Space::Global, linkage),
            ".const" => self.module_variables(Space::Const, linkage),
            ".shared" => self.module_variables(Space::Shared, linkage),
            ".entry" => self.function(linkage, true),
            ".func" => self.function(linkage, false),
            _ => {
                let message = format!("`{}` is not supported here", quoted(word));
                Err(Found::new(place, message))
            }
        }
    }

    fn linkage(&mut self) -> Result<Linkage, Found> {
        let linkage = match self.cursor.peek() {
            Kind::Word(".visible") => Linkage::Visible,
            Kind::Word(".extern") => Linkage::Extern,
            Kind::Word(".weak") => Linkage::Weak,
            Kind::Word(".common") => Linkage::Common,
            Kind::Word(_) => return Ok(Linkage::Internal),
            _ => return self.cursor.expected("a directive"),
        };
        self.cursor.advance();
        Ok(linkage)
    }

    fn module_variables(&mut self, space: Space, linkage: Linkage) -> Result<(), Found> {
        let declared_type = self.cursor.declared_type()?;
        loop {
            let place = self.cursor.place();
            let declared = self.cursor.declared()?;
            let name = declared.name;
            let index = self.module.variables.len();
            let mut variable = Variable {
                name: self.module_name(name)?,
                linkage,
                ..declared.variable(declared_type, space)
            };
            // The initial contents may name the variable itself.
            let known = self.variables.insert(name, index);
            variable.initial = self.initial()?;
            match known {
                None => self.module.variables.push(variable),
                Some(_) => {
                    let message = format!("`{}` is declared a second time", quoted(name));
                    return Err(Found::new(place, message));
                }
            }
            if !self.cursor.takes(',') {
                return self.cursor.expect(';');
            }
        }
    }

    /// Checks the name of a function or a variable of the module. Names that begin with `%` are
    /// left to the printer.
    pub(super) fn module_name(&self, name: &str) -> Result<String, Found> {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$');
        let begins = name
            .bytes()
            .next()
            .is_some_and(|byte| !byte.is_ascii_digit());
        if begins && name.bytes().all(is_name) && name.len() <= LONGEST_NAME {
            return Ok(name.to_owned());
        }
        let message = format!(
            "`{}` is not a name of at most {LONGEST_NAME} letters, digits, `_` and `$`",
            quoted(name)
        );
        Err(Found::new(self.cursor.place(), message))
    }

    /// Adds a function, or gives a declared one its body.
    pub(super) fn add_function(&mut self, name: &'a str, function: Function) -> Result<(), Found> {
        let index = self.functions.get(name).copied();
        let Some(known) = index.and_then(|index| self.module.functions.get_mut(index)) else {
            let count = self.module.functions.len();
            if count >= self.limits.functions {
                let message = format!("it has more than {count} functions (`functions`)");
                return Err(Found::new(self.cursor.place(), message));
            }
            self.functions.insert(name, count);
            self.module.functions.push(function);
            return Ok(());
        };
        if known.body.is_some() && function.body.is_some() {
            let message = format!("`{}` is defined a second time", quoted(name));
            return Err(Found::new(self.cursor.place(), message));
        }
        let is_same = (known.is_entry, known.results, known.parameters)
            == (function.is_entry, function.results, function.parameters);
        if !is_same {
            let message = format!("`{}` was declared with other parameters", quoted(name));
            return Err(Found::new(self.cursor.place(), message));
        }
        if function.body.is_some() {
            *known = function;
        }
        Ok(())
    }
}
