//! From text to a module: what stands outside of function bodies.

use std::collections::HashMap;

use super::code::{Function, Operation};
use super::cursor::{Cursor, Declaration};
use super::header;
use super::initial;
use super::lexer::Kind;
use super::module::{Entry, Global, Module, ParseError, SharedVariable};

/// The most bytes of a variable in global memory.
const MOST_BYTES: usize = 1 << 28;

/// What is known of the module so far.
pub(super) struct Outline<'a> {
    pub(super) variables: HashMap<&'a str, Variable>,
    pub(super) signatures: HashMap<&'a str, Signature>,
    pub(super) shared: Vec<SharedVariable>,
    pub(super) functions: Vec<Option<Function>>,
    pub(super) entries: Vec<Entry>,
    globals: Vec<Global>,
}

/// Where a variable of the module lies.
#[derive(Clone, Copy, Debug)]
pub(super) enum Variable {
    Global,
    /// Its place in [`Module::shared`].
    Shared(usize),
}

/// What a function takes and gives: offsets and sizes in its parameter memory.
#[derive(Clone, Debug)]
pub(super) struct Signature {
    pub(super) parameters: Vec<(usize, usize)>,
    pub(super) results: Vec<(usize, usize)>,
    /// Its place in [`Module::functions`].
    pub(super) function: usize,
}

pub(super) fn module(text: &str) -> Result<Module, ParseError> {
    let mut cursor = Cursor::new(text)?;
    let version = version(&mut cursor)?;
    let target = target(&mut cursor)?;
    let mut outline = Outline {
        variables: HashMap::new(),
        signatures: HashMap::new(),
        shared: Vec::new(),
        functions: Vec::new(),
        entries: Vec::new(),
        globals: Vec::new(),
    };
    while cursor.peek() != Kind::End {
        directive(&mut cursor, &mut outline)?;
    }
    let mut functions = Vec::with_capacity(outline.functions.len());
    for (index, function) in outline.functions.into_iter().enumerate() {
        functions.push(function.unwrap_or_else(|| {
            let name = outline
                .signatures
                .iter()
                .find(|(_, signature)| signature.function == index);
            Function::without_body(name.map_or("", |(name, _)| name))
        }));
    }
    let Outline {
        shared,
        entries,
        globals,
        ..
    } = outline;
    check_calls(&functions)?;
    Ok(Module {
        version,
        target,
        entries,
        globals,
        functions,
        shared,
    })
}

/// Refuses calls of functions that are only declared.
fn check_calls(functions: &[Function]) -> Result<(), ParseError> {
    for instruction in functions.iter().flat_map(|function| &function.code) {
        if let Operation::Call(call) = &instruction.operation
            && functions[call.function].code.is_empty()
        {
            let name = &functions[call.function].name;
            let message = format!("`{name}` is called, which has no body and is not known");
            return Err(ParseError {
                line: instruction.line as usize,
                message,
            });
        }
    }
    Ok(())
}

fn pair(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn version(cursor: &mut Cursor<'_>) -> Result<(u32, u32), ParseError> {
    if !cursor.takes_word(".version") {
        return cursor.error("`.version`");
    }
    match cursor.peek() {
        Kind::Number(number) if pair(number).is_some() => {
            cursor.next();
            Ok(pair(number).unwrap_or_default())
        }
        _ => cursor.error("a version such as 9.0"),
    }
}

fn target(cursor: &mut Cursor<'_>) -> Result<(u32, u32), ParseError> {
    if !cursor.takes_word(".target") {
        return cursor.error("`.target`");
    }
    let digits = match cursor.peek() {
        Kind::Word(word) => word
            .strip_prefix("sm_")
            .map(|rest| rest.trim_end_matches(['a', 'f'])),
        _ => None,
    };
    let Some(number) = digits.and_then(|digits| digits.parse::<u32>().ok()) else {
        return cursor.error("a target such as sm_75");
    };
    cursor.next();
    while cursor.takes(',') {
        cursor.word("an option of the target")?;
    }
    Ok((number / 10, number % 10))
}

fn directive<'a>(cursor: &mut Cursor<'a>, outline: &mut Outline<'a>) -> Result<(), ParseError> {
    let line = cursor.line();
    let mut is_extern = false;
    loop {
        let Kind::Word(word) = cursor.peek() else {
            return cursor.error("a directive");
        };
        match word {
            ".visible" | ".weak" | ".common" => {}
            ".extern" => is_extern = true,
            _ => break,
        }
        cursor.next();
    }
    let word = cursor.word("a directive")?;
    match word {
        ".address_size" => {
            let size = cursor.count("an address size")?;
            if size != 64 {
                let message = format!("addresses of {size} bits are not supported, only of 64");
                return Err(ParseError { line, message });
            }
        }
        ".file" | ".loc" => cursor.skip_line(),
        ".pragma" => cursor.skip_behind(';')?,
        ".section" => {
            cursor.skip_behind('{')?;
            cursor.skip_behind('}')?;
        }
        ".global" | ".const" => global(cursor, outline, word == ".const", is_extern)?,
        ".shared" => shared(cursor, outline, is_extern)?,
        ".entry" => header::entry(cursor, outline)?,
        ".func" => header::function(cursor, outline)?,
        _ => {
            return Err(ParseError {
                line,
                message: format!("`{word}` is not supported here"),
            });
        }
    }
    Ok(())
}

fn global<'a>(
    cursor: &mut Cursor<'a>,
    outline: &mut Outline<'a>,
    is_constant: bool,
    is_extern: bool,
) -> Result<(), ParseError> {
    let declared = cursor.declared_type()?;
    loop {
        let variable = cursor.declaration(declared)?;
        outline.variables.insert(variable.name, Variable::Global);
        let content = initial::read(cursor, &variable)?;
        if !is_extern {
            let Some(size) = variable
                .size
                .or(content.as_ref().map(initial::Content::len))
            else {
                let message = format!("`{}` has no size", variable.name);
                return Err(ParseError {
                    line: variable.line,
                    message,
                });
            };
            if size > MOST_BYTES {
                let message = format!(
                    "`{}` has {size} bytes, more than {MOST_BYTES}",
                    variable.name
                );
                return Err(ParseError {
                    line: variable.line,
                    message,
                });
            }
            let (mut bytes, addresses) = content
                .map(initial::Content::into_parts)
                .unwrap_or_default();
            bytes.resize(size, 0);
            outline.globals.push(Global {
                name: variable.name.to_owned(),
                size,
                align: variable.align,
                initial: bytes,
                addresses,
                is_constant,
            });
        }
        if !cursor.takes(',') {
            break;
        }
    }
    cursor.expect(';')
}

fn shared<'a>(
    cursor: &mut Cursor<'a>,
    outline: &mut Outline<'a>,
    is_extern: bool,
) -> Result<(), ParseError> {
    let declared = cursor.declared_type()?;
    loop {
        let variable = cursor.declaration(declared)?;
        let place = outline.add_shared(&variable, is_extern, None)?;
        outline
            .variables
            .insert(variable.name, Variable::Shared(place));
        if !cursor.takes(',') {
            break;
        }
    }
    cursor.expect(';')
}

impl Outline<'_> {
    /// Notes a variable in shared memory, of the entry that owns it.
    pub(super) fn add_shared(
        &mut self,
        variable: &Declaration<'_>,
        is_extern: bool,
        owner: Option<usize>,
    ) -> Result<usize, ParseError> {
        let size = match variable.size {
            Some(size) => size,
            None if is_extern => 0,
            None => {
                let message = format!("`{}` has no size and is not `.extern`", variable.name);
                return Err(ParseError {
                    line: variable.line,
                    message,
                });
            }
        };
        // A block has at most 227 KiB.
        if size > 1 << 20 {
            let message = format!(
                "`{}` has {size} bytes, more than shared memory",
                variable.name
            );
            return Err(ParseError {
                line: variable.line,
                message,
            });
        }
        self.shared.push(SharedVariable {
            size,
            align: variable.align,
            is_dynamic: is_extern,
            owner,
        });
        Ok(self.shared.len() - 1)
    }

    /// A place for a function's body.
    pub(super) fn place(&mut self) -> usize {
        self.functions.push(None);
        self.functions.len() - 1
    }
}
