//! The child process.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use callbox_core::untrusted_text::sanitize;
use callbox_core::values::{Blame, Result, Status, StatusCode};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, Resource, Rlimit, prlimit};

/// The limits of the child.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// `None` for no limit.
    pub(super) time: Option<Duration>,
    pub(super) memory_bytes: u64,
}

/// The most bytes of the log in a message.
const MAX_LOG: usize = 8 << 10;

/// The largest machine code, in bytes.
const MAX_CODE: u64 = 128 << 20;

/// The time between two looks at the child.
const LOOK: Duration = Duration::from_millis(1);

/// Assembles a text.
pub(super) fn run(
    program: &Path,
    file: &str,
    text: &str,
    (major, minor): (u32, u32),
    limits: &Limits,
) -> Result<Vec<u8>> {
    let failed = |what: &str, error: std::io::Error| {
        let message = format!("assembling {file}: {what}: {error}");
        Status::new(StatusCode::ResourceExhausted, Blame::Host, message)
    };
    let made = |name| memfd_create(name, MemfdFlags::CLOEXEC).map(File::from);
    let (mut input, output) = made("ptx")
        .and_then(|input| Ok((input, made("cubin")?)))
        .map_err(|error| failed("making a memory file", error.into()))?;
    let written = input
        .write_all(text.as_bytes())
        .and_then(|()| input.rewind());
    written.map_err(|error| failed("writing a memory file", error))?;
    let mut found = output
        .try_clone()
        .map_err(|error| failed("sharing a memory file", error))?;
    let mut command = Command::new(program);
    command
        .arg(format!("--gpu-name=sm_{major}{minor}"))
        .args(["--output-file", "/dev/stdout", "/dev/stdin"])
        .env_clear()
        .current_dir("/")
        .stdin(input)
        .stdout(output)
        .stderr(Stdio::piped());
    let child = command.spawn();
    let mut child =
        child.map_err(|error| failed(&format!("starting {}", program.display()), error))?;
    limit_child(&child, limits.memory_bytes);
    // Drain the pipe, or the child would block on it.
    let log = child.stderr.take().map(|stderr| {
        thread::spawn(move || {
            let mut log = Vec::new();
            // A log that cannot be read is empty.
            let _ = stderr.take(MAX_LOG as u64).read_to_end(&mut log);
            String::from_utf8_lossy(&log).into_owned()
        })
    });
    let ended = wait(&mut child, limits.time);
    let ended = ended.map_err(|error| failed("waiting for ptxas", error))?;
    let log = log.and_then(|log| log.join().ok()).unwrap_or_default();
    match ended {
        Some(status) if status.success() => {
            let mut cubin = Vec::new();
            let rewound = found.rewind();
            let read = rewound.and_then(|()| found.take(MAX_CODE + 1).read_to_end(&mut cubin));
            read.map_err(|error| failed("reading a memory file", error))?;
            if cubin.len() as u64 > MAX_CODE {
                let message = format!("assembling {file}: more than {MAX_CODE} bytes of code");
                return Err(Status::new(
                    StatusCode::ResourceExhausted,
                    Blame::Guest,
                    message,
                ));
            }
            Ok(cubin)
        }
        Some(status) => Err(report(file, status, &log)),
        None => {
            let time = limits.time.unwrap_or_default();
            let message = format!(
                "assembling {file}: ptxas ran past its limit of {time:?} (`gpu.assemble_ms`)"
            );
            Err(Status::new(
                StatusCode::DeadlineExceeded,
                Blame::Guest,
                message,
            ))
        }
    }
}

fn limit_child(child: &Child, bytes: u64) {
    // Without a number the limits would be this process's.
    let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else {
        return;
    };
    // A child that crashes leaves no core.
    let limits = [
        (Resource::As, bytes),
        (Resource::Fsize, MAX_CODE),
        (Resource::Core, 0),
    ];
    for (resource, most) in limits {
        let limit = Rlimit {
            current: Some(most),
            maximum: Some(most),
        };
        // If the child has ended, nothing is left to limit.
        let _ = prlimit(Some(pid), resource, limit);
    }
}

/// Waits for the child's end, and kills it past its time. `None` if it was killed.
fn wait(child: &mut Child, time: Option<Duration>) -> std::io::Result<Option<ExitStatus>> {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if time.is_some_and(|time| begun.elapsed() >= time) {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(LOOK);
    }
}

/// The failure of a child that ended by itself.
fn report(file: &str, status: ExitStatus, log: &str) -> Status {
    let log = sanitize(log.as_bytes(), log.len(), MAX_LOG);
    let log = match log.trim() {
        "" => String::new(),
        log => format!(": {}", log.replace('\n', "; ")),
    };
    let (code, message) = match status.signal() {
        Some(signal) => (
            StatusCode::Aborted,
            format!("assembling {file}: ptxas was ended by signal {signal}{log}"),
        ),
        None => (
            StatusCode::InvalidArgument,
            format!("assembling {file}: ptxas refused it{log}"),
        ),
    };
    Status::new(code, Blame::Guest, message)
}
