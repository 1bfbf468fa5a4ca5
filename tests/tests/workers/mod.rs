//! A sandbox with worker processes, and helpers that inspect them.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use callbox::policy::{Grants, Limits, LogLevel, Policy};
use callbox::process::{ProcessCall, Sandbox, SandboxConfig, Worker};
use callbox::{Blame, CallSite, Shape, Status, StatusCode};
use callbox_tests::worker::{PROBE, WORKER};

/// The program that workers run.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_callbox-conformance");

/// `double` doubles an s32; `spin` logs and loops; `ignore` calls its function and succeeds in any
/// case.
pub(crate) const MODULE: &str = r#"(module
  (import "callbox:ffi/api@1.1.0" "log" (func $log (param i32 i32 i32)))
  (import "callbox:ffi/api@1.1.0" "call-function" (func $call (param i32 i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "double") (param $frame i32) (result i32)
    (i32.store (i32.load (i32.load offset=16 (local.get $frame)))
      (i32.mul (i32.const 2) (i32.load (i32.load (i32.load offset=8 (local.get $frame))))))
    (i32.const 0))
  (func (export "spin") (param i32) (result i32)
    (call $log (i32.const 2) (i32.const 0) (i32.const 0))
    (loop (br 0))
    (i32.const 0))
  (func (export "ignore") (param $frame i32) (result i32)
    (drop (call $call
      (i32.load (i32.load offset=60 (local.get $frame)))
      (i32.load offset=8 (local.get $frame)) (i32.const 1)
      (i32.load offset=16 (local.get $frame)) (i32.const 1)))
    (i32.const 0)))"#;

/// Nested loops that set each other's locals: a few kilobytes that take minutes to compile.
pub(crate) fn slow(number: usize) -> Vec<u8> {
    const DEPTH: usize = 1600;
    const LOCALS: usize = 200;
    let mut text = format!(
        r#"(module (memory (export "memory") 1) (func (export "f") (param i32) (result i32)
            (local {}) (local.set 1 (i32.const {number}))"#,
        "i32 ".repeat(LOCALS)
    );
    let local = |number: usize| 1 + number % LOCALS;
    for depth in 0..DEPTH {
        let (to, from) = (local(depth), local(depth * 7 + 3));
        write!(
            text,
            " (loop (local.set {to} (i32.add (local.get {to}) (local.get {from})))"
        )
        .unwrap();
    }
    for depth in 0..DEPTH {
        write!(text, " (br_if 0 (local.get {})))", local(depth)).unwrap();
    }
    text.push_str(" (i32.const 0)))");
    wat::parse_str(text).unwrap()
}

/// Serialises the tests, because they count processes and descriptors.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the children of this process, zombies included, as the kernel reports them.
pub(crate) fn children() -> BTreeSet<i32> {
    let own = std::process::id().to_string();
    let processes = fs::read_dir("/proc").unwrap();
    let numbers = processes.filter_map(|e| e.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let is_child = |pid: &i32| {
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
            return false;
        };
        // The state and the parent follow the name, which may contain any character.
        let rest = stat.rsplit(')').next().unwrap();
        rest.split_whitespace().nth(1) == Some(&own)
    };
    numbers.filter(is_child).collect()
}

pub(crate) fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

pub(crate) fn kill(pid: i32) {
    send(pid, rustix::process::Signal::KILL);
}

pub(crate) fn send(pid: i32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    // A process that ended meanwhile can no longer be signalled.
    let _ = rustix::process::kill_process(pid, signal);
}

/// The processor time of a process, which has not ended, in hundredths of a second.
pub(crate) fn worked(pid: i32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let rest = stat.rsplit(')').next().unwrap();
    // In user mode and in the kernel.
    let times = rest.split_whitespace().skip(11).take(2);
    times.map(|time| time.parse::<u64>().unwrap()).sum()
}

pub(crate) fn config(worker: Worker) -> SandboxConfig {
    SandboxConfig {
        policy: Policy {
            limits: Limits {
                deadline: Some(Duration::from_secs(60)),
                ..Limits::default()
            },
            grants: Grants::log(LogLevel::Trace),
            ..Policy::default()
        },
        ..SandboxConfig::new(worker)
    }
}

pub(crate) fn sandbox() -> (Sandbox, Arc<AtomicUsize>) {
    let logged = Arc::<AtomicUsize>::default();
    let counter = Arc::clone(&logged);
    let sandbox = Sandbox::new(SandboxConfig {
        log: Some(Arc::new(move |_| {
            counter.fetch_add(1, Ordering::SeqCst);
        })),
        ..config(Worker::new(PROGRAM, [WORKER]))
    });
    (sandbox.unwrap(), logged)
}

pub(crate) fn module() -> Vec<u8> {
    wat::parse_str(MODULE).unwrap()
}

pub(crate) fn site(target: &str) -> CallSite {
    let shape: Shape = "s32[]".parse().unwrap();
    CallSite::new(target, vec![shape.clone()], shape)
}

pub(crate) fn double(call: &ProcessCall) -> Result<i32, Status> {
    let mut result = [0; 4];
    call.call(&[&21_i32.to_le_bytes()], &mut [&mut result])?;
    Ok(i32::from_le_bytes(result))
}

pub(crate) fn facts(status: &Status) -> (StatusCode, Blame) {
    (status.code(), status.blame())
}

/// Waits until another process has done something.
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !done() {
        assert!(Instant::now() < end, "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Returns whether a child has ended with all of its threads, or no longer exists. While a thread
/// remains, the parent is not notified.
pub(crate) fn is_zombie(pid: &i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
    let leader_has_ended = stat.map_or(true, |stat| {
        stat.rsplit(')').next().unwrap().starts_with(" Z")
    });
    let threads = fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    leader_has_ended && threads <= 1
}

/// Returns what a probe with these arguments prints about its attempt, or the signal that ends it.
pub(crate) fn probe(arguments: &[&str]) -> String {
    let mut command = Command::new(PROGRAM);
    let output = command.arg(PROBE).args(arguments).output().unwrap();
    if output.status.success() {
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    } else {
        output.status.to_string()
    }
}

/// Asserts that a confined probe was refused what it attempted.
pub(crate) fn assert_confined(what: &str, found: &str) {
    match what {
        "memory" => assert_eq!(found, "done", "{what}"),
        // The limit on address space.
        "read_only" => assert_eq!(found, libc::ENOMEM.to_string(), "{what}"),
        // libc goes on without an answer only on this number.
        "affinity" => assert_eq!(found, libc::ENOSYS.to_string(), "{what}"),
        "socket" | "listen" | "udp" | "exec" | "kill" => {
            assert!(found.contains("SIGSYS"), "{what}: {found}");
        }
        _ => assert!(
            found == libc::EPERM.to_string() || found.contains("SIGSYS"),
            "{what}: {found}"
        ),
    }
}
