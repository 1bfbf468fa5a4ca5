//! Executables: a program bound to targets, and its execution.

mod functions;
mod plan;
mod run;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use self::plan::Plan;
use self::run::Run;
use super::Program;
use crate::call::{CallOptions, Platform, PreparedCalls};
use crate::registry::Registry;
use crate::values::{Literal, Result, Shape, Status};

/// A program whose custom calls have been bound to targets. It can be executed from many threads at once.
#[derive(Debug)]
pub struct Executable {
    inner: Arc<Inner>,
    functions: Vec<Function>,
}

/// What executions need. Targets that call back find it here, as long as the executable is there.
#[derive(Debug)]
struct Inner {
    program: Program,
    plan: Plan,
    modules: Vec<Box<dyn PreparedCalls>>,
}

/// A function that a program exports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name: its computation's.
    pub name: String,
    /// Its number among the exported functions. The entry computation is 0, unless the program says otherwise.
    pub ordinal: usize,
    /// The shapes of its parameters.
    pub parameters: Vec<Shape>,
    /// The shape of its result.
    pub result: Shape,
}

/// How a program is executed.
#[derive(Clone, Debug, Default)]
pub struct ExecuteOptions {
    /// Deadline and cancellation, for the execution as a whole, and the bytes that targets find by name. Without a deadline the execution may
    /// take as long as it likes, and each custom call as long as its backend's limits say.
    pub call: CallOptions,
    /// Counts the instructions that have been executed: for a display of progress.
    pub progress: Option<Arc<AtomicU64>>,
}

impl Executable {
    /// Binds a program's custom calls to the targets that the registry has for the platform, and prepares them. Calls that cannot
    /// be reached, or that are of no effect, are not bound.
    ///
    /// # Errors
    /// - UNIMPLEMENTED for a platform other than Host.
    /// - NOT_FOUND for a target that is not registered, and for a function that an attribute names and the program does not have.
    /// - What the target's module finds wrong with a call site. The message names the instruction.
    pub fn compile(program: &Program, registry: &Registry, platform: Platform) -> Result<Self> {
        if platform != Platform::Host {
            return Err(Status::unimplemented(format!(
                "expected the platform Host, which programs run on, found {platform}"
            )));
        }
        let (plan, modules) = Plan::new(program, registry, platform)?;
        Ok(Self {
            functions: program.functions(),
            inner: Arc::new(Inner {
                program: program.clone(),
                plan,
                modules,
            }),
        })
    }

    /// The program's functions, by ordinal.
    #[must_use]
    pub fn functions(&self) -> &[Function] {
        &self.functions
    }

    /// Executes the function of this ordinal.
    ///
    /// # Errors
    /// - NOT_FOUND if there is no such function.
    /// - INVALID_ARGUMENT if the arguments are not as many, or not of the shapes, that it takes.
    /// - The first failure of a custom call. The message names the instruction.
    /// - DEADLINE_EXCEEDED or CANCELLED, as the options say.
    pub fn execute(
        &self,
        ordinal: usize,
        arguments: &[Literal],
        options: &ExecuteOptions,
    ) -> Result<Literal> {
        let functions = &self.functions;
        let Some(function) = functions.get(ordinal) else {
            return Err(Status::not_found(format!(
                "expected an exported function below {}, found ordinal {ordinal}",
                functions.len()
            )));
        };
        check_arguments(&function.name, function.parameters.iter(), arguments)?;
        let computation = self.inner.program.exports[ordinal];
        Run::begin(&self.inner, computation, options, 0)?.function(computation, arguments)
    }

    /// Executes the function of this name.
    ///
    /// # Errors
    /// As for [`Executable::execute`].
    pub fn execute_named(
        &self,
        name: &str,
        arguments: &[Literal],
        options: &ExecuteOptions,
    ) -> Result<Literal> {
        let functions = &self.functions;
        let Some(function) = functions.iter().find(|f| f.name == name) else {
            let names: Vec<_> = functions.iter().map(|f| format!("{:?}", f.name)).collect();
            return Err(Status::not_found(format!(
                "expected an exported function ({}), found {name:?}",
                names.join(", ")
            )));
        };
        self.execute(function.ordinal, arguments, options)
    }
}

fn check_arguments<'a>(
    function: &str,
    parameters: impl ExactSizeIterator<Item = &'a Shape>,
    arguments: &[Literal],
) -> Result<()> {
    if parameters.len() != arguments.len() {
        return Err(Status::invalid_argument(format!(
            "function {function} takes {} arguments, found {}",
            parameters.len(),
            arguments.len()
        )));
    }
    for (i, (expected, argument)) in std::iter::zip(parameters, arguments).enumerate() {
        if !expected.is_compatible(argument.shape()) {
            return Err(Status::invalid_argument(format!(
                "argument {i} of function {function}: expected {expected}, found {}",
                argument.shape()
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
