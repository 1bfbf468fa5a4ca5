//! Grants of clocks, random bytes and directories, and their separation between modules.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use callbox::policy::{Access, Directory, Grants, Policy, Randomness};
use callbox::{Blame, StatusCode};
use serde_json::json;

use crate::tree::{SECRET, Tree};
use crate::{engine, script, steps};

fn randomness(randomness: Randomness) -> Grants {
    Grants {
        randomness: Some(randomness),
        ..Grants::default()
    }
}

fn clock() -> Grants {
    Grants {
        clock: true,
        ..Grants::default()
    }
}

#[test]
fn clocks_tell_the_time() {
    let script = steps(json!([
        {"do": "time", "number": 0},
        {"do": "time", "number": 1},
        {"do": "time", "number": 1},
        {"do": "time", "number": 2, "errno": "badf"},
        {"do": "args"},
        {"do": "environ"}
    ]));
    let before = SystemTime::now();
    let records = script::run(&engine(Policy::default()), &clock(), &script).unwrap();
    let after = SystemTime::now();
    let time = |i: usize| u64::from_le_bytes(records[i].bytes[..8].try_into().unwrap());
    let real = SystemTime::UNIX_EPOCH + Duration::from_nanos(time(0));
    assert!(before <= real && real <= after, "{real:?}");
    assert!(time(1) <= time(2));
    assert_eq!(records[3].errno, script::errno("badf"));
    // The guest sees no arguments or environment variables of the host.
    for record in &records[4..] {
        assert_eq!((record.errno, record.number), (0, 0));
        assert!(record.bytes.iter().all(|&byte| byte == 0));
    }
}

#[test]
fn a_seed_gives_each_instance_the_same_bytes() {
    let engine = engine(Policy::default());
    let script = steps(json!([{"do": "random", "number": 40}, {"do": "random", "number": 7}]));
    let run = |source| {
        let records = script::run(&engine, &randomness(source), &script).unwrap();
        assert!(records.iter().all(|record| record.errno == 0));
        [&records[0].bytes[..40], &records[1].bytes[..7]].concat()
    };
    let seeded = run(Randomness::Seed(7));
    assert_eq!(seeded, run(Randomness::Seed(7)));
    assert_ne!(seeded, run(Randomness::Seed(8)));
    assert_ne!(seeded[..32], [0; 32]);
    assert_ne!(run(Randomness::System), run(Randomness::System));
}

#[test]
fn a_deterministic_policy_grants_nothing_that_differs() {
    let tree = Tree::new();
    let engine = engine(Policy {
        deterministic: true,
        ..Policy::default()
    });
    let script = steps(json!([{"do": "environ"}]));
    for grants in [clock(), randomness(Randomness::System)] {
        let status = script::load(&engine, &grants, &script).unwrap_err();
        assert_eq!(
            (status.code(), status.blame()),
            (StatusCode::InvalidArgument, Blame::Caller)
        );
        assert!(status.message().contains("deterministic"), "{status}");
    }
    for grants in [randomness(Randomness::Seed(1)), tree.grants(Access::Read)] {
        script::run(&engine, &grants, &script).unwrap();
    }
}

#[test]
fn a_directory_that_cannot_be_opened_is_the_callers() {
    let tree = Tree::new();
    let engine = engine(Policy::default());
    let directory = |path: &str, name: &str| Directory {
        path: tree.path().join(path),
        name: name.to_owned(),
        access: Access::Read,
    };
    for (directories, code, text) in [
        (
            vec![directory("nothing", "/a")],
            StatusCode::NotFound,
            "nothing",
        ),
        (
            vec![directory("in/file.txt", "/a")],
            StatusCode::InvalidArgument,
            "file.txt",
        ),
        (
            vec![directory("in/fifo", "/a")],
            StatusCode::InvalidArgument,
            "fifo",
        ),
        (
            vec![directory("in/loop_1", "/a")],
            StatusCode::FailedPrecondition,
            "loop_1",
        ),
        (
            vec![directory("in", "")],
            StatusCode::InvalidArgument,
            "name",
        ),
        (
            vec![directory("in", "a\0b")],
            StatusCode::InvalidArgument,
            "name",
        ),
        (
            vec![directory("in", "/a"), directory("two", "/a")],
            StatusCode::InvalidArgument,
            "\"/a\" twice",
        ),
    ] {
        let grants = Grants {
            directories,
            ..Grants::default()
        };
        // This holds even if the guest does not use it.
        for script in [json!([]), json!([{"do": "environ"}])] {
            let status = script::load(&engine, &grants, &steps(script)).unwrap_err();
            assert_eq!(
                (status.code(), status.blame()),
                (code, Blame::Caller),
                "{status}"
            );
            assert!(status.message().contains(text), "{status}");
        }
    }
}

/// A grant covers the opened directory, not its path.
#[test]
fn a_directory_stays_the_one_that_was_opened() {
    let tree = Tree::new();
    let script = steps(json!([
        {"do": "open", "path": "file.txt", "flags": "r"},
        {"do": "read", "at": "$0"},
        {"do": "open", "path": "secret.txt", "flags": "r", "errno": "noent"}
    ]));
    let engine = engine(Policy::default());
    let module = script::load(&engine, &tree.grants(Access::Read), &script).unwrap();
    fs::rename(tree.path().join("in"), tree.path().join("was_in")).unwrap();
    symlink("out", tree.path().join("in")).unwrap();
    for _ in 0..2 {
        let records = script::run_module(&module, script.len()).unwrap();
        assert_eq!(&records[1].bytes[..6], b"inside");
        assert_eq!(records[2].errno, script::errno("noent"));
    }
}

#[test]
fn modules_do_not_see_each_others_directories() {
    let tree = Tree::new();
    let engine = engine(Policy::default());
    let script = steps(json!([
        {"do": "open", "path": "file.txt", "flags": "r"},
        {"do": "read", "at": "$0"},
        {"do": "prestat", "at": 4},
        {"do": "prestat_name", "at": 3, "number": 120}
    ]));
    let grants = |folder| Grants {
        directories: vec![tree.directory(folder, Access::Read)],
        ..Grants::default()
    };
    let modules =
        ["in", "two"].map(|folder| script::load(&engine, &grants(folder), &script).unwrap());
    for _ in 0..3 {
        for (module, (text, name)) in std::iter::zip(&modules, [("inside", "/in"), ("two", "/two")])
        {
            let records = script::run_module(module, script.len()).unwrap();
            assert!(records[1].bytes.starts_with(text.as_bytes()));
            assert_eq!(records[2].errno, script::errno("badf"));
            assert!(records[3].bytes.starts_with(name.as_bytes()));
        }
    }
    // The same file without grants is rejected as well.
    let status = script::load(&engine, &Grants::default(), &script).unwrap_err();
    assert_eq!(status.code(), StatusCode::PermissionDenied);
}

/// Two instances of a module have separate descriptors.
#[test]
fn instances_do_not_share_descriptors() {
    let tree = Tree::new();
    let engine = engine(Policy::default());
    let grants = tree.grants(Access::Read);
    let opens = steps(json!([{"do": "open", "path": "file.txt", "flags": "r"}]));
    let module = script::load(&engine, &grants, &opens).unwrap();
    for _ in 0..3 {
        let records = script::run_module(&module, 1).unwrap();
        assert_eq!((records[0].errno, records[0].number), (0, 4));
    }
    let forges = steps(json!([{"do": "read", "at": 4, "errno": "badf"}]));
    let records = script::run(&engine, &grants, &forges).unwrap();
    assert_eq!(records[0].errno, script::errno("badf"));
}

/// The time limit of the race.
const RACE: Duration = Duration::from_secs(60);

/// While a directory is repeatedly swapped with a link that leads outside, no byte from outside is
/// read and nothing outside changes.
#[test]
fn a_race_wins_nothing() {
    let tree = Tree::new();
    fs::create_dir(tree.path().join("in/swapped")).unwrap();
    fs::write(tree.path().join("in/swapped/secret.txt"), "inside").unwrap();
    symlink("../out", tree.path().join("in/link")).unwrap();
    let before = tree.everything_in("out");
    let script = steps(json!([
        {"do": "open", "path": "swapped/secret.txt", "flags": "r"},
        {"do": "read", "at": "$0"},
        {"do": "open", "path": "swapped", "flags": "rdf"},
        {"do": "open", "at": "$2", "path": "secret.txt", "flags": "r"},
        {"do": "read", "at": "$3"},
        {"do": "open", "path": "swapped/../swapped/./secret.txt", "flags": "rf"},
        {"do": "read", "at": "$5"},
        {"do": "open", "path": "swapped/new.txt", "flags": "wc"},
        {"do": "mkdir", "path": "swapped/new"},
        {"do": "rename", "path": "file.txt", "target": "swapped/file.txt"},
        {"do": "rename", "path": "swapped/file.txt", "target": "file.txt"},
        {"do": "unlink", "path": "swapped/new.txt"}
    ]));
    let grants = tree.grants(Access::ReadWrite);
    let module = script::load(&engine(Policy::default()), &grants, &script).unwrap();
    let over = AtomicBool::new(false);
    let (swaps, (inside, refused)) = std::thread::scope(|scope| {
        let swapper = scope.spawn(|| swap(&tree, &over));
        let end = Instant::now() + RACE;
        let (mut rounds, mut inside, mut refused) = (0, 0, 0);
        // Continue until both variants were observed, which may take longer on a busy machine.
        while rounds < 2000 || ((inside == 0 || refused == 0) && Instant::now() < end) {
            let records = script::run_module(&module, script.len()).unwrap();
            for record in &records {
                let text = String::from_utf8_lossy(&record.bytes);
                assert!(!text.contains(SECRET), "{record:?}");
            }
            rounds += 1;
            inside += usize::from(records[1].bytes.starts_with(b"inside"));
            refused += usize::from(records[0].errno == script::errno("perm"));
        }
        over.store(true, Ordering::Relaxed);
        (swapper.join().unwrap(), (inside, refused))
    });
    assert_eq!(tree.everything_in("out"), before);
    assert!(
        swaps > 0 && inside > 0 && refused > 0,
        "{swaps} {inside} {refused}"
    );
}

/// Swaps a granted directory with a link, and back, until `over` is set. Returns the number of
/// swaps.
fn swap(tree: &Tree, over: &AtomicBool) -> usize {
    let path = |name: &str| tree.path().join("in").join(name);
    let end = Instant::now() + RACE;
    let mut swaps = 0;
    while !over.load(Ordering::Relaxed) && Instant::now() < end {
        rustix::fs::renameat_with(
            rustix::fs::CWD,
            path("swapped"),
            rustix::fs::CWD,
            path("link"),
            rustix::fs::RenameFlags::EXCHANGE,
        )
        .unwrap();
        swaps += 1;
    }
    swaps
}
