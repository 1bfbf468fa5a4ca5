//! Output folders: all results are written, or none.

use std::fs;

use safetensors::SafeTensors;

use crate::guests::{FAULTS, calling, identity};
use crate::support::{Folder, text};

/// A program with two results.
const TWO: &str = "HloModule m
ENTRY main {
  x = f32[2] parameter(0)
  y = f32[2] negate(x)
  ROOT xy = (f32[2], f32[2]) tuple(x, y)
}
";

const RUN: [&str; 6] = [
    "run",
    "two.hlo",
    "--input",
    "0=x.npy",
    "--output-dir",
    "out",
];

fn folder() -> Folder {
    let folder = Folder::new();
    folder
        .write("two.hlo", TWO)
        .npy("x.npy", &[2], &[1.0_f32, 2.0]);
    folder.module("faults.wasm", FAULTS);
    folder
}

#[test]
fn folders_are_made_and_files_replaced() {
    let folder = folder();
    folder.run(&[&RUN[..5], &["a/b/c"]].concat()).done();
    assert_eq!(folder.list("a/b/c"), ["0.npy", "1.npy"]);
    folder
        .write("out/0.npy", "of old")
        .write("out/keep.txt", "mine");
    folder.run(&RUN).done();
    assert_eq!(folder.list("out"), ["0.npy", "1.npy", "keep.txt"]);
    assert_eq!(
        folder.read_npy::<f32>("out/0.npy"),
        (vec![2], vec![1.0, 2.0])
    );
    assert_eq!(
        folder.read_npy::<f32>("out/1.npy"),
        (vec![2], vec![-1.0, -2.0])
    );
    // An absolute path is absolute in the JSON object, too.
    let out = folder.path("absolute");
    let ran = folder.run(&[&RUN[..5], &[text(&out), "--json"]].concat());
    assert_eq!(ran.object()["results"][1]["file"], text(&out.join("1.npy")));
}

#[test]
fn nothing_is_written_without_a_folder() {
    let folder = folder();
    let before = folder.list(".");
    folder.run(&RUN[..4]).done();
    assert_eq!(folder.list("."), before);
}

#[test]
fn a_failure_leaves_nothing_behind() {
    let folder = folder();
    folder
        .write("trap.hlo", calling("trap"))
        .write("wrong.hlo", "HloModule");
    folder.npy("x3.npy", &[3], &[1.0_f32; 3]);
    let trap = ["run", "trap.hlo", "--targets", ".", "--input", "0=x3.npy"];
    let call = [
        "call",
        "faults.wasm",
        "trap",
        "--operand",
        "x.npy",
        "--result",
        "f32[2]",
    ];
    for run in [
        &trap[..],
        &call,
        &["run", "wrong.hlo"],
        &["run", "two.hlo"],
        &["run", "none.hlo"],
    ] {
        // The folder that was created for results is removed ...
        let ran = folder.run(&[run, &["--output-dir", "new/deep", "--json"]].concat());
        assert!(ran.code > 0, "{ran:?}");
        assert_eq!(ran.object()["results"], serde_json::json!([]));
        assert!(!folder.path("new").exists());
        // ... and a folder that existed keeps its files unchanged.
        folder.write("old/0.npy", "of old");
        let ran = folder.run(&[run, &["--output-dir", "old"]].concat());
        assert!(ran.code > 0 && ran.stdout.is_empty(), "{ran:?}");
        assert_eq!(folder.list("old"), ["0.npy"]);
        assert_eq!(fs::read(folder.path("old/0.npy")).unwrap(), b"of old");
    }
}

#[test]
fn a_folder_that_cannot_be_written_is_wrong_usage() {
    let folder = folder();
    folder.write("file", "");
    for path in ["file", "file/out"] {
        let message = format!("expected to write to the folder {path}: ");
        let run = [&RUN[..5], &[path]].concat();
        folder.refuse(&run, 2, "INVALID_ARGUMENT", &message);
        let call = ["call", "faults.wasm", "trap", "--output-dir", path];
        folder.refuse(&call, 2, "INVALID_ARGUMENT", &message);
    }
    assert_eq!(fs::read(folder.path("file")).unwrap(), b"");
    #[cfg(target_os = "linux")]
    {
        let run = [&RUN[..5], &["/proc/no/such/folder"]].concat();
        folder.refuse(
            &run,
            2,
            "NOT_FOUND",
            "expected to write to the folder /proc/no",
        );
    }
}

#[cfg(unix)]
#[test]
fn a_folder_without_permission_is_wrong_usage() {
    use std::os::unix::fs::PermissionsExt;

    let folder = folder();
    folder.write("locked/keep.txt", "");
    let locked = folder.path("locked");
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o555)).unwrap();
    // Root can write to any folder.
    if fs::write(locked.join("probe"), "").is_err() {
        let run = [&RUN[..5], &["locked"]].concat();
        folder.refuse(
            &run,
            2,
            "PERMISSION_DENIED",
            "expected to write to the folder locked: ",
        );
        assert_eq!(folder.list("locked"), ["keep.txt"]);
    }
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o755)).unwrap();
}

/// If the last file cannot be placed, the first ones are removed, and files that they replaced are
/// restored.
#[test]
fn results_are_named_all_or_none() {
    let folder = folder();
    folder.write("out/1.npy/in the way", "");
    let ran = folder.run(&[&RUN[..], &["--json"]].concat());
    assert_eq!(
        (ran.code, &ran.object()["results"]),
        (2, &serde_json::json!([]))
    );
    assert_eq!(folder.list("out"), ["1.npy"]);
    folder.write("out/0.npy", "of old");
    assert_eq!(folder.run(&RUN).code, 2);
    assert_eq!(folder.list("out"), ["0.npy", "1.npy"]);
    assert_eq!(fs::read(folder.path("out/0.npy")).unwrap(), b"of old");
}

#[test]
fn what_numpy_has_no_name_for_goes_into_one_file() {
    let folder = folder();
    let program = "HloModule m
ENTRY main {
  x = f32[2] parameter(0)
  b = bf16[2] convert(x)
  f = f8e4m3fn[2] convert(x)
  i = s4[2] convert(x)
  ROOT t = (bf16[2], f32[2], f8e4m3fn[2], s4[2]) tuple(b, x, f, i)
}
";
    folder.write("types.hlo", program);
    let run = [
        "run",
        "types.hlo",
        "--input",
        "0=x.npy",
        "--output-dir",
        "out",
    ];
    let shown = folder.run(&run).done();
    assert!(
        shown.contains("result 0: bf16[2]{0}\n  1.0, 2.0\n"),
        "{shown}"
    );
    assert!(
        shown.contains("written to out/results.safetensors#3\n"),
        "{shown}"
    );
    assert_eq!(folder.list("out"), ["1.npy", "results.safetensors"]);
    let bytes = fs::read(folder.path("out/results.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let tensor = |name: &str| {
        let tensor = tensors.tensor(name).unwrap();
        (
            tensor.dtype().to_string(),
            tensor.shape().to_vec(),
            tensor.data().to_vec(),
        )
    };
    assert_eq!(
        tensor("0"),
        ("BF16".into(), vec![2], vec![0x80, 0x3f, 0, 0x40])
    );
    assert_eq!(tensor("2"), ("F8_E4M3".into(), vec![2], vec![0x38, 0x40]));
    assert_eq!(tensor("3"), ("I8".into(), vec![2], vec![1, 2]));

    let object = folder.run(&[&run[..], &["--json"]].concat()).object();
    let file = |name: &str, shape: &str| serde_json::json!({"shape": shape, "file": name});
    let expected = serde_json::json!([
        file("out/results.safetensors", "bf16[2]{0}"),
        file("out/1.npy", "f32[2]{0}"),
        file("out/results.safetensors", "f8e4m3fn[2]{0}"),
        file("out/results.safetensors", "s4[2]{0}"),
    ]);
    assert_eq!(object["results"], expected);

    // Both commands read back what was written.
    folder.write("s4.hlo", identity("s4[2]"));
    let shown = folder
        .run(&["run", "s4.hlo", "--input", "0=out/results.safetensors#3"])
        .done();
    assert!(shown.contains("\n  1, 2\n"), "{shown}");
}
