//! Hostile files that are cheap to make: each has a bound on the memory and the time that it costs.

use std::fs::File;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::guests::NEGATE;
use crate::manifests::{self, MANIFEST};
use crate::support::{Folder, Ran};

/// The time that a case may take. Each takes a tenth of it at most, also without optimisations.
const TIME: Duration = Duration::from_secs(60);

/// Runs the command line, which may use this much memory.
///
/// Its memory for data is limited, except that an engine reserves more than it uses: for arguments
/// that need one, the peak of the resident memory is checked.
pub(crate) fn limited(folder: &Folder, mebibytes: u64, arguments: &[&str]) -> Ran {
    let needs_engine = arguments[0] == "call" || arguments.contains(&"--target");
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

/// Runs a program without inputs, and expects this status. Messages are short.
#[track_caller]
fn check(text: &str, status: &str, contains: &str) {
    check_with(text, &[], status, contains);
}

#[track_caller]
fn check_with(text: &str, flags: &[&str], status: &str, contains: &str) {
    let folder = Folder::new();
    folder.write("p.hlo", text).module("negate.wasm", NEGATE);
    let ran = limited(
        &folder,
        MEMORY,
        &[&["run", "p.hlo", "--json"], flags].concat(),
    );
    let object = ran.object();
    assert_eq!(object["status"]["code"], status, "{}", shown(&ran));
    let message = object["status"]["message"].as_str().unwrap();
    assert!(message.contains(contains), "{}", shown(&ran));
    assert!(
        message.len() < 10_000,
        "a message of {} bytes",
        message.len()
    );
}

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

/// The shape of a tuple of scalars.
fn scalars(count: usize) -> String {
    format!("({})", list("f32[]", count))
}

#[test]
fn one_tuple_as_many_operands() {
    let shape = scalars(10_000);
    let operands = list("t", 20_000);
    let parameter = format!("t = {shape} parameter(0)");
    let body = format!("{parameter}\nROOT r = () tuple({operands})");
    check(&module("", &body), "RESOURCE_EXHAUSTED", "arrays in all");
    let call = "custom_call_target=\"f\"";
    let body = format!("{parameter}\nROOT r = f32[] custom-call({operands}), {call}");
    check(&module("", &body), "RESOURCE_EXHAUSTED", "arrays in all");
    // Fewer operands, so that the limit of a tuple is met.
    let body = format!("{parameter}\nROOT r = () tuple({})", list("t", 200));
    check(
        &module("", &body),
        "RESOURCE_EXHAUSTED",
        "at most 1048576 shapes",
    );
    // Fewer still, which the wrong shape of the result alone is the error of.
    let body = format!("{parameter}\nROOT r = () tuple({})", list("t", 50));
    check(
        &module("", &body),
        "INVALID_ARGUMENT",
        "expected the shape ((f32[]",
    );
}

#[test]
fn one_tuple_as_the_operand_of_many_calls() {
    let shape = scalars(5_000);
    let before = format!("f {{\np = {shape} parameter(0)\nROOT r = f32[] constant(0)\n}}\n");
    let calls = |count: usize| {
        let calls = (0..count).map(|i| format!("c{i} = f32[] call(t), to_apply=f\n"));
        let calls: String = calls.collect();
        format!(
            "z = f32[] constant(1)\nt = {shape} tuple({})\n{calls}ROOT r = f32[] negate(z)",
            list("z", 5_000)
        )
    };
    check(&module(&before, &calls(2_000)), "OK", "");
    check(
        &module(&before, &calls(4_000)),
        "RESOURCE_EXHAUSTED",
        "arrays in all",
    );
}

#[test]
fn many_branches_with_large_results() {
    let shape = scalars(5_000);
    let branch = |name: &str| {
        format!(
            "{name} {{\nx = f32[] parameter(0)\nROOT r = {shape} tuple({})\n}}\n",
            list("x", 5_000)
        )
    };
    let count = 20_000;
    let names = vec!["a,b"; count / 2].join(",");
    let body = format!(
        "i = s32[] constant(0)\nx = f32[] constant(0)\n\
         c = {shape} conditional(i,{}), branch_computations={{{names}}}\n\
         ROOT g = f32[] get-tuple-element(c), index=0",
        list("x", count)
    );
    let before = branch("a") + &branch("b");
    check(
        &module(&before, &body),
        "RESOURCE_EXHAUSTED",
        "arrays in all",
    );
}

/// Each computation calls the one before it twice.
fn doubling(depth: usize) -> String {
    let mut text = "f0 {\nROOT x = f32[] parameter(0)\n}\n".to_owned();
    for i in 1..depth {
        let callee = i - 1;
        text += &format!(
            "f{i} {{\nx = f32[] parameter(0)\na = f32[] call(x), to_apply=f{callee}\n\
             ROOT b = f32[] call(a), to_apply=f{callee}\n}}\n"
        );
    }
    text
}

#[test]
fn calls_that_double() {
    let body =
        |last: usize| format!("x = f32[] constant(1)\nROOT r = f32[] call(x), to_apply=f{last}");
    let run = module(&doubling(100), &body(99));
    check_with(
        &run,
        &["--deadline", "300ms"],
        "DEADLINE_EXCEEDED",
        "deadline",
    );
    let mapped = "x = f32[4] constant({1,2,3,4})\n\
                  ROOT r = f32[4] map(x), dimensions={0}, to_apply=f99";
    let run = module(&doubling(100), mapped);
    check_with(
        &run,
        &["--deadline", "300ms"],
        "DEADLINE_EXCEEDED",
        "deadline",
    );
    check(
        &module(&doubling(1_000), &body(999)),
        "RESOURCE_EXHAUSTED",
        "at most 128 deep",
    );
}

/// Many computations call one that has many call sites.
#[test]
fn many_computations_that_share_call_sites() {
    let call = "custom-call(x), custom_call_target=\"negate\", api_version=API_VERSION_TYPED_FFI";
    let side_effect = "custom_call_has_side_effect=true";
    let calls = (0..1_000).map(|i| format!("c{i} = f32[2] {call}, {side_effect}\n"));
    let calls: String = calls.collect();
    let mut before =
        format!("s {{\nx = f32[2] parameter(0)\n{calls}ROOT r = f32[2] negate(x)\n}}\n");
    let mut body = "x = f32[2] constant({1,2})\n".to_owned();
    for i in 0..2_000 {
        before +=
            &format!("f{i} {{\ny = f32[2] parameter(0)\nROOT z = f32[2] call(y), to_apply=s\n}}\n");
        body += &format!("b{i} = f32[2] call(x), to_apply=f{i}\n");
    }
    let text = module(&before, &(body + "ROOT r = f32[2] negate(x)"));
    let flags = ["--target", "negate=negate.wasm", "--deadline", "100ms"];
    check_with(&text, &flags, "DEADLINE_EXCEEDED", "deadline");
}

#[test]
fn arrays_of_many_dimensions() {
    for (dimensions, status) in [
        (255, "OK"),
        (256, "RESOURCE_EXHAUSTED"),
        (100_000, "RESOURCE_EXHAUSTED"),
    ] {
        let body = format!(
            "ROOT c = f32[{}] iota(), iota_dimension=0",
            list("1", dimensions)
        );
        let ones = if status == "OK" {
            ""
        } else {
            "at most 255 dimensions"
        };
        check(&module("", &body), status, ones);
    }
}

#[test]
fn long_chains() {
    let mut body = "a0 = f32[] constant(1)\n".to_owned();
    for i in 0..10_000 {
        body += &format!("a{} = f32[] negate(a{i})\n", i + 1);
    }
    check(
        &module("", &(body + "ROOT r = f32[] copy(a10000)")),
        "OK",
        "",
    );
}

/// Operands and shapes take many times the memory of their text.
#[test]
fn many_operands_and_shapes() {
    let operands = list("t", (1 << 20) + 1);
    let body = format!("t = token[] after-all()\nROOT r = token[] after-all({operands})");
    check(
        &module("", &body),
        "RESOURCE_EXHAUSTED",
        "at most 1048576 operands",
    );
    let shape = format!("({})", list("()", 1 << 19));
    let body: String = (0..17)
        .map(|i| format!("p{i} = {shape} parameter({i})\n"))
        .collect();
    let text = module("", &(body + "ROOT r = f32[] constant(1)"));
    let folder = Folder::new();
    folder.write("p.hlo", text);
    let ran = limited(&folder, 2048, &["run", "p.hlo"]);
    assert_eq!(ran.code, 1, "{}", shown(&ran));
    assert!(
        ran.stderr.contains("8388608 operands and shapes"),
        "{}",
        shown(&ran)
    );
}

#[test]
fn constants_that_are_large() {
    let count = 1_000_000;
    let body = format!(
        "c = u8[{count}] constant({{{}}})\nROOT s = u8[1] slice(c), slice={{[0:1]}}",
        list("1", count)
    );
    check(&module("", &body), "OK", "");
    let wrong = format!(
        "ROOT c = u8[{}] constant({{{}}})",
        count + 1,
        list("1", count)
    );
    check(&module("", &wrong), "INVALID_ARGUMENT", "elements");
}

#[test]
fn messages_that_quote_the_text() {
    let long = "n".repeat(5_000_000);
    for (body, status) in [
        (
            format!("ROOT {long} = f32[] add({long}, {long})"),
            "INVALID_ARGUMENT",
        ),
        (
            format!("c = f32[] constant(1)\nROOT {long} = f32[2] negate(c)"),
            "INVALID_ARGUMENT",
        ),
        (
            format!("ROOT c = f32[] constant({long})"),
            "INVALID_ARGUMENT",
        ),
        (
            format!("ROOT c = f32[] constant(1), {long}=1"),
            "INVALID_ARGUMENT",
        ),
        (format!("ROOT c = f32[] {long}(c)"), "INVALID_ARGUMENT"),
        (
            format!("ROOT c = f32[] custom-call(), custom_call_target=\"{long}\""),
            "NOT_FOUND",
        ),
        (
            format!("ROOT c = f32[] custom-call(), custom_call_target=\"${long}\""),
            "INVALID_ARGUMENT",
        ),
        (
            format!("ROOT {long} = f32[] custom-call(), custom_call_target=\"f\""),
            "NOT_FOUND",
        ),
        (
            format!("ROOT p = {} parameter(0)", scalars(100_000)),
            "INVALID_ARGUMENT",
        ),
        (
            format!(
                "p = {} parameter(0)\nROOT r = f32[] negate(p)",
                scalars(100_000)
            ),
            "INVALID_ARGUMENT",
        ),
    ] {
        check(&module("", &body), status, "");
    }
    let named = format!("HloModule m\nENTRY {long} {{\nROOT p = f32[] parameter(0)\n}}\n");
    check(
        &named,
        "INVALID_ARGUMENT",
        "expected an input for each parameter",
    );
    check_with(
        &named,
        &["--function", "f"],
        "NOT_FOUND",
        "expected an exported function",
    );
}

#[test]
fn images_that_share_a_large_file() {
    let folder = manifests::folder();
    let large = File::create(folder.path("k/k.ptx")).unwrap();
    large.set_len(1 << 30).unwrap();
    let mut manifest: serde_json::Value = serde_json::from_str(MANIFEST).unwrap();
    let images = manifest["images"].as_array_mut().unwrap();
    for i in 1..30 {
        images.push(serde_json::json!({"name": format!("k{i}"), "file": "k.ptx"}));
    }
    folder.write("k/callbox.json", manifest.to_string());
    let ran = limited(&folder, MEMORY, &["inspect", "k", "--json"]);
    let manifest = &ran.object()["manifest"];
    let images = &manifest["images"];
    assert_eq!(images[0]["size"], 1 << 30, "{}", shown(&ran));
    let problem = images[29]["problem"].as_str().unwrap();
    assert!(
        problem.contains("at most 1073741824 bytes in all"),
        "{problem}"
    );
    assert_eq!(manifest["digest"], serde_json::Value::Null);
    std::fs::rename(folder.path("k/k.ptx"), folder.path("large.so")).unwrap();
    assert_eq!(limited(&folder, MEMORY, &["inspect", "large.so"]).code, 0);
}

/// Opening a FIFO would wait for a writer.
#[test]
fn files_that_are_not_regular() {
    let folder = manifests::folder();
    std::fs::remove_file(folder.path("k/k.ptx")).unwrap();
    folder.write("p.hlo", module("", "ROOT p = f32[] parameter(0)"));
    for fifo in [
        "k/k.ptx",
        "fifo.wasm",
        "fifo.so",
        "fifo.json",
        "fifo.npy",
        "fifo.hlo",
    ] {
        let made = Command::new("mkfifo")
            .arg(folder.path(fifo))
            .status()
            .unwrap();
        assert!(made.success());
    }
    let run = ["run", "p.hlo", "--input"];
    for arguments in [
        &["inspect", "fifo.wasm"][..],
        &["inspect", "fifo.so"],
        &["inspect", "fifo.json"],
        &["run", "fifo.hlo"],
        &["run", "/dev/zero"],
        &["policy", "fifo.json"],
        &["call", "fifo.wasm", "f"],
        &[&run[..], &["0=fifo.npy"]].concat(),
        &[&run[..], &["0=/dev/zero"]].concat(),
    ] {
        let ran = limited(&folder, MEMORY, arguments);
        assert_eq!(ran.code, 2, "{arguments:?}: {ran:?}");
        assert!(
            ran.stderr.contains("name a regular file"),
            "{arguments:?}: {ran:?}"
        );
    }
    let ran = limited(&folder, MEMORY, &["inspect", "k"]);
    assert!(ran.stdout.contains("cannot be read"), "{ran:?}");
}

/// A .safetensors file with this header and no tensors' bytes.
fn with_header(header: &str) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat()
}

#[test]
fn headers_of_arrays() {
    let folder = Folder::new();
    folder.write("p.hlo", module("", "ROOT p = f32[] parameter(0)"));
    let long = "n".repeat(8 << 20);
    let tensor = |name: &str, dtype: &str, shape: &str| {
        format!(r#"{{"{name}":{{"dtype":"{dtype}","shape":[{shape}],"data_offsets":[0,0]}}}}"#)
    };
    let ones = list("1", 4 << 20);
    for header in [
        tensor(&long, "U8", "0"),
        tensor("t", &long, "0"),
        tensor("t", "U8", &format!("{ones},0")),
        format!("{{\"{long}"),
        "[".repeat(8 << 20),
        " ".repeat(17 << 20),
    ] {
        folder.write("x.safetensors", with_header(&header));
        let ran = limited(
            &folder,
            1024,
            &["run", "p.hlo", "--input", "0=x.safetensors#t"],
        );
        assert_eq!(ran.code, 1, "{}", shown(&ran));
        assert!(ran.stderr.len() < 10_000, "{} bytes", ran.stderr.len());
    }
    let short = "n".repeat(60_000);
    for header in [
        format!("{{'{short}': 1}}"),
        format!("{{'descr': '{short}', 'fortran_order': False, 'shape': (), }}"),
        format!(
            "{{'descr': '<f4', 'fortran_order': False, 'shape': ({},), }}",
            list("1", 30_000)
        ),
    ] {
        let length = (header.len() as u32).to_le_bytes();
        let file = [b"\x93NUMPY\x02\x00", &length[..], header.as_bytes()].concat();
        folder.write("x.npy", file);
        let ran = limited(&folder, MEMORY, &["run", "p.hlo", "--input", "0=x.npy"]);
        assert_eq!(ran.code, 1, "{}", shown(&ran));
        assert!(ran.stderr.len() < 10_000, "{} bytes", ran.stderr.len());
    }
}
