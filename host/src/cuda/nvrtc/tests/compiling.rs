//! With the library, where there is one.

use std::sync::{Arc, Barrier};

use super::super::{OPTIONS, compile, find};
use crate::values::StatusCode;

const SOURCE: &str = r#"extern "C" __global__ void add(const float* x, float* y, unsigned n) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] + 1.0f;
}
"#;

/// Whether NVRTC is here. Where it is not, the test says that it was skipped, and why.
fn is_found() -> bool {
    match find() {
        Ok(found) => {
            let (major, minor) = found.version;
            assert!(major >= 11, "{major}.{minor}");
            true
        }
        Err(status) => {
            assert_eq!(status.code(), StatusCode::Unavailable);
            eprintln!("skipped: {status}");
            false
        }
    }
}

#[test]
fn sources_become_ptx() {
    if !is_found() {
        return;
    }
    let ptx = compile("add.cu", SOURCE, (9, 0), &[]).unwrap();
    assert!(ptx.contains(".target sm_90"), "{ptx}");
    assert!(ptx.contains(".visible .entry add("), "{ptx}");
    // A device that is newer than NVRTC gets what NVRTC has.
    let newest = compile("add.cu", SOURCE, (4000, 0), &[]).unwrap();
    assert!(newest.contains(".visible .entry add("));
    let status = compile("add.cu", SOURCE, (1, 3), &[]).unwrap_err();
    assert_eq!(status.code(), StatusCode::InvalidArgument);
    assert!(status.message().contains("found 1.3"), "{status}");
}

#[test]
fn a_compile_error_shows_line_and_caret() {
    if !is_found() {
        return;
    }
    let wrong = SOURCE.replace("x[i] + 1.0f", "z[i] + 1.0f");
    let status = compile("add.cu", &wrong, (9, 0), &[]).unwrap_err();
    assert_eq!(status.code(), StatusCode::InvalidArgument);
    for part in [
        "source \"add.cu\": ",
        "add.cu(3): error: identifier \"z\" is undefined",
        "if (i < n) y[i] = z[i] + 1.0f;",
        "^",
    ] {
        assert!(status.message().contains(part), "{part}: {status}");
    }
    // It is the same when it is asked for again.
    assert_eq!(compile("add.cu", &wrong, (9, 0), &[]).unwrap_err(), status);
}

#[test]
fn headers_are_those_of_the_folders_that_are_named() {
    if !is_found() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("one.h"), "#define ONE 1.0f\n").unwrap();
    let source = format!("#include \"one.h\"\n{}", SOURCE.replace("1.0f", "ONE"));
    let folders = [folder.path().to_owned()];
    assert!(compile("add.cu", &source, (9, 0), &folders).is_ok());
    let status = compile("add.cu", &source, (9, 0), &[]).unwrap_err();
    assert!(status.message().contains("one.h"), "{status}");
    // The working directory's are not taken.
    let here = SOURCE.to_owned() + "#include \"Cargo.toml\"\n";
    let status = compile("add.cu", &here, (9, 0), &[]).unwrap_err();
    assert!(
        status
            .message()
            .contains("could not open source file \"Cargo.toml\""),
        "{status}"
    );
    assert!(OPTIONS.contains(&"--no-source-include"));
}

/// Two roundings, as `x * x + y` has in Rust, and not one.
#[test]
fn multiplications_and_additions_stay_apart() {
    if !is_found() {
        return;
    }
    let source = SOURCE.replace("x[i] + 1.0f", "x[i] * x[i] + y[i]");
    let ptx = compile("add.cu", &source, (9, 0), &[]).unwrap();
    assert!(ptx.contains("mul.rn.f32") && !ptx.contains("fma"), "{ptx}");
}

/// The text itself is shared: it was compiled once.
#[test]
fn threads_share_a_compilation() {
    if !is_found() {
        return;
    }
    let source = SOURCE.replace("add", "shared");
    let barrier = Barrier::new(8);
    let compiled: Vec<Arc<str>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    barrier.wait();
                    compile("shared.cu", &source, (9, 0), &[]).unwrap()
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert!(compiled.iter().all(|ptx| Arc::ptr_eq(ptx, &compiled[0])));
    let other = compile("shared.cu", &source, (8, 0), &[]).unwrap();
    assert!(!Arc::ptr_eq(&other, &compiled[0]));
}
