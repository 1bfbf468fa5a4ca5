//! The report for a person.

use super::fields::{Found, Grade, KernelReport, Loop, NotProved, ParameterReport, PtxReport};
use crate::inspect::{bytes, field};
use crate::text::name;

/// The most lines that are listed.
const MOST_LINES: usize = 12;

impl Grade {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Fenced => "fenced",
            Self::Depends => "depends on its launch",
            Self::Refused => "refused",
        }
    }
}

/// The report on a file.
pub(crate) fn describe(report: &PtxReport) -> String {
    let grade = match report.grade {
        Grade::Fenced => "fenced: needs no grant",
        Grade::Depends => "depends on the launch: with its shapes a kernel may pass",
        Grade::Refused => "refused: needs a grant",
    };
    let mut lines = vec![
        field("size", &bytes(report.size as u64)),
        field("sha256", &report.sha256),
        field("grade", grade),
    ];
    if let Some(architecture) = &report.architecture {
        lines.push(field("target", architecture));
    }
    if let Some(problem) = &report.problem {
        let place = format!("line {}, column {}", problem.line, problem.column);
        lines.push(field(
            "problem",
            &format!("{place}: {}", name(&problem.message)),
        ));
    }
    for kernel in &report.kernels {
        lines.push(String::new());
        lines.extend(describe_kernel(kernel));
    }
    lines.join("\n") + "\n"
}

/// The grades of a file's kernels, one a line, with the first refusal of each.
pub(crate) fn summary(report: &PtxReport) -> Vec<String> {
    let line = |kernel: &KernelReport| {
        let refusal = kernel.refusals.first().map(|refusal| {
            let (line, instruction) = (refusal.line, name(&refusal.instruction));
            format!(": line {line}: `{instruction}`: {}", name(&refusal.reason))
        });
        let (of, grade) = (name(&kernel.name), kernel.grade.name());
        format!("{of}: {grade}{}", refusal.unwrap_or_default())
    };
    let problem = report.problem.as_ref().map(|problem| {
        let message = name(&problem.message);
        format!(
            "refused: line {}, column {}: {message}",
            problem.line, problem.column
        )
    });
    problem
        .into_iter()
        .chain(report.kernels.iter().map(line))
        .collect()
}

fn describe_kernel(kernel: &KernelReport) -> Vec<String> {
    let of = kernel
        .target
        .as_ref()
        .map(|target| format!(" of target {}", name(target)));
    let mut lines = vec![format!(
        "kernel {}{}, line {}: {}",
        name(&kernel.name),
        of.unwrap_or_default(),
        kernel.line,
        kernel.grade.name()
    )];
    lines.push(field("launch", &launch(kernel)));
    for (index, parameter) in kernel.parameters.iter().enumerate() {
        let known = kernel.found.accesses.is_some();
        let text = describe_parameter(parameter, known);
        lines.push(field(&format!("param {index}"), &text));
    }
    lines.extend(describe_found(&kernel.found));
    lines.extend(listed("calls", &kernel.calls, |call| {
        format!("line {}: {}", call.line, name(&call.function))
    }));
    lines.extend(listed("clocks", &kernel.clocks, |line| {
        format!("line {line}")
    }));
    let fenced = kernel.fenced_instructions;
    let fenced = fenced.map_or_else(String::new, |fenced| format!(", {fenced} with the fence"));
    lines.push(field(
        "code",
        &format!("{} instructions{fenced}", kernel.instructions),
    ));
    for refusal in &kernel.refusals {
        lines.push(format!(
            "  line {}: `{}`: {} (rule `{}`)",
            refusal.line,
            name(&refusal.instruction),
            name(&refusal.reason),
            refusal.rule
        ));
        lines.push(format!("    to pass: {}", name(&refusal.cure)));
    }
    if kernel.left_out > 0 {
        let text = format!("{} more entries, past the report's limit", kernel.left_out);
        lines.push(field("left out", &text));
    }
    lines
}

/// What the verifier found in a kernel that passed.
fn describe_found(found: &Found) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(counts) = &found.accesses {
        let never = match counts.never {
            0 => String::new(),
            never => format!(", {never} stopped whenever they run"),
        };
        let text = format!(
            "{} proved, {} checked{never}",
            counts.proved, counts.checked
        );
        lines.push(field("accesses", &text));
    }
    let not_proved = found.not_proved.as_deref().unwrap_or_default();
    lines.extend(listed("", not_proved, describe_access));
    if let Some(loops) = &found.loops {
        lines.extend(listed("loops", loops, describe_loop));
        if loops.is_empty() {
            lines.push(field("loops", "none"));
        }
    }
    if found.blocks_look == Some(true) {
        lines.push(field("blocks", "look at the stop word as they begin"));
    }
    if let (Some(barriers), Some(shared)) = (found.barriers, found.shared_bytes) {
        lines.push(field("barriers", &barriers.to_string()));
        lines.push(field("shared", &bytes(shared)));
    }
    lines
}

fn launch(kernel: &KernelReport) -> String {
    let three = |what: &str, sizes: Option<[u32; 3]>| match sizes {
        Some([x, y, z]) => format!("{what} {x} x {y} x {z}"),
        None => format!("{what} unknown"),
    };
    let shared = match kernel.launch.shared_bytes {
        Some(bytes) => format!("{bytes} bytes of dynamic shared memory"),
        None => "dynamic shared memory unknown".to_owned(),
    };
    let (grid, block) = (kernel.launch.grid, kernel.launch.block);
    format!(
        "{}, {}, {shared}",
        three("grid", grid),
        three("block", block)
    )
}

fn describe_parameter(parameter: &ParameterReport, is_known: bool) -> String {
    let what = match (&parameter.name, parameter.is_buffer) {
        (Some(known), true) => known.clone(),
        (None, true) => "a buffer".to_owned(),
        (_, false) => format!("a number of {} bytes", parameter.bytes),
    };
    let use_of = match (parameter.reads, parameter.writes) {
        (true, true) => ": read and written",
        (true, false) => ": read",
        (false, true) => ": written",
        (false, false) if parameter.is_buffer && is_known => ": not used",
        (false, false) => "",
    };
    what + use_of
}

fn describe_access(access: &NotProved) -> String {
    let whose = match access.parameter {
        Some(parameter) => format!(" of parameter {parameter}"),
        None => String::new(),
    };
    format!(
        "line {}: {} of {} bytes, {}{whose}: {}",
        access.line,
        access.action,
        access.bytes,
        access.space,
        match access.verdict {
            "never" => "stopped whenever it runs",
            verdict => verdict,
        }
    )
}

fn describe_loop(found: &Loop) -> String {
    let end = match (found.turns, found.stop_word_every) {
        (Some(turns), _) => format!("goes back at most {turns} times"),
        (None, Some(1)) => "looks at the stop word each turn".to_owned(),
        (None, every) => format!("looks at the stop word every {} turns", every.unwrap_or(1)),
    };
    format!("line {}: {end}", found.line)
}

/// The first items, one below the other.
fn listed<T>(key: &str, items: &[T], text: impl Fn(&T) -> String) -> Vec<String> {
    let mut key = key;
    let shown = items.iter().take(MOST_LINES).map(text);
    let more = items.len().saturating_sub(MOST_LINES);
    let more = (more > 0).then(|| format!("and {more} more"));
    shown
        .chain(more)
        .map(|text| field(std::mem::take(&mut key), &text))
        .collect()
}
