//! Errors in manifests, images, memory and streams become statuses, and nothing is launched.

use std::sync::Arc;

use callbox::call::CallSite;
use callbox::cuda::{CudaDevice, CudaModule, LibraryTarget, NativeGrants};
use callbox::policy::Gpu;
use callbox::{Attribute, Result, Status, StatusCode, call::ApiVersion};
use callbox_cuda_stand_in::Leaks;
use callbox_tests::platform::cuda::trusted;

use super::rig::{self, guests};

const PTX: &str = ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry f(.param .u64 x, .param .u32 n)\n{\n  ret;\n}\n";

/// A module of one target `f` with this launch, from this PTX.
fn module(launch: &str, ptx: &str) -> Result<Arc<CudaModule>> {
    let text = format!(
        r#"{{"format": 1, "images": [{{"name": "i", "file": "i.ptx"}}], "targets": [{{"name": "f", "launches": [{launch}]}}]}}"#
    );
    let images = vec![ptx.as_bytes().to_vec()];
    trusted::manifest_text(&text, images)
}

/// Calls it with one operand and one result of four bytes.
fn call(launch: &str, ptx: &str) -> Result<()> {
    let device = CudaDevice::open(0)?;
    let shape: callbox::Shape = "u8[4]".parse().unwrap();
    let site = CallSite::new("f", vec![shape.clone()], shape);
    let call = module(launch, ptx)?.prepare_call(&device, site)?;
    call.call(&[&[0; 4]], &mut [&mut [0; 4]])
}

const LAUNCH: &str = r#"{"image": "i", "entry": "f", "parameters": [{"operand": 0}, {"value": "1", "type": "u32"}], "grid": ["1"], "block": ["1"]}"#;

fn refused(launch: &str, ptx: &str, code: StatusCode, says: &str) {
    let status = call(launch, ptx).unwrap_err();
    assert_eq!(status.code(), code, "{status}");
    assert!(status.message().contains(says), "{status}");
}

#[test]
fn launches_that_do_not_fit_their_kernel_are_refused() {
    let (_guard, stand_in) = rig::alone();
    call(LAUNCH, PTX).unwrap();
    stand_in.clear_calls();
    let wrong = StatusCode::InvalidArgument;
    let with = |from: &str, to: &str| LAUNCH.replace(from, to);
    refused(
        &with(r#"{"operand": 0}, "#, ""),
        PTX,
        wrong,
        "expected the 1 parameters of the manifest, found 2 in the image",
    );
    refused(&with("u32", "u64"), PTX, wrong, "\"f\"");
    refused(
        &with(r#""entry": "f""#, r#""entry": "g""#),
        PTX,
        StatusCode::NotFound,
        "\"g\"",
    );
    refused(
        &with(r#""operand": 0"#, r#""operand": 1"#),
        PTX,
        wrong,
        "operand 1",
    );
    refused(
        &with(r#""grid": ["1"]"#, r#""grid": ["operands[0].rank - 1"]"#),
        PTX,
        wrong,
        "found 0",
    );
    refused(
        &with(r#""grid": ["1"]"#, r#""grid": ["2147483648"]"#),
        PTX,
        wrong,
        "2147483648",
    );
    refused(
        &with(r#""block": ["1"]"#, r#""block": ["1025"]"#),
        PTX,
        wrong,
        "1025",
    );
    let launches = stand_in.calls();
    assert!(
        !launches.iter().any(|c| c == "cuLaunchKernel"),
        "{launches:?}"
    );
}

#[test]
fn images_that_cannot_be_loaded_are_refused() {
    let (_guard, _) = rig::alone();
    let wrong = StatusCode::InvalidArgument;
    refused(LAUNCH, "no PTX at all", wrong, "i.ptx");
    refused(LAUNCH, "", wrong, "i.ptx");
    refused(LAUNCH, &format!("{PTX}\0"), wrong, "a NUL in it");
    // PTX for a newer architecture than the device's (9.0).
    refused(LAUNCH, &PTX.replace("sm_75", "sm_120"), wrong, "i.ptx");
    // A failed load can be tried again.
    call(LAUNCH, PTX).unwrap();
}

#[test]
fn native_code_is_loaded_by_its_digest_alone() {
    let (_guard, stand_in) = rig::alone();
    stand_in.clear_calls();
    let path = guests().join("add_n/callbox.json");
    let gpu = Gpu {
        fenced: false,
        ..Gpu::default()
    };
    let denied = CudaModule::load_manifest(&path, &NativeGrants::none(), &gpu).unwrap_err();
    assert_eq!(denied.code(), StatusCode::PermissionDenied);
    let digest = digest_of(&denied);
    let grants = trusted::grant(NativeGrants::parse_digest(&digest).unwrap());
    let granted = CudaModule::load_manifest(&path, &grants, &gpu).unwrap();
    assert!(!granted.is_fenced());
    // A grant of another manifest does not suffice.
    let other = guests().join("softmax/callbox.json");
    let denied = CudaModule::load_manifest(&other, &grants, &gpu).unwrap_err();
    assert_eq!(denied.code(), StatusCode::PermissionDenied);
    assert_ne!(digest_of(&denied), digest);
    let missing = CudaModule::load_manifest(&guests().join("none/callbox.json"), &grants, &gpu);
    assert_eq!(missing.unwrap_err().code(), StatusCode::NotFound);
    assert_eq!(stand_in.calls(), Vec::<String>::new());
}

#[test]
fn libraries_are_loaded_by_their_digest_alone() {
    let (_guard, _) = rig::alone();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), b"no library").unwrap();
    let target = [LibraryTarget {
        name: "f".to_owned(),
        api_version: ApiVersion::Original,
        buffers: callbox::cuda::Buffers::Leaves,
    }];
    let load = |grants: &NativeGrants| trusted::library_by(file.path(), &target, grants);
    let denied = load(&NativeGrants::none()).unwrap_err();
    assert_eq!(denied.code(), StatusCode::PermissionDenied);
    let digest = NativeGrants::parse_digest(&digest_of(&denied)).unwrap();
    let grants = trusted::grant(digest);
    let status = load(&grants).unwrap_err();
    assert_eq!(status.code(), StatusCode::InvalidArgument, "{status}");
    assert!(
        status.message().contains("expected a shared library"),
        "{status}"
    );
}

fn digest_of(denied: &Status) -> String {
    let (_, digest) = denied.message().split_once("--allow-native ").unwrap();
    digest.trim_end_matches(')').to_owned()
}

#[test]
fn call_sites_that_do_not_fit_are_refused() {
    let (_guard, stand_in) = rig::alone();
    let device = CudaDevice::open(0).unwrap();
    let kernels = rig::kernels("add_n");
    let f32x3: callbox::Shape = "f32[3]".parse().unwrap();
    let n = || [("n".to_owned(), Attribute::scalar(1.0_f32))].into();
    let site = || CallSite::new("add_n", vec![f32x3.clone()], f32x3.clone()).with_attributes(n());
    let prepared = kernels.prepare_call(&device, site()).unwrap();
    stand_in.clear_calls();
    let mut result = [0; 12];
    for operands in [&[][..], &[&[0; 12][..], &[0; 12]], &[&[0; 11]]] {
        let status = prepared.call(operands, &mut [&mut result]).unwrap_err();
        assert_eq!(status.code(), StatusCode::InvalidArgument);
    }
    let status = prepared
        .call(&[&[0; 12]], &mut [&mut result[..8]])
        .unwrap_err();
    assert_eq!(status.message(), "result 0: expected 12 bytes, found 8");
    assert_eq!(stand_in.calls(), Vec::<String>::new());
    let more = CallSite::new("add_n", vec![f32x3.clone(), f32x3.clone()], f32x3.clone());
    let status = kernels.prepare_call(&device, more.with_attributes(n()));
    assert_eq!(status.unwrap_err().code(), StatusCode::InvalidArgument);
    let unknown = CallSite::new("add_m", vec![], f32x3.clone());
    let status = kernels.prepare_call(&device, unknown).unwrap_err();
    assert_eq!(status.code(), StatusCode::NotFound);
}

#[test]
fn a_device_that_is_not_there_is_not_found() {
    let (_guard, _) = rig::alone();
    let status = CudaDevice::open(7).unwrap_err();
    assert_eq!(status.code(), StatusCode::NotFound);
    assert_eq!(
        status.message(),
        "expected a CUDA device below 2, found number 7"
    );
}

#[test]
fn a_device_without_room_says_so_and_is_well_afterwards() {
    let (_guard, stand_in) = rig::alone();
    stand_in.set_memory(0, 1 << 20);
    let device = CudaDevice::open(0).unwrap();
    let copy = rig::copying();
    let large: callbox::Shape = "u8[1048577]".parse().unwrap();
    let site = |shape: &callbox::Shape| CallSite::new("copy", vec![shape.clone()], shape.clone());
    let call = copy.prepare_call(&device, site(&large)).unwrap();
    let bytes = vec![1; 1_048_577];
    let mut result = vec![0; 1_048_577];
    let status = call.call(&[&bytes], &mut [&mut result]).unwrap_err();
    assert_eq!(status.code(), StatusCode::ResourceExhausted, "{status}");
    assert_eq!(device.lost(), None);
    drop(call);
    let small: callbox::Shape = "u8[4]".parse().unwrap();
    let call = copy.prepare_call(&device, site(&small)).unwrap();
    let mut result = [0; 4];
    call.call(&[&[1, 2, 3, 4]], &mut [&mut result]).unwrap();
    assert_eq!(result, [1, 2, 3, 4]);
    drop((call, device));
    assert_eq!(stand_in.leaks(), Leaks::NONE);
}
