//! What a worker can reach, what it inherits, and what is left of it.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::process::Command;
use std::thread;

use callbox::policy::Isolation;
use callbox::process::{Sandbox, Worker};
use callbox::{Blame, CallSite, Shape, StatusCode};
use callbox_tests::worker::{PROBES, WORKER};

use super::workers::{
    PROGRAM, alone, assert_confined, children, config, descriptors, double, facts, module, probe,
    sandbox, site, until,
};

#[test]
fn a_worker_has_no_privileges_and_inherits_nothing() {
    let _alone = alone();
    let (mut reader, writer) = std::io::pipe().unwrap();
    // Clear close-on-exec, as other code in the embedder might.
    rustix::io::fcntl_setfd(&writer, rustix::io::FdFlags::empty()).unwrap();
    let (sandbox, _) = sandbox();
    let module = sandbox.load(&module()).unwrap();
    drop(writer);
    // The read ends at once, because only this process has the other end. A copy in the worker
    // would keep it open.
    let ended = thread::spawn(move || reader.read(&mut [0]));
    until("the pipe's end", || ended.is_finished());
    assert_eq!(ended.join().unwrap().unwrap(), 0);
    let workers = children();
    assert_eq!(workers.len(), 1);
    for worker in workers {
        let status = fs::read_to_string(format!("/proc/{worker}/status")).unwrap();
        for line in ["NoNewPrivs:\t1", "Seccomp:\t2"] {
            assert!(status.lines().any(|found| found == line), "{status}");
        }
    }
    drop(module);
}

#[test]
fn nothing_is_left_of_a_sandbox() {
    let _alone = alone();
    // A busy machine may take long to end the workers of the test before.
    until("no children", || children().is_empty());
    let before = descriptors();
    for isolation in [Isolation::Executable, Isolation::Fresh] {
        let mut config = config(Worker::new(PROGRAM, [WORKER]));
        config.policy.isolation = isolation;
        let sandbox = Sandbox::new(config).unwrap();
        let module = sandbox.load(&module()).unwrap();
        let call = module.prepare_call(site("double")).unwrap();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..5).for_each(|_| assert_eq!(double(&call), Ok(42))));
            }
        });
        drop((call, module, sandbox));
        assert_eq!(children(), BTreeSet::new());
        assert_eq!(descriptors(), before);
    }
}

/// Set in a child process whose limit on files is low.
const LIMITED: &str = "CALLBOX_TEST_LIMITED_FILES";

/// Runs in such a child; otherwise it does nothing.
#[test]
fn buffers_past_a_limit_on_files() {
    if std::env::var_os(LIMITED).is_none() {
        return;
    }
    let (sandbox, _) = sandbox();
    let module = sandbox.load(&module()).unwrap();
    let shape: Shape = "s32[4096]".parse().unwrap();
    let site = CallSite::new("double", vec![shape.clone()], shape);
    let called = module
        .prepare_call(site)
        .and_then(|call| call.call(&[&[0; 16384]], &mut [&mut [0; 16384]]));
    let status = called.unwrap_err();
    assert_eq!(facts(&status), (StatusCode::Unavailable, Blame::Host));
    assert!(status.message().contains("`ulimit -f`"), "{status}");
}

#[test]
fn a_limit_on_files_is_a_status() {
    let _alone = alone();
    let mut command = Command::new("sh");
    command
        .args(["-c", "ulimit -c 0; ulimit -f 4; exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap())
        .args(["confinement::buffers_past_a_limit_on_files", "--exact"])
        .env(LIMITED, "1");
    // The output goes through a pipe, because the limit also applies to a file.
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}: {said}", output.status);
    assert!(said.contains("1 passed"), "{said}");
}

#[test]
fn a_worker_reaches_nothing() {
    let _alone = alone();
    for what in PROBES {
        // The attempt works without the filter, so its failure below is due to the filter.
        assert_eq!(probe(&[what, "free"]), "done", "{what}");
        assert_confined(what, &probe(&[what]));
    }
}
