//! Packages with a native twin, on the stand-in driver, which is not a GPU.

use std::path::Path;

use crate::packages::{HEADER, refuse};
use crate::support::{Folder, Ran};

/// A folder of this repository's softmax, with its twin.
pub(crate) fn softmax() -> Folder {
    let folder = Folder::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for file in ["callbox.json", "softmax.ptx", "softmax.cu", "README.md"] {
        let bytes = std::fs::read(root.join("guests/softmax").join(file)).unwrap();
        folder.write(&format!("k/{file}"), bytes);
    }
    let built = root.join("target/guests/softmax.wasm");
    assert!(built.is_file(), "run `cargo xtask guests` first");
    folder
        .write("k/softmax.wasm", std::fs::read(built).unwrap())
        .write(
            "k/callbox-package.json",
            HEADER.replace("negate", "softmax"),
        )
        .write(
            "k/cases/rows.json",
            r#"{"call": {"target": "softmax"},
                "operands": [{"shape": "f32[2,2]", "values": [1, 1, 0, 0]}],
                "expect": {"results": [{"shape": "f32[2,2]", "values": [0.5, 0.5, 0.5, 0.5]}],
                           "rtol": 1e-6}}"#,
        );
    folder
}

/// Makes the twin divide by 3, whatever the sum is.
pub(crate) fn lie(folder: &Folder) {
    let ptx = String::from_utf8(folder.read("k/softmax.ptx")).unwrap();
    let lie = ptx.replace(
        "div.rn.f32 \t%f58, %f57, %f5;",
        "div.rn.f32 \t%f58, %f57, 0f40400000;",
    );
    assert_ne!(lie, ptx);
    folder.write("k/softmax.ptx", lie);
}

/// A folder with the stand-in for the driver, which is not a GPU.
pub(crate) fn with_driver(folder: &Folder, arguments: &[&str]) -> Ran {
    let test = std::env::current_exe().unwrap();
    let library = test.with_file_name("libcallbox_cuda_stand_in.so");
    for name in ["libcuda.so", "libcuda.so.1"] {
        folder.write(&format!("driver/{name}"), std::fs::read(&library).unwrap());
    }
    let mut command = folder.command(arguments);
    command.env("LD_LIBRARY_PATH", folder.path("driver"));
    Ran::new(&command.output().unwrap())
}

#[test]
fn a_twin_is_packed_and_tested_where_a_device_is() {
    let folder = softmax();
    let packed = folder.run(&["pack", "k", "-o", "k.wasm"]).done();
    assert!(
        packed.contains("\n  twin      fenced PTX, which needs no grant\n"),
        "{packed}"
    );
    assert!(
        packed.ends_with("1 passed, 0 failed, 1 not run\n"),
        "{packed}"
    );
    for file in ["callbox.json", "softmax.ptx", "softmax.cu"] {
        assert!(packed.contains(&format!(" {file}, ")), "{packed}");
    }
    let tested = with_driver(&folder, &["test", "k.wasm"]).done();
    let both = "\n  passed    Host  cases/rows.json\n  passed    CUDA  cases/rows.json\n2 passed";
    assert!(tested.contains(both), "{tested}");
    let tested = with_driver(&folder, &["test", "k.wasm", "--platform", "CUDA"]).done();
    assert!(
        tested.ends_with("\n1 passed, 0 failed, 0 not run\n"),
        "{tested}"
    );
    // A package is named in place of a manifest.
    folder.npy("x.npy", &[1, 2], &[3.0_f32, 3.0]);
    let call = [
        "call",
        "--platform",
        "CUDA",
        "k.wasm",
        "softmax",
        "--operand",
        "x.npy",
    ];
    let called = with_driver(&folder, &[&call[..], &["--result", "f32[1,2]"]].concat()).done();
    assert!(called.contains("0.5, 0.5"), "{called}");
    let program = "HloModule m\nENTRY e {\n  x = f32[1,2] parameter(0)\n  ROOT y = f32[1,2] custom-call(x), custom_call_target=\"softmax\", api_version=API_VERSION_TYPED_FFI\n}\n";
    folder.write("p.hlo", program);
    let run = ["run", "p.hlo", "--platform", "CUDA", "--native", "k.wasm"];
    let ran = with_driver(&folder, &[&run[..], &["--input", "0=x.npy"]].concat()).done();
    assert!(ran.contains("0.5, 0.5"), "{ran}");
}

/// A twin whose results are not those of the cases, which the wasm's are.
#[test]
fn a_twin_that_disagrees_is_not_packed_where_a_device_is() {
    let folder = softmax();
    let packed = with_driver(&folder, &["pack", "k", "-o", "good.wasm"]).done();
    assert!(
        packed.ends_with("\n2 passed, 0 failed, 0 not run\n"),
        "{packed}"
    );
    lie(&folder);
    let ran = with_driver(&folder, &["pack", "k", "-o", "evil.wasm", "--json"]);
    let object = ran.object();
    assert_eq!(
        (ran.code, &object["status"]["code"]),
        (1, &"FAILED_PRECONDITION".into())
    );
    let cases = &object["package"]["cases"];
    assert_eq!(
        (&cases[0]["ending"], &cases[0]["platform"]),
        (&"passed".into(), &"Host".into())
    );
    assert_eq!(
        (&cases[1]["ending"], &cases[1]["platform"]),
        (&"failed".into(), &"CUDA".into())
    );
    assert!(!folder.path("evil.wasm").exists());
}

#[test]
fn a_twin_without_a_device_is_not_run_and_says_so() {
    let folder = softmax();
    folder.run(&["pack", "k", "-o", "k.wasm"]).done();
    let run = |arguments: &[&str]| {
        let mut command = folder.command(arguments);
        command.env("CUDA_VISIBLE_DEVICES", "-1");
        Ran::new(&command.output().unwrap())
    };
    let tested = run(&["test", "k.wasm"]).done();
    assert!(
        tested.contains("\n  not run   CUDA  cases/rows.json\n"),
        "{tested}"
    );
    assert!(
        tested.ends_with("\n1 passed, 0 failed, 1 not run\n"),
        "{tested}"
    );
    assert_eq!(run(&["test", "k.wasm", "--platform", "CUDA"]).code, 1);
}

#[test]
fn a_twin_of_another_module_is_refused() {
    let text = std::fs::read_to_string(softmax().path("k/callbox.json")).unwrap();
    for (from, to, message) in [
        (
            "\"name\": \"softmax\",\n",
            "\"name\": \"argmax\",\n",
            "callbox.json: the twin of another module: \"argmax\" is not a target",
        ),
        (
            "\"operands\": [{\"name\": \"x\", \"element_types\": [\"f32\", \"f64\"]",
            "\"operands\": [{\"name\": \"x\", \"element_types\": [\"s32\"]",
            "the twin of another module: target \"softmax\": operands 0: the module declares x: f32|f64",
        ),
        (
            "\"attributes\": []",
            "\"attributes\": [{\"name\": \"a\", \"kind\": \"string\"}]",
            "module and twin declare the attribute \"a\" differently",
        ),
        (
            "\"element_types\": [\"f32\", \"f64\"]",
            "\"element_types\": [\"f32\", \"f32\"]",
            "expected the element type f32 once, found it again",
        ),
    ] {
        let folder = softmax();
        let other = text.replacen(from, to, 1);
        assert_ne!(other, text, "{from}");
        folder.write("k/callbox.json", other);
        refuse(&folder, &["pack", "k"], 1, "INVALID_ARGUMENT", message);
    }
    // Images that share a file count once each.
    let folder = softmax();
    let more: String = (0..65)
        .map(|i| format!("{{\"name\": \"i{i}\", \"file\": \"big.ptx\"}}, "))
        .collect();
    folder
        .write(
            "k/callbox.json",
            text.replacen("\"images\": [", &format!("\"images\": [{more}"), 1),
        )
        .write("k/big.ptx", "\n".repeat(1 << 20));
    let message = "callbox.json: expected images of at most 67108864 bytes in all, found more";
    refuse(&folder, &["pack", "k"], 1, "RESOURCE_EXHAUSTED", message);
    let folder = softmax();
    std::fs::remove_file(folder.path("k/softmax.ptx")).unwrap();
    refuse(&folder, &["pack", "k"], 2, "NOT_FOUND", "k/softmax.ptx");
}
