//! Executables: a program bound to targets, and its execution.

mod functions;
mod plan;
mod run;
mod space;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use self::plan::Plan;
use self::run::Run;
use self::space::{DeviceSpace, HostSpace, Space};
use super::Program;
use crate::call::{CallOptions, Device, Platform, PreparedCalls};
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
    core: Arc<Core>,
    modules: Vec<Box<dyn PreparedCalls>>,
    /// Where it runs, if not on the host.
    device: Option<Arc<dyn Device>>,
}

/// What computing takes that calls no target. Work that is left in a device's queue holds this alone, and nothing of a device's.
#[derive(Debug)]
struct Core {
    program: Program,
    plan: Plan,
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
    /// Binds a program's custom calls to the targets that the registry has for the platform Host, and prepares them. Calls that cannot
    /// be reached, or that are of no effect, are not bound.
    ///
    /// # Errors
    /// - INVALID_ARGUMENT for a platform whose targets run on devices: [`Executable::compile_on`] takes one.
    /// - NOT_FOUND for a target that is not registered, and for a function that an attribute names and the program does not have.
    /// - What the target's module finds wrong with a call site. The message names the instruction.
    pub fn compile(program: &Program, registry: &Registry, platform: Platform) -> Result<Self> {
        if platform != Platform::Host {
            return Err(Status::invalid_argument(format!(
                "expected the platform Host, or a device to run on, found {platform} alone"
            )));
        }
        Self::new(program, registry, platform, None)
    }

    /// The same for a device: its values lie in the device's memory, and the targets are those of its platform. The program's own instructions run on the
    /// host, each when its turn in the device's queue comes; nothing waits for them but what decides where control goes.
    ///
    /// # Errors
    /// - UNIMPLEMENTED for a custom call in a computation that `reduce` or `map` applies: no target can be called from there.
    /// - As for [`Executable::compile`].
    pub fn compile_on(
        program: &Program,
        registry: &Registry,
        device: Arc<dyn Device>,
    ) -> Result<Self> {
        let platform = device.platform();
        Self::new(program, registry, platform, Some(device))
    }

    fn new(
        program: &Program,
        registry: &Registry,
        platform: Platform,
        device: Option<Arc<dyn Device>>,
    ) -> Result<Self> {
        let (plan, modules) = Plan::new(program, registry, platform)?;
        if device.is_some() {
            plan.check_for_devices(program)?;
        }
        Ok(Self {
            functions: program.functions(),
            inner: Arc::new(Inner {
                core: Arc::new(Core {
                    program: program.clone(),
                    plan,
                }),
                modules,
                device,
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
        let computation = self.inner.core.program.exports[ordinal];
        let Some(device) = &self.inner.device else {
            let mut run = Run::begin(&self.inner, computation, options, 0, HostSpace)?;
            return run.computation(computation, arguments);
        };
        let mut queue = device.queue()?;
        let space = DeviceSpace::new(queue.as_mut());
        let mut run = Run::begin(&self.inner, computation, options, 0, space)?;
        let arguments = arguments.iter().map(|literal| run.space.upload(literal));
        let arguments = arguments.collect::<Result<Vec<_>>>()?;
        let result = run.computation(computation, &arguments)?;
        run.space.read(&result)
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
