//! Engines of processes with little address space, with few threads, or with very many engines.
//! Each scene is played by a process of its own, because limits and engines count for a process.
#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by panicking, and a child says what it found"
)]

mod engines;
mod guests;
mod idle;
mod reserve;

use std::process::Command;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use guests::{STARTS, STARTS_AND_WORKS};

/// The environment variable with the scene that the child plays: its name, and perhaps a limit of
/// the process and its new value, in GiB or as a number of processes.
const SCENE: &str = "CALLBOX_TEST_ADDRESS_SPACE";

/// Plays a scene in a process of its own, and returns what it says.
pub(crate) fn play(scene: &str) -> String {
    said(&mut child(scene))
}

/// A process that plays a scene.
pub(crate) fn child(scene: &str) -> Command {
    // By this name the program is found also by a user who may not enter the folder that it is in.
    let mut command = Command::new("/proc/self/exe");
    command
        .args(["--exact", "the_child", "--nocapture", "--test-threads=1"])
        .env(SCENE, scene);
    command
}

/// What a process says that plays a scene.
pub(crate) fn said(child: &mut Command) -> String {
    let output = child.output().unwrap();
    assert!(output.status.success(), "{child:?}: {output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let said = text.lines().find_map(|line| line.split_once("said: "));
    said.unwrap_or_else(|| panic!("{child:?}: {text}"))
        .1
        .to_owned()
}

#[test]
fn the_child() {
    let Ok(scene) = std::env::var(SCENE) else {
        return;
    };
    let (name, limit) = match *scene.split(' ').collect::<Vec<_>>() {
        [name] => (name, ""),
        [name, limit, most] => {
            lower(limit, most.parse().unwrap());
            (name, limit)
        }
        _ => panic!("no scene {scene:?}"),
    };
    let said = match name {
        "policies" => engines::policies().to_string(),
        "instances" => engines::concurrent_instances().to_string(),
        "engines" => engines::many_engines().to_string(),
        "threads" => engines::few_threads(),
        "filled" => reserve::filled(limit).to_string(),
        "transforms" => reserve::transforms().to_string(),
        "running" => reserve::load_beside_running_guests(),
        "named" => reserve::named(),
        "unreadable" => reserve::unreadable(),
        "turns" => reserve::calls_in_turn().to_string(),
        "idle" => idle::idle_guests_give_way(),
        "deleters" => idle::deleters_that_run_on(),
        "refused" => idle::refused_guests(),
        "functions" => idle::many_functions(),
        "segment" => idle::passive_segment(),
        "starts" => idle::starts_of_one_call(&STARTS.replace("PAGES", "1")),
        "large-starts" => idle::starts_of_one_call(&STARTS.replace("PAGES", "160")),
        "starts-and-works" => idle::starts_of_one_call(STARTS_AND_WORKS),
        _ => panic!("no scene {scene:?}"),
    };
    println!("said: {said}");
}

fn lower(limit: &str, most: u64) {
    let (resource, most) = match limit {
        "RLIMIT_AS" => (Resource::As, most << 30),
        "RLIMIT_DATA" => (Resource::Data, most << 30),
        "RLIMIT_NPROC" => (Resource::Nproc, most),
        _ => panic!("no limit {limit:?}"),
    };
    let new = Rlimit {
        current: Some(most),
        ..getrlimit(resource)
    };
    setrlimit(resource, new).unwrap();
}
