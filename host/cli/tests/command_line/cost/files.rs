//! Images of manifests, arrays, and files that are not regular.

use std::fs::File;
use std::process::Command;

use super::{MEMORY, limited, list, module, shown};
use crate::manifests::{self, MANIFEST};
use crate::support::Folder;
use crate::{guests, packages};

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
            ran.stderr.contains("expected a regular file, found a "),
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
        format!("{{\"\": [{}]}}", list("[[[[[[[[]]]]]]]]", 900_000)),
        format!("{{\"\": [{}]}}", list("{\"\":0}", 1_800_000)),
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

/// A comparison of each line with each other one takes minutes.
#[test]
fn documentation_of_very_many_lines() {
    let folder = Folder::new();
    for (name, line) in [("old.wasm", "a"), ("new.wasm", "b")] {
        let documentation = format!("{line}\\\\n").repeat(21_000);
        let target = |i| {
            format!(
                r#"(func (export "t{i}") (param i32) (result i32) i32.const 0)
                (@custom "callbox.targets" "{{\"name\":\"t{i}\",\"doc\":\"{documentation}\"}}")"#
            )
        };
        let targets: String = (0..7).map(target).collect();
        let module = format!(r#"(module (memory (export "memory") 1) {targets})"#);
        folder.write(name, wat::parse_str(module).unwrap());
    }
    let ran = limited(&folder, MEMORY, &["diff", "old.wasm", "new.wasm"]);
    assert_eq!(ran.code, 0, "{}", shown(&ran));
    for line in ["~ target t0", "      - | a", "      + | b"] {
        assert!(ran.stdout.contains(line), "{}", shown(&ran));
    }
}

/// A look at each open block at each instruction takes more than a minute.
#[test]
fn instructions_in_very_many_blocks() {
    let leb = |mut number: usize| {
        let mut bytes = Vec::new();
        while number > 127 {
            bytes.push(number as u8 | 128);
            number >>= 7;
        }
        bytes.push(number as u8);
        bytes
    };
    let sized = |bytes: Vec<u8>| [leb(bytes.len()), bytes].concat();
    let (open, nop, end) = (
        [2, 0x40].repeat(25_000),
        [1].repeat(150_000),
        [0x0b].repeat(25_001),
    );
    let body = sized([vec![0], open, nop, end].concat());
    let count = 80;
    let mut wasm = b"\0asm\x01\0\0\0".to_vec();
    for (number, content) in [
        (1, vec![1, 0x60, 0, 0]),
        (3, [leb(count), vec![0; count]].concat()),
        (5, vec![1, 0, 1]),
        (7, [&[1, 6][..], b"memory", &[2, 0]].concat()),
        (10, [leb(count), body.repeat(count)].concat()),
    ] {
        wasm.push(number);
        wasm.extend(sized(content));
    }
    let folder = Folder::new();
    folder.write("deep.wasm", wasm);
    let ran = limited(&folder, MEMORY, &["inspect", "deep.wasm"]);
    assert_eq!(ran.code, 0, "{}", shown(&ran));
}

/// A tree of the description's values took 683 MiB.
#[test]
fn metadata_with_very_many_operands() {
    let operands = ["{}"; 1024].join(",");
    let declared = (0..63).map(|i| format!(r#"{{"name": "f{i}", "operands": [{operands}]}}"#));
    let declared = declared.collect::<String>().replace('"', "\\\"");
    let exported = (0..63).map(|i| format!(r#"(export "f{i}" (func 0))"#));
    let exported: String = exported.collect();
    let folder = Folder::new();
    folder.module(
        "many.wasm",
        &format!(
            r#"(module (@custom "callbox.targets" "{declared}\n")
                (func (param i32) (result i32) (i32.const 0)) {exported})"#
        ),
    );
    let ran = limited(&folder, MEMORY, &["inspect", "many.wasm", "--json"]);
    let object = ran.object();
    let targets = object["module"]["targets"].as_array();
    let operands = targets.into_iter().flatten();
    let operands = operands.map(|target| target["operands"].as_array().unwrap().len());
    assert_eq!(operands.sum::<usize>(), 63 * 1024, "{}", shown(&ran));
}

/// Trees of JSON take up to a hundred times as much memory as their text, and attributes were
/// cloned at each level.
#[test]
fn attributes_and_values_of_a_case() {
    let nested = |levels: usize, text: String| {
        let dictionary =
            |inner: String, _| format!(r#"{{"type": "dictionary", "value": {{"a": {inner}}}}}"#);
        (0..levels).fold(text, dictionary)
    };
    let wide = |count: usize| {
        let value = list(r#"{"":0}"#, count);
        format!(r#"{{"type": "f32[1]", "value": [{value}]}}"#)
    };
    for (attribute, code, message) in [
        (
            nested(58, wide(100)),
            "INVALID_ARGUMENT",
            "at most 16 levels",
        ),
        (
            nested(3, wide(9_000)),
            "INVALID_ARGUMENT",
            "expected 1 values for f32[1]",
        ),
        (
            nested(3, wide(33_000)),
            "RESOURCE_EXHAUSTED",
            "expected cases of at most 32768 objects in all",
        ),
        (
            nested(3, wide(11_000)),
            "RESOURCE_EXHAUSTED",
            "bytes of memory, found more",
        ),
        (
            format!(
                r#"{{"type": "f32[1]", "value": [{}]}}"#,
                list("[[[[]]]]", 100_000)
            ),
            "RESOURCE_EXHAUSTED",
            "bytes of memory, found more",
        ),
    ] {
        let folder = packages::folder();
        let call = format!(r#""call": {{"attributes": {{"a": {attribute}}}, "#);
        folder.write(
            "k/cases/three.json",
            packages::CASE.replace("\"call\": {", &call),
        );
        let ran = limited(&folder, MEMORY, &["pack", "k", "--json"]);
        let status = &ran.object()["status"];
        assert_eq!(status["code"], code, "{}", shown(&ran));
        let found = status["message"].as_str().unwrap();
        assert!(found.contains(message), "{found}");
    }
}

/// The shape of each result took ten times its text, in each of a thousand cases.
#[test]
fn results_of_a_case() {
    let folder = packages::folder();
    let call = format!(r#""call": {{"results": [{}], "#, list(r#""u8[]""#, 140_000));
    folder.write(
        "k/cases/three.json",
        packages::CASE.replace("\"call\": {", &call),
    );
    let ran = limited(&folder, MEMORY, &["pack", "k", "--json"]);
    let status = &ran.object()["status"];
    assert_eq!(status["code"], "INVALID_ARGUMENT", "{}", shown(&ran));
    let found = status["message"].as_str().unwrap();
    let message = "expected at most 1024 results, found 140000";
    assert!(found.contains(message), "{found}");
}

/// The shapes of all cases were kept uncounted: 28 bytes for each of the package.
#[test]
fn shapes_of_many_cases() {
    let folder = packages::folder();
    let shape = format!("({})", list("()", 349_000));
    let call = format!(r#""call": {{"results": ["{shape}"], "#);
    let case = packages::CASE.replace("\"call\": {", &call);
    for number in 0..9 {
        folder.write(&format!("k/cases/{number}.json"), &case);
    }
    let ran = limited(&folder, 384, &["pack", "k", "--json"]);
    let status = &ran.object()["status"];
    assert_eq!(status["code"], "RESOURCE_EXHAUSTED", "{}", shown(&ran));
    let found = status["message"].as_str().unwrap();
    let message = "expected cases whose arrays have at most 268435456 bytes in all";
    assert!(found.contains(message), "{found}");
}

/// Slow paths at the end of a function jump back, and each counted as a loop of the whole function:
/// 900 MB and eight seconds.
#[cfg(target_arch = "x86_64")]
#[test]
fn machine_code_that_jumps_back() {
    let folder = packages::folder();
    let reads = "(drop (ref.is_null (table.get 0 (local.get 0))))".repeat(2000);
    let elements = format!(
        "(table 9 funcref) (elem (i32.const 0) $no) (func $no)\n(func (export \"x\") (param i32) {reads}))"
    );
    let negate = guests::NEGATE.trim_end().strip_suffix(')').unwrap();
    folder.module("k/negate.wasm", &format!("{negate}{elements}"));
    folder.run(&["pack", "k"]).done();
    let ran = limited(&folder, MEMORY, &["bench", "negate-1.0.0.wasm", "--asm"]);
    assert_eq!(ran.code, 0, "{}", shown(&ran));
    assert!(ran.stdout.contains("asm: "), "{}", shown(&ran));
}

/// Each case that named the file had an array of its own.
#[test]
fn cases_that_share_a_file() {
    let folder = packages::folder();
    folder.npy("k/cases/a.npy", &[262_144], &vec![f32::NAN; 262_144]);
    let array = r#"{"shape": "f32[262144]", "file": "a.npy"}"#;
    let case = packages::CASE
        .replace(r#"{"shape": "f32[3]", "values": [1, -2.5, 0]}"#, array)
        .replace(r#"{"shape": "f32[3]", "values": [-1, 2.5, -0.0]}"#, array);
    for number in 0..120 {
        folder.write(&format!("k/cases/{number}.json"), &case);
    }
    let ran = limited(&folder, 192, &["pack", "k", "--json"]);
    let package = &ran.object()["package"];
    let cases = package["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 121, "{}", shown(&ran));
    assert!(cases.iter().all(|case| case["ending"] == "passed"));
}
