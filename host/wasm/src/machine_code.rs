//! The machine code of a module's functions, for people who read it.

use crate::module::Module;
use crate::names;

/// The machine code of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionCode {
    /// The function's name as backtraces show it: demangled, cut, and on one line.
    pub name: String,
    /// The instructions.
    pub code: Vec<u8>,
}

impl Module {
    /// Returns the machine code of the module's functions, without those that the host added.
    #[must_use]
    pub fn machine_code(&self) -> Vec<FunctionCode> {
        let module = &self.compiled.module;
        let text = module.text();
        let functions = module.functions().filter_map(|function| {
            let index = function.index.as_u32();
            let code = text.get(function.offset..)?.get(..function.len)?;
            let name = function.name.as_deref().map(names::shown);
            (index < self.helpers_from).then(|| FunctionCode {
                name: name.unwrap_or_else(|| format!("function {index}")),
                code: code.to_vec(),
            })
        });
        functions.collect()
    }
}
