//! Processes that compile with a real-time policy, a limit on processor time, or without children.

use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::thread;

use callbox::policy::{CompileIn, Limits, Policy};
use callbox::process::CompilerProcess;
use callbox::wasm::{Config, Engine};
use callbox::{Blame, StatusCode};

use super::workers::{alone, children, facts};
use super::{SECOND, after, call, compiler, engine, healthy, limits, refused, slow};

/// The environment variable with the scene that a child process plays.
const SCENE: &str = "CALLBOX_TEST_COMPILING";

/// What a process says that plays a scene, started by these words before its own.
fn said(words: &[&str], scene: &str) -> Result<String, String> {
    // Other tests kill the children of this process.
    let _alone = alone();
    let own = fs::read_link("/proc/self/exe").unwrap();
    let output = Command::new(words[0])
        .args(&words[1..])
        .arg(own)
        .args(["--exact", "processes::the_scene", "--nocapture"])
        .env(SCENE, scene)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let said = text.lines().find_map(|line| line.split_once("said: "));
    said.map(|(_, said)| said.to_owned())
        .ok_or_else(|| format!("{output:?}"))
}

#[test]
#[allow(clippy::print_stdout, reason = "it says what it found")]
fn the_scene() {
    let said = match std::env::var(SCENE).as_deref() {
        Ok("policy") => policies(),
        Ok("time") => long_compilation("ulimit -t 2"),
        Ok("soft time") => long_compilation("ulimit -St 2"),
        Ok("crowd") => crowd(),
        _ => return,
    };
    println!("said: {said}");
}

/// The scheduling policies of the process and of a compiler, as numbers.
fn policies() -> String {
    let compiler = compiler();
    let engine = engine(&compiler, limits());
    assert_eq!(call(&engine.load(&healthy(0)).unwrap()), Ok(0));
    let of = |process: &str| {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
        let rest = stat.rsplit(')').next().unwrap();
        rest.split_whitespace().nth(38).unwrap().to_owned()
    };
    let compilers = children().into_iter().map(|child| of(&child.to_string()));
    let mut all = vec![of("self")];
    all.extend(compilers.take(1));
    all.join(" ")
}

/// How a module fails that takes long. A compiler has less time than this process, which waits for
/// long on a busy machine.
fn long_compilation(limit: &str) -> String {
    let compiler = Arc::new(CompilerProcess::new(after(limit)).unwrap());
    let engine = engine(
        &compiler,
        Limits {
            compile_time: Some(60 * SECOND),
            ..limits()
        },
    );
    let status = refused(&engine, &slow(0));
    assert_eq!(facts(&status), (StatusCode::ResourceExhausted, Blame::Host));
    assert!(status.recoverable());
    // Another child serves.
    assert_eq!(call(&engine.load(&healthy(1)).unwrap()), Ok(1));
    status.message().to_owned()
}

/// Whom an engine without a compiler blames for a module that takes long, alone and in a crowd.
fn crowd() -> String {
    let engine = Engine::with_config(Config {
        policy: Policy {
            limits: Limits {
                compile_time: Some(SECOND / 4),
                ..limits()
            },
            compile: CompileIn::ThisProcess,
            ..Policy::default()
        },
        ..Config::default()
    })
    .unwrap();
    let blame = &|number| {
        let status = refused(&engine, &slow(number));
        assert_eq!(status.code(), StatusCode::DeadlineExceeded, "{status}");
        status.blame()
    };
    let alone = blame(0);
    let crowd = thread::scope(|scope| {
        let loads = Vec::from_iter((1..6).map(|number| scope.spawn(move || blame(number))));
        Vec::from_iter(loads.into_iter().map(|load| load.join().unwrap()))
    });
    format!("{alone:?} {crowd:?}")
}

/// Its priority could not be lowered, and it would keep the process from the processors.
#[test]
#[allow(
    clippy::print_stderr,
    reason = "a test that is skipped says so and why"
)]
fn a_compiler_of_a_real_time_process_has_the_usual_policy() {
    match said(&["chrt", "--fifo", "1"], "policy") {
        // SCHED_FIFO is 1, and SCHED_OTHER 0.
        Ok(said) => assert_eq!(said, "1 0"),
        Err(error) if error.contains("failed to set") => {
            eprintln!("skipped: no real-time policy: {error}");
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_limit_of_the_process_on_processor_time_is_not_the_modules_fault() {
    for scene in ["time", "soft time"] {
        let said = said(&["sh", "-c", "ulimit -t 1000; exec \"$0\" \"$@\""], scene).unwrap();
        assert_eq!(
            said,
            "expected the module to compile in 1000s of processor time (RLIMIT_CPU), found that it takes more"
        );
    }
}

/// The processors of this process were not its own.
#[test]
fn a_module_is_not_blamed_for_a_crowd_in_this_process() {
    let said = said(&["env"], "crowd").unwrap();
    assert_eq!(said, "Guest [Caller, Caller, Caller, Caller, Caller]");
}
