//! The output of commands: results and objects on standard output, failures and guests' logs on
//! standard error.

mod destination;
mod folder;

pub(super) use destination::{Destination, OutputArguments};
use folder::OutputFolder;

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use callbox::values::with_capacity;
use callbox::wasm::LogRecord;
use callbox::{ArrayShape, Literal};
use serde::Serialize;

use super::failure::{FAILED, Failure, Outcome};
use super::package::report::Report;
use super::{json, summary, text};

/// The format of standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// A person.
    Text,
    /// A program: one JSON object.
    Json,
}

impl Format {
    pub(super) fn of(json: bool) -> Self {
        if json { Self::Json } else { Self::Text }
    }
}

/// The result of a call or a program, and the files of its arrays.
#[derive(Debug)]
pub(super) struct Finished {
    result: Literal,
    files: Vec<Option<PathBuf>>,
    device: Option<DeviceName>,
    /// The .npy file that standard output is to have in place of a summary.
    printed: Option<Vec<u8>>,
}

/// The CUDA device of a result. It is shown so that a result of a stand-in for a GPU is not
/// mistaken for a GPU's.
#[derive(Clone, Debug, Serialize)]
pub(super) struct DeviceName {
    pub(super) ordinal: usize,
    pub(super) name: String,
}

impl Finished {
    /// Writes the arrays to a folder or a file.
    pub(super) fn new(result: Literal, destination: Destination) -> Outcome<Self> {
        let mut printed = None;
        let files = match destination {
            Destination::Nowhere => vec![None; result.shape().leaf_count()],
            Destination::Folder(folder) => folder.write(&result)?,
            Destination::File(path) => {
                destination::write_array(&path, &result)?;
                vec![Some(path)]
            }
            Destination::StandardOutput => {
                let (header, bytes) = destination::array_file(&result)?;
                let mut file = with_capacity(header.len() + bytes.len())?;
                file.extend_from_slice(&header);
                file.extend_from_slice(&bytes);
                printed = Some(file);
                vec![None]
            }
        };
        Ok(Self {
            result,
            files,
            device: None,
            printed,
        })
    }

    /// The same result, computed on this device.
    pub(super) fn on(self, device: Option<DeviceName>) -> Self {
        Self { device, ..self }
    }

    /// The device that it was computed on, if not on the host.
    pub(super) fn device(&self) -> Option<&DeviceName> {
        self.device.as_ref()
    }

    /// The arrays of the result, with explicit layouts, and their files.
    pub(super) fn arrays(&self) -> impl Iterator<Item = (ArrayShape, &[u8], Option<&PathBuf>)> {
        let arrays = std::iter::zip(self.result.leaves(), &self.files);
        arrays.map(|((shape, bytes), file)| (with_layout(shape), bytes, file.as_ref()))
    }
}

/// Prints the outcome of a call or a program.
pub(super) fn results(format: Format, outcome: Outcome<Finished>) -> ExitCode {
    let code = exit_code(&outcome);
    match (format, &outcome) {
        (Format::Json, outcome) => emit(&json::results(outcome.as_ref()), code),
        (Format::Text, Ok(finished)) => match (&finished.printed, summarize(finished)) {
            (Some(file), _) => emit_bytes(file, code),
            (None, Ok(text)) => emit(&text, code),
            (None, Err(status)) => complain(&status.into()),
        },
        (Format::Text, Err(_)) => code,
    }
}

/// Prints the report of a command that may fail after it has one.
pub(super) fn report(
    is_json: bool,
    key: &'static str,
    report: Option<&Report>,
    outcome: Outcome<()>,
) -> ExitCode {
    let code = exit_code(&outcome);
    match (is_json, report) {
        (true, report) => emit(&json::checked(key, &report, outcome.as_ref().err()), code),
        (false, Some(report)) => emit(&report.describe(), code),
        (false, None) => code,
    }
}

/// Writes to standard output, and returns the exit code. A closed pipe is not an error.
pub(super) fn emit(text: &str, code: ExitCode) -> ExitCode {
    emit_bytes(text.as_bytes(), code)
}

fn emit_bytes(bytes: &[u8], code: ExitCode) -> ExitCode {
    let mut out = io::stdout().lock();
    let written = out.write_all(bytes).and_then(|()| out.flush());
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            say(&format!(
                "error: expected to write to standard output: {error}"
            ));
            ExitCode::from(FAILED)
        }
        _ => code,
    }
}

/// Returns a command's exit code. Prints a failure on standard error.
pub(super) fn exit_code<T>(outcome: &Outcome<T>) -> ExitCode {
    outcome
        .as_ref()
        .map_or_else(complain, |_| ExitCode::SUCCESS)
}

/// Prints a failure on standard error, and returns its exit code.
pub(super) fn complain(failure: &Failure) -> ExitCode {
    let status = failure.status();
    let mut message = format!(
        "error: {}\n  blame: {}",
        on_marked_lines(&status.to_string()),
        status.blame()
    );
    if status.recoverable() {
        message.push_str("\n  recoverable: a later call with other inputs can succeed");
    }
    if let Some(backtrace) = status.backtrace().filter(|b| !b.frames().is_empty()) {
        message.push_str("\n  backtrace, innermost function first:");
        for line in backtrace.to_string().lines() {
            // Writing to a string cannot fail.
            let _ = write!(message, "\n  {line}");
        }
    }
    say(&message);
    failure.exit_code()
}

/// Marks each further line of a message. A guest may have written parts of it, which must not look
/// like callbox's own lines.
fn on_marked_lines(message: &str) -> String {
    // A guest's lines are marked in the same way already.
    let message = message.trim_end().replace("\n  | ", "\n");
    message.replace('\n', "\n  | ")
}

/// Prints a guest's log message on standard error, each line marked as the guest's.
pub(super) fn guest_log(record: &LogRecord<'_>) {
    let mut lines = record.message.lines();
    let mut message = format!(
        "guest {}: {}",
        record.level,
        lines.next().unwrap_or_default()
    );
    for line in lines {
        let _ = write!(message, "\nguest {}: {line}", record.level);
    }
    say_meanwhile(&message);
}

/// Prints a warning on standard error.
pub(super) fn warn(message: &dyn std::fmt::Display) {
    let message = on_marked_lines(&message.to_string());
    say_meanwhile(&format!("warning: {message}"));
}

/// Prints a note on standard error.
pub(super) fn note(message: &str) {
    say_meanwhile(message);
}

/// Prints a line, clearing a progress display.
fn say_meanwhile(message: &str) {
    if io::stderr().is_terminal() {
        let _ = io::stderr().lock().write_all(b"\r\x1b[K");
    }
    say(message);
}

/// Prints a line on standard error. Errors are discarded.
fn say(message: &str) {
    let message = text::printable(message);
    let message = if shows_colour() {
        coloured(&message)
    } else {
        message
    };
    let _ = writeln!(io::stderr().lock(), "{message}");
}

/// Whether standard error shows colours, by the rules that clap follows for its own errors.
fn shows_colour() -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    io::stderr().is_terminal() && !is_set("NO_COLOR") && !is_dumb
}

/// A message with its first word as clap shows it, if callbox itself says it.
fn coloured(message: &str) -> String {
    for (word, colour) in [("error:", 31), ("warning:", 33)] {
        if let Some(rest) = message.strip_prefix(word) {
            return format!("\x1b[1m\x1b[{colour}m{word}\x1b[0m{rest}");
        }
    }
    message.to_owned()
}

/// The results for a person.
fn summarize(finished: &Finished) -> callbox::Result<String> {
    let mut lines = Vec::new();
    for (i, (shape, bytes, file)) in finished.arrays().enumerate() {
        lines.push(format!("result {i}: {shape}"));
        let summary = summary::lines(&shape, bytes)?;
        lines.extend(summary.into_iter().map(|line| format!("  {line}")));
        if let Some(file) = file {
            let tensor = if file.ends_with(folder::TENSORS) {
                format!("#{i}")
            } else {
                String::new()
            };
            lines.push(format!("  written to {}{tensor}", file.display()));
        }
    }
    if lines.is_empty() {
        lines.push("no results".to_owned());
    }
    if let Some(device) = finished.device() {
        let name = text::name(&device.name);
        lines.push(format!("on CUDA device {}: {name}", device.ordinal));
    }
    Ok(text::printable(&(lines.join("\n") + "\n")))
}

fn with_layout(shape: &ArrayShape) -> ArrayShape {
    let with_layout = shape.clone().with_layout(shape.layout_or_default());
    // The layout is the shape's own, so that ranks agree.
    with_layout.unwrap_or_else(|_| shape.clone())
}

#[cfg(test)]
mod tests {
    use super::coloured;

    #[test]
    fn only_callboxs_own_words_are_coloured() {
        assert_eq!(coloured("error: a"), "\x1b[1m\x1b[31merror:\x1b[0m a");
        assert_eq!(coloured("warning: a"), "\x1b[1m\x1b[33mwarning:\x1b[0m a");
        assert_eq!(coloured("guest info: error: a"), "guest info: error: a");
    }
}
