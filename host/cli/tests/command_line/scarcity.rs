//! Full disks, processes that are killed while they write, and little memory.
//!
//! A small file system needs a mount namespace of one's own. Where the system grants none, its test
//! says so and is skipped. A limit on the size of files (`ulimit -f`) works everywhere: the command
//! line ignores SIGXFSZ, so that a write past it fails with EFBIG. Memory is limited by `ulimit` as
//! well, because tests may not make control groups.
#![allow(
    clippy::print_stderr,
    reason = "a test that is skipped says so and why"
)]

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::thread;
use std::time::Instant;

use crate::guests::NEGATE;
use crate::support::{Folder, Ran};

/// A program with two results of 64 KiB.
const TWO: &str = "HloModule m
ENTRY main {
  x = f32[16384] parameter(0)
  y = f32[16384] negate(x)
  ROOT xy = (f32[16384], f32[16384]) tuple(x, y)
}
";

const RUN: &str = "run two.hlo --input 0=x.npy --output-dir disk";
const CALL: &str =
    "call negate.wasm negate --operand three.npy --result f32[3] --cache-dir disk/cache";

/// Limits for which `0.npy` does not fit, in blocks of 512 or 1024 bytes.
const BLOCKS: [u32; 5] = [0, 1, 2, 16, 63];

fn folder() -> Folder {
    let folder = Folder::new();
    folder
        .write("two.hlo", TWO)
        .npy("x.npy", &[16384], &[1.0_f32; 16384])
        .npy("three.npy", &[3], &[1.0_f32; 3])
        .module("negate.wasm", NEGATE)
        .write("disk/0.npy", "of old")
        .write("disk/1.npy", "old too");
    folder
}

/// A shell's script, in which `$0` is the command line.
fn script(folder: &Folder, text: &str) -> Command {
    let mut command = Command::new("sh");
    command
        .args(["-c", text, env!("CARGO_BIN_EXE_callbox")])
        .current_dir(folder.path(""));
    command
}

/// Runs a script with a file system of this size at `disk`, or says why that is not possible.
pub(crate) fn on_small_disk(folder: &Folder, kibibytes: u32, text: &str) -> Option<Ran> {
    with_file_system(folder, "disk", kibibytes, text)
}

/// Runs a script with an empty file system of this size at a path, or says why that is not
/// possible.
fn with_file_system(folder: &Folder, at: &str, kibibytes: u32, text: &str) -> Option<Ran> {
    let mount =
        format!("mount -t tmpfs -o mode=700,size={kibibytes}k none {at} || exit 77; {text}");
    let mut command = Command::new("unshare");
    command
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", &mount])
        .arg(env!("CARGO_BIN_EXE_callbox"))
        .current_dir(folder.path(""));
    let reason = match command.output() {
        Ok(output) if output.status.success() => return Some(Ran::new(&output)),
        Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
        Err(error) => error.to_string(),
    };
    eprintln!("skipped: no file system can be mounted: {}", reason.trim());
    None
}

fn old_files_are_whole(folder: &Folder) {
    assert_eq!(fs::read(folder.path("disk/0.npy")).unwrap(), b"of old");
    assert_eq!(fs::read(folder.path("disk/1.npy")).unwrap(), b"old too");
}

#[test]
fn results_on_a_full_disk_leave_the_old_ones() {
    // Neither file fits, or only the first one does.
    for kibibytes in [40, 100] {
        let folder = folder();
        let text = format!(
            "echo of old > disk/0.npy; echo old too > disk/1.npy; \"$0\" {RUN}; echo code $?; ls -A disk; cat disk/0.npy disk/1.npy"
        );
        let Some(ran) = on_small_disk(&folder, kibibytes, &text) else {
            return;
        };
        assert_eq!(
            ran.stdout, "code 2\n0.npy\n1.npy\nof old\nold too\n",
            "{ran:?}"
        );
        let expected = "error: RESOURCE_EXHAUSTED: expected to write to the folder disk: ";
        assert!(ran.stderr.starts_with(expected), "{ran:?}");
    }
}

#[test]
fn results_past_a_limit_on_files_leave_the_old_ones() {
    for blocks in BLOCKS {
        let folder = folder();
        let text = format!("ulimit -f {blocks}; exec \"$0\" {RUN}");
        let ran = Ran::new(&script(&folder, &text).output().unwrap());
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.stderr.contains("RESOURCE_EXHAUSTED"), "{ran:?}");
        assert_eq!(folder.list("disk"), ["0.npy", "1.npy"]);
        old_files_are_whole(&folder);
    }
}

/// Each result is whole, before and after it is replaced.
#[test]
fn a_process_that_is_killed_at_any_time_leaves_whole_results() {
    const KILLS: u32 = 48;
    let folder = folder();
    let run: Vec<_> = RUN.split(' ').collect();
    let began = Instant::now();
    folder.run(&run).done();
    let whole = began.elapsed();
    let results = |sign: f32| [sign; 16384];
    for kill in 0..KILLS {
        let new = if kill % 2 == 0 { 2.0 } else { 1.0 };
        folder.npy("x.npy", &[16384], &results(new));
        let mut child = folder
            .command(&run)
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        thread::sleep(whole * kill / (KILLS - 8));
        child.kill().unwrap();
        child.wait().unwrap();
        for (name, sign) in [("disk/0.npy", 1.0), ("disk/1.npy", -1.0)] {
            let (_, found) = folder.read_npy::<f32>(name);
            let is_whole = found == results(sign) || found == results(2.0 * sign);
            assert!(is_whole, "{name} after {kill}: {:?}", found.first());
        }
    }
    folder.run(&run).done();
    assert_eq!(folder.read_npy::<f32>("disk/0.npy").1, results(1.0));
}

#[test]
fn a_cache_on_a_full_disk_is_a_warning() {
    let folder = folder();
    let text = format!("\"$0\" {CALL} && \"$0\" {CALL}");
    // Room for the directory alone, or for the secret, too.
    for kibibytes in [4, 8] {
        let Some(ran) = on_small_disk(&folder, kibibytes, &text) else {
            return;
        };
        assert_eq!(ran.code, 0, "{ran:?}");
        assert_eq!(ran.stdout.matches("f32[3]").count(), 2, "{ran:?}");
        let lines: Vec<_> = ran.stderr.lines().collect();
        assert!(!lines.is_empty(), "{ran:?}");
        for line in lines {
            assert!(
                line.starts_with("warning: ") && line.contains("cache"),
                "{ran:?}"
            );
        }
    }
}

#[test]
fn a_cache_past_a_limit_on_files_is_a_warning() {
    let folder = folder();
    let call: Vec<_> = CALL.split(' ').collect();
    let expected = folder.run(&call).done();
    for blocks in [0, 1, 2, 4, 8, 12, 16, 20, 24] {
        fs::remove_dir_all(folder.path("disk/cache")).unwrap();
        let text = format!("ulimit -f {blocks}; exec \"$0\" {CALL}");
        let ran = Ran::new(&script(&folder, &text).output().unwrap());
        assert_eq!((ran.code, &ran.stdout), (0, &expected), "{blocks}: {ran:?}");
        assert_cache_works(&folder, &expected);
    }
}

#[test]
fn a_process_that_is_killed_while_it_writes_the_cache_leaves_one_that_works() {
    const KILLS: u32 = 24;
    let folder = folder();
    let call: Vec<_> = CALL.split(' ').collect();
    let began = Instant::now();
    let expected = folder.run(&call).done();
    let whole = began.elapsed();
    for kill in 0..KILLS {
        fs::remove_dir_all(folder.path("disk/cache")).unwrap();
        let mut child = folder
            .command(&call)
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        thread::sleep(whole * kill / (KILLS - 4));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_cache_works(&folder, &expected);
    }
}

/// Of two calls, the first one writes what is missing, and the second one reads it.
fn assert_cache_works(folder: &Folder, expected: &str) {
    for _ in 0..2 {
        assert_eq!(
            folder.run(&CALL.split(' ').collect::<Vec<_>>()).done(),
            expected
        );
    }
    let names = folder.list("disk/cache");
    let is_entry = |name: &&String| name.ends_with(".callbox-module");
    assert_eq!(names.iter().filter(is_entry).count(), 1, "{names:?}");
}

/// `fill` grows its memory to 960 MiB and writes all of it, or gives up.
const FILL: &str = r#"(module
  (memory (export "memory") 1)
  (func (export "fill") (param i32) (result i32)
    (if (i32.eq (memory.grow (i32.const 15359)) (i32.const -1)) (then unreachable))
    (memory.fill (i32.const 0) (i32.const 1) (i32.const 1006632960))
    (i32.const 0)))"#;

#[test]
fn little_memory_is_enough_for_a_small_call() {
    let folder = folder();
    folder.module("fill.wasm", FILL);
    let call = CALL.split(" --cache").next().unwrap();
    let expected = Ran::new(&script(&folder, &format!("\"$0\" {call}")).output().unwrap()).done();
    // Address space, and data, in KiB.
    for limit in [
        "-v 1048576",
        "-v 2097152",
        "-v 8388608",
        "-d 262144",
        "-d 1048576",
    ] {
        let text = format!("ulimit {limit}; exec \"$0\" {call}");
        let ran = Ran::new(&script(&folder, &text).output().unwrap());
        assert_eq!((ran.code, &ran.stdout), (0, &expected), "{limit}: {ran:?}");
    }
    for limit in ["-v 1048576", "-d 524288"] {
        let text = format!("ulimit {limit}; exec \"$0\" call fill.wasm fill --json");
        let ran = Ran::new(&script(&folder, &text).output().unwrap());
        assert_eq!(ran.code, 1, "{limit}: {ran:?}");
        let status = &ran.object()["status"]["code"];
        assert_eq!(status, "RESOURCE_EXHAUSTED", "{limit}: {ran:?}");
    }
}

/// What is kept of a file in a folder could be a hundred times as large as the file.
#[test]
fn a_folder_of_modules_with_many_targets_takes_little_memory() {
    let folder = folder();
    for file in 0..40 {
        let mut text =
            String::from("(module (memory (export \"memory\") 1) (func $f (export \"twice\")");
        text += " (param i32) (result i32) (i32.const 0))";
        for number in 0..32_000 {
            write!(text, "(export \"{file}_{number}\" (func $f))").unwrap();
        }
        text += ")";
        folder.module(&format!("k/{file:02}.wasm"), &text);
    }
    let calls = "  y = f32[16384] custom-call(x), custom_call_target=\"twice\"";
    let line = "  y = f32[16384] negate(x)";
    folder.write("calls.hlo", TWO.replace(line, calls));
    let text = "ulimit -d 262144; exec \"$0\" run two.hlo --input 0=x.npy --targets k";
    let ran = Ran::new(&script(&folder, text).output().unwrap());
    assert_eq!(ran.code, 0, "{ran:?}");
    // All but the first of those that it calls are refused.
    let text = text.replace("two.hlo", "calls.hlo");
    let ran = Ran::new(&script(&folder, &text).output().unwrap());
    assert_eq!(ran.code, 1, "{ran:?}");
    let expected = "two modules have the target \"twice\": k/00.wasm and k/01.wasm";
    assert!(ran.stderr.contains(expected), "{ran:?}");
    // Copies are one module.
    fs::create_dir(folder.path("copies")).unwrap();
    for copy in 0..40 {
        let to = folder.path(&format!("copies/{copy:02}.wasm"));
        fs::hard_link(folder.path("k/00.wasm"), to).unwrap();
    }
    let ran = Ran::new(
        &script(&folder, &text.replace("targets k", "targets copies"))
            .output()
            .unwrap(),
    );
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stderr.contains("expected an api_version"), "{ran:?}");
}

/// The bytes of all files in folders are limited. A link adds none, also where the file has one
/// that was read before.
#[test]
fn links_to_a_file_count_once() {
    const BYTES: usize = 60 << 20;
    let folder = folder();
    let text = r#"(module (memory (export "memory") 1)
        (func (export "twice") (param i32) (result i32) (i32.const 0)))"#;
    let mut module = wat::parse_str(text).unwrap();
    let mut size = [0; 5];
    for (at, byte) in size.iter_mut().enumerate() {
        let more = if at < 4 { 0x80 } else { 0 };
        *byte = ((BYTES >> (7 * at)) & 0x7f) as u8 | more;
    }
    module.push(0);
    module.extend(size);
    module.extend([1, b'x']);
    module.resize(module.len() + BYTES - 2, 0);
    fs::create_dir(folder.path("links")).unwrap();
    fs::write(folder.path("large.wasm"), module).unwrap();
    for link in 0..40 {
        let to = folder.path(&format!("links/{link:02}.wasm"));
        symlink(folder.path("large.wasm"), to).unwrap();
    }
    let calls = "  y = f32[16384] custom-call(x), custom_call_target=\"twice\"";
    let line = "  y = f32[16384] negate(x)";
    folder.write("calls.hlo", TWO.replace(line, calls));
    let text = "\"$0\" run calls.hlo --input 0=x.npy --targets links";
    let ran = Ran::new(&script(&folder, text).output().unwrap());
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stderr.contains("expected an api_version"), "{ran:?}");
}

#[test]
fn without_proc_a_limit_is_a_status() {
    let folder = folder();
    let call = CALL.split(" --cache").next().unwrap();
    let unreadable = "expected /proc/thread-self/status, from which a process with RLIMIT_AS or RLIMIT_DATA reads what is left, found No such file";
    for (limit, code, expected) in [
        ("-v unlimited", 0, "modules are compiled in this process"),
        ("-v 2097152", 1, unreadable),
        ("-d 1048576", 1, unreadable),
    ] {
        let text = format!("ulimit {limit}; \"$0\" {call}; echo code $?");
        let Some(ran) = with_file_system(&folder, "/proc", 4, &text) else {
            return;
        };
        assert!(ran.stdout.ends_with(&format!("code {code}\n")), "{ran:?}");
        assert!(ran.stderr.contains(expected), "{limit}: {ran:?}");
    }
}

/// The file is not too long. This process has too little memory.
#[test]
fn a_file_that_cannot_be_read_is_not_to_blame() {
    let folder = folder();
    let module = std::fs::File::create(folder.path("long.wasm")).unwrap();
    module.set_len(60 << 20).unwrap();
    let text = "ulimit -d 40000; exec \"$0\" inspect long.wasm";
    let ran = Ran::new(&script(&folder, text).output().unwrap());
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(
        ran.stderr
            .contains("RESOURCE_EXHAUSTED: expected to read long.wasm"),
        "{ran:?}"
    );
    assert!(ran.stderr.contains("blame: host"), "{ran:?}");
}

#[test]
fn a_small_stack_of_the_main_thread_is_enough() {
    let folder = folder();
    let call = CALL.split(" --cache").next().unwrap();
    let expected = Ran::new(&script(&folder, &format!("\"$0\" {call}")).output().unwrap()).done();
    for kibibytes in [32, 64, 1024] {
        for isolation in ["wasm", "process"] {
            let text = format!("ulimit -s {kibibytes}; exec \"$0\" {call} --isolate {isolation}");
            let ran = Ran::new(&script(&folder, &text).output().unwrap());
            let (code, shown) = (ran.code, &ran.stdout);
            assert_eq!(
                (code, shown),
                (0, &expected),
                "{kibibytes} {isolation}: {ran:?}"
            );
        }
    }
}
