//! Failures with another status on CUDA than on the CPU: kernels that fault, handlers that panic,
//! and a lack of device memory. A fault makes the device unusable for the rest of the process, so
//! that each has a process of its own.

use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use callbox::call::{CallOptions, CallSite, Device, DeviceQueue};
use callbox::cuda::{CudaDevice, CudaModule, CudaQueue, CudaTarget};
use callbox::program::{Executable, ExecuteOptions, Program};
use callbox::{ArrayShape, Blame, ElementType, Registry, Status, StatusCode};
use callbox_cuda_stand_in::{Mode, StandIn};
use callbox_tests::platform::cuda::trusted;
use libtest_mimic::{Failed, Trial};

/// Kernels that fault, and the driver's error.
const KERNELS: [(&str, &str); 3] = [
    ("unreachable", "CUDA_ERROR_ILLEGAL_INSTRUCTION (715)"),
    ("read_out_of_bounds", "CUDA_ERROR_ILLEGAL_ADDRESS (700)"),
    ("write_out_of_bounds", "CUDA_ERROR_ILLEGAL_ADDRESS (700)"),
];

/// The argument that makes this program run one kernel that faults.
const FAULT: &str = "--take-the-device";

/// The tests of this module, in one mode of the stand-in.
pub(crate) fn trials(mode: Mode) -> Vec<Trial> {
    let name = |name: &str| format!("{}/faults/{name}", mode_name(mode));
    let kernels = KERNELS.into_iter().map(|(target, _)| {
        let name = name(&format!("{target}_takes_the_device"));
        Trial::test(name, move || in_a_process(mode, target))
    });
    let others: [(&str, fn()); 3] = [
        ("a_handler_that_panics_costs_a_status", panics),
        (
            "a_program_that_needs_more_memory_costs_a_status",
            needs_too_much,
        ),
        ("an_unknown_target_is_unknown_on_cuda", unknown_target),
    ];
    let others = others.into_iter().map(|(test_name, test)| {
        Trial::test(name(test_name), move || {
            test();
            Ok(())
        })
    });
    let waits = Trial::test(name("work_is_done_when_the_mode_says"), move || {
        work_is_done_when_the_mode_says(mode);
        Ok(())
    });
    kernels.chain(others).chain([waits]).collect()
}

pub(crate) const fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Eager => "eager",
        Mode::Lazy => "lazy",
    }
}

fn in_a_process(mode: Mode, target: &str) -> Result<(), Failed> {
    let program = std::env::current_exe()?;
    let output = Command::new(program)
        .args([FAULT, mode_name(mode), target])
        .output()?;
    if output.status.success() {
        Ok(())
    } else {
        Err(format!(
            "{}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        )
        .into())
    }
}

/// Runs one kernel that faults, if this process was started for it.
pub(crate) fn as_told() -> Option<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [fault, mode, target] = arguments.as_slice() else {
        return None;
    };
    let (_, error) = KERNELS.iter().find(|(name, _)| name == target)?;
    if fault != FAULT {
        return None;
    }
    let mode = [Mode::Eager, Mode::Lazy]
        .into_iter()
        .find(|known| mode_name(*known) == mode)?;
    StandIn::preload().set_mode(mode);
    takes_the_device(target, error);
    Some(ExitCode::SUCCESS)
}

fn faults() -> Arc<CudaModule> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../guests/faults");
    let path = folder.join("callbox.json");
    trusted::manifest(&path).unwrap()
}

/// Calls a target with four numbers, and returns its result.
fn call(
    module: &Arc<CudaModule>,
    device: &Arc<CudaDevice>,
    target: &str,
) -> (Result<(), Status>, Vec<u8>) {
    let shape = ArrayShape::new(ElementType::F32, &[4]).unwrap();
    let site = CallSite::new(target, vec![shape.clone().into()], shape.into());
    let prepared = module.prepare_call(device, site).unwrap();
    let operand: Vec<u8> = (1..=16).collect();
    let mut result = vec![0xa5; 16];
    let outcome = prepared.call(&[&operand], &mut [&mut result]);
    (outcome, result)
}

fn assert_healthy(module: &Arc<CudaModule>, device: &Arc<CudaDevice>) {
    let (outcome, result) = call(module, device, "healthy");
    assert_eq!(outcome, Ok(()));
    assert_eq!(result, (1..=16).collect::<Vec<u8>>());
}

fn takes_the_device(target: &str, error: &str) {
    let module = faults();
    let device = CudaDevice::open(0).unwrap();
    assert_healthy(&module, &device);
    let (outcome, result) = call(&module, &device, target);
    let status = outcome.unwrap_err();
    assert_eq!(status.code(), StatusCode::Internal, "{status}");
    assert_eq!(status.blame(), Blame::Guest, "{status}");
    assert!(status.message().contains(error), "{status}");
    assert_eq!(result, [0xa5; 16], "a call that fails writes no results");
    assert_eq!(device.lost(), Some(&status));
    // Every later call fails at once, with the first cause.
    let shape = ArrayShape::new(ElementType::F32, &[4]).unwrap();
    let site = CallSite::new("healthy", vec![shape.clone().into()], shape.into());
    let again = module.prepare_call(&device, site).unwrap();
    let status = again.call(&[&[0; 16]], &mut [&mut [0; 16]]).unwrap_err();
    assert_eq!(status.code(), StatusCode::Unavailable, "{status}");
    assert!(
        status.message().contains("was lost to an earlier failure"),
        "{status}"
    );
    assert!(status.message().contains(error), "{status}");
}

#[allow(clippy::panic, reason = "that is the fault")]
fn panics() {
    let device = CudaDevice::open(0).unwrap();
    let panic = CudaTarget::new("panic", |call| {
        panic!(
            "a panic with {} elements",
            call.operands()[0].shape().element_count()
        )
    });
    let index = CudaTarget::new("index", |call| {
        let mut numbers = vec![0; call.operands()[0].shape().element_count()];
        let past = numbers.len();
        numbers[past] = 1;
        Ok(())
    });
    let module = CudaModule::from_targets([panic, index]).unwrap();
    for (target, message) in [
        ("panic", "a panic with 4 elements"),
        (
            "index",
            "index out of bounds: the len is 4 but the index is 4",
        ),
    ] {
        let (outcome, result) = call(&module, &device, target);
        let status = outcome.unwrap_err();
        assert_eq!(status.code(), StatusCode::Aborted, "{status}");
        assert_eq!(status.blame(), Blame::Guest, "{status}");
        assert!(status.message().contains(message), "{status}");
        assert_eq!(result, [0xa5; 16]);
        assert_healthy(&faults(), &device);
    }
}

fn run(device: &Arc<CudaDevice>, text: &str) -> Result<(), Status> {
    let program = Program::from_hlo_text(text).unwrap();
    let device = Arc::clone(device);
    let executable = Executable::compile_on(&program, &Registry::new(), device)?;
    executable.execute(0, &[], &ExecuteOptions::default())?;
    Ok(())
}

fn needs_too_much() {
    let device = CudaDevice::open(0).unwrap();
    let text = "HloModule m\nENTRY e {\n  x = u8[] constant(1)\n  ROOT y = u8[1000000000,1000000000] broadcast(x), dimensions={}\n}";
    let status = run(&device, text).unwrap_err();
    assert_eq!(status.code(), StatusCode::ResourceExhausted, "{status}");
    assert!(device.lost().is_none());
    assert_healthy(&faults(), &device);
}

fn unknown_target() {
    let device = CudaDevice::open(0).unwrap();
    let text = "HloModule m\nENTRY e {\n  ROOT y = f32[] custom-call(), custom_call_target=\"f\", api_version=API_VERSION_TYPED_FFI\n}";
    let status = run(&device, text).unwrap_err();
    assert_eq!(status.code(), StatusCode::NotFound, "{status}");
    assert!(
        status
            .message()
            .contains("No FFI handler registered for \"f\" on platform CUDA"),
        "{status}"
    );
}

/// In the lazy mode, work is done only when something waits for it: a read without a wait finds
/// other values.
fn work_is_done_when_the_mode_says(mode: Mode) {
    let device = CudaDevice::open(0).unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&done);
    let mark = CudaTarget::new("mark", move |call| {
        let (told, result) = (Arc::clone(&told), Arc::clone(call.results()[0].memory()));
        let work = move |_: Option<&_>, _: &[&[u8]], outputs: &mut [&mut [u8]]| {
            told.store(true, Ordering::SeqCst);
            outputs[0].fill(7);
            Ok(())
        };
        call.queue().compute(Arc::new(work), &[], &[result])
    });
    let module = CudaModule::from_targets([mark]).unwrap();
    let shape = ArrayShape::new(ElementType::U8, &[4]).unwrap();
    let site = CallSite::new("mark", Vec::new(), shape.into());
    let prepared = module.prepare_call(&device, site).unwrap();
    let mut queue = device.queue().unwrap();
    let result = queue.allocate(4).unwrap();
    let on_cuda: &mut CudaQueue = queue.as_any().downcast_mut().unwrap();
    let results = [Arc::clone(&result)];
    prepared
        .enqueue(&CallOptions::default(), on_cuda, &[], &results)
        .unwrap();
    assert_eq!(done.load(Ordering::SeqCst), mode == Mode::Eager);
    assert_eq!(queue.download(&[result]).unwrap(), [[7; 4]]);
}
