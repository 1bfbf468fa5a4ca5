//! Commands of packages that are killed, that run twice at one time, and that cannot write.

use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use crate::packages;
use crate::registry::{State, USER, registry};
use crate::scarcity::on_small_disk;
use crate::signing::raw;
use crate::support::{Folder, Ran};

/// How often each command is killed.
const KILLS: u32 = 12;

/// A folder with two versions of a package, a key, weights, and a copy of the first version that
/// commands write to.
fn folder() -> Folder {
    let folder = packages::two_versions();
    folder
        .write("key", raw(1))
        .write("w.wasm", folder.read("1.0.0.wasm"));
    let header = br#"{"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#;
    let length = (header.len() as u64).to_le_bytes();
    folder.write("m.safetensors", [&length[..], header, b"x"].concat());
    folder.run(&["lock", "1.0.0.wasm"]).done();
    folder
}

/// Commands that write, each with a file that it writes.
const COMMANDS: [(&str, &str); 7] = [
    ("pack k -o w.wasm", "w.wasm"),
    (
        "pack k --hub repository",
        "repository/build/callbox-wasm32/negate.wasm",
    ),
    ("pack k --into m.safetensors", "m.safetensors"),
    ("sign w.wasm --key key", "w.wasm"),
    ("lock w.wasm 1.1.0.wasm", "callbox.lock"),
    (
        "publish 1.0.0.wasm site --replace",
        "site/negate-1.0.0.wasm",
    ),
    ("fetch ./1.1.0.wasm -o w.wasm --replace", "w.wasm"),
];

fn words(command: &str) -> Vec<&str> {
    command.split(' ').collect()
}

/// The names that commands leave while they write.
fn parts(folder: &Folder) -> Vec<String> {
    let places = [".", "site", "repository", "repository/build"];
    let names = places.iter().flat_map(|place| folder.list(place));
    names.filter(|name| name.contains(".part")).collect()
}

/// A process of the same number, in another container or before this one, may have left a file.
#[test]
fn part_files_of_others_are_not_in_the_way() {
    let folder = folder();
    folder
        .write("repository/build/other", "")
        .write("site/other", "");
    for (command, file) in COMMANDS {
        let is_variant = command.contains("--hub");
        let old = if is_variant {
            "mkdir -p repository/build/.callbox-wasm32.$$.part/docs"
        } else {
            "for i in $$ $$-0 $$-1; do echo of another > $1.$i.part; done"
        };
        let script = format!("{old}; shift; exec \"$0\" {command}");
        let mut child = Command::new("sh");
        child
            .args(["-c", &script, env!("CARGO_BIN_EXE_callbox"), file])
            .current_dir(folder.path(""));
        Ran::new(&child.output().unwrap()).done();
        // Those of others stay, where they could be of a process that runs.
        let left = parts(&folder);
        assert_eq!(
            left.len(),
            if is_variant { 0 } else { 3 },
            "{command}: {left:?}"
        );
        for name in left {
            for place in [".", "site"] {
                let _ = std::fs::remove_file(folder.path(&format!("{place}/{name}")));
            }
        }
    }
    assert_eq!(folder.list("repository/build"), ["callbox-wasm32", "other"]);
}

fn spawn(folder: &Folder, command: &str) -> Child {
    let mut command = folder.command(&words(command));
    command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Whatever a command wrote is whole, before and after it is replaced, and the command works again.
#[test]
fn a_command_that_is_killed_at_any_time_leaves_whole_files() {
    for (command, file) in COMMANDS {
        let folder = folder();
        let before = folder.path(file).exists().then(|| folder.read(file));
        let began = Instant::now();
        folder.run(&words(command)).done();
        let whole = began.elapsed();
        let after = folder.read(file);
        let is_variant = command.contains("--hub");
        for kill in 0..KILLS {
            if !is_variant && let Some(before) = &before {
                folder.write(file, before);
            }
            let mut child = spawn(&folder, command);
            thread::sleep(whole * kill / (KILLS - 3));
            child.kill().unwrap();
            child.wait().unwrap();
            let found = folder.path(file).exists().then(|| folder.read(file));
            let is_whole = found.as_ref() == Some(&after) || !is_variant && found == before;
            assert!(is_whole, "{command} after {kill}");
        }
        if !is_variant && let Some(before) = &before {
            folder.write(file, before);
        }
        folder.run(&words(command)).done();
        assert_eq!(folder.read(file), after, "{command}");
        if is_variant {
            assert_eq!(folder.list("repository/build"), ["callbox-wasm32"]);
        }
    }
}

#[test]
fn a_command_that_runs_twice_at_one_time_leaves_whole_files() {
    for (command, file) in COMMANDS {
        let folder = folder();
        let children: Vec<_> = (0..6).map(|_| spawn(&folder, command)).collect();
        for child in children {
            let ended = child.wait_with_output().unwrap();
            // Signing twice signs with one key once.
            assert!(ended.status.success(), "{command}: {ended:?}");
        }
        let found = folder.read(file);
        if command.starts_with("sign") {
            folder.run(&["verify", "w.wasm", "--key", "key.pub"]);
        } else {
            let again = self::folder();
            again.run(&words(command)).done();
            assert!(found == again.read(file), "{command}");
        }
        assert_eq!(parts(&folder), Vec::<String>::new(), "{command}");
    }
}

#[test]
fn a_disk_that_is_full_or_read_only_leaves_old_files() {
    let folder = folder();
    // A package of more than a small disk has.
    folder.write("k/docs/large.md", "x".repeat(100 << 10));
    folder.run(&["pack", "k", "-o", "large.wasm"]).done();
    let commands = [
        ("pack k -o disk/f", "disk/f"),
        ("pack k --hub disk/r", "disk/r/build/callbox-wasm32"),
        ("pack k --into disk/f.safetensors", "disk/f.safetensors"),
        ("publish large.wasm disk/f --replace", "disk/f"),
        ("fetch ./large.wasm -o disk/f --replace", "disk/f"),
    ];
    for (command, _) in commands {
        let old = "echo old > disk/f; cp m.safetensors disk/f.safetensors";
        let old = if command.starts_with("publish") {
            "mkdir disk/f; echo old > disk/f/negate-1.1.0.wasm".to_owned()
        } else {
            old.to_owned()
        };
        let shown = "echo; find disk -type f -size -2k | sort; find disk -name '*.part*'";
        for (kibibytes, mode, code) in [
            (64, ":", "RESOURCE_EXHAUSTED"),
            (512, "mount -o remount,ro disk", "PERMISSION_DENIED"),
        ] {
            let text = format!("{old}; {mode}; \"$0\" {command} --json; echo code $?; {shown}");
            let Some(ran) = on_small_disk(&folder, kibibytes, &text) else {
                return;
            };
            let expected = format!("\"code\":\"{code}\"");
            let is_refused = ran.stdout.contains(&expected) && ran.stdout.contains("code 2");
            assert!(is_refused, "{command}: {ran:?}");
            assert!(!ran.stdout.contains(".part"), "{command}: {ran:?}");
            let old = if command.starts_with("publish") {
                "disk/f/negate-1.1.0.wasm"
            } else {
                "disk/f\ndisk/f.safetensors"
            };
            assert!(ran.stdout.contains(old), "{command}: {ran:?}");
        }
    }
}

fn callbox(folder: &Folder, arguments: &[&str]) -> Command {
    let mut command = folder.command(arguments);
    command
        .env("HF_HOME", folder.path("home"))
        .env("DOCKER_CONFIG", folder.path("docker"))
        .env_remove("HF_HUB_OFFLINE")
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    for name in ["http_proxy", "https_proxy", "all_proxy"] {
        command.env_remove(name).env_remove(name.to_uppercase());
    }
    command
}

/// A tag is there with its package, or not at all, and pushing and pulling go on.
#[test]
fn a_push_and_a_pull_that_are_killed_at_any_time_work_again() {
    let state = Arc::new(Mutex::new(State::default()));
    let server = registry(&state, |_| None);
    let host = server.address("").replace("http://", "");
    let folder = folder();
    let auths = json!({"auths": {&host: {"auth": STANDARD.encode(USER)}}});
    folder.write("docker/config.json", auths.to_string());
    let reference = format!("oci:{host}/org/negate:1");
    let push = ["publish", "1.0.0.wasm", &reference];
    let pull = ["fetch", &reference, "-o", "back.wasm"];
    let began = Instant::now();
    assert!(callbox(&folder, &push).status().unwrap().success());
    let whole = began.elapsed();
    for kill in 0..KILLS {
        *state.lock().unwrap() = State::default();
        let _ = std::fs::remove_dir_all(folder.path("home"));
        let _ = std::fs::remove_file(folder.path("back.wasm"));
        let wait = whole * kill / (KILLS - 3);
        for (arguments, is_pull) in [(&push[..], false), (&pull[..], true)] {
            let mut child = callbox(&folder, arguments).spawn().unwrap();
            thread::sleep(wait);
            child.kill().unwrap();
            child.wait().unwrap();
            if is_pull {
                let found = folder.path("back.wasm").exists();
                assert!(!found || folder.read("back.wasm") == folder.read("1.0.0.wasm"));
            }
            assert!(
                callbox(&folder, arguments).status().unwrap().success(),
                "{arguments:?}"
            );
        }
        assert_eq!(folder.read("back.wasm"), folder.read("1.0.0.wasm"));
    }
}
