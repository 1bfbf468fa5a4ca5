//! Test cases, read from the files of `tests/cases` and `tests/hostile`. A case is checked as a
//! whole before anything runs.

mod call;
mod expect;
mod mark;
mod platforms;
mod stress;
#[cfg(test)]
mod tests;
mod text;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use callbox::call::CallSite;
use callbox::policy::Policy;
use callbox::{Literal, Shape, StaticInfo, StatusCode, UserData};

pub use self::expect::{
    Expect, ExpectedLog, ExpectedMessage, ExpectedResult, ExpectedStatus, Phase,
};
pub use self::mark::{Mark, MarkKind};
pub use self::platforms::Platforms;
pub use self::stress::Stress;
use self::text::{CaseText, FunctionText, ProgramText, StepText};
use crate::discover;
use crate::literal;
use crate::module::ModuleSource;
use crate::platform::PlatformName;

/// One case.
#[derive(Debug)]
pub struct Case {
    /// Where the expectation comes from.
    pub origin: String,
    /// What is run.
    pub subject: Subject,
    /// The runs, in order, on one executable or one prepared call. A `load` case has exactly one.
    pub steps: Vec<Step>,
    /// The engine's policy. `None` means the default.
    pub policy: Option<Policy>,
    /// Whether a healthy guest runs on the same engine after each step, as for the cases of hostile
    /// guests.
    pub is_hostile: bool,
    /// Where the case runs, and why not elsewhere.
    pub platforms: Platforms,
    /// How the case is run concurrently.
    pub stress: Stress,
    /// The case's marks (`unsupported`, `expected_failure`), at most one per platform.
    pub marks: Vec<Mark>,
}

/// What a case runs.
#[derive(Debug)]
pub enum Subject {
    /// A program.
    Program {
        /// HLO text.
        text: String,
        /// The targets of its custom calls.
        targets: Vec<Target>,
    },
    /// One target, without a program.
    Call {
        /// The module that exports the target.
        module: ModuleSource,
        /// The call site.
        site: Box<CallSite>,
    },
    /// A call through the interface of the JAX FFI proposal.
    FfiCall(Box<FfiCall>),
    /// A module that is loaded only.
    Load {
        /// The module.
        module: ModuleSource,
    },
}

/// A call of `jax_ffi`.
#[derive(Debug)]
pub struct FfiCall {
    /// The module that exports the function.
    pub module: ModuleSource,
    /// The function's name in the module.
    pub function: String,
    /// The platform that it is registered for.
    pub platform: String,
    /// The static information, fixed at trace time.
    pub static_info: Option<StaticInfo>,
    /// The shape of an unbatched call's result.
    pub result: Shape,
    /// For each operand the dimension that is the batch, if the call is mapped over one.
    pub in_axes: Option<Vec<Option<usize>>>,
}

/// A registered target.
#[derive(Debug)]
pub struct Target {
    /// The name that the program calls it by.
    pub name: String,
    /// The module that exports it.
    pub module: ModuleSource,
    /// The export's name.
    pub export: String,
}

/// One run.
#[derive(Debug)]
pub struct Step {
    /// The exported function of a program.
    pub function: Function,
    /// The inputs.
    pub operands: Vec<Literal>,
    /// The deadline, relative to the start of the call.
    pub deadline: Option<Duration>,
    /// The user data of the call.
    pub user_data: Option<Arc<UserData>>,
    /// The expected outcome.
    pub expect: Expect,
}

/// An exported function of a program.
#[derive(Clone, Debug)]
pub enum Function {
    /// By its number.
    Ordinal(usize),
    /// By its name.
    Name(String),
}

impl Case {
    /// Reads the case at `path`. The files that it names are in the same folder.
    ///
    /// # Errors
    /// Malformed JSON, unknown keys, keys that exclude each other, and malformed literals.
    pub fn read(path: &Path) -> Result<Self> {
        let text =
            fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let folder = path.parent().context("expected a file in a folder")?;
        Self::parse(&text, folder)
    }

    /// Reads a case from JSON text. The files that it names are in `folder`.
    ///
    /// # Errors
    /// As for [`Case::read`].
    pub fn parse(text: &str, folder: &Path) -> Result<Self> {
        let case: CaseText = serde_json::from_str(text)?;
        ensure!(
            !case.origin.trim().is_empty(),
            "expected an origin: where the expectation comes from"
        );
        let first = StepText {
            operands: case.operands,
            function: case.function,
            deadline_ms: case.deadline_ms,
            user_data: case.user_data,
            expect: case.expect,
        };
        let steps: Vec<Step> = std::iter::once(first)
            .chain(case.then)
            .enumerate()
            .map(|(i, step)| read_step(step, folder).with_context(|| format!("step {i}")))
            .collect::<Result<_>>()?;
        let subject = match (case.program, case.call, case.ffi_call, case.load) {
            (Some(program), None, None, None) => program_subject(program, &case.targets, folder)?,
            (None, Some(call), None, None) => {
                let (module, site) = call::read(call, &steps[0], folder)?;
                let site = Box::new(site);
                Subject::Call { module, site }
            }
            (None, None, Some(call), None) => {
                Subject::FfiCall(Box::new(call::read_ffi_call(call, folder)?))
            }
            (None, None, None, Some(module)) => Subject::Load {
                module: ModuleSource::read(module, folder)?,
            },
            _ => bail!("expected exactly one of program, call, ffi_call and load"),
        };
        check_keys(&subject, &steps, !case.targets.is_empty())?;
        let platforms = platforms::read(case.platforms, &subject, &steps).context("platforms")?;
        let marks = mark::read(case.unsupported, case.expected_failure, &platforms)?;
        Ok(Self {
            origin: case.origin,
            subject,
            steps,
            platforms,
            marks,
            stress: stress::read(case.stress).context("stress")?,
            policy: case.policy,
            is_hostile: folder.starts_with(discover::hostile_folder()),
        })
    }

    /// Returns the case's mark for this platform.
    #[must_use]
    pub fn mark(&self, platform: PlatformName) -> Option<&Mark> {
        self.marks.iter().find(|mark| mark.is_for(platform))
    }
}

fn program_subject(
    program: ProgramText,
    targets: &BTreeMap<String, String>,
    folder: &Path,
) -> Result<Subject> {
    let text = match program {
        ProgramText {
            file: Some(file),
            text: None,
        } => fs::read_to_string(folder.join(&file))
            .with_context(|| format!("cannot read the program {file}"))?,
        ProgramText {
            file: None,
            text: Some(lines),
        } => lines.join("\n"),
        _ => bail!("expected a program to have exactly one of file and text"),
    };
    let targets = targets
        .iter()
        .map(|(name, target)| read_target(name, target, folder))
        .collect::<Result<_>>()?;
    Ok(Subject::Program { text, targets })
}

/// Parses `FILE.wasm#EXPORT`. The export defaults to `name`.
fn read_target(name: &str, target: &str, folder: &Path) -> Result<Target> {
    let (file, export) = target.split_once('#').unwrap_or((target, name));
    Ok(Target {
        name: name.to_owned(),
        module: ModuleSource::of_name(file, folder)?,
        export: export.to_owned(),
    })
}

fn read_step(step: StepText, folder: &Path) -> Result<Step> {
    let operands = step
        .operands
        .into_iter()
        .enumerate()
        .map(|(i, operand)| literal::read(operand, folder).with_context(|| format!("operand {i}")))
        .collect::<Result<_>>()?;
    let user_data: UserData = step
        .user_data
        .into_iter()
        .map(|(name, bytes)| Ok((name, bytes.read()?)))
        .collect::<Result<_>>()
        .context("user_data")?;
    Ok(Step {
        user_data: (!user_data.is_empty()).then(|| Arc::new(user_data)),
        function: match step.function {
            None => Function::Ordinal(0),
            Some(FunctionText::Ordinal(ordinal)) => Function::Ordinal(ordinal),
            Some(FunctionText::Name(name)) => Function::Name(name),
        },
        operands,
        deadline: step.deadline_ms.map(Duration::from_millis),
        expect: expect::read(step.expect, folder).context("expect")?,
    })
}

/// Rejects keys that would have no effect on this subject.
fn check_keys(subject: &Subject, steps: &[Step], has_targets: bool) -> Result<()> {
    let is_program = matches!(subject, Subject::Program { .. });
    ensure!(
        is_program || !has_targets,
        "expected targets with a program only"
    );
    for (i, step) in steps.iter().enumerate() {
        let names_function = !matches!(step.function, Function::Ordinal(0));
        ensure!(
            is_program || !names_function,
            "step {i}: expected function with a program only"
        );
        let loads = matches!(subject, Subject::Load { .. });
        let expects_targets = matches!(step.expect, Expect::Targets(_));
        let expects_status = matches!(step.expect, Expect::Status(_));
        if loads {
            ensure!(
                steps.len() == 1 && step.operands.is_empty() && step.deadline.is_none(),
                "expected neither operands, deadline_ms nor then with load"
            );
            ensure!(
                expects_targets || expects_status,
                "expected load to expect targets or a status"
            );
        } else {
            ensure!(
                !expects_targets,
                "step {i}: expected targets to be expected of load only"
            );
        }
    }
    Ok(())
}

/// Looks up a status code by its name.
fn status_code(name: &str) -> Result<StatusCode> {
    StatusCode::from_name(name)
        .with_context(|| format!("expected a status code such as INVALID_ARGUMENT, found {name:?}"))
}
