//! The Python process that runs XLA. Requests and replies are JSON, one object per line;
//! `tests/xla/oracle.py` documents them.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;

/// The timeout of a reply. The first reply waits for the import of JAX.
const PATIENCE: Duration = Duration::from_secs(120);

/// A reply: the requested value, or XLA's error.
pub(super) type Reply = Result<Value, String>;

/// The process. A process that ended or timed out is replaced at the next request.
#[derive(Debug)]
pub(super) struct Oracle {
    python: PathBuf,
    script: PathBuf,
    process: Option<Process>,
    /// Counts the processes. Program numbers are per process, and must not be mixed up.
    generation: u64,
}

#[derive(Debug)]
struct Process {
    child: Child,
    requests: ChildStdin,
    replies: Receiver<String>,
}

impl Oracle {
    /// Starts the process and waits until it is ready.
    ///
    /// # Errors
    /// An interpreter that does not exist or has no JAX.
    pub(super) fn start(python: &Path, script: &Path) -> Result<Self> {
        Ok(Self {
            process: Some(Process::start(python, script, 0)?),
            generation: 0,
            python: python.to_owned(),
            script: script.to_owned(),
        })
    }

    /// Sends a request and waits for the reply. The inner error is XLA's.
    ///
    /// # Errors
    /// A process that ends, times out, or sends a malformed reply.
    pub(super) fn ask(&mut self, request: &Value) -> Result<Reply> {
        let mut process = match self.process.take() {
            Some(process) => process,
            None => {
                self.generation += 1;
                Process::start(&self.python, &self.script, self.generation)?
            }
        };
        let mut reply = process.ask(request)?;
        self.process = Some(process);
        Ok(match reply.get_mut("error").map(Value::take) {
            Some(Value::String(problem)) => Err(problem),
            Some(problem) => bail!("expected an error as text, found {problem}"),
            None => Ok(reply),
        })
    }
}

impl Oracle {
    /// Sends a message without waiting for its effect, if the process runs.
    pub(super) fn tell(&mut self, request: &Value) {
        if self.process.is_some() {
            drop(self.ask(request));
        }
    }
}

impl Process {
    fn start(python: &Path, script: &Path, generation: u64) -> Result<Self> {
        let mut child = Command::new(python)
            .arg(script)
            .arg(generation.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}", python.display()))?;
        let requests = child.stdin.take().context("expected a pipe to write to")?;
        let stdout = child
            .stdout
            .take()
            .context("expected a pipe to read from")?;
        let (sender, replies) = mpsc::channel();
        thread::spawn(move || {
            let lines = BufReader::new(stdout).lines().map_while(Result::ok);
            for line in lines {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let mut process = Self {
            child,
            requests,
            replies,
        };
        let ready = process.reply()?;
        match ready.get("ready") {
            Some(_) => Ok(process),
            None => bail!("expected XLA's process to be ready, found {ready}"),
        }
    }

    fn ask(&mut self, request: &Value) -> Result<Value> {
        let sent = writeln!(self.requests, "{request}").and_then(|()| self.requests.flush());
        match sent {
            Ok(()) => self.reply(),
            Err(_) => Err(self.ended()),
        }
    }

    fn reply(&mut self) -> Result<Value> {
        match self.replies.recv_timeout(PATIENCE) {
            Ok(line) => serde_json::from_str(&line)
                .with_context(|| format!("expected JSON from XLA's process, found {line:?}")),
            Err(RecvTimeoutError::Disconnected) => Err(self.ended()),
            Err(RecvTimeoutError::Timeout) => Err(anyhow!(
                "expected an answer of XLA's process within {} seconds",
                PATIENCE.as_secs()
            )),
        }
    }

    fn ended(&mut self) -> anyhow::Error {
        match self.child.wait() {
            Ok(status) => {
                anyhow!("expected an answer of XLA's process, found that it ended: {status}")
            }
            Err(error) => error.into(),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have ended already; there is no other remedy if it cannot be killed.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// Makes an oracle whose interpreter is a shell script.
    fn oracle(name: &str, script: &str) -> Result<Oracle> {
        let path =
            std::env::temp_dir().join(format!("callbox-oracle-{}-{name}", std::process::id()));
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let oracle = Oracle::start(&path, Path::new("x"));
        std::fs::remove_file(path).unwrap();
        oracle
    }

    #[test]
    fn replies_and_errors_are_told_apart() {
        let script = r#"echo '{"ready": 1}'; read a; echo '{"program": 1}'; read b; echo '{"error": "no"}'; read c; echo 'what'"#;
        let mut oracle = oracle("replies", script).unwrap();
        let request = Value::Null;
        assert_eq!(oracle.ask(&request).unwrap().unwrap()["program"], 1);
        assert_eq!(oracle.ask(&request).unwrap().unwrap_err(), "no");
        let error = oracle.ask(&request).unwrap_err().to_string();
        assert_eq!(error, "expected JSON from XLA's process, found \"what\"");
    }

    #[test]
    fn a_process_that_ends_says_so() {
        let error = oracle("ends", "exit 3").unwrap_err().to_string();
        assert!(
            error.contains("found that it ended: exit status: 3"),
            "{error}"
        );
    }
}
