//! Executables: programs bound to targets, and their execution.

mod functions;
mod plan;
mod run;
mod space;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use self::functions::with_stack;
use self::plan::{Plan, Sites};
use self::run::Run;
use self::space::{DeviceSpace, HostSpace, Space};
use super::{ComputationId, Program};
use callbox_core::Registry;
use callbox_core::call::{CallOptions, Device, Platform, PreparedCalls};
use callbox_core::text::shortened;
use callbox_core::values::{Literal, Result, Shape, Status};

/// The most functions that a message lists.
const LISTED: usize = 16;

/// A program whose custom calls are bound to targets. Threads can execute it concurrently.
#[derive(Debug)]
pub struct Executable {
    inner: Arc<Inner>,
    functions: Vec<Function>,
}

/// The shared state of executions. Targets that call back hold it weakly.
#[derive(Debug)]
struct Inner {
    core: Arc<Core>,
    modules: Vec<Box<dyn PreparedCalls>>,
    /// The device that holds the values. Without one, they are in the host's memory.
    device: Option<Arc<dyn Device>>,
}

/// The state for computing without targets. Work left in a device's queue holds this, and nothing
/// of the device.
#[derive(Debug)]
struct Core {
    program: Program,
    plan: Plan,
}

impl Core {
    /// The call sites that a computation and its callees use.
    fn sites(&self, id: ComputationId) -> Result<&Sites> {
        self.plan.sites(&self.program, id)
    }
}

/// A function that a program exports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// The name of its computation.
    pub name: String,
    /// The number among the exported functions. The entry computation is 0, unless the program
    /// says otherwise.
    pub ordinal: usize,
    /// The shapes of its parameters.
    pub parameters: Vec<Shape>,
    /// The shape of its result.
    pub result: Shape,
}

/// Options for an execution.
#[derive(Clone, Debug, Default)]
pub struct ExecuteOptions {
    /// Deadline and cancellation for the execution as a whole, and user data for targets. Without
    /// a deadline, only the backends' limits for each custom call apply. `threads` also limits
    /// those of the program's own instructions; without it, they take up to eight.
    pub call: CallOptions,
    /// A counter of executed instructions, for a display of progress.
    pub progress: Option<Arc<AtomicU64>>,
}

impl Executable {
    /// Binds a program's custom calls to the registry's targets for the platform Host.
    ///
    /// The targets' modules prepare the calls. Calls that are unreachable or without effect are
    /// not bound.
    ///
    /// # Errors
    /// - INVALID_ARGUMENT for a platform with devices, which [`Executable::compile_on`] takes.
    /// - NOT_FOUND for a target that is not registered, and for an attribute that names a function
    ///   the program does not have.
    /// - The module's error for a call site. The message names the instruction.
    pub fn compile(program: &Program, registry: &Registry, platform: Platform) -> Result<Self> {
        ensure!(
            platform == Platform::Host,
            "expected the platform Host, or a device to run on, found {platform} alone"
        );
        Self::compile_within(program, registry, None, &mut CallOptions::default())
    }

    /// Binds a program's custom calls to the registry's targets for a device's platform.
    ///
    /// Values are in the device's memory. The program's own instructions run on the host, in the
    /// order of the device's queue; only control flow waits for their results.
    ///
    /// # Errors
    /// - UNIMPLEMENTED for a custom call in a computation that `reduce` or `map` applies.
    /// - As for [`Executable::compile`].
    pub fn compile_on(
        program: &Program,
        registry: &Registry,
        device: Arc<dyn Device>,
    ) -> Result<Self> {
        Self::compile_within(program, registry, Some(device), &mut CallOptions::default())
    }

    /// Binds a program's custom calls to the registry's targets for a device, or else for the
    /// platform Host. The stages `instantiate` of all targets run within the deadline and the
    /// cancel token of `options`. A deadline that has not begun begins when all modules are loaded,
    /// and is that of `options` from then on. Without one, the stages of each module have the limit
    /// of its policy.
    ///
    /// # Errors
    /// - DEADLINE_EXCEEDED or CANCELLED, according to the options.
    /// - As for [`Executable::compile_on`].
    pub fn compile_within(
        program: &Program,
        registry: &Registry,
        device: Option<Arc<dyn Device>>,
        options: &mut CallOptions,
    ) -> Result<Self> {
        let platform = device
            .as_ref()
            .map_or(Platform::Host, |device| device.platform());
        let (plan, modules) = Plan::new(program, registry, platform, options)?;
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

    /// Executes the function with this ordinal.
    ///
    /// # Errors
    /// - NOT_FOUND if there is no such function.
    /// - INVALID_ARGUMENT if the number or the shapes of the arguments do not fit.
    /// - The first error of a custom call. The message names the instruction.
    /// - DEADLINE_EXCEEDED or CANCELLED, according to the options.
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
        let parameters = function.parameters.iter();
        check_arguments(&function.name, parameters, arguments, &options.call)?;
        let computation = self.inner.core.program.exports[ordinal];
        let Some(device) = &self.inner.device else {
            let mut run = Run::begin(&self.inner, computation, options, 0, HostSpace)?;
            return with_stack(|| run.computation(computation, arguments.to_vec()));
        };
        let mut queue = Arc::clone(device).queue()?;
        let space = DeviceSpace::new(queue.as_mut());
        let mut run = Run::begin(&self.inner, computation, options, 0, space)?;
        let arguments = arguments.iter().map(|literal| run.space.upload(literal));
        let arguments = arguments.collect::<Result<Vec<_>>>()?;
        let result = with_stack(|| run.computation(computation, arguments))?;
        run.space.read(&result)
    }

    /// Executes the function with this name.
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
            let listed = functions.iter().take(LISTED);
            let names = Vec::from_iter(listed.map(|f| format!("{:?}", shortened(&f.name))));
            let more = if functions.len() > LISTED {
                ", ..."
            } else {
                ""
            };
            return Err(Status::not_found(format!(
                "expected an exported function ({}{more}), found {:?}",
                names.join(", "),
                shortened(name)
            )));
        };
        self.execute(function.ordinal, arguments, options)
    }
}

fn check_arguments<'a>(
    function: &str,
    parameters: impl ExactSizeIterator<Item = &'a Shape>,
    arguments: &[Literal],
    options: &CallOptions,
) -> Result<()> {
    /// The arguments that are compared between two looks at the deadline.
    const BETWEEN_LOOKS: usize = 1024;
    ensure!(
        parameters.len() == arguments.len(),
        "function {} takes {} arguments, found {}",
        shortened(function),
        parameters.len(),
        arguments.len()
    );
    for (i, (expected, argument)) in std::iter::zip(parameters, arguments).enumerate() {
        if i % BETWEEN_LOOKS == 0 {
            options.check()?;
        }
        let found = argument.shape();
        ensure!(
            expected.is_compatible(found),
            "argument {i} of function {}: expected {expected}, found {found}",
            shortened(function)
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests;
