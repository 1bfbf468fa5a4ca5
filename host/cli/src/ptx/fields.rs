//! The report as `--json` prints it. The fields are in the order of the keys.

use std::sync::Arc;

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
    /// The entries of the lists that are left out, as the report would be too long.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) left_out: usize,
    #[serde(skip)]
    pub(crate) fenced_text: Option<Arc<str>>,
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

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

impl KernelReport {
    /// Leaves out the ends of the lists that are longer than `left`, from which it takes what the
    /// rest costs. The first refusal stays, since it is the error of the command.
    pub(super) fn cut(&mut self, left: &mut usize) {
        // An entry with a text counts once more for each of these bytes.
        const TEXT: usize = 64;
        let refusal = |one: &RefusalReport| 1 + (one.instruction.len() + one.reason.len()) / TEXT;
        let call = |one: &Call| 1 + one.function.len() / TEXT;
        let rest = self.refusals.split_off(self.refusals.len().min(1));
        let kept = kept(&rest, left, refusal);
        self.left_out += rest.len() - kept;
        self.refusals.extend(rest.into_iter().take(kept));
        self.left_out += shorten(&mut self.calls, left, call);
        self.left_out += shorten(&mut self.clocks, left, |_| 1);
        if let Some(loops) = &mut self.found.loops {
            self.left_out += shorten(loops, left, |_| 1);
        }
        if let Some(accesses) = &mut self.found.not_proved {
            self.left_out += shorten(accesses, left, |_| 1);
        }
    }
}

/// Leaves out the end of a list that costs more than `left`. Returns the number of entries.
fn shorten<T>(list: &mut Vec<T>, left: &mut usize, cost: impl Fn(&T) -> usize) -> usize {
    let kept = kept(list, left, cost);
    let cut = list.len() - kept;
    list.truncate(kept);
    list.shrink_to_fit();
    cut
}

/// The number of entries from the start of a list that do not cost more than `left`.
fn kept<T>(list: &[T], left: &mut usize, cost: impl Fn(&T) -> usize) -> usize {
    let fits = |one: &&T| match left.checked_sub(cost(one)) {
        Some(rest) => {
            *left = rest;
            true
        }
        None => false,
    };
    list.iter().take_while(fits).count()
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
