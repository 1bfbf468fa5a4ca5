//! What the verifier says about the kernels of a file.

use std::cell::RefCell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::Path;

use callbox::cuda::manifest::{FencedLaunch, PlannedParameter};
use callbox::cuda::ptx::ast::{Function, Instruction, Module, Operand, Statement};
use callbox::cuda::ptx::table::{Action, Opcode, form};
use callbox::cuda::ptx::types::Space;
use callbox::cuda::ptx::verify::{
    self, AccessReport, Budget, Launch, Open, Param, Rule, Survey, Unproved, Verdict,
};
use callbox::cuda::ptx::{self, fence::fence};
use callbox::policy::Gpu;
use callbox::{Blame, Status, StatusCode};
use sha2::{Digest, Sha256};

use super::fenced::TargetLaunch;
use super::fields::{
    Call, Counts, Found, Grade, KernelReport, KnownLaunch, Loop, NotProved, ParameterReport,
    Problem, PtxReport, RefusalReport,
};
use crate::failure::{Failure, Outcome};
use crate::regular_file;

/// The most entries of the lists of all launches of an image together. Many launches of one kernel
/// would have its lists over and over.
const MOST_LISTED: usize = 100_000;

/// Reads a file. The module is `None` if the text is not PTX that the reader takes.
pub(super) fn read(path: &Path, gpu: &Gpu) -> Outcome<(PtxReport, Option<Module>)> {
    let bytes = regular_file::read(path, gpu.ptx_bytes)?;
    let (module, problem) = match parse(&bytes, gpu) {
        Ok(module) => (Some(module), None),
        Err(problem) => (None, Some(problem)),
    };
    let architecture = module.as_ref().map(|module| {
        use ptx::ast::Features;
        let suffix = match module.target.features {
            Some(Features::Architecture) => "a",
            Some(Features::Family) => "f",
            None => "",
        };
        format!("sm_{}{suffix}", module.target.architecture)
    });
    let report = PtxReport {
        size: bytes.len(),
        sha256: hex::encode(Sha256::digest(&bytes)),
        architecture,
        problem,
        grade: Grade::Refused,
        kernels: Vec::new(),
    };
    Ok((report, module))
}

fn parse(bytes: &[u8], gpu: &Gpu) -> Result<Module, Problem> {
    let text = str::from_utf8(bytes).map_err(|error| {
        let before = &bytes[..error.valid_up_to()];
        let line = before.iter().filter(|&&byte| byte == b'\n').count() + 1;
        let column = before
            .iter()
            .rev()
            .take_while(|&&byte| byte != b'\n')
            .count()
            + 1;
        Problem {
            line: u32::try_from(line).unwrap_or(u32::MAX),
            column: u32::try_from(column).unwrap_or(u32::MAX),
            message: "expected UTF-8, found another byte".to_owned(),
        }
    })?;
    let limits = ptx::Limits {
        text_bytes: gpu.ptx_bytes,
        ..ptx::Limits::default()
    };
    ptx::read(text, "", &limits).map_err(|error| Problem {
        line: error.line,
        column: error.column,
        message: error.message,
    })
}

impl PtxReport {
    /// Reports on all kernels for unknown launches, or on one kernel for each launch; with `entry`
    /// on those of this name alone.
    pub(super) fn verify(
        &mut self,
        module: &Module,
        entry: Option<&str>,
        launches: Option<&[&TargetLaunch]>,
        verifier: &Verifier<'_>,
    ) {
        let is_meant = |name: &str| entry.is_none_or(|entry| entry == name);
        self.kernels = match launches {
            None => {
                let entries = module.functions.iter();
                let entries = entries.filter(|one| one.is_entry && is_meant(&one.name));
                entries
                    .map(|entry| {
                        let launch = Launch {
                            has_clock: verifier.gpu.clock,
                            ..verify::unknown_launch(entry)
                        };
                        let open = FencedLaunch {
                            image: 0,
                            entry: entry.name.clone(),
                            parameters: Vec::new(),
                            launch,
                            open: Open::ALL,
                        };
                        verifier.kernel(module, None, &open)
                    })
                    .collect()
            }
            Some(launches) => {
                let launches = launches.iter().copied();
                let launches: Vec<_> = launches.filter(|one| is_meant(&one.launch.entry)).collect();
                launched(module, &launches, verifier)
            }
        };
        self.grade = worst(&self.kernels);
    }

    /// The report on some of the kernels, by their numbers.
    pub(super) fn part(&self, is_meant: impl Fn(usize) -> bool) -> Self {
        let kernels = self.kernels.iter().enumerate();
        let kernels = kernels.filter(|(number, _)| is_meant(*number));
        let kernels: Vec<_> = kernels.map(|(_, kernel)| kernel.clone()).collect();
        Self {
            sha256: self.sha256.clone(),
            architecture: self.architecture.clone(),
            problem: self.problem.clone(),
            // That of a text that cannot be read stays.
            grade: match self.problem {
                None => worst(&kernels),
                Some(_) => self.grade,
            },
            kernels,
            ..*self
        }
    }

    /// The failure with which a file that does not pass ends the command.
    pub(super) fn failure(&self, file: &Path) -> Option<Failure> {
        let file = file.display();
        let denied = |message| Status::new(StatusCode::PermissionDenied, Blame::Guest, message);
        if let Some(problem) = &self.problem {
            let Problem {
                line,
                column,
                message,
            } = problem;
            return Some(denied(format!("{file}:{line}:{column}: {message}")).into());
        }
        let worst = self.kernels.iter().find(|one| one.grade == self.grade)?;
        let refusal = worst.refusals.first()?;
        let RefusalReport {
            line,
            instruction,
            rule,
            reason,
            cure,
        } = refusal;
        let message = format!(
            "{file}:{line}: kernel `{}`: `{instruction}`: {reason} (rule `{rule}`): {cure}",
            worst.name
        );
        let status = match self.grade {
            Grade::Depends => Status::new(
                StatusCode::FailedPrecondition,
                Blame::Caller,
                format!("{message}; or give its launch with --manifest and --shapes"),
            ),
            _ if *rule == Rule::Launch.name() => {
                Status::new(StatusCode::InvalidArgument, Blame::Guest, message)
            }
            _ => denied(message),
        };
        Some(status.into())
    }
}

/// The greatest grade of a file's kernels.
fn worst(kernels: &[KernelReport]) -> Grade {
    let grades = kernels.iter().map(|kernel| kernel.grade);
    grades.max().unwrap_or(Grade::Fenced)
}

/// Reports on the kernels that are launched. Launches that differ in their targets and images alone
/// are verified once.
fn launched(
    module: &Module,
    launches: &[&TargetLaunch],
    verifier: &Verifier<'_>,
) -> Vec<KernelReport> {
    let mut kernels: Vec<KernelReport> = Vec::with_capacity(launches.len());
    let mut known = HashMap::<_, usize>::new();
    let mut left = MOST_LISTED;
    for (number, one) in launches.iter().enumerate() {
        let target = Some(one.target.as_str());
        let FencedLaunch {
            image: _,
            entry,
            parameters,
            launch,
            open,
        } = &one.launch;
        let mut report = match known.entry((entry, parameters, launch, open)) {
            Entry::Occupied(same) => KernelReport {
                target: target.map(str::to_owned),
                ..kernels[*same.get()].clone()
            },
            Entry::Vacant(place) => {
                place.insert(number);
                verifier.kernel(module, target, &one.launch)
            }
        };
        report.cut(&mut left);
        kernels.push(report);
    }
    kernels
}

/// Verifies the kernels of a report.
pub(crate) struct Verifier<'a> {
    pub(crate) gpu: &'a Gpu,
    /// For all kernels together.
    pub(crate) budget: Budget,
    /// Whether reports have the fenced texts, each of which is as long as its file.
    pub(crate) keeps_texts: bool,
    /// The number of instructions of each function that was counted, by its address.
    counted: RefCell<HashMap<*const Function, usize>>,
}

impl<'a> Verifier<'a> {
    pub(crate) fn new(gpu: &'a Gpu) -> Self {
        Self {
            gpu,
            budget: Budget::default(),
            keeps_texts: false,
            counted: RefCell::default(),
        }
    }

    fn instructions(&self, function: Option<&Function>) -> usize {
        let Some(function) = function else {
            return 0;
        };
        let mut counted = self.counted.borrow_mut();
        let count = counted.entry(std::ptr::from_ref(function));
        *count.or_insert_with(|| instructions(function).count())
    }

    /// Reports on a kernel.
    fn kernel(
        &self,
        module: &Module,
        target: Option<&str>,
        planned: &FencedLaunch,
    ) -> KernelReport {
        let FencedLaunch {
            entry,
            launch,
            open,
            ..
        } = planned;
        let mut functions = module.functions.iter();
        let function = functions.find(|one| one.is_entry && one.name == *entry);
        let limits = verify::Limits {
            grid: self.gpu.grid_blocks,
            shared_bytes: self.gpu.shared_bytes,
            ..verify::Limits::default()
        };
        let mut report = KernelReport {
            name: entry.clone(),
            line: function.map_or(0, |function| function.line.0),
            target: target.map(str::to_owned),
            grade: Grade::Fenced,
            launch: KnownLaunch {
                grid: (!open.grid).then_some(launch.grid),
                block: known_block(function, planned),
                shared_bytes: (!open.shared_bytes).then_some(launch.shared_bytes),
            },
            parameters: parameters(planned),
            found: Found::default(),
            calls: Vec::new(),
            clocks: Vec::new(),
            instructions: 0,
            fenced_instructions: None,
            refusals: Vec::new(),
            left_out: 0,
            fenced_text: None,
        };
        report.instructions = self.instructions(function);
        // What is not verified for lack of steps is not looked at either.
        if !self.budget.is_spent() {
            for (function, instruction) in function.into_iter().flat_map(instructions) {
                report.look(module, function, instruction);
            }
        }
        let unproved = if *open == Open::default() {
            report.fence(module, planned, &limits, self)
        } else {
            let survey = verify::survey_within(module, entry, launch, *open, &limits, &self.budget);
            survey.map(|survey| report.add(&survey))
        };
        if let Err(Unproved {
            refusals,
            depends_on_launch,
        }) = unproved
        {
            report.grade = if depends_on_launch {
                Grade::Depends
            } else {
                Grade::Refused
            };
            report.refusals = refusals.into_iter().map(RefusalReport::new).collect();
        }
        report
    }
}

fn instructions(function: &Function) -> impl Iterator<Item = (&Function, &Instruction)> {
    let body = function.body.iter().flatten();
    body.filter_map(move |statement| match statement {
        Statement::Instruction(instruction) => Some((function, instruction)),
        Statement::Label(_) => None,
    })
}

fn known_block(function: Option<&Function>, planned: &FencedLaunch) -> Option<[u32; 3]> {
    if planned.open.block {
        function.and_then(|function| function.limits.reqntid)
    } else {
        Some(planned.launch.block)
    }
}

fn parameters(planned: &FencedLaunch) -> Vec<ParameterReport> {
    let params = planned.launch.params.iter().enumerate();
    params
        .map(|(index, param)| {
            let (bytes, is_buffer) = match param {
                Param::Buffer { .. } => (8, true),
                Param::Value(bytes) => (bytes.len() as u64, false),
            };
            ParameterReport {
                name: planned
                    .parameters
                    .get(index)
                    .map(PlannedParameter::to_string),
                bytes,
                is_buffer,
                reads: false,
                writes: false,
            }
        })
        .collect()
}

impl KernelReport {
    /// Notes calls and clocks, which a kernel that is refused has too.
    fn look(&mut self, module: &Module, function: &Function, instruction: &Instruction) {
        let line = instruction.line.0;
        if instruction.opcode == Opcode::Call {
            let called = instruction
                .operands
                .iter()
                .find_map(|operand| match operand {
                    Operand::Function(index) => module.functions.get(*index),
                    _ => None,
                });
            let function = called
                .map_or("a register", |function| &function.name)
                .to_owned();
            self.calls.push(Call { line, function });
        }
        if form(module, function, instruction).is_ok_and(|form| form.reads_clock) {
            self.clocks.push(line);
        }
    }

    /// Verifies and fences the kernel for a launch that is known.
    fn fence(
        &mut self,
        module: &Module,
        planned: &FencedLaunch,
        limits: &verify::Limits,
        verifier: &Verifier<'_>,
    ) -> Result<(), Unproved> {
        let (entry, launch) = (&planned.entry, &planned.launch);
        let proof = verify::verify_within(module, entry, launch, limits, &verifier.budget);
        let proof = proof.map_err(|refusals| Unproved {
            refusals,
            depends_on_launch: false,
        })?;
        let fenced = fence(module, &proof);
        self.fenced_instructions = Some(fenced.instructions.1);
        if verifier.keeps_texts {
            self.fenced_text = Some(ptx::print(&fenced.module).into());
        }
        self.add(&proof.survey());
        Ok(())
    }

    fn add(&mut self, survey: &Survey) {
        let counted =
            |one: &&AccessReport| one.space != Space::Param && one.verdict != Verdict::Dropped;
        let accesses: Vec<_> = survey.accesses.iter().filter(counted).collect();
        for access in &accesses {
            let parameter = access
                .param
                .and_then(|index| self.parameters.get_mut(index));
            if let Some(parameter) = parameter {
                parameter.reads |= access.action != Action::Store;
                parameter.writes |= access.action != Action::Load;
            }
        }
        let count = |verdict| accesses.iter().filter(|one| one.verdict == verdict).count();
        let not_proved = accesses.iter().filter(|one| one.verdict != Verdict::Proved);
        self.found = Found {
            accesses: Some(Counts {
                proved: count(Verdict::Proved),
                checked: count(Verdict::Checked),
                never: count(Verdict::Never),
            }),
            not_proved: Some(not_proved.map(|one| NotProved::new(one)).collect()),
            loops: Some(survey.loops.iter().map(Loop::new).collect()),
            blocks_look: Some(survey.blocks_look),
            barriers: Some(survey.barriers),
            shared_bytes: Some(survey.shared_bytes),
        };
    }
}
