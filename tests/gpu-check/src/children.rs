//! Runs sections in child processes of this program.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use callbox_tests::root;
use serde_json::Value;

use crate::fence::random;
use crate::loading;
use crate::options::Options;
use crate::report::Section;
use crate::sections;

/// The prefix of the line with a section's result. Libraries may print other lines.
const MARK: &str = "gpu-check section: ";

/// Formats the line.
pub(crate) fn line(section: &Section) -> Result<String> {
    Ok(format!("{MARK}{}", serde_json::to_string(section)?))
}

/// Runs a section in a child process. A child that crashes, hangs or prints no result has failed.
pub(crate) fn run(name: &str, options: &Options, root: &Path) -> Section {
    let found = start(name, options, root).and_then(|child| outcome(child, sections::limit(name)));
    found.unwrap_or_else(|error| Section::failed(name, format!("{error:#}"), Value::Null))
}

fn start(name: &str, options: &Options, root: &Path) -> Result<Child> {
    let program = std::env::current_exe().context("cannot find this program's file")?;
    let mut command = Command::new(program);
    command.arg("--section").arg(name);
    command.arg("--root").arg(root).env(root::VARIABLE, root);
    command.arg("--cases").arg(&options.cases);
    command.args(options.quick.then_some("--quick"));
    command.args(options.stand_in.then_some("--stand-in"));
    let compiles = [sections::LOADING, sections::FENCE_COST].contains(&name);
    if compiles || name.starts_with(random::PREFIX) {
        let (variable, value) = loading::WITHOUT_CACHE;
        command.env(variable, value);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    command.spawn().context("cannot start this program again")
}

/// Returns the child's result, if it ended in time.
fn outcome(mut child: Child, limit: Duration) -> Result<Section> {
    let mut stdout = child.stdout.take().context("expected a pipe")?;
    // Drain the pipe, or the child would block on it.
    let reader = thread::spawn(move || {
        let mut bytes = Vec::new();
        // On a read error, the bytes read so far are still parsed.
        let _ = stdout.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    });
    let ended = wait(&mut child, limit);
    let text = reader
        .join()
        .map_err(|_| anyhow!("expected to read what it said"))?;
    // A process that prints a result and then waits for a device that hangs has a result, too.
    match text.lines().rev().find_map(|line| line.strip_prefix(MARK)) {
        Some(said) => serde_json::from_str(said).context("the process printed a malformed result"),
        None => Err(anyhow!(
            "the process ended with {} and printed no result",
            ended?
        )),
    }
}

fn wait(child: &mut Child, limit: Duration) -> Result<ExitStatus> {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if begun.elapsed() >= limit {
            // The child may have ended just now.
            let _ = child.kill();
            child.wait()?;
            return Err(anyhow!(
                "its process had not ended after {} s",
                limit.as_secs()
            ));
        }
        thread::sleep(Duration::from_millis(10));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn shell(text: &str) -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", text]).stdout(Stdio::piped());
        command.spawn().unwrap()
    }

    #[test]
    fn what_a_process_says_is_found_among_other_lines() {
        let section = Section::skipped("a", "because");
        let line = line(&section).unwrap();
        let child = shell(&format!("echo hello; echo '{line}'; echo bye"));
        assert_eq!(outcome(child, Duration::from_secs(10)).unwrap(), section);
    }

    #[test]
    fn processes_that_crash_or_hang_have_failed() {
        let error = outcome(shell("echo hello; exit 3"), Duration::from_secs(10)).unwrap_err();
        assert!(error.to_string().contains("exit status: 3"), "{error}");
        let begun = Instant::now();
        let error = outcome(shell("exec sleep 20"), Duration::from_millis(100)).unwrap_err();
        assert!(error.to_string().contains("had not ended"), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(10));
    }
}
