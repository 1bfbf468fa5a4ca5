//! Concurrent threads and processes on one cache directory, and processes that are killed at any
//! moment.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use std::{fs, thread};

use callbox::StatusCode;
use callbox::policy::Policy;
use callbox::wasm::{Cache, CacheOptions, CacheOutcome, CacheProblem};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{Place, check, check_hit, engine, engine_with, module, take};

/// The environment variable with a child process's directory.
const DIRECTORY: &str = "CALLBOX_TEST_CACHE";

/// The number of modules that threads and processes load.
const MODULES: u32 = 4;

/// Loads the modules several times, each time in another order.
fn load_all(path: &Path, seed: u32) {
    let (engine, reports) = engine(path, u64::MAX, Policy::default());
    for i in 0..5 * MODULES {
        let number = (i * 3 + seed) % MODULES;
        check(&engine.load(&module(number)).unwrap(), number);
    }
    assert_eq!(take(&reports), []);
}

#[track_caller]
fn check_all_hit(place: &Place) {
    let (engine, reports) = place.engine();
    for number in 0..MODULES {
        check_hit(&engine.load(&module(number)).unwrap());
    }
    assert_eq!(take(&reports), []);
    assert_eq!(place.entries().len(), MODULES as usize);
    assert!(place.files("unfinished").is_empty());
}

#[test]
fn threads_share_a_directory() {
    let place = Place::new();
    thread::scope(|scope| {
        for seed in 0..8 {
            let path = place.path();
            scope.spawn(move || load_all(&path, seed));
        }
    });
    check_all_hit(&place);
}

#[test]
fn threads_and_engines_share_a_cache() {
    let place = Place::new();
    let cache = Cache::open_ambient(&place.path(), CacheOptions::default()).unwrap();
    let cache = Arc::new(cache);
    let engines = [0, 1].map(|_| engine_with(Arc::clone(&cache), Policy::default()));
    thread::scope(|scope| {
        for i in 0..8 {
            let engine = &engines[i % 2];
            scope.spawn(move || {
                for number in 0..MODULES {
                    let loaded = engine.load(&module(number)).unwrap();
                    check(&loaded, number);
                    let outcome = loaded.cache_outcome();
                    let is_fine = matches!(
                        outcome,
                        CacheOutcome::Hit
                            | CacheOutcome::Compiled {
                                rejected: None,
                                stored: Ok(())
                            }
                    );
                    assert!(is_fine, "{outcome:?}");
                }
            });
        }
    });
    check_all_hit(&place);
}

/// Starts this test program again, to run one of the tests below in a child process.
fn child(test: &str, place: &Place) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let test = format!("concurrency::{test}");
    command
        .args(["--exact", &test, "--nocapture"])
        .env(DIRECTORY, place.path())
        .stdout(Stdio::null())
        .stderr(Stdio::inherit());
    command
}

/// Returns the directory of a child process.
fn directory() -> Option<PathBuf> {
    std::env::var_os(DIRECTORY).map(PathBuf::from)
}

/// Runs in a child process; otherwise it does nothing.
#[test]
fn loader() {
    if let Some(directory) = directory() {
        load_all(&directory, std::process::id());
    }
}

#[test]
fn processes_share_a_directory() {
    let place = Place::new();
    // The children also race to create the secret.
    let mut children: Vec<Child> = (0..6)
        .map(|_| child("loader", &place).spawn().unwrap())
        .collect();
    for child in &mut children {
        assert!(child.wait().unwrap().success());
    }
    check_all_hit(&place);
}

/// Runs in a child process; otherwise it does nothing.
#[test]
fn writer() {
    let Some(directory) = directory() else { return };
    let (engine, _) = engine(&directory, u64::MAX, Policy::default());
    for number in 0.. {
        engine.load(&module(number)).unwrap();
        // Every fourth load is of an existing entry, which is touched.
        if number % 4 == 3 {
            check_hit(&engine.load(&module(number)).unwrap());
        }
    }
}

#[test]
fn a_writer_that_is_killed_leaves_a_directory_that_works() {
    let mut killed_while_writing = 0;
    for round in 0..24 {
        let place = Place::new();
        let mut child = child("writer", &place).spawn().unwrap();
        // The earliest rounds kill the child while it creates the directory and the secret.
        while round >= 4 && !place.secret().exists() {
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(Duration::from_micros(fastrand::u64(..20_000)));
        child.kill().unwrap();
        child.wait().unwrap();
        let (engine, reports) = place.engine();
        let stored = place.entries().len() as u32;
        killed_while_writing += place.files("unfinished").len();
        // The stored modules, and some that were not stored.
        let mut hits = 0;
        for number in 0..stored + 4 {
            let loaded = engine.load(&module(number)).unwrap();
            check(&loaded, number);
            hits += u32::from(matches!(loaded.cache_outcome(), CacheOutcome::Hit));
        }
        assert_eq!(hits, stored, "round {round}");
        assert_eq!(take(&reports), [], "round {round}");
    }
    eprintln!("{killed_while_writing} writers were killed in the middle of a file");
}

/// Runs in a child process; otherwise it does nothing.
#[test]
fn writer_without_room() {
    let Some(directory) = directory() else { return };
    let (engine, reports) = engine(&directory, u64::MAX, Policy::default());
    let loaded = engine.load(&module(1)).unwrap();
    check(&loaded, 1);
    let reports = take(&reports);
    let problems: Vec<_> = reports.iter().map(|(problem, _)| *problem).collect();
    assert_eq!(problems, [CacheProblem::NotStored], "{reports:?}");
}

#[test]
fn a_file_that_cannot_be_written_is_no_reason_to_fail() {
    let place = Place::new();
    let test = child("writer_without_room", &place);
    // Limit the file size to a few blocks: enough for the secret, too few for an entry.
    let mut command = Command::new("sh");
    command
        .args(["-c", "trap '' XFSZ; ulimit -f 4; exec \"$0\" \"$@\""])
        .arg(test.get_program())
        .args(test.get_args())
        .env(DIRECTORY, place.path());
    // The child's output goes through a pipe, because the limit also applies to a file.
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    assert!(place.entries().is_empty());
    assert!(place.files("unfinished").is_empty());
    assert_eq!(fs::metadata(place.secret()).unwrap().len(), 32);
}

/// Runs in a child process; otherwise it does nothing.
#[test]
fn writer_of_small_files() {
    let Some(directory) = directory() else { return };
    let limit = |bytes| {
        let maximum = getrlimit(Resource::Fsize).maximum;
        let current = Some(bytes);
        setrlimit(Resource::Fsize, Rlimit { current, maximum }).unwrap();
    };
    // Not enough for the secret, then not enough for an entry.
    limit(16);
    let refused = Cache::open_ambient(&directory, CacheOptions::default()).err();
    let status = refused.unwrap();
    assert_eq!(status.code(), StatusCode::ResourceExhausted, "{status}");
    limit(1024);
    let (engine, reports) = engine(&directory, u64::MAX, Policy::default());
    check(&engine.load(&module(0)).unwrap(), 0);
    let expected = [(CacheProblem::NotStored, StatusCode::ResourceExhausted)];
    assert_eq!(take(&reports), expected);
}

/// A write past the limit on the size of files would end the process by SIGXFSZ.
#[test]
fn a_limit_on_the_size_of_files_is_looked_at_first() {
    let place = Place::new();
    let mut child = child("writer_of_small_files", &place).spawn().unwrap();
    let status = child.wait().unwrap();
    assert!(status.success(), "{status}");
    assert_eq!(place.entries(), [] as [PathBuf; 0]);
    assert_eq!(place.files("unfinished"), [] as [PathBuf; 0]);
}
