//! Why a kernel is not run.

use std::fmt;

use crate::ast::Instruction;

/// The rule that a kernel breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// The module, or the kernel's declaration.
    Module,
    /// The launch does not fit the kernel, or exceeds a limit.
    Launch,
    /// An instruction that is refused in kernels without a grant.
    Instruction,
    /// A call, or a branch to a computed place.
    Call,
    /// The time, or the place of a thread on the device.
    Clock,
    /// A parameter is not read as the launch passes it.
    Parameter,
    /// An address that cannot be checked.
    Address,
    /// A barrier or a collective instruction that could wait for ever.
    Barrier,
    /// A loop that could not be stopped.
    UnboundedLoop,
    /// The kernel exceeds a limit of the verifier.
    Size,
}

impl Rule {
    /// Returns the name of the rule in messages and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Module => "module",
            Self::Launch => "launch",
            Self::Instruction => "instruction",
            Self::Call => "call",
            Self::Clock => "clock",
            Self::Parameter => "parameter",
            Self::Address => "address",
            Self::Barrier => "barrier",
            Self::UnboundedLoop => "unbounded-loop",
            Self::Size => "size",
        }
    }
}

/// Why a kernel is not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The line of the PTX text, or 0.
    pub line: u32,
    /// The name of the instruction or directive.
    pub instruction: String,
    /// The rule.
    pub rule: Rule,
    /// What is wrong.
    pub reason: String,
    /// What would make it pass.
    pub cure: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            line,
            instruction,
            rule,
            reason,
            cure,
        } = self;
        write!(
            f,
            "line {line}: `{instruction}`: {reason} (rule `{}`): {cure}",
            rule.name()
        )
    }
}

/// The refusal of an instruction.
pub(crate) fn refusal(
    instruction: &Instruction,
    rule: Rule,
    reason: String,
    cure: &str,
) -> Refusal {
    let modifiers = instruction.names().map(|name| format!(".{name}"));
    Refusal {
        line: instruction.line.0,
        instruction: std::iter::once(instruction.opcode.name().to_owned())
            .chain(modifiers)
            .collect(),
        rule,
        reason,
        cure: cure.to_owned(),
    }
}

/// The refusal of a launch, or of a kernel as a whole.
pub(crate) fn launch_refusal(rule: Rule, reason: String) -> Refusal {
    Refusal {
        line: 0,
        instruction: "launch".to_owned(),
        rule,
        reason,
        cure: "change the launch or the kernel so that they fit".to_owned(),
    }
}
