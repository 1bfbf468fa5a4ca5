//! `callbox run` of programs that `callbox.jax` traced: modules by their keys.

use callbox::policy::{Policy, Traps};
use callbox::traced::module_key;
use sha2::{Digest, Sha256};

use crate::guests::{FAULTS, NEGATE};
use crate::support::Folder;

/// The key that Python gives a module by default, or under this policy.
fn key(folder: &Folder, module: &str, policy: Policy) -> String {
    let digest = hex::encode(Sha256::digest(std::fs::read(folder.path(module)).unwrap()));
    let policy = Policy {
        traps: Traps::Explicit,
        ..policy
    };
    module_key(&digest, "", &policy).unwrap()
}

/// A program as JAX prints it, which calls a target with a further field of its call.
fn program(key: &str, target: &str, [operand, result]: [&str; 2], further: &str) -> String {
    let call = format!(
        "{{\\22api_version\\22:\\22API_VERSION_TYPED_FFI\\22,\\22operand_ranks\\22:[1],\
         \\22result_ranks\\22:[1]{further}}}"
    );
    format!(
        "HloModule jit_f\n\nENTRY main.3 {{\n  x.1 = {operand} parameter(0)\n  \
         ROOT ffi_call.1 = {result} custom-call(x.1), custom_call_target=\"callbox.v1\", \
         api_version=API_VERSION_TYPED_FFI, backend_config={{attributes = \"{{}}\", \
         call = \"{call}\", module = \"{key}\", target = \"{target}\"}}\n}}\n"
    )
}

const VECTOR: [&str; 2] = ["f32[3]{0}", "f32[3]{0}"];
const RUN: [&str; 4] = ["run", "p.hlo", "--input", "0=x.npy"];
const IN_K: [&str; 2] = ["--module-dir", "k"];

fn folder() -> Folder {
    let folder = Folder::new();
    folder
        .module("k/negate.wasm", NEGATE)
        .module("k/faults.wasm", FAULTS)
        .npy("x.npy", &[3], &[1.0_f32, 2.0, -3.5]);
    let key = key(&folder, "k/negate.wasm", Policy::default());
    folder.write("p.hlo", program(&key, "negate", VECTOR, ""));
    folder
}

#[test]
fn modules_are_found_by_their_keys() {
    let folder = folder();
    let run = [&RUN[..], &IN_K].concat();
    let shown = folder.run(&run).done();
    assert!(shown.contains("\n  -1.0, -2.0, 3.5\n"), "{shown}");
    // The files of a lock are found as well, and no others.
    folder.run(&["lock", "k/negate.wasm"]).done();
    let locked = [&RUN[..], &["--lock", "callbox.lock"]].concat();
    assert_eq!(folder.run(&locked).done(), shown);
    folder.run(&["lock", "k/faults.wasm"]).done();
    folder.refuse(
        &locked,
        1,
        "NOT_FOUND",
        "in callbox.lock, which has faults.wasm",
    );
    folder.refuse(
        &[&run[..], &["--lock", "callbox.lock"]].concat(),
        1,
        "PERMISSION_DENIED",
        "k/negate.wasm is not in callbox.lock",
    );
    folder.refuse(
        &RUN,
        1,
        "NOT_FOUND",
        "expected --module-dir DIR with the files",
    );
}

#[test]
fn the_key_covers_the_policy() {
    let folder = folder();
    folder.write("policy.json", r#"{"limits": {"deadline_ms": 777}}"#);
    let policy = Policy::from_json(br#"{"limits": {"deadline_ms": 777}}"#).unwrap();
    let key = key(&folder, "k/negate.wasm", policy);
    folder.write("p.hlo", program(&key, "negate", VECTOR, ""));
    let run = [&RUN[..], &IN_K].concat();
    let message =
        format!("no module of the key \"{key}\" in k, which has faults.wasm, negate.wasm");
    folder.refuse(&run, 1, "NOT_FOUND", &message);
    let run = [&run[..], &["--policy", "policy.json", "--deadline", "20s"]].concat();
    folder.run(&run).done();
}

/// Each call had a limit of its own: ten took four gigabytes for four kilobytes of text.
#[test]
fn arrays_of_one_value_in_all_calls_share_a_limit() {
    let folder = folder();
    let key = key(&folder, "k/negate.wasm", Policy::default());
    let array = "attributes = \"{a = dense<1> : tensor<10000000xi8>}\"";
    let one = program(&key, "negate", VECTOR, "").replace("attributes = \"{}\"", array);
    folder.write("p.hlo", &one);
    let run = [&RUN[..], &IN_K].concat();
    folder.run(&run).done();
    let (before, call) = one.split_once("  ROOT ffi_call.1 = ").unwrap();
    let second = call.replace("(x.1)", "(ffi_call.1)");
    let call = call.trim_end_matches("}\n");
    let two = format!("{before}  ffi_call.1 = {call}}}\n  ROOT ffi_call.2 = {second}");
    folder.write("p.hlo", two);
    folder.refuse(
        &run,
        1,
        "RESOURCE_EXHAUSTED",
        "expected arrays that fit into memory, found s8[10000000] of one value",
    );
}

/// A stranger's program gave its calls hours.
#[test]
fn a_program_gives_its_calls_no_more_time_than_the_policy() {
    let folder = folder();
    let policy = r#"{"limits": {"deadline_ms": 200}}"#;
    folder.write("policy.json", policy);
    let policy = Policy::from_json(policy.as_bytes()).unwrap();
    let key = key(&folder, "k/faults.wasm", policy);
    let further = ",\\22deadline_ms\\22:18446744073709551615";
    folder.write("p.hlo", program(&key, "spin", VECTOR, further));
    let run = [&RUN[..], &IN_K, &["--policy", "policy.json"]].concat();
    folder.refuse(&run, 1, "DEADLINE_EXCEEDED", "its deadline");
}

#[test]
fn aliases_name_results_that_exist() {
    let folder = folder();
    let key = key(&folder, "k/negate.wasm", Policy::default());
    let run = [&RUN[..], &IN_K].concat();
    let further = |result| format!(",\\22aliases\\22:[[{result},0]]");
    folder.write("p.hlo", program(&key, "negate", VECTOR, &further(0)));
    folder.run(&run).done();
    folder.write("p.hlo", program(&key, "negate", VECTOR, &further(1)));
    let message = "expected output_to_operand_aliasing to name";
    folder.refuse(&run, 1, "INVALID_ARGUMENT", message);
}

/// A stranger wrote the program.
#[test]
fn long_texts_of_a_program_are_cut() {
    let folder = folder();
    let key = key(&folder, "k/negate.wasm", Policy::default());
    let long = "a".repeat(1 << 20);
    let field = format!(",\\22{long}\\22:1");
    for (program, message) in [
        (program(&long, "negate", VECTOR, ""), "no module of the key"),
        (program(&key, &long, VECTOR, ""), "target"),
        (program(&key, "negate", VECTOR, &field), "unknown field"),
        (
            program(&key, "negate", VECTOR, "")
                .replace("{attributes", &format!("{{{long} = 1 : i32, attributes")),
            "attributes",
        ),
    ] {
        folder.write("p.hlo", program);
        let ran = folder.run(&[&RUN[..], &IN_K].concat());
        assert_eq!(ran.code, 1, "{ran:?}");
        assert!(ran.stderr.contains(message), "{ran:?}");
        assert!(ran.stderr.len() < 8192, "{}", ran.stderr.len());
    }
}

/// `vmap` of a traced call is one call for the batch.
#[test]
fn batches_are_called_element_by_element() {
    let folder = folder();
    let key = key(&folder, "k/negate.wasm", Policy::default());
    let batch = ["f32[2,3]{1,0}", "f32[2,3]{1,0}"];
    folder.write("p.hlo", program(&key, "negate", batch, ""));
    folder.npy("x.npy", &[2, 3], &[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let run = [&RUN[..], &IN_K, &["--output", "y.npy"]].concat();
    folder.run(&run).done();
    let expected = vec![-1.0_f32, -2.0, -3.0, -4.0, -5.0, -6.0];
    assert_eq!(folder.read_npy("y.npy"), (vec![2, 3], expected));
}

#[test]
fn a_failure_can_be_a_result() {
    let folder = folder();
    let key = key(&folder, "k/faults.wasm", Policy::default());
    folder.npy("x.npy", &[2, 3], &[1.0_f32; 6]);
    let shapes = ["f32[2,3]{1,0}", "(f32[2,3]{1,0}, s32[2]{0})"];
    folder.write(
        "p.hlo",
        program(&key, "fail", shapes, ",\\22status\\22:true"),
    );
    let run = [&RUN[..], &IN_K, &["--output-dir", "out"]].concat();
    folder.run(&run).done();
    let (_, y) = folder.read_npy::<f32>("out/0.npy");
    assert!(y.len() == 6 && y.iter().all(|y| y.is_nan()), "{y:?}");
    assert_eq!(folder.read_npy("out/1.npy"), (vec![2], vec![3_i32, 3]));
    // Without the option it fails the program.
    folder.write("p.hlo", program(&key, "fail", VECTOR, ""));
    folder.npy("x.npy", &[3], &[1.0_f32; 3]);
    let run = [&RUN[..], &IN_K].concat();
    folder.refuse(&run, 1, "INVALID_ARGUMENT", "Info must be >= 0");
}

/// The target does not know the status, which counted as scratch memory of its own.
#[test]
fn a_status_or_a_result_can_be_unread() {
    let folder = folder();
    let key = key(&folder, "k/negate.wasm", Policy::default());
    let shapes = [VECTOR[0], "(f32[3]{0}, s32[])"];
    let whole = program(&key, "negate", shapes, ",\\22status\\22:true");
    let whole = whole.replace("ROOT ffi_call.1", "ffi_call.1");
    let run = [&RUN[..], &IN_K, &["--output", "y.npy"]].concat();
    let read = |index: usize, shape: &str| {
        let root = format!("  ROOT r = {shape} get-tuple-element(ffi_call.1), index={index}\n}}");
        folder.write("p.hlo", whole.replace("\n}", &format!("\n{root}")));
        folder.run(&run).done();
    };
    read(0, "f32[3]{0}");
    assert_eq!(
        folder.read_npy("y.npy"),
        (vec![3], vec![-1.0_f32, -2.0, 3.5])
    );
    read(1, "s32[]");
    assert_eq!(folder.read_npy("y.npy"), (vec![], vec![0_i32]));
}

#[test]
fn calls_that_were_changed_are_refused() {
    let folder = folder();
    let key = key(&folder, "k/negate.wasm", Policy::default());
    let run = [&RUN[..], &IN_K].concat();
    for (target, shapes, further, code, message) in [
        ("negte", VECTOR, "", "NOT_FOUND", "negte"),
        (
            "negate",
            VECTOR,
            ",\\22more\\22:1",
            "INVALID_ARGUMENT",
            "unknown field `more`",
        ),
        (
            "negate",
            ["f32[]", "f32[]"],
            "",
            "INVALID_ARGUMENT",
            "expected an array of rank 1",
        ),
        (
            "negate",
            ["f32[3]{0}", "(f32[3]{0}, f32[3]{0})"],
            ",\\22status\\22:true",
            "INVALID_ARGUMENT",
            "expected the last result to be the status",
        ),
    ] {
        folder.write("p.hlo", program(&key, target, shapes, further));
        let scalar = shapes[0] == "f32[]";
        let (dimensions, count) = if scalar { (vec![], 1) } else { (vec![3], 3) };
        folder.npy("x.npy", &dimensions, &vec![1.0_f32; count]);
        let refused = folder.refuse(&run, 1, code, message).object();
        // The failures of reading and of preparing a call name it, once.
        let message = refused["status"]["message"].as_str().unwrap();
        let named = message.matches("custom call %ffi_call.1 of \"callbox.v1\": ");
        assert_eq!(named.count(), 1, "{message}");
    }
}
