//! Kernels without a grant: each of `tests/ptx/hostile` as a manifest gets its status, and the same
//! context serves a healthy kernel afterwards.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use callbox::call::{CallSite, CancelToken};
use callbox::cuda::{CudaDevice, CudaModule, NativeGrants};
use callbox::policy::Gpu;
use callbox::{Blame, CallOptions, Deadline, Result, Shape, Status, StatusCode};
use callbox_cuda_stand_in::Leaks;
use callbox_ptx_cases::hostile;
use callbox_tests::fenced::{self, FencedCall, INEXPRESSIBLE};
use serde_json::json;

use super::rig::{self, MODES, guests};

fn healthy(device: &CudaDevice) {
    assert_eq!(fenced::judge_healthy(device), None);
}

#[test]
fn hostile_kernels_get_their_status_and_the_next_is_well() {
    let (_guard, stand_in) = rig::alone();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut kernels = hostile::all(&root).unwrap();
    kernels.retain(|kernel| !INEXPRESSIBLE.contains(&&*kernel.name));
    assert!(kernels.len() >= 100, "{} kernels", kernels.len());
    let mut wrong = Vec::new();
    for mode in MODES {
        stand_in.set_mode(mode);
        let device = CudaDevice::open(0).unwrap();
        for kernel in &kernels {
            let problem = fenced::judge(kernel, &device);
            wrong.extend(problem.map(|problem| format!("{}: {problem}", kernel.name)));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert_eq!(stand_in.leaks(), Leaks::NONE);
}

#[test]
fn a_deadline_reaches_a_running_kernel() {
    let (_guard, _) = rig::alone();
    let device = CudaDevice::open(0).unwrap();
    let options = CallOptions {
        deadline: Some(Deadline::After(Duration::from_millis(300))),
        ..CallOptions::default()
    };
    let (outcome, results) = FencedCall::endless().call(&options);
    assert_eq!(outcome.unwrap_err().code(), StatusCode::DeadlineExceeded);
    assert_eq!(results, [vec![0xa5; 256]]);
    healthy(&device);
}

/// Each would have the time of a launch, two minutes in all.
#[test]
fn launches_behind_a_stopped_one_are_stopped() {
    let (_guard, _) = rig::alone();
    let mut case = FencedCall::endless();
    case.gpu.deadline = Some(Duration::from_secs(1));
    let launches = case.manifest["targets"][0]["launches"].as_array_mut();
    let launches = launches.unwrap();
    *launches = vec![launches[0].clone(); 120];
    let begun = Instant::now();
    let status = case.call(&CallOptions::default()).0.unwrap_err();
    assert_eq!(status.code(), StatusCode::DeadlineExceeded, "{status}");
    assert!(begun.elapsed() < Duration::from_secs(60));
}

#[test]
fn a_cancel_token_reaches_a_running_kernel() {
    let (_guard, _) = rig::alone();
    let device = CudaDevice::open(0).unwrap();
    let cancel = CancelToken::new();
    let options = CallOptions {
        cancel: Some(cancel.clone()),
        ..CallOptions::default()
    };
    let (outcome, results) = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(300));
            cancel.cancel();
        });
        FencedCall::endless().call(&options)
    });
    let status = outcome.unwrap_err();
    assert_eq!(
        (status.code(), status.blame()),
        (StatusCode::Cancelled, Blame::Caller)
    );
    assert_eq!(results, [vec![0xa5; 256]]);
    healthy(&device);
}

/// Changes one limit of the policy, and expects the status that names it.
fn limited(change: impl FnOnce(&mut Gpu), code: StatusCode, says: &str) {
    let mut case = FencedCall::healthy();
    change(&mut case.gpu);
    let status = case.call(&CallOptions::default()).0.unwrap_err();
    assert_eq!(status.code(), code, "{status}");
    assert!(
        status.message().contains(says),
        "expected {says:?}: {status}"
    );
}

#[test]
fn limits_of_the_policy_hold() {
    let (_guard, _) = rig::alone();
    let exhausted = StatusCode::ResourceExhausted;
    limited(
        |gpu| gpu.ptx_bytes = 99,
        exhausted,
        "the limit is 99 (`gpu.ptx_bytes`)",
    );
    limited(
        |gpu| gpu.grid_blocks = 0,
        exhausted,
        "the limit is 0 (`gpu.grid_blocks`)",
    );
    limited(
        |gpu| gpu.block_threads = 63,
        exhausted,
        "the limit is 63 (`gpu.block_threads`)",
    );
    limited(
        |gpu| gpu.fenced = false,
        StatusCode::PermissionDenied,
        "--allow-native ",
    );
    let within = |change: fn(&mut Gpu)| {
        let mut case = FencedCall::healthy();
        change(&mut case.gpu);
        case.call(&CallOptions::default()).0
    };
    assert_eq!(within(|gpu| gpu.grid_blocks = 1), Ok(()));
    assert_eq!(within(|gpu| gpu.block_threads = 64), Ok(()));
}

fn with_memory(scratch: &str, shared: &str) -> FencedCall {
    let mut case = FencedCall::healthy();
    let target = &mut case.manifest["targets"][0];
    target["scratch"] = json!([scratch]);
    target["launches"][0]["shared_memory"] = json!(shared);
    case
}

#[test]
fn memory_is_limited() {
    let (_guard, _) = rig::alone();
    for (scratch, shared, name) in [
        ("4097", "0", "the limit is 4096 (`gpu.scratch_bytes`)"),
        ("0", "1025", "the limit is 1024 (`gpu.shared_bytes`)"),
        ("4096", "1024", ""),
    ] {
        let mut case = with_memory(scratch, shared);
        case.gpu.scratch_bytes = 4096;
        case.gpu.shared_bytes = 1024;
        match case.call(&CallOptions::default()).0 {
            Ok(()) => assert_eq!(name, ""),
            Err(status) => {
                assert_eq!(status.code(), StatusCode::ResourceExhausted, "{status}");
                assert!(
                    !name.is_empty() && status.message().contains(name),
                    "{status}"
                );
            }
        }
    }
}

/// A driver reserves local memory for all threads that a device can run.
#[test]
fn local_memory_of_machine_code_is_limited() {
    let (_guard, stand_in) = rig::alone();
    let call = |bytes| {
        stand_in.set_local_bytes(bytes);
        FencedCall::healthy().call(&CallOptions::default()).0
    };
    assert_eq!(call(8192), Ok(()));
    let status = call(8193).unwrap_err();
    assert_eq!(
        (status.code(), status.blame()),
        (StatusCode::ResourceExhausted, Blame::Guest),
        "{status}"
    );
    let says = "a thread takes 8193 bytes of local memory";
    assert!(status.message().contains(says), "{status}");
}

/// A kernel cannot be captured in a graph of another framework, because the host reads its record.
#[test]
fn a_fenced_target_declares_no_capture() {
    let (_guard, _) = rig::alone();
    let path = guests().join("triton/softmax/callbox.json");
    let load = |gpu: &Gpu| -> Result<Arc<CudaModule>, Status> {
        CudaModule::load_manifest(&path, &NativeGrants::none(), gpu)
    };
    let module = load(&Gpu::default()).unwrap();
    let targets = callbox::call::TargetModule::targets(&*module);
    assert_eq!(targets[0].traits, ["pure"]);
    let shape: Shape = "f32[2,8]".parse().unwrap();
    let site = CallSite::new("softmax", vec![shape.clone()], shape);
    assert!(
        module
            .prepare_call(&CudaDevice::open(0).unwrap(), site)
            .is_ok()
    );
}

/// Each image is kept as a syntax tree, which is many times as large as its text: images that name
/// one file are counted as often.
#[test]
fn ptx_of_all_images_is_limited_together() {
    let path = guests().join("triton/softmax/callbox.json");
    let text = std::fs::read_to_string(&path).unwrap();
    let mut manifest: serde_json::Value = serde_json::from_str(&text).unwrap();
    let image = manifest["images"][0].clone();
    let file = path.with_file_name(image["file"].as_str().unwrap());
    let ptx = std::fs::read(file).unwrap();
    let images = manifest["images"].as_array_mut().unwrap();
    images.truncate(1);
    for number in 1..8 {
        let mut copy = image.clone();
        copy["name"] = json!(format!("copy{number}"));
        images.push(copy);
    }
    for target in manifest["targets"].as_array_mut().unwrap() {
        target["launches"] = json!([]);
    }
    let load = |bytes: usize| {
        let gpu = Gpu {
            ptx_bytes: bytes,
            ..Gpu::default()
        };
        let images = vec![ptx.clone(); 8];
        CudaModule::from_manifest(&manifest.to_string(), images, &NativeGrants::none(), &gpu)
    };
    assert!(load(8 * ptx.len()).is_ok());
    let status = load(8 * ptx.len() - 1).unwrap_err();
    assert_eq!(status.code(), StatusCode::ResourceExhausted, "{status}");
    assert_eq!(status.blame(), Blame::Guest);
    assert!(status.message().contains("`gpu.ptx_bytes`"), "{status}");
}

/// The text of a fenced kernel has all variables of its file, and is another one for each block.
#[test]
fn fenced_kernels_of_a_call_are_limited_together() {
    let (_guard, _) = rig::alone();
    let variables: String = (0..60_000).map(|n| format!(".global .u8 g{n};")).collect();
    let ptx = format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n{variables}\n\
         .visible .entry k(.param .u64 y) {{ ret; }}"
    );
    let plan = |launches: usize| {
        let launch = |number: usize| {
            json!({"image": "k", "entry": "k", "parameters": [{"result": 0}],
                   "grid": ["1"], "block": [(number + 1).to_string()]})
        };
        let manifest = json!({
            "format": 1,
            "images": [{"name": "k", "file": "k.ptx"}],
            "targets": [{
                "name": "t",
                "operands": [],
                "results": [{"name": "y", "element_types": ["f32"], "dimensions": ["n"]}],
                "attributes": [],
                "launches": (0..launches).map(launch).collect::<Vec<_>>(),
            }],
        });
        let (grants, gpu) = (NativeGrants::none(), Gpu::default());
        let images = vec![ptx.clone().into_bytes()];
        let module = CudaModule::from_manifest(&manifest.to_string(), images, &grants, &gpu)?;
        let site = CallSite::new("t", Vec::new(), "f32[4]".parse::<Shape>()?);
        module.prepare_call(&CudaDevice::open(0)?, site)
    };
    assert!(plan(20).is_ok());
    let status = plan(200).unwrap_err();
    assert_eq!(status.code(), StatusCode::ResourceExhausted, "{status}");
    assert_eq!(status.blame(), Blame::Guest);
    let reason = "with their fences, the limit is 67108864";
    assert!(status.message().contains(reason), "{status}");
}
