//! Compilations, which are skipped without NVRTC.

use super::super::{OPTIONS, compile, find};
use callbox_core::values::StatusCode;

const SOURCE: &str = r#"extern "C" __global__ void add(const float* x, float* y, unsigned n) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] + 1.0f;
}
"#;

/// Whether NVRTC is installed. If not, prints why the test is skipped.
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
    let ptx = compile("add.cu", SOURCE, (9, 0)).unwrap();
    assert!(ptx.contains(".target sm_90"), "{ptx}");
    assert!(ptx.contains(".visible .entry add("), "{ptx}");
    // A newer device gets the newest architecture.
    let newest = compile("add.cu", SOURCE, (4000, 0)).unwrap();
    assert!(newest.contains(".visible .entry add("));
    let status = compile("add.cu", SOURCE, (1, 3)).unwrap_err();
    assert_eq!(status.code(), StatusCode::InvalidArgument);
    assert!(status.message().contains("found 1.3"), "{status}");
}

#[test]
fn a_compile_error_shows_line_and_caret() {
    if !is_found() {
        return;
    }
    let wrong = SOURCE.replace("x[i] + 1.0f", "z[i] + 1.0f");
    let status = compile("add.cu", &wrong, (9, 0)).unwrap_err();
    assert_eq!(status.code(), StatusCode::InvalidArgument);
    for part in [
        "source \"add.cu\": ",
        "add.cu(3): error: identifier \"z\" is undefined",
        "if (i < n) y[i] = z[i] + 1.0f;",
        "^",
    ] {
        assert!(status.message().contains(part), "{part}: {status}");
    }
    assert_eq!(compile("add.cu", &wrong, (9, 0)).unwrap_err(), status);
}

#[test]
fn the_working_directory_is_not_searched_for_headers() {
    if !is_found() {
        return;
    }
    let here = SOURCE.to_owned() + "#include \"Cargo.toml\"\n";
    let status = compile("add.cu", &here, (9, 0)).unwrap_err();
    assert!(
        status
            .message()
            .contains("could not open source file \"Cargo.toml\""),
        "{status}"
    );
    assert!(OPTIONS.contains(&"--no-source-include"));
}

/// `x * x + y` is rounded twice, as in Rust.
#[test]
fn multiplications_and_additions_stay_apart() {
    if !is_found() {
        return;
    }
    let source = SOURCE.replace("x[i] + 1.0f", "x[i] * x[i] + y[i]");
    let ptx = compile("add.cu", &source, (9, 0)).unwrap();
    assert!(ptx.contains("mul.rn.f32") && !ptx.contains("fma"), "{ptx}");
}
