#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and writes files of its own"
)]

mod compiling;

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::library::Failure;
use super::{SOUGHT, compile, open, report};
use crate::places::{Machine, SearchPlace, places};
use callbox_core::values::StatusCode;

/// The places of a machine with these variables and folders.
fn of_machine(variables: &[(&str, &str)], folders: &[&str]) -> Vec<String> {
    let variables: HashMap<_, _> = variables.iter().copied().collect();
    let is_folder = |path: &Path| folders.iter().any(|folder| Path::new(folder) == path);
    let machine = Machine {
        variable: &|name| variables.get(name).map(OsString::from),
        list: &|parent| {
            let inside = folders.iter().map(PathBuf::from);
            inside
                .filter(|path| path.parent() == Some(parent))
                .collect()
        },
        is_folder: &is_folder,
    };
    let places = places(&SOUGHT, &machine);
    places.iter().map(|place| format!("{place:?}")).collect()
}

#[test]
fn a_named_library_is_the_only_candidate() {
    let variables = [("CALLBOX_NVRTC", "/opt/x"), ("CUDA_HOME", "/opt/cuda")];
    assert_eq!(of_machine(&variables, &[]), ["File(\"/opt/x\")"]);
    assert_eq!(of_machine(&variables, &["/opt/x"]), ["Folder(\"/opt/x\")"]);
}

#[test]
fn places_are_in_order_and_unique() {
    let variables = [
        ("VIRTUAL_ENV", "/venv"),
        ("CONDA_PREFIX", "/conda"),
        ("HOME", "/home/me"),
        ("CUDA_HOME", "/usr/local/cuda"),
        ("CUDA_PATH", "/opt/cuda"),
    ];
    let folders = [
        "/venv/lib/python3.9",
        "/venv/lib/python3.9/site-packages",
        "/venv/lib/python3.13",
        "/venv/lib/python3.13/site-packages",
        "/conda/lib/python3.12",
        "/conda/lib/python3.12/site-packages",
        "/home/me/.local/lib/python3.11",
        "/home/me/.local/lib/python3.11/site-packages",
        "/usr/local/lib/python3.11",
        "/usr/local/lib/python3.11/dist-packages",
        "/usr/lib/python3",
        "/usr/lib/python3/dist-packages",
        "/usr/local/cuda-12.9",
        "/usr/local/cuda-13",
        "/usr/local/cuda-12.10",
        "/usr/local/other",
    ];
    let expected = [
        "Loader",
        "Folder(\"/venv/lib/python3.13/site-packages/nvidia/cu13/lib\")",
        "Folder(\"/venv/lib/python3.13/site-packages/nvidia/cuda_nvrtc/lib\")",
        "Folder(\"/venv/lib/python3.9/site-packages/nvidia/cu13/lib\")",
        "Folder(\"/venv/lib/python3.9/site-packages/nvidia/cuda_nvrtc/lib\")",
        "Folder(\"/conda/lib/python3.12/site-packages/nvidia/cu13/lib\")",
        "Folder(\"/conda/lib/python3.12/site-packages/nvidia/cuda_nvrtc/lib\")",
        "Folder(\"/home/me/.local/lib/python3.11/site-packages/nvidia/cu13/lib\")",
        "Folder(\"/home/me/.local/lib/python3.11/site-packages/nvidia/cuda_nvrtc/lib\")",
        "Folder(\"/usr/local/lib/python3.11/dist-packages/nvidia/cu13/lib\")",
        "Folder(\"/usr/local/lib/python3.11/dist-packages/nvidia/cuda_nvrtc/lib\")",
        "Folder(\"/usr/lib/python3/dist-packages/nvidia/cu13/lib\")",
        "Folder(\"/usr/lib/python3/dist-packages/nvidia/cuda_nvrtc/lib\")",
        "Folder(\"/conda/lib\")",
        "Folder(\"/usr/local/cuda/lib64\")",
        "Folder(\"/opt/cuda/lib64\")",
        "Folder(\"/usr/local/cuda-13/lib64\")",
        "Folder(\"/usr/local/cuda-12.10/lib64\")",
        "Folder(\"/usr/local/cuda-12.9/lib64\")",
    ];
    assert_eq!(of_machine(&variables, &folders), expected);
}

#[test]
fn without_nvrtc_the_message_lists_each_place() {
    let folder = tempfile::tempdir().unwrap();
    let wrong = folder.path().join("libnvrtc.so.13");
    std::fs::write(&wrong, b"no library").unwrap();
    let places = [
        SearchPlace::Folder("/no/such/folder".into()),
        SearchPlace::File("/no/such/file.so".into()),
        SearchPlace::Folder(folder.path().to_owned()),
    ];
    let status = open(&places).unwrap_err();
    assert_eq!(status.code(), StatusCode::Unavailable);
    for part in [
        "pip install nvidia-cuda-nvrtc",
        "CALLBOX_NVRTC",
        "  /no/such/folder: expected one of libnvrtc.so.13, libnvrtc.so.12, libnvrtc.so, found none",
        "  /no/such/file.so: ",
        "too short",
    ] {
        assert!(status.message().contains(part), "{part}: {status}");
    }
    // This library is not NVRTC.
    let other = open(&[SearchPlace::File("libc.so.6".into())]).unwrap_err();
    assert!(
        other
            .message()
            .contains("expected NVRTC, found no function nvrtcVersion"),
        "{other}"
    );
}

#[test]
fn a_nul_is_refused_without_a_search() {
    let message = |name: &str, source: &str| {
        let status = compile(name, source, (9, 0)).unwrap_err();
        assert_eq!(status.code(), StatusCode::InvalidArgument);
        status.message().to_owned()
    };
    assert_eq!(
        message("k.cu", "ab\nc\0d"),
        "source \"k.cu\": expected text without NUL, found one at byte 4, on line 2"
    );
    assert_eq!(
        message("k\0.cu", ""),
        "the source's name: expected text without NUL, found one at byte 1, on line 1"
    );
}

#[test]
fn a_log_is_cleaned_and_cut() {
    let failure = |code, log: &[u8]| Failure {
        code,
        name: "NVRTC_ERROR".to_owned(),
        log: log.to_vec(),
    };
    let status = report(
        "k.cu",
        &failure(6, b"k.cu(1): error: x\x1b[2J\n  y\n  ^\n\n"),
    );
    assert_eq!(status.code(), StatusCode::InvalidArgument);
    assert_eq!(
        status.message(),
        "source \"k.cu\": expected CUDA source that compiles, found NVRTC_ERROR:\nk.cu(1): error: x\u{fffd}[2J\n  y\n  ^"
    );
    let long = report("k.cu", &failure(6, &[b'x'; 1 << 20]));
    assert!(long.message().len() < 17_000);
    assert!(
        long.message()
            .ends_with("... (16384 of 1048576 bytes shown)")
    );
    assert_eq!(
        report("k.cu", &failure(1, b"")).code(),
        StatusCode::ResourceExhausted
    );
    let other = report("k.cu", &failure(7, b""));
    assert_eq!(other.code(), StatusCode::Internal);
    assert_eq!(
        other.message(),
        "source \"k.cu\": expected NVRTC to compile it, found NVRTC_ERROR"
    );
}
