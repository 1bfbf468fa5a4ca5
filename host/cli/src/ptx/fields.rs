//! The report as `--json` prints it. The fields are in the order of the keys.

use callbox::cuda::ptx::table::Action;
use callbox::cuda::ptx::types::Space;
use callbox::cuda::ptx::verify::{AccessReport, LoopEnd, LoopReport, Refusal, Verdict};
use serde::Serialize;

/// What must be trusted to run a kernel. A file has the greatest grade of its kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Grade {
    /// It passes for every launch that fits what is known.
    Fenced,
    /// It may pass if the launch is known.
    Depends,
    /// It does not pass.
    Refused,
}

/// The report on a file.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PtxReport {
    pub(crate) size: usize,
    pub(crate) sha256: String,
    pub(crate) architecture: Option<String>,
    /// Why the text cannot be read.
    pub(crate) problem: Option<Problem>,
    pub(crate) grade: Grade,
    pub(crate) kernels: Vec<KernelReport>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Problem {
    pub(crate) line: u32,
    pub(crate) column: u32,
    pub(crate) message: String,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct KernelReport {
    pub(crate) name: String,
    pub(crate) line: u32,
    /// The manifest's target that launches it.
    pub(crate) target: Option<String>,
    pub(crate) grade: Grade,
    pub(crate) launch: KnownLaunch,
    pub(crate) parameters: Vec<ParameterReport>,
    #[serde(flatten)]
    pub(crate) found: Found,
    pub(crate) calls: Vec<Call>,
    pub(crate) clocks: Vec<u32>,
    pub(crate) instructions: usize,
    pub(crate) fenced_instructions: Option<usize>,
    pub(crate) refusals: Vec<RefusalReport>,
    #[serde(skip)]
    pub(crate) fenced_text: Option<String>,
}

/// The numbers of a launch that are known.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct KnownLaunch {
    pub(crate) grid: Option<[u32; 3]>,
    pub(crate) block: Option<[u32; 3]>,
    pub(crate) shared_bytes: Option<u32>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct ParameterReport {
    /// What a manifest passes: `operand 0`.
    pub(crate) name: Option<String>,
    pub(crate) bytes: u64,
    pub(crate) is_buffer: bool,
    pub(crate) reads: bool,
    pub(crate) writes: bool,
}

/// What the verifier found, if the kernel passed.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Found {
    pub(crate) accesses: Option<Counts>,
    pub(crate) not_proved: Option<Vec<NotProved>>,
    pub(crate) loops: Option<Vec<Loop>>,
    pub(crate) blocks_look: Option<bool>,
    pub(crate) barriers: Option<usize>,
    pub(crate) shared_bytes: Option<u64>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Counts {
    pub(crate) proved: usize,
    pub(crate) checked: usize,
    pub(crate) never: usize,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct NotProved {
    pub(crate) line: u32,
    pub(crate) space: &'static str,
    pub(crate) action: &'static str,
    pub(crate) bytes: u64,
    pub(crate) parameter: Option<usize>,
    pub(crate) verdict: &'static str,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Loop {
    pub(crate) line: u32,
    pub(crate) turns: Option<u64>,
    pub(crate) stop_word_every: Option<u32>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Call {
    pub(crate) line: u32,
    pub(crate) function: String,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct RefusalReport {
    pub(crate) line: u32,
    pub(crate) instruction: String,
    pub(crate) rule: &'static str,
    pub(crate) reason: String,
    pub(crate) cure: String,
}

impl NotProved {
    pub(super) fn new(access: &AccessReport) -> Self {
        Self {
            line: access.line,
            space: match access.space {
                Space::Generic => "generic",
                space => space.directive().trim_start_matches('.'),
            },
            action: match access.action {
                Action::Load => "load",
                Action::Store => "store",
                Action::Update => "atomic",
                Action::Prefetch => "prefetch",
            },
            bytes: access.bytes,
            parameter: access.param,
            verdict: match access.verdict {
                Verdict::Never => "never",
                _ => "checked",
            },
        }
    }
}

impl Loop {
    pub(super) fn new(found: &LoopReport) -> Self {
        let (turns, stop_word_every) = match found.end {
            LoopEnd::Proved { turns } => (Some(turns), None),
            LoopEnd::StopWord { every } => (None, Some(every)),
        };
        Self {
            line: found.line,
            turns,
            stop_word_every,
        }
    }
}

impl RefusalReport {
    pub(super) fn new(refusal: Refusal) -> Self {
        Self {
            line: refusal.line,
            instruction: refusal.instruction,
            rule: refusal.rule.name(),
            reason: refusal.reason,
            cure: refusal.cure,
        }
    }
}
