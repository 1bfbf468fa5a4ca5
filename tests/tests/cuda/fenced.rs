//! Kernels without a grant: each of `tests/ptx/hostile` as a manifest gets its status, and the same
//! context serves a healthy kernel afterwards.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use callbox::call::{CallSite, CancelToken};
use callbox::cuda::{CudaDevice, CudaModule, NativeGrants};
use callbox::policy::Gpu;
use callbox::{Blame, CallOptions, Deadline, Result, Shape, Status, StatusCode};
use callbox_cuda_stand_in::Leaks;
use serde_json::{Value, json};

use super::rig::{self, MODES, guests};

/// Cases that a manifest cannot express: structures, and arrays at odd addresses.
const INEXPRESSIBLE: [&str; 2] = ["misaligned_buffer", "param_struct"];

/// A call of a kernel that is not granted.
struct Case {
    manifest: String,
    text: String,
    gpu: Gpu,
    /// The bytes of operands and results.
    arrays: [Vec<usize>; 2],
}

impl Case {
    /// The case of a launch, as the first line of a file has it.
    fn new(text: &str, launch: &Value) -> Self {
        let mut arrays = [Vec::new(), Vec::new()];
        let mut parameters = Vec::new();
        for param in launch["params"].as_array().unwrap() {
            for (array, (key, name)) in [("read", "operand"), ("write", "result")]
                .iter()
                .enumerate()
            {
                if let Some(bytes) = param[key].as_u64() {
                    parameters.push(json!({*name: arrays[array].len()}));
                    arrays[array].push(bytes as usize);
                }
            }
            for kind in ["u32", "u64"] {
                if let Some(value) = param[kind].as_u64() {
                    parameters.push(json!({"value": value.to_string(), "type": kind}));
                }
            }
        }
        let sizes = |key: &str| -> Vec<String> {
            let given = launch[key].as_array();
            given.map_or(vec!["1".to_owned()], |sizes| {
                sizes.iter().map(Value::to_string).collect()
            })
        };
        let manifest = json!({
            "format": 1,
            "images": [{"name": "i", "file": "i.ptx"}],
            "targets": [{"name": "f", "launches": [{
                "image": "i", "entry": "k", "parameters": parameters,
                "grid": sizes("grid"), "block": sizes("block"),
                "shared_memory": launch["shared_bytes"].as_u64().unwrap_or(0).to_string(),
            }]}],
        });
        Self {
            manifest: manifest.to_string(),
            text: text.to_owned(),
            gpu: Gpu {
                deadline: Some(Duration::from_millis(20)),
                clock: launch["has_clock"].as_bool().unwrap_or(false),
                ..Gpu::default()
            },
            arrays,
        }
    }

    /// A kernel that stores its thread's number.
    fn healthy() -> Self {
        let text = "//! a healthy kernel\n.version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 a, .param .u64 b, .param .u32 n)\n{\n.reg .b32 %r<2>;\n.reg .b64 %d<3>;\nld.param.u64 %d0, [b];\nmov.u32 %r1, %tid.x;\nmul.wide.u32 %d1, %r1, 4;\nadd.s64 %d2, %d0, %d1;\nst.global.u32 [%d2], %r1;\nret;\n}\n";
        let launch =
            json!({"block": [64, 1, 1], "params": [{"read": 256}, {"write": 256}, {"u32": 64}]});
        Self::new(text, &launch)
    }

    fn call(&self, options: &CallOptions) -> (Result<()>, Vec<Vec<u8>>) {
        let [operands, results] = &self.arrays;
        let operands: Vec<Vec<u8>> = operands.iter().map(|&size| vec![0; size]).collect();
        let operands: Vec<&[u8]> = operands.iter().map(Vec::as_slice).collect();
        let mut results: Vec<Vec<u8>> = results.iter().map(|&size| vec![0xa5; size]).collect();
        let mut places: Vec<&mut [u8]> = results.iter_mut().map(Vec::as_mut_slice).collect();
        let mut call = || {
            let images = vec![self.text.as_bytes().to_vec()];
            let none = NativeGrants::none();
            let module = CudaModule::from_manifest(&self.manifest, images, &none, &self.gpu)?;
            assert!(module.is_fenced());
            let shapes = |sizes: &[usize]| -> Vec<Shape> {
                let shapes = sizes
                    .iter()
                    .map(|size| format!("u8[{size}]").parse().unwrap());
                shapes.collect()
            };
            let [operands_of, results_of] = &self.arrays;
            let mut result = shapes(results_of);
            let result = if result.len() == 1 {
                result.remove(0)
            } else {
                Shape::tuple(result).unwrap()
            };
            let site = CallSite::new("f", shapes(operands_of), result);
            let prepared = module.prepare_call(&CudaDevice::open(0)?, site)?;
            prepared.call_with(options, &operands, &mut places)
        };
        (call(), results)
    }
}

/// The status that a case must have.
fn expected(name: &str, expect: &Value) -> (StatusCode, Blame) {
    let refused = match &expect["refused"] {
        Value::Array(rules) => rules[0].as_str(),
        rule => rule.as_str(),
    };
    match (refused, expect["fault"].as_str()) {
        (Some(_), _) if name == "shared_giant" => (StatusCode::ResourceExhausted, Blame::Guest),
        // The plan of the launch refuses sizes that no device has.
        (Some(_), _) if ["block_giant", "grid_empty", "grid_giant"].contains(&name) => {
            (StatusCode::InvalidArgument, Blame::Caller)
        }
        (Some("launch"), _) => (StatusCode::InvalidArgument, Blame::Guest),
        (Some(_), _) => (StatusCode::PermissionDenied, Blame::Guest),
        (None, Some("access")) => (StatusCode::OutOfRange, Blame::Guest),
        (None, Some("stopped")) => (StatusCode::DeadlineExceeded, Blame::Guest),
        (None, Some(_)) => (StatusCode::Aborted, Blame::Guest),
        (None, None) => (StatusCode::Ok, Blame::Guest),
    }
}

/// What is wrong with the outcome of a case.
fn judge(name: &str, text: &str, head: &Value) -> Option<String> {
    let (outcome, results) = Case::new(text, &head["launch"]).call(&CallOptions::default());
    let (code, blame) = expected(name, &head["expect"]);
    let Err(status) = outcome else {
        return (code != StatusCode::Ok).then(|| "it was not stopped".to_owned());
    };
    if (status.code(), status.blame()) != (code, blame) {
        return Some(format!("expected {code} of {blame:?}: {status}"));
    }
    if results.iter().flatten().any(|&byte| byte != 0xa5) {
        return Some("a call that failed wrote results".to_owned());
    }
    let here = text.lines().position(|line| line.ends_with("// here"));
    let here = here.map(|at| at + 1)?;
    let names_line = [format!("i.ptx:{here}:"), format!("line {here}:")];
    let is_named = names_line
        .iter()
        .any(|line| status.message().contains(line));
    (!is_named).then(|| format!("expected line {here}: {status}"))
}

fn healthy(device: &Arc<CudaDevice>) {
    let (outcome, results) = Case::healthy().call(&CallOptions::default());
    assert_eq!(outcome, Ok(()));
    let numbers: Vec<u8> = (0..64_u32).flat_map(u32::to_le_bytes).collect();
    assert_eq!(results, [numbers]);
    assert_eq!(device.lost(), None);
}

#[test]
fn hostile_kernels_get_their_status_and_the_next_is_well() {
    let (_guard, stand_in) = rig::alone();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("ptx/hostile");
    let entries = std::fs::read_dir(folder).unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let (mut count, mut wrong) = (0, Vec::new());
    for mode in MODES {
        stand_in.set_mode(mode);
        let device = CudaDevice::open(0).unwrap();
        for path in &paths {
            let name = path.file_stem().unwrap().to_str().unwrap();
            if INEXPRESSIBLE.contains(&name) {
                continue;
            }
            let text = std::fs::read_to_string(path).unwrap();
            let head = text.lines().next().unwrap().trim_start_matches("//! ");
            let head: Value = serde_json::from_str(head).unwrap();
            wrong.extend(judge(name, &text, &head).map(|why| format!("{name}: {why}")));
            healthy(&device);
            count += 1;
        }
    }
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert!(count >= 200, "{count} cases");
    assert_eq!(stand_in.leaks(), Leaks::NONE);
}

fn endless() -> Case {
    let mut case = Case::healthy();
    case.text = case.text.replace("ret;", "AGAIN:\nbra AGAIN;\nret;");
    case.gpu.deadline = None;
    case
}

#[test]
fn a_deadline_reaches_a_running_kernel() {
    let (_guard, _) = rig::alone();
    let device = CudaDevice::open(0).unwrap();
    let options = CallOptions {
        deadline: Some(Deadline::After(Duration::from_millis(300))),
        ..CallOptions::default()
    };
    let (outcome, results) = endless().call(&options);
    assert_eq!(outcome.unwrap_err().code(), StatusCode::DeadlineExceeded);
    assert_eq!(results, [vec![0xa5; 256]]);
    healthy(&device);
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
        endless().call(&options)
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
    let mut case = Case::healthy();
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
        let mut case = Case::healthy();
        change(&mut case.gpu);
        case.call(&CallOptions::default()).0
    };
    assert_eq!(within(|gpu| gpu.grid_blocks = 1), Ok(()));
    assert_eq!(within(|gpu| gpu.block_threads = 64), Ok(()));
}

fn with_memory(scratch: &str, shared: &str) -> Case {
    let mut case = Case::healthy();
    let mut manifest: Value = serde_json::from_str(&case.manifest).unwrap();
    let target = &mut manifest["targets"][0];
    target["scratch"] = json!([scratch]);
    target["launches"][0]["shared_memory"] = json!(shared);
    case.manifest = manifest.to_string();
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
