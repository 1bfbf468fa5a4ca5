//! Calls of PTX kernels without a grant, as manifests: a hostile kernel must get its status, and
//! the device must serve the next call.

use std::sync::Arc;
use std::time::Duration;

use callbox::call::CallSite;
use callbox::cuda::{CudaDevice, CudaModule, CudaPreparedCall, NativeGrants};
use callbox::policy::Gpu;
use callbox::{Blame, CallOptions, Result, Shape, Status, StatusCode};
use callbox_ptx_cases::hostile::{Expectation, Hostile};
use callbox_ptx_cases::launch::{LaunchData, ParamData};
use serde_json::{Value, json};

/// Hostile kernels that a manifest cannot express: they have structures, and arrays at odd
/// addresses.
pub const INEXPRESSIBLE: [&str; 2] = ["misaligned_buffer", "param_struct"];

/// The contents of results before a call.
const UNTOUCHED: u8 = 0xa5;

/// The bytes of the healthy kernel's operand, and of its result.
const HEALTHY_BYTES: u32 = 256;

/// A kernel in which each thread stores its number.
const HEALTHY: &str = "\
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 b, .param .u32 n)
{
.reg .b32 %r<2>;
.reg .b64 %d<3>;
ld.param.u64 %d0, [b];
mov.u32 %r1, %tid.x;
mul.wide.u32 %d1, %r1, 4;
add.s64 %d2, %d0, %d1;
st.global.u32 [%d2], %r1;
ret;
}
";

/// A call of a kernel that is not granted.
#[derive(Clone, Debug)]
pub struct FencedCall {
    /// The manifest.
    pub manifest: Value,
    /// The PTX text.
    pub text: String,
    /// The limits.
    pub gpu: Gpu,
    /// The bytes of each operand.
    operands: Vec<usize>,
    /// The bytes of each result.
    results: Vec<usize>,
}

impl FencedCall {
    /// The call of a kernel `k` with this launch. It has 20 ms.
    pub fn new(text: &str, launch: &LaunchData) -> Self {
        let (mut operands, mut results, mut parameters) = (Vec::new(), Vec::new(), Vec::new());
        for param in &launch.params {
            let parameter = match param {
                ParamData::Read { read, .. } => {
                    operands.push(*read as usize);
                    json!({"operand": operands.len() - 1})
                }
                ParamData::Write { write, .. } => {
                    results.push(*write as usize);
                    json!({"result": results.len() - 1})
                }
                ParamData::U32 { u32 } => json!({"value": u32.to_string(), "type": "u32"}),
                ParamData::U64 { u64 } => json!({"value": u64.to_string(), "type": "u64"}),
                // No case that a manifest can express has another kind.
                ParamData::F32 { .. } | ParamData::Bytes { .. } => continue,
            };
            parameters.push(parameter);
        }
        let manifest = json!({
            "format": 1,
            "images": [{"name": "i", "file": "i.ptx"}],
            "targets": [{"name": "f", "launches": [{
                "image": "i", "entry": "k", "parameters": parameters,
                "grid": launch.grid.map(|size| size.to_string()),
                "block": launch.block.map(|size| size.to_string()),
                "shared_memory": launch.shared_bytes.to_string(),
            }]}],
        });
        Self {
            manifest,
            text: text.to_owned(),
            gpu: Gpu {
                deadline: Some(Duration::from_millis(20)),
                clock: launch.has_clock,
                ..Gpu::default()
            },
            operands,
            results,
        }
    }

    /// The call of a kernel that does nothing wrong.
    pub fn healthy() -> Self {
        let bytes = u64::from(HEALTHY_BYTES);
        let align = 256;
        let launch = LaunchData {
            grid: [1; 3],
            block: [HEALTHY_BYTES / 4, 1, 1],
            shared_bytes: 0,
            params: vec![
                ParamData::Read { read: bytes, align },
                ParamData::Write {
                    write: bytes,
                    align,
                },
                ParamData::U32 { u32: 64 },
            ],
            has_clock: false,
        };
        Self::new(HEALTHY, &launch)
    }

    /// The call of a kernel that never ends by itself, without a limit of the policy.
    pub fn endless() -> Self {
        let mut endless = Self::healthy();
        endless.text = HEALTHY.replace("ret;", "AGAIN:\nbra AGAIN;\nret;");
        endless.gpu.deadline = None;
        endless
    }

    /// Loads the kernel, and prepares the call.
    ///
    /// # Errors
    /// A kernel that is refused, or a device that cannot be opened.
    pub fn prepare(&self) -> Result<CudaPreparedCall> {
        let images = vec![self.text.as_bytes().to_vec()];
        let none = NativeGrants::none();
        let manifest = self.manifest.to_string();
        let module = CudaModule::from_manifest(&manifest, images, &none, &self.gpu)?;
        assert!(module.is_fenced());
        module.prepare_call(&CudaDevice::open(0)?, self.site()?)
    }

    /// Prepares and makes the call. Returns its outcome and the caller's results.
    pub fn call(&self, options: &CallOptions) -> (Result<()>, Vec<Vec<u8>>) {
        let operands: Vec<Vec<u8>> = self.operands.iter().map(|&size| vec![0; size]).collect();
        let operands: Vec<&[u8]> = operands.iter().map(Vec::as_slice).collect();
        let results = self.results.iter().map(|&size| vec![UNTOUCHED; size]);
        let mut results: Vec<Vec<u8>> = results.collect();
        let mut places: Vec<&mut [u8]> = results.iter_mut().map(Vec::as_mut_slice).collect();
        let prepared = self.prepare();
        let outcome =
            prepared.and_then(|prepared| prepared.call_with(options, &operands, &mut places));
        (outcome, results)
    }

    fn site(&self) -> Result<CallSite> {
        let shapes = |sizes: &[usize]| -> Result<Vec<Shape>> {
            sizes
                .iter()
                .map(|size| format!("u8[{size}]").parse())
                .collect()
        };
        let mut results = shapes(&self.results)?;
        let result = match results.len() {
            1 => results.remove(0),
            _ => Shape::tuple(results)?,
        };
        Ok(CallSite::new("f", shapes(&self.operands)?, result))
    }
}

/// The status that a hostile kernel must get.
fn expected(hostile: &Hostile) -> (StatusCode, Blame) {
    match &hostile.case.expect {
        Expectation::Refused { refused, .. } => match (&*hostile.name, refused.first()) {
            ("shared_giant", _) => (StatusCode::ResourceExhausted, Blame::Guest),
            // The plan of the launch refuses sizes that no device has.
            ("block_giant" | "grid_empty" | "grid_giant", _) => {
                (StatusCode::InvalidArgument, Blame::Caller)
            }
            (_, "launch") => (StatusCode::InvalidArgument, Blame::Guest),
            _ => (StatusCode::PermissionDenied, Blame::Guest),
        },
        Expectation::Fault { fault, .. } => match &**fault {
            "access" => (StatusCode::OutOfRange, Blame::Guest),
            "stopped" => (StatusCode::DeadlineExceeded, Blame::Guest),
            _ => (StatusCode::Aborted, Blame::Guest),
        },
        Expectation::Passes { .. } => (StatusCode::Ok, Blame::Guest),
    }
}

/// Calls a hostile kernel, and then a healthy one. Returns what is wrong, if anything is.
pub fn judge(hostile: &Hostile, device: &Arc<CudaDevice>) -> Option<String> {
    let problem = judge_hostile(hostile);
    let after = judge_healthy(device).map(|problem| format!("the next call: {problem}"));
    match (problem, after) {
        (Some(problem), Some(after)) => Some(format!("{problem}; {after}")),
        (problem, after) => problem.or(after),
    }
}

fn judge_hostile(hostile: &Hostile) -> Option<String> {
    let call = FencedCall::new(&hostile.text, &hostile.case.launch);
    let (outcome, results) = call.call(&CallOptions::default());
    let (code, blame) = expected(hostile);
    let Err(status) = outcome else {
        return (code != StatusCode::Ok).then(|| "it was not stopped".to_owned());
    };
    if (status.code(), status.blame()) != (code, blame) {
        return Some(format!("expected {code} of {blame:?}: {status}"));
    }
    if results.iter().flatten().any(|&byte| byte != UNTOUCHED) {
        return Some("a call that failed wrote results".to_owned());
    }
    let here = hostile.here?;
    (!names_line(&status, here)).then(|| format!("expected line {here}: {status}"))
}

fn names_line(status: &Status, line: u32) -> bool {
    let forms = [format!("i.ptx:{line}:"), format!("line {line}:")];
    forms.iter().any(|form| status.message().contains(form))
}

/// Calls the healthy kernel. Returns what is wrong, if anything is.
pub fn judge_healthy(device: &CudaDevice) -> Option<String> {
    let (outcome, results) = FencedCall::healthy().call(&CallOptions::default());
    if let Err(status) = outcome {
        return Some(status.to_string());
    }
    if let Some(status) = device.lost() {
        return Some(format!("the device is lost: {status}"));
    }
    let numbers = (0..HEALTHY_BYTES / 4).flat_map(u32::to_le_bytes);
    (results != [numbers.collect::<Vec<u8>>()]).then(|| "it computed other results".to_owned())
}
