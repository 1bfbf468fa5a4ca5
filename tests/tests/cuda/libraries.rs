//! Shared libraries of C targets, as `cargo xtask guests` builds them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use callbox::call::{ApiVersion, CallSite};
use callbox::cuda::{Buffers, Conventions, CudaDevice, CudaModule, GraphLaunch, LibraryTarget};
use callbox::{Registry, Result, StatusCode};
use callbox_cuda_stand_in::Mode;
use callbox_tests::platform::cuda::trusted;

use super::rig;

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../target/guests")
        .join(name)
}

/// A target of a library, whose digest is granted.
fn target(
    library: &str,
    name: &str,
    api_version: ApiVersion,
    buffers: Buffers,
) -> Result<Arc<CudaModule>> {
    let target = LibraryTarget {
        name: name.to_owned(),
        api_version,
        buffers,
    };
    trusted::library(&path(library), &[target])
}

fn site(name: &str, operands: &[&str], result: &str, api_version: ApiVersion) -> CallSite {
    let operands = operands.iter().map(|shape| shape.parse().unwrap());
    CallSite {
        api_version,
        ..CallSite::new(name, operands.collect(), result.parse().unwrap())
    }
}

fn floats(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    values.into_iter().flat_map(f32::to_le_bytes).collect()
}

#[test]
fn the_documents_first_example_runs_as_it_stands() {
    let (_guard, stand_in) = rig::alone();
    let version = ApiVersion::Original;
    let module = target(
        "do_custom_call.so",
        "do_custom_call",
        version,
        Buffers::Leaves,
    )
    .unwrap();
    stand_in.set_mode(Mode::Lazy);
    let device = CudaDevice::open(0).unwrap();
    let site = site(
        "do_custom_call",
        &["f32[128]", "f32[2048]"],
        "f32[2048]",
        version,
    );
    let call = module.prepare_call(&device, site).unwrap();
    let b = floats((0..128).map(|i| i as f32));
    let c = floats((0..2048).map(|i| 0.5 * i as f32));
    let mut a = vec![0; 2048 * 4];
    call.call(&[&b, &c], &mut [&mut a]).unwrap();
    // A[i] = B[i % 128] + C[i]
    let expected = floats((0..2048).map(|i| (i % 128) as f32 + 0.5 * i as f32));
    assert_eq!(a, expected);
}

#[test]
fn a_failure_of_c_is_a_status_and_its_text_is_cut_and_cleaned() {
    let (_guard, _) = rig::alone();
    let version = ApiVersion::StatusReturning;
    let name = "do_custom_call";
    let module = target("do_custom_call_status.so", name, version, Buffers::Leaves).unwrap();
    let device = CudaDevice::open(0).unwrap();
    let call = module
        .prepare_call(&device, site(name, &["f32[]"], "f32[]", version))
        .unwrap();
    let mut result = [7; 4];
    let status = call
        .call(&[&floats([-1.0])], &mut [&mut result])
        .unwrap_err();
    assert_eq!(status.code(), StatusCode::Internal);
    assert_eq!(status.message(), "An error occurred");
    assert_eq!(result, [7; 4]);
}

#[test]
fn a_library_without_what_it_needs_says_so() {
    let (_guard, _) = rig::alone();
    let version = ApiVersion::StatusReturning;
    let name = "matmul_cublas";
    let module = target("matmul_cublas.so", name, version, Buffers::Leaves).unwrap();
    let device = CudaDevice::open(0).unwrap();
    let mut site = site(name, &["f32[2,2]", "f32[2,2]"], "f32[2,2]", version);
    let operand = floats([1.0, 2.0, 3.0, 4.0]);
    let call = |site: &CallSite| {
        let call = module.prepare_call(&device, site.clone()).unwrap();
        call.call(&[&operand, &operand], &mut [&mut [0; 16]])
    };
    let status = call(&site).unwrap_err();
    assert_eq!(
        status.message(),
        "expected m, k and n as three int32 in the opaque bytes"
    );
    site.opaque = [2_i32, 2, 2]
        .into_iter()
        .flat_map(i32::to_le_bytes)
        .collect();
    // If cuBLAS is installed, it does not accept the stand-in as a driver.
    let status = call(&site).unwrap_err();
    let message = status.message();
    assert!(
        message.starts_with("expected cuBLAS, found no ") || message.starts_with("cublas"),
        "{status}"
    );
}

#[test]
fn functions_and_conventions_that_a_library_lacks_are_refused() {
    let (_guard, _) = rig::alone();
    let library = "do_custom_call.so";
    let missing = target(
        library,
        "do_another_call",
        ApiVersion::Original,
        Buffers::Leaves,
    );
    assert_eq!(missing.unwrap_err().code(), StatusCode::NotFound);
    let typed = target(
        library,
        "do_custom_call",
        ApiVersion::TypedFfi,
        Buffers::Leaves,
    );
    assert_eq!(typed.unwrap_err().code(), StatusCode::InvalidArgument);
}

#[test]
fn roots_that_are_not_filled_are_found() {
    let (_guard, _) = rig::alone();
    // The target takes leaves, but is called with all nodes: it does not fill the root tuple.
    let version = ApiVersion::StatusReturning;
    let name = "ignores_status";
    let module = target("do_custom_call_status.so", name, version, Buffers::Preorder).unwrap();
    let module = module.with_conventions(Conventions {
        check_roots: true,
        ..Conventions::default()
    });
    let device = CudaDevice::open(0).unwrap();
    // The buffers are the operand, the root and the leaf. The kernel copies four bytes of the first
    // to the second, which is the root's table.
    let call = module
        .prepare_call(&device, site(name, &["f32[]"], "(f32[])", version))
        .unwrap();
    let status = call
        .call(&[&floats([1.0])], &mut [&mut [0; 4]])
        .unwrap_err();
    assert_eq!(status.code(), StatusCode::Internal);
    assert!(status.message().contains("root tuple"), "{status}");
}

#[test]
fn a_c_function_is_captured_if_it_is_given_the_trait() {
    let (_guard, _) = rig::alone();
    let version = ApiVersion::Original;
    let module = target(
        "do_custom_call.so",
        "do_custom_call",
        version,
        Buffers::Leaves,
    )
    .unwrap();
    let program = r#"HloModule captured

capture {
  b = f32[128] parameter(0)
  c = f32[2048] parameter(1)
  ROOT a = f32[2048] custom-call(b, c), custom_call_target="do_custom_call"
}

ENTRY main {
  b = f32[128] parameter(0)
  c = f32[2048] parameter(1)
  ROOT a = f32[2048] custom-call(b, c), custom_call_target="callbox.graph.launch", api_version=API_VERSION_TYPED_FFI, backend_config={capture = @capture}
}
"#;
    let missing = trusted::with_trait(&module, "another", "pure").unwrap_err();
    assert_eq!(missing.code(), StatusCode::NotFound);
    let says_so =
        trusted::with_trait(&module, "do_custom_call", "command_buffer_compatible").unwrap();
    for (module, captured) in [(module, 0), (says_so, 1)] {
        let device = CudaDevice::open(0).unwrap();
        let graphs = GraphLaunch::default();
        let mut registry = Registry::new();
        registry.register_module(graphs.module().unwrap()).unwrap();
        registry.register_module(module).unwrap();
        let executable = rig::compile(program, &registry, &device).unwrap();
        let b = rig::floats(&[0.5; 128]);
        let c: Vec<f32> = (0..2048).map(|i| i as f32).collect();
        let expected: Vec<f32> = c.iter().map(|c| c + 0.5).collect();
        for _ in 0..3 {
            let found = rig::execute(&executable, &[b.clone(), rig::floats(&c)]).unwrap();
            assert_eq!(found.to_vec::<f32>().unwrap(), expected);
        }
        assert_eq!(graphs.counts().captured, captured);
    }
}
