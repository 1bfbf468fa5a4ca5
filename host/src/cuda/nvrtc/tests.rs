#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and writes files of its own"
)]

mod compiling;

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};

use super::cache::Cache;
use super::library::Failure;
use super::places::{Machine, Place, places};
use super::{compile, open, report};
use crate::values::{Result, Status, StatusCode};

/// The places of a machine that has these variables and these folders.
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
    let places = places(&machine);
    places.iter().map(|place| format!("{place:?}")).collect()
}

#[test]
fn what_is_named_is_the_only_place() {
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
fn without_nvrtc_each_place_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let wrong = folder.path().join("libnvrtc.so.13");
    std::fs::write(&wrong, b"no library").unwrap();
    let places = [
        Place::Folder("/no/such/folder".into()),
        Place::File("/no/such/file.so".into()),
        Place::Folder(folder.path().to_owned()),
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
    // A library that is another one.
    let other = open(&[Place::File("libc.so.6".into())]).unwrap_err();
    assert!(
        other
            .message()
            .contains("expected NVRTC, found no function nvrtcVersion"),
        "{other}"
    );
}

#[test]
fn a_nul_is_refused_before_anything_is_looked_for() {
    let message = |name: &str, source: &str, includes: &[&str]| {
        let includes: Vec<_> = includes.iter().map(PathBuf::from).collect();
        let status = compile(name, source, (9, 0), &includes).unwrap_err();
        assert_eq!(status.code(), StatusCode::InvalidArgument);
        status.message().to_owned()
    };
    assert_eq!(
        message("k.cu", "ab\nc\0d", &[]),
        "source \"k.cu\": expected text without NUL, found one at byte 4, on line 2"
    );
    assert_eq!(
        message("k\0.cu", "", &[]),
        "the source's name: expected text without NUL, found one at byte 1, on line 1"
    );
    assert_eq!(
        message("k.cu", "", &["/a", "/b\0"]),
        "a folder of headers: expected text without NUL, found one at byte 2, on line 1"
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

#[test]
fn threads_that_ask_at_once_share_one_result() {
    const THREADS: usize = 8;
    let cache: Arc<Cache<usize>> = Arc::new(Cache::new(4));
    let made = AtomicUsize::new(0);
    let barrier = Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                barrier.wait();
                let value = cache.get([7; 32], || {
                    std::thread::sleep(std::time::Duration::from_millis(50));
                    Ok(made.fetch_add(1, Ordering::SeqCst))
                });
                assert_eq!(value, Ok(0));
            });
        }
    });
    assert_eq!(made.load(Ordering::SeqCst), 1);
}

#[test]
fn what_was_asked_for_least_recently_goes_first() {
    let cache: Cache<u32> = Cache::new(2);
    let made = AtomicUsize::new(0);
    let get = |key: u8| {
        let before = made.load(Ordering::SeqCst);
        let make = || -> Result<u32> {
            made.fetch_add(1, Ordering::SeqCst);
            Ok(key.into())
        };
        assert_eq!(cache.get([key; 32], make), Ok(key.into()));
        made.load(Ordering::SeqCst) > before
    };
    let asked = [1, 2, 1, 3, 1, 2, 3, 1];
    let is_made = [true, true, false, true, false, true, true, true];
    assert_eq!(asked.map(get), is_made);
}

#[test]
fn failures_are_kept_only_if_they_are_the_contents() {
    let cache: Cache<u32> = Cache::new(2);
    let fail = |code| Err(Status::new(code, crate::values::Blame::Host, "no"));
    assert!(
        cache
            .get([1; 32], || fail(StatusCode::InvalidArgument))
            .is_err()
    );
    assert!(cache.get([1; 32], || Ok(1)).is_err());
    assert!(
        cache
            .get([2; 32], || fail(StatusCode::ResourceExhausted))
            .is_err()
    );
    assert_eq!(cache.get([2; 32], || Ok(2)), Ok(2));
}
