//! `callbox call --record` and `callbox replay`.

use safetensors::tensor::{Dtype, SafeTensors, TensorView, serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::cost::limited;
use crate::guests::{FAULTS, NEGATE, SEED};
use crate::packages::refuse;
use crate::support::{Folder, Ran};

fn folder(module: &str) -> Folder {
    let folder = Folder::new();
    folder
        .module("k.wasm", module)
        .npy("x.npy", &[2], &[1.0_f32, -3.0]);
    folder
}

/// Calls a target with `--record c`, and returns what was printed and the path of the capsule.
fn record(folder: &Folder, target: &str, flags: &[&str]) -> (Ran, String) {
    let words = ["call", "k.wasm", target, "--operand", "x.npy"];
    let rest = ["--result", "f32[2]", "--record", "c"];
    let ran = folder.run(&[&words[..], &rest, flags].concat());
    let names = folder.list("c");
    assert_eq!(names.len(), 1, "{ran:?}");
    (ran, format!("c/{}", names[0]))
}

/// Replays a capsule in an empty folder, which stands for another machine.
fn replay(folder: &Folder, capsule: &str) -> (Ran, Value) {
    let elsewhere = Folder::new();
    elsewhere.write("r.capsule", std::fs::read(folder.path(capsule)).unwrap());
    let ran = elsewhere.run(&["replay", "r.capsule", "--json"]);
    let object = ran.object();
    (ran, object)
}

#[test]
fn a_failure_is_repeated_with_its_status() {
    for (target, flags, code) in [
        ("trap", &["--deterministic"][..], "ABORTED"),
        ("spin", &["--deadline", "100ms"], "DEADLINE_EXCEEDED"),
        ("trap", &["--traps", "explicit"], "ABORTED"),
        ("fail", &["--isolation", "fresh"], "INVALID_ARGUMENT"),
    ] {
        let folder = folder(FAULTS);
        let (ran, capsule) = record(&folder, target, flags);
        assert_eq!(ran.code, 1, "{ran:?}");
        assert!(ran.stderr.starts_with("a capsule of "), "{ran:?}");
        let holds = format!(
            "{capsule}, holds the module k.wasm, the operands (f32[2]) and the attributes {{}} of \
             `{target}`, the policy, and how the call ended: {code}\nerror: {code}: k.wasm: "
        );
        assert!(ran.stderr.contains(&holds), "{ran:?}");
        let (ran, object) = replay(&folder, &capsule);
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
        let replay = &object["replay"];
        assert_eq!(replay["reproduced"], true);
        assert_eq!(replay["recorded"], replay["found"]);
        assert_eq!(replay["found"]["code"], code);
        assert_eq!(replay["deterministic"], flags == ["--deterministic"]);
    }
}

#[test]
fn a_success_is_repeated_with_its_bits() {
    let folder = folder(NEGATE);
    let (ran, capsule) = record(&folder, "negate", &["--deterministic"]);
    assert!(ran.stdout.contains("-1.0, 3.0"), "{ran:?}");
    let text = folder.run(&["replay", &capsule]).done();
    let expected = "negate\n  module    k.wasm\n  callbox   0.1.0\n  recorded  OK\n  found     OK\n\
                    the same status and bits\n";
    assert_eq!(text, expected);
    // Other tools read its arrays.
    let bytes = std::fs::read(folder.path(&capsule)).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let mut names = file.names();
    names.sort_unstable();
    assert_eq!(names, ["capsule", "module", "operand.0", "result.0"]);
    let operand = file.tensor("operand.0").unwrap();
    assert_eq!((operand.dtype(), operand.shape()), (Dtype::F32, &[2][..]));
    let bits = [(-1.0_f32).to_le_bytes(), 3.0_f32.to_le_bytes()].concat();
    assert_eq!(file.tensor("result.0").unwrap().data(), bits);
    let json: Value = serde_json::from_slice(file.tensor("capsule").unwrap().data()).unwrap();
    assert_eq!(json["operands"], json!(["f32[2]"]));
    // The same call gives the same capsule.
    let (_, again) = record(&folder, "negate", &["--deterministic"]);
    assert_eq!(again, capsule);
}

#[test]
fn attributes_and_opaque_bytes_are_repeated() {
    let folder = folder(FAULTS);
    let flags = [
        "--attr",
        "n=[1,2]:f32",
        "--attr",
        "s=\"a\\u0007\"",
        "--attr",
        "d={\"k\":true}",
    ];
    let (_, capsule) = record(&folder, "trap", &flags);
    let (_, object) = replay(&folder, &capsule);
    assert_eq!(object["replay"]["reproduced"], true, "{object}");
}

/// A capsule of `negate` whose parts a test changes.
struct Parts {
    record: Value,
    module: Vec<u8>,
    operand: Vec<u8>,
    result: Vec<u8>,
}

impl Parts {
    fn new() -> Self {
        let folder = folder(NEGATE);
        let (_, capsule) = record(&folder, "negate", &[]);
        let bytes = std::fs::read(folder.path(&capsule)).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let tensor = |name: &str| file.tensor(name).unwrap().data().to_vec();
        Self {
            record: serde_json::from_slice(&tensor("capsule")).unwrap(),
            module: tensor("module"),
            operand: tensor("operand.0"),
            result: tensor("result.0"),
        }
    }

    fn file(&self) -> Vec<u8> {
        let json = self.record.to_string().into_bytes();
        let bytes = |data: &'_ [u8]| vec![data.len()];
        let views = [
            (
                "capsule",
                TensorView::new(Dtype::U8, bytes(&json), &json).unwrap(),
            ),
            (
                "module",
                TensorView::new(Dtype::U8, bytes(&self.module), &self.module).unwrap(),
            ),
            (
                "operand.0",
                TensorView::new(Dtype::F32, vec![2], &self.operand).unwrap(),
            ),
            (
                "result.0",
                TensorView::new(Dtype::F32, vec![2], &self.result).unwrap(),
            ),
        ];
        serialize(views, None).unwrap()
    }

    #[track_caller]
    fn refused(&self, status: &str, message: &str) -> Value {
        let folder = Folder::new();
        folder.write("c", self.file());
        refuse(&folder, &["replay", "c"], 1, status, message)
    }
}

/// Fuel can last for hours.
#[test]
fn a_deterministic_capsule_has_the_users_deadline_too() {
    let folder = folder(
        r#"(module
          (memory (export "memory") 1)
          (func (export "f") (param i32) (result i32) (loop $on (br $on)) unreachable))"#,
    );
    folder.write("fuel.json", r#"{"limits": {"fuel": 1000000}}"#);
    let flags = ["--deterministic", "--policy", "fuel.json"];
    let (_, capsule) = record(&folder, "f", &flags);
    let bytes = std::fs::read(folder.path(&capsule)).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let mut record: Value = serde_json::from_slice(file.tensor("capsule").unwrap().data()).unwrap();
    record["policy"]["limits"]["fuel"] = json!(20_000_000_000_u64);
    record["policy"]["limits"]["deadline_ms"] = json!(100);
    let record = record.to_string().into_bytes();
    let views = file.tensors().into_iter().map(|(name, view)| match &*name {
        "capsule" => (
            name,
            TensorView::new(Dtype::U8, vec![record.len()], &record).unwrap(),
        ),
        _ => (name, view),
    });
    folder.write("c.capsule", serialize(views, None).unwrap());
    folder.write("user.json", r#"{"limits": {"deadline_ms": 100}}"#);
    let replay = ["replay", "c.capsule", "--policy", "user.json", "--json"];
    let object = folder.run(&replay).object();
    let found = &object["replay"]["found"];
    assert_eq!(found["code"], "DEADLINE_EXCEEDED", "{object}");
    let message = found["message"].as_str().unwrap();
    assert!(message.contains("its deadline of 100ms"), "{object}");
}

#[test]
fn another_ending_is_told() {
    let mut parts = Parts::new();
    parts.result[0] ^= 1;
    let message =
        "c: the call gave other results than when it was recorded; it was recorded without";
    let object = parts.refused("FAILED_PRECONDITION", message);
    assert_eq!(object["replay"]["reproduced"], false);
    let mut parts = Parts::new();
    parts.record["status"] = json!({"code": "ABORTED", "message": "\u{1b}[2J", "recoverable": false,
        "blame": "guest", "backtrace": []});
    let message = "the call ended with OK, and with ABORTED: \\u{1b}[2J when it was recorded";
    parts.refused("FAILED_PRECONDITION", message);
}

#[test]
fn a_strangers_texts_are_cut() {
    let long = "\u{1b}x".repeat(500_000);
    let mut parts = Parts::new();
    parts.record["status"] = json!({"code": "ABORTED", "message": long, "recoverable": false,
        "blame": "guest", "backtrace": vec!["f"; 100_000]});
    parts.record["module"]["file"] = json!(long);
    let object = parts.refused("FAILED_PRECONDITION", "the call ended with OK");
    let length = object.to_string().len();
    assert!(length < 100_000, "{length}");
    let mut parts = Parts::new();
    parts.record["api_version"] = json!(long);
    let object = parts.refused("INVALID_ARGUMENT", "expected an api_version such as");
    assert!(object.to_string().len() < 1_000, "{object}");
}

#[test]
fn a_strangers_capsule_gets_no_grants_and_no_higher_limits() {
    let mut parts = Parts::new();
    parts.record["policy"]["limits"]["memory_bytes"] = json!(1_u64 << 32);
    let message = "recorded with 4294967296 for `memory_bytes`, above 1073741824 here";
    parts.refused("FAILED_PRECONDITION", message);
    let mut parts = Parts::new();
    parts.record["policy"]["limits"]["deadline_ms"] = Value::Null;
    parts.refused(
        "FAILED_PRECONDITION",
        "no limit for `deadline_ms`, above 10000 here",
    );
    let mut parts = Parts::new();
    parts.record["deadline_ms"] = json!(u64::MAX);
    parts.refused(
        "FAILED_PRECONDITION",
        "recorded with 18446744073709551615 for `deadline_ms`, above 10000 here",
    );
    for grants in [
        json!({"directories": [{"path": "/", "name": "/"}]}),
        json!({"clock": true}),
        json!({"randomness": "system"}),
    ] {
        let mut parts = Parts::new();
        parts.record["policy"]["targets"] = json!({"negate": grants});
        parts.refused(
            "UNIMPLEMENTED",
            "a capsule cannot carry directories, clocks or random",
        );
        let mut parts = Parts::new();
        parts.record["policy"]["grants"] = grants;
        parts.refused(
            "UNIMPLEMENTED",
            "a capsule cannot carry directories, clocks or random",
        );
    }
    // The recorded limit is the lower one.
    let mut parts = Parts::new();
    parts.record["policy"]["limits"]["memory_bytes"] = json!(1);
    let message = "c: expected a memory of at most 1 bytes, found one of 65536";
    parts.refused("RESOURCE_EXHAUSTED", message);
}

#[test]
fn mathematics_that_the_user_withholds_is_not_given() {
    let folder = Folder::new();
    folder.write("c", Parts::new().file());
    for policy in [
        json!({"grants": {"maths": false}}),
        json!({"targets": {"negate": {"maths": false}}}),
    ] {
        folder.write("policy.json", policy.to_string());
        let words = ["replay", "c", "--policy", "policy.json"];
        let message = "recorded with lent mathematics, which the policy here withholds";
        refuse(&folder, &words, 1, "FAILED_PRECONDITION", message);
    }
}

#[test]
fn a_module_without_the_users_digest_is_not_replayed() {
    let folder = Folder::new();
    folder.write("c", Parts::new().file());
    let another = json!({"sha256": "00".repeat(32)});
    for policy in [
        json!({"grants": another}),
        json!({"targets": {"negate": another}}),
    ] {
        folder.write("policy.json", policy.to_string());
        let words = ["replay", "c", "--policy", "policy.json"];
        let message = "expected the module to have the SHA-256 0000";
        refuse(&folder, &words, 1, "PERMISSION_DENIED", message);
    }
}

#[test]
fn a_giant_capsule_is_not_read() {
    let folder = Folder::new();
    folder.write("c", Parts::new().file());
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(folder.path("c"));
    // Without data: the file takes no room.
    file.unwrap().set_len(1 << 40).unwrap();
    let message = "c: expected a capsule of at most 1107296256 bytes, found 1099511627776";
    refuse(&folder, &["replay", "c"], 1, "RESOURCE_EXHAUSTED", message);
}

/// The header of the file is read once, and not for each array.
#[test]
fn a_capsule_of_many_arrays_takes_time_in_proportion() {
    const OPERANDS: usize = 20_000;
    let mut parts = Parts::new();
    parts.record["operands"] = json!(vec!["u8[0]"; OPERANDS]);
    let json = parts.record.to_string().into_bytes();
    let view = |bytes| TensorView::new(Dtype::U8, vec![<[u8]>::len(bytes)], bytes).unwrap();
    let mut views = vec![
        ("capsule".to_owned(), view(&json)),
        ("module".to_owned(), view(&parts.module)),
        ("result.0".to_owned(), view(&parts.result)),
    ];
    views.extend((0..OPERANDS).map(|i| (format!("operand.{i}"), view(&[]))));
    let folder = Folder::new();
    folder.write("c", serialize(views, None).unwrap());
    let ran = limited(&folder, 200, &["replay", "c"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    let message = "error: FAILED_PRECONDITION: c: the call ";
    assert!(ran.stderr.starts_with(message), "{ran:?}");
}

/// Each result is looked up in the list of those that are scratch memory.
#[test]
fn a_capsule_of_many_results_that_are_not_read_takes_time_in_proportion() {
    const RESULTS: usize = 700_000;
    let mut parts = Parts::new();
    parts.record["result"] = json!(format!("({})", vec!["u8[0]"; RESULTS].join(", ")));
    parts.record["scratch"] = (0..RESULTS).collect();
    let folder = Folder::new();
    folder.write("c", parts.file());
    let ran = limited(&folder, 400, &["replay", "c"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    parts.record["scratch"] = json!([1, 0]);
    let message = "expected scratch in ascending order, found 0 after 1";
    parts.refused("INVALID_ARGUMENT", message);
}

/// They took 21 bytes for each byte.
#[test]
fn the_lists_of_a_capsule_take_bounded_memory() {
    let mut parts = Parts::new();
    parts.record["operands"] = json!(vec!["s8[]"; 2_000_000]);
    let folder = Folder::new();
    folder.write("c", parts.file());
    let ran = limited(&folder, 100, &["replay", "c"]);
    let message =
        "error: RESOURCE_EXHAUSTED: c: the capsule is too large: expected JSON whose values";
    assert!(ran.code == 1 && ran.stderr.starts_with(message), "{ran:?}");
}

/// Six gigabytes were allocated, and then refused.
#[test]
fn the_results_of_a_capsule_are_compared_with_the_limits_first() {
    let mut parts = Parts::new();
    parts.record["result"] = json!("f32[1000000000]");
    parts.record["status"] = json!({"code": "ABORTED", "message": "", "recoverable": false,
        "blame": "guest", "backtrace": []});
    let folder = Folder::new();
    folder.write("c", parts.file());
    let ran = limited(&folder, 200, &["replay", "c"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    let message = "expected operands, results and attributes of at most 1073741824 bytes in all";
    assert!(ran.stdout.contains(message), "{ran:?}");
}

#[test]
fn long_texts_of_a_capsule_are_cut() {
    let long = "\u{1b}".repeat(1 << 18);
    let mut parts = Parts::new();
    parts.record["callbox"] = json!(long);
    parts.record["module"]["file"] = json!(long);
    parts.record["status"] = json!({"code": long, "message": long, "recoverable": false,
        "blame": "guest", "backtrace": []});
    let folder = Folder::new();
    folder.write("c", parts.file());
    let ran = folder.run(&["replay", "c"]);
    assert_eq!(ran.code, 1);
    let length = ran.stdout.len() + ran.stderr.len();
    assert!(length < 200_000, "{length}");
    parts.record["module"]["sha256"] = json!(long);
    folder.write("c", parts.file());
    let ran = folder.run(&["replay", "c"]);
    let message = "error: INVALID_ARGUMENT: c: expected a module with SHA-256 \\u{1b}";
    assert!(ran.stderr.starts_with(message), "{ran:?}");
    assert!(ran.stderr.len() < 4096);
}

#[test]
fn damaged_capsules_are_refused() {
    type Change = fn(&mut Parts);
    let changes: [(Change, &str); 7] = [
        (
            |parts| parts.record["format"] = json!(2),
            "expected `format` 1, found 2",
        ),
        (
            |parts| parts.record["url"] = json!("x"),
            "unknown field `url`",
        ),
        (
            |parts| parts.module[9] ^= 1,
            "expected a module with SHA-256 ",
        ),
        (|parts| parts.record["opaque"] = json!("0"), "opaque: "),
        (|parts| parts.record["api_version"] = json!("X"), "X"),
        (|parts| parts.record["result"] = json!("f32["), "c: "),
        (
            |parts| parts.record["operands"] = json!(["f32[3]"]),
            "expected 12 bytes for f32[3]",
        ),
    ];
    for (change, message) in changes {
        let mut parts = Parts::new();
        change(&mut parts);
        parts.refused("INVALID_ARGUMENT", message);
    }
    let mut parts = Parts::new();
    parts.record["operands"] = json!(["f32[2]", "f32[2]"]);
    parts.refused("NOT_FOUND", "expected a tensor \"operand.1\"");
    let folder = folder(NEGATE);
    let replay = ["replay", "k.wasm"];
    refuse(
        &folder,
        &replay,
        1,
        "INVALID_ARGUMENT",
        "k.wasm: no capsule: expected a .safetensors file",
    );
    let replay = ["replay", "none"];
    refuse(&folder, &replay, 2, "NOT_FOUND", "expected to read none");
}

#[test]
fn a_module_that_misbehaves_is_stopped_in_a_replay_too() {
    let mut parts = Parts::new();
    parts.module = wat::parse_str(SEED).unwrap();
    let digest = hex::encode(Sha256::digest(&parts.module));
    parts.record["module"]["sha256"] = json!(digest);
    parts.refused("FAILED_PRECONDITION", "c: the call ended with ");
}

#[test]
fn what_a_capsule_cannot_carry_is_refused_before_the_call() {
    let folder = folder(NEGATE);
    folder.write("p.json", r#"{"grants": {"clock": true}}"#);
    let words = [
        "call",
        "k.wasm",
        "negate",
        "--operand",
        "x.npy",
        "--result",
        "f32[2]",
    ];
    let call = [&words[..], &["--record", "c"]].concat();
    for (flags, code, message) in [
        (
            ["--user-data", "a=x.npy"],
            2,
            "expected no --user-data with --record",
        ),
        (
            ["--platform", "CUDA"],
            2,
            "expected no --platform CUDA with --record",
        ),
        (
            ["--policy", "p.json"],
            1,
            "a capsule cannot carry directories, clocks or random bytes",
        ),
    ] {
        folder.refuse(
            &[&call[..], &flags].concat(),
            code,
            "UNIMPLEMENTED",
            message,
        );
        assert!(folder.list("c").is_empty());
    }
    folder.write("taken", "");
    let call = [&words[..], &["--record", "taken"]].concat();
    folder.refuse(
        &call,
        2,
        "INVALID_ARGUMENT",
        "expected to make the folder taken",
    );
    folder.run(&["lock", "k.wasm"]).done();
    let (_, capsule) = record(&folder, "negate", &[]);
    let replay = ["replay", &capsule, "--lock", "callbox.lock"];
    refuse(
        &folder,
        &replay,
        1,
        "PERMISSION_DENIED",
        "is not in callbox.lock",
    );
}
