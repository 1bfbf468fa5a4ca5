//! Hostile files that are cheap to make: each has a bound on the memory and the time that it costs.

use std::fs::File;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Folder, Ran};

mod executions;
mod files;
mod kernels;
mod programs;

/// The time that a case may take. Each takes a tenth of it at most, also without optimisations.
const TIME: Duration = Duration::from_secs(60);

/// Runs the command line, which may use this much memory.
///
/// Its memory for data is limited, except that an engine reserves more than it uses: for arguments
/// that need one, the peak of the resident memory is checked.
pub(crate) fn limited(folder: &Folder, mebibytes: u64, arguments: &[&str]) -> Ran {
    let needs_engine = ["call", "replay"].contains(&arguments[0])
        || ["--target", "--targets"]
            .iter()
            .any(|flag| arguments.contains(flag));
    let command = folder.command(arguments);
    let data = if needs_engine {
        "unlimited".to_owned()
    } else {
        (mebibytes << 10).to_string()
    };
    let mut limited = Command::new("sh");
    limited
        .args(["-c", "ulimit -d \"$0\"; exec \"$@\""])
        .arg(data)
        .arg(command.get_program())
        .args(command.get_args())
        .current_dir(folder.path("."))
        .stdin(Stdio::null());
    let stdout = File::create(folder.path("stdout")).unwrap();
    let stderr = File::create(folder.path("stderr")).unwrap();
    let mut child = limited.stdout(stdout).stderr(stderr).spawn().unwrap();
    let start = Instant::now();
    let mut peak = 0;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        peak = peak.max(peak_memory(child.id()));
        if start.elapsed() > TIME || peak > mebibytes << 10 {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{arguments:?} took {peak} KiB and {:?}", start.elapsed());
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let read = |name| String::from_utf8(std::fs::read(folder.path(name)).unwrap()).unwrap();
    Ran {
        code: status.code().unwrap_or(-1),
        stdout: read("stdout"),
        stderr: read("stderr"),
    }
}

/// The peak of a process's resident memory, in KiB. 0 if it has ended.
fn peak_memory(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let mut lines = status.lines();
    let peak = lines.find_map(|line| line.strip_prefix("VmHWM:")?.strip_suffix("kB"));
    peak.map_or(0, |peak| peak.trim().parse().unwrap())
}

/// The most memory for data of a text, in MiB. A text of 200 KB takes a fraction of it.
const MEMORY: u64 = 256;

fn shown(ran: &Ran) -> String {
    format!("{ran:?}").chars().take(2000).collect()
}

/// A module with this entry computation and other computations before it.
fn module(before: &str, body: &str) -> String {
    format!("HloModule m\n{before}\nENTRY main {{\n{body}\n}}\n")
}

/// `item` repeated, with commas.
fn list(item: &str, count: usize) -> String {
    vec![item; count].join(",")
}
