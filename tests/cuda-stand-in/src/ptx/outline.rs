//! Builds a module from its syntax tree: variables, parameters, and functions.

use callbox_ptx::ast::{self, Linkage};
use callbox_ptx::types as syntax;
use callbox_ptx::{Limits, read};

use super::body;
use super::code::{Function, Operation};
use super::initial::{self, Content};
use super::module::{Entry, Global, Module, ParseError, SharedVariable};

/// The maximum size of a global variable.
const MOST_BYTES: usize = 1 << 28;
/// The maximum size of the parameters of a kernel.
const MOST_PARAMETER_BYTES: usize = 1 << 16;

/// The part of a module that bodies refer to.
pub(super) struct Outline<'m> {
    pub(super) tree: &'m ast::Module,
    /// The places of the module's variables.
    pub(super) variables: Vec<Variable>,
    /// By the function's index in the tree.
    pub(super) signatures: Vec<Signature>,
    shared: Vec<SharedVariable>,
}

/// The place of a module's variable.
#[derive(Clone, Copy, Debug)]
pub(super) enum Variable {
    Global,
    /// The index in [`Module::shared`].
    Shared(usize),
}

/// A function's parameters and results, by offset and size in parameter memory.
#[derive(Clone, Debug)]
pub(super) struct Signature {
    pub(super) parameters: Vec<(usize, usize)>,
    pub(super) results: Vec<(usize, usize)>,
    /// The size of all of them.
    pub(super) bytes: usize,
}

/// Makes an error at a line.
pub(super) fn error<T>(line: ast::Line, message: String) -> Result<T, ParseError> {
    let line = line.0 as usize;
    Err(ParseError { line, message })
}

pub(super) fn module(text: &str) -> Result<Module, ParseError> {
    let tree = read(text, "", &Limits::default()).map_err(|error| ParseError {
        line: error.line as usize,
        message: error.message,
    })?;
    let mut outline = Outline {
        tree: &tree,
        variables: Vec::new(),
        signatures: Vec::new(),
        shared: Vec::new(),
    };
    let globals = outline.place_variables()?;
    for function in &tree.functions {
        outline.signatures.push(signature(function)?);
    }
    let mut functions = Vec::with_capacity(tree.functions.len());
    let mut entries = Vec::new();
    for (index, function) in tree.functions.iter().enumerate() {
        let Some(body) = &function.body else {
            functions.push(Function::without_body(&function.name));
            continue;
        };
        functions.push(body::build(&mut outline, index, body)?);
        if function.is_entry {
            entries.push(entry(function, index, &outline));
        }
    }
    check_calls(&functions)?;
    let ast::Target { architecture, .. } = tree.target;
    let shared = outline.shared;
    Ok(Module {
        version: tree.version,
        target: (architecture / 10, architecture % 10),
        entries,
        globals,
        functions,
        shared,
    })
}

fn entry(function: &ast::Function, index: usize, outline: &Outline<'_>) -> Entry {
    let threads = function.limits.reqntid.or(function.limits.maxntid);
    let product = |[x, y, z]: [u32; 3]| x.saturating_mul(y).saturating_mul(z);
    Entry {
        name: function.name.clone(),
        parameters: outline.signatures[index].parameters.clone(),
        function: index,
        most_threads: threads.map(product),
    }
}

/// Rejects calls of functions that are only declared.
fn check_calls(functions: &[Function]) -> Result<(), ParseError> {
    for instruction in functions.iter().flat_map(|function| &function.code) {
        if let Operation::Call(call) = &instruction.operation
            && functions[call.function].code.is_empty()
        {
            let name = &functions[call.function].name;
            let message = format!("`{name}` is called, which has no body and is not known");
            return error(ast::Line(instruction.line), message);
        }
    }
    Ok(())
}

/// The size of a variable. `None` for `name[]`.
pub(super) fn size(variable: &ast::Variable) -> Option<usize> {
    let element = u64::from(variable.element.bytes()) * u64::from(variable.vector);
    let bytes = variable
        .dimensions
        .iter()
        .try_fold(element, |bytes, length| {
            bytes
                .checked_mul((*length)?)
                .filter(|&bytes| bytes <= 1 << 40)
        })?;
    usize::try_from(bytes).ok()
}

pub(super) fn alignment(variable: &ast::Variable) -> usize {
    let natural = variable.element.bytes() as usize * usize::from(variable.vector);
    variable.align.map_or(natural, |align| align as usize)
}

/// Assigns consecutive places to results and parameters.
fn signature(function: &ast::Function) -> Result<Signature, ParseError> {
    let mut places = Vec::new();
    let mut end = 0_usize;
    for variable in function
        .variables
        .iter()
        .take(function.results + function.parameters)
    {
        let Some(size) = size(variable) else {
            return error(variable.line, "a parameter here has no size".to_owned());
        };
        let offset = end.next_multiple_of(alignment(variable));
        end = offset + size;
        if end > MOST_PARAMETER_BYTES {
            let message = format!("parameters of {end} bytes, more than any driver takes");
            return error(variable.line, message);
        }
        places.push((offset, size));
    }
    let parameters = places.split_off(function.results);
    Ok(Signature {
        parameters,
        results: places,
        bytes: end,
    })
}

impl Outline<'_> {
    fn place_variables(&mut self) -> Result<Vec<Global>, ParseError> {
        let mut globals = Vec::new();
        for variable in &self.tree.variables {
            let is_extern = variable.linkage == Linkage::Extern;
            if variable.space == syntax::Space::Shared {
                let place = self.add_shared(variable, is_extern, None)?;
                self.variables.push(Variable::Shared(place));
                continue;
            }
            self.variables.push(Variable::Global);
            if !is_extern {
                globals.push(self.global(variable)?);
            }
        }
        Ok(globals)
    }

    fn global(&self, variable: &ast::Variable) -> Result<Global, ParseError> {
        let name = &variable.name;
        let fail = |message| error(variable.line, message);
        let content = match &variable.initial {
            Some(initial) => initial::content(self.tree, variable, initial)?,
            None => Content::default(),
        };
        let given = content.bytes.len();
        let size = match size(variable) {
            Some(size) => size,
            None if variable.initial.is_some() => given,
            None => return fail(format!("`{name}` has no size")),
        };
        if given > size {
            return fail(format!("`{name}` is given {given} bytes, more than it has"));
        }
        if size > MOST_BYTES {
            return fail(format!("`{name}` has {size} bytes, more than {MOST_BYTES}"));
        }
        let mut initial = content.bytes;
        initial.resize(size, 0);
        Ok(Global {
            name: name.clone(),
            size,
            align: alignment(variable),
            initial,
            addresses: content.addresses,
            is_constant: variable.space == syntax::Space::Const,
        })
    }

    /// Adds a variable in shared memory, owned by an entry or by the module.
    pub(super) fn add_shared(
        &mut self,
        variable: &ast::Variable,
        is_dynamic: bool,
        owner: Option<usize>,
    ) -> Result<usize, ParseError> {
        let size = match size(variable) {
            Some(size) => size,
            None if is_dynamic => 0,
            None => {
                let message = "a variable here has no size and is not `.extern`".to_owned();
                return error(variable.line, message);
            }
        };
        // A block has at most 227 KiB.
        if size > 1 << 20 {
            let message = format!("a variable of {size} bytes here, more than shared memory");
            return error(variable.line, message);
        }
        self.shared.push(SharedVariable {
            size,
            align: alignment(variable),
            is_dynamic,
            owner,
        });
        Ok(self.shared.len() - 1)
    }
}
