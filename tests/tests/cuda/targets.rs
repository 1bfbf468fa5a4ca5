//! Native targets: what they are passed, and how their failures are reported.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use callbox::call::{CallOptions, CallSite, CancelToken, DeviceBuffer, DeviceQueue, Stage};
use callbox::cuda::{CudaDevice, CudaModule, CudaTarget, GraphLaunch, register_cuda};
use callbox::program::ExecuteOptions;
use callbox::{Attribute, Blame, Registry, Status, StatusCode};
use callbox_cuda_stand_in::Leaks;

use super::rig::{self, MODES, compile, execute, floats};

const TWICE: &str = r#"HloModule twice

ENTRY main {
  x = f32[3] parameter(0)
  y = f32[3] custom-call(x), custom_call_target="add_n", api_version=API_VERSION_TYPED_FFI, backend_config={n = 4.0 : f32}
  z = f32[3] multiply(y, x)
  ROOT w = f32[3] custom-call(z), custom_call_target="add_n", api_version=API_VERSION_TYPED_FFI, backend_config={n = 0.5 : f32}
}
"#;

#[test]
fn a_program_runs_between_kernels_and_host_and_leaves_nothing() {
    let (_guard, stand_in) = rig::alone();
    for mode in MODES {
        stand_in.set_mode(mode);
        let device = CudaDevice::open(0).unwrap();
        let registry = rig::registry(&GraphLaunch::default());
        let executable = compile(TWICE, &registry, &device).unwrap();
        for _ in 0..3 {
            let found = execute(&executable, &[floats(&[1.0, -2.0, 0.25])]).unwrap();
            // (x + 4) * x + 0.5, exact in f32.
            assert_eq!(found.to_vec::<f32>().unwrap(), [5.5, -3.5, 1.5625]);
        }
        drop((executable, registry, device));
        assert_eq!(stand_in.leaks(), Leaks::NONE, "{mode:?}");
    }
}

#[test]
fn nothing_waits_between_custom_calls() {
    let (_guard, stand_in) = rig::alone();
    let device = CudaDevice::open(0).unwrap();
    let executable = compile(TWICE, &rig::registry(&GraphLaunch::default()), &device).unwrap();
    execute(&executable, &[floats(&[1.0, 2.0, 3.0])]).unwrap();
    stand_in.clear_calls();
    execute(&executable, &[floats(&[1.0, 2.0, 3.0])]).unwrap();
    let calls = stand_in.calls();
    let waits: Vec<_> = calls.iter().filter(|c| c.contains("Synchronize")).collect();
    assert_eq!(waits, ["cuStreamSynchronize"], "{calls:?}");
    let launches = calls.iter().filter(|c| *c == "cuLaunchKernel").count();
    assert_eq!(launches, 2);
    let wait = calls.iter().position(|c| c == "cuStreamSynchronize");
    let last_launch = calls.iter().rposition(|c| c == "cuLaunchKernel");
    assert!(wait > last_launch, "{calls:?}");
}

#[test]
fn a_handler_finds_its_call_and_its_stages() {
    let (_guard, _) = rig::alone();
    let device = CudaDevice::open(1).unwrap();
    let instantiated = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&instantiated);
    let target = CudaTarget::new("copy", |call| {
        assert_eq!(call.stage(), Stage::Execute);
        assert_eq!(call.device().ordinal(), 1);
        assert_eq!(call.state::<u32>(Stage::Instantiate), Some(&7));
        assert_eq!(call.state::<String>(Stage::Prepare).unwrap(), "prepared");
        assert_eq!(call.state::<&str>(Stage::Initialize), Some(&"there"));
        assert_eq!(call.user_data("greeting"), Some(&b"hello"[..]));
        assert!(call.attribute("missing").is_err());
        let (from, to) = (call.operands()[0], call.results()[0]);
        assert_eq!(from.shape().to_string(), "f32[3]");
        assert!(from.address() != 0 && from.address() != to.address());
        let (from, to) = (Arc::clone(from.memory()), Arc::clone(to.memory()));
        call.queue().copy(&from, &to)
    })
    .on_instantiate(move |stage| {
        count.fetch_add(1, Ordering::Relaxed);
        assert_eq!(stage.site().attributes["n"], Attribute::scalar(3_i32));
        Ok(Some(Arc::new(7_u32)))
    })
    .on_prepare(|stage| {
        assert_eq!(stage.instantiated::<u32>(), Some(&7));
        Ok(Some(Arc::new("prepared".to_owned())))
    })
    .on_initialize(|call| {
        assert_eq!(call.stage(), Stage::Initialize);
        assert!(call.operands().is_empty());
        Ok(Some(Arc::new("there")))
    });
    let module = CudaModule::from_targets([target]).unwrap();
    let shape: callbox::Shape = "f32[3]".parse().unwrap();
    let site = CallSite::new("copy", vec![shape.clone()], shape)
        .with_attributes([("n".to_owned(), Attribute::scalar(3_i32))].into());
    let call = module.prepare_call(&device, site).unwrap();
    assert_eq!(instantiated.load(Ordering::Relaxed), 1);
    let data = [("greeting".to_owned(), b"hello".to_vec())].into();
    let options = CallOptions {
        user_data: Some(Arc::new(data)),
        ..CallOptions::default()
    };
    let mut result = [0; 12];
    let bytes: Vec<u8> = (1..=12).collect();
    call.call_with(&options, &[&bytes], &mut [&mut result])
        .unwrap();
    assert_eq!(result.as_slice(), bytes);
    call.call_with(&options, &[&bytes], &mut [&mut result])
        .unwrap();
    assert_eq!(instantiated.load(Ordering::Relaxed), 1);
}

#[test]
fn failures_of_handlers_are_statuses_and_leave_results_alone() {
    let (_guard, stand_in) = rig::alone();
    let device = CudaDevice::open(0).unwrap();
    type Handler = fn(&mut callbox::cuda::CudaCall<'_>) -> callbox::Result<()>;
    let fails: Handler = |_| Err(Status::new(StatusCode::DataLoss, Blame::Guest, "lost"));
    let panics: Handler = |_| panic!("no more");
    for (handler, code, message) in [
        (fails, StatusCode::DataLoss, "lost"),
        (panics, StatusCode::Aborted, "panicked: no more"),
    ] {
        let module = CudaModule::from_targets([CudaTarget::new("f", handler)]).unwrap();
        let shape: callbox::Shape = "u8[4]".parse().unwrap();
        let call = module
            .prepare_call(&device, CallSite::new("f", vec![], shape))
            .unwrap();
        let mut result = [9; 4];
        let status = call.call(&[], &mut [&mut result]).unwrap_err();
        assert_eq!((status.code(), status.blame()), (code, Blame::Guest));
        assert_eq!(status.message(), message);
        assert_eq!(result, [9; 4]);
    }
    drop(device);
    assert_eq!(stand_in.leaks(), Leaks::NONE);
}

#[test]
fn failures_of_host_work_are_reported_at_the_wait() {
    let (_guard, stand_in) = rig::alone();
    for mode in MODES {
        stand_in.set_mode(mode);
        let device = CudaDevice::open(0).unwrap();
        let mut registry = Registry::new();
        register_cuda(&mut registry, "f", |call| {
            let to = vec![Arc::clone(call.results()[0].memory())];
            let work = Arc::new(|_: Option<&_>, _: &[&[u8]], _: &mut [&mut [u8]]| {
                Err(Status::new(StatusCode::DataLoss, Blame::Guest, "later"))
            });
            call.queue().compute(work, &[], &to)
        })
        .unwrap();
        let text = "HloModule f\n\nENTRY main {\n  ROOT y = u8[4] custom-call(), custom_call_target=\"f\", api_version=API_VERSION_TYPED_FFI\n}\n";
        let executable = compile(text, &registry, &device).unwrap();
        for _ in 0..2 {
            let status = execute(&executable, &[]).unwrap_err();
            assert_eq!(status.code(), StatusCode::DataLoss, "{status}");
        }
    }
}

#[test]
fn a_panic_of_what_the_host_computes_is_a_status_and_nothing_of_others_is_seen() {
    let (_guard, stand_in) = rig::alone();
    for mode in MODES {
        stand_in.set_mode(mode);
        let device = CudaDevice::open(0).unwrap();
        let target = CudaTarget::new("f", |call| {
            // Fills a slot that is reused.
            call.queue().upload(&[42; 16])?;
            call.queue().download(&[])?;
            let to = vec![Arc::clone(call.results()[0].memory())];
            let work =
                Arc::new(|_: Option<&_>, _: &[&[u8]], _: &mut [&mut [u8]]| panic!("not again"));
            call.queue().compute(work, &[], &to)?;
            let seen = Arc::new(Mutex::new(Vec::new()));
            let work = {
                let seen = Arc::clone(&seen);
                Arc::new(move |_: Option<&_>, from: &[&[u8]], _: &mut [&mut [u8]]| {
                    seen.lock().unwrap().extend_from_slice(from[0]);
                    Ok(())
                })
            };
            let status = call.queue().download(&to).unwrap_err();
            assert_eq!(status.code(), StatusCode::Aborted);
            call.queue().compute(work, &to, &[])?;
            call.queue().download(&[])?;
            assert_eq!(*seen.lock().unwrap(), [0; 16]);
            Err(status)
        });
        let module = CudaModule::from_targets([target]).unwrap();
        let site = CallSite::new("f", vec![], "u8[16]".parse().unwrap());
        let call = module.prepare_call(&device, site).unwrap();
        let status = call.call(&[], &mut [&mut [0; 16]]).unwrap_err();
        assert_eq!(
            (status.code(), status.blame()),
            (StatusCode::Aborted, Blame::Guest),
            "{status}"
        );
    }
}

#[test]
fn a_target_for_host_memory_initializes_before_it_is_called() {
    let (_guard, stand_in) = rig::alone();
    stand_in.set_mode(callbox_cuda_stand_in::Mode::Lazy);
    let device = CudaDevice::open(0).unwrap();
    let target = CudaTarget::new("f", |call| {
        let table: &DeviceBuffer = call.state(Stage::Initialize).expect("it was made");
        let to = Arc::clone(call.results()[0].memory());
        call.queue().copy(table, &to)
    })
    .on_initialize(|call| {
        let table: DeviceBuffer = call.queue().upload(&[1, 2, 3, 4])?;
        Ok(Some(Arc::new(table)))
    });
    let module = CudaModule::from_targets([target]).unwrap();
    let module: Arc<dyn callbox::call::TargetModule> = module.on_device(&device);
    let site = CallSite::new("f", vec![], "u8[4]".parse().unwrap());
    let options = CallOptions::default();
    let calls = module.prepare(vec![site], &options).unwrap();
    let mut execution = calls.begin(&options, None, &[0]).unwrap();
    execution.initialize().unwrap();
    for _ in 0..2 {
        let mut result = [0; 4];
        execution.call(0, &[], &mut [&mut result]).unwrap();
        assert_eq!(result, [1, 2, 3, 4]);
    }
}

#[test]
fn a_device_is_one_value_for_all_who_have_it_open() {
    let (_guard, _) = rig::alone();
    let device = CudaDevice::open(0).unwrap();
    assert!(Arc::ptr_eq(&device, &CudaDevice::open(0).unwrap()));
    assert!(!Arc::ptr_eq(&device, &CudaDevice::open(1).unwrap()));
}

#[test]
fn a_call_that_is_stopped_before_it_begins_puts_nothing_into_its_stream() {
    let (_guard, stand_in) = rig::alone();
    let device = CudaDevice::open(0).unwrap();
    let shape: callbox::Shape = "f32[3]".parse().unwrap();
    let site = CallSite::new("add_n", vec![shape.clone()], shape)
        .with_attributes([("n".to_owned(), Attribute::scalar(1.0_f32))].into());
    let call = rig::kernels("add_n").prepare_call(&device, site).unwrap();
    let token = CancelToken::new();
    token.cancel();
    let options = CallOptions {
        cancel: Some(token),
        ..CallOptions::default()
    };
    stand_in.clear_calls();
    let status = call.call_with(&options, &[&[0; 12]], &mut [&mut [0; 12]]);
    assert_eq!(status.unwrap_err().code(), StatusCode::Cancelled);
    assert_eq!(stand_in.calls(), Vec::<String>::new());
}

#[test]
fn a_kernel_that_faults_takes_the_device_and_later_calls_say_so_at_once() {
    let (_guard, stand_in) = rig::alone();
    for mode in MODES {
        rig::renew(stand_in);
        stand_in.set_mode(mode);
        let device = CudaDevice::open(0).unwrap();
        let other = CudaDevice::open(1).unwrap();
        let shape: callbox::Shape = "f32[4]".parse().unwrap();
        let site = || CallSite::new("read_out_of_bounds", vec![], shape.clone());
        let faults = rig::kernels("faults");
        let target = callbox::call::TargetModule::targets(faults.as_ref())
            .iter()
            .find(|t| t.name == "read_out_of_bounds")
            .expect("the guest has it")
            .clone();
        let operands = target.operands.clone().unwrap_or_default();
        let call = if operands.is_empty() {
            faults.prepare_call(&device, site())
        } else {
            faults.prepare_call(
                &device,
                CallSite::new("read_out_of_bounds", vec![shape.clone()], shape.clone()),
            )
        }
        .unwrap();
        let bytes = [0_u8; 16];
        let given: Vec<&[u8]> = if operands.is_empty() {
            vec![]
        } else {
            vec![&bytes]
        };
        let mut result = [7_u8; 16];
        let first = call.call(&given, &mut [&mut result]).unwrap_err();
        assert_eq!(first.code(), StatusCode::Internal, "{first}");
        assert!(
            first.message().contains("CUDA_ERROR_ILLEGAL_ADDRESS"),
            "{first}"
        );
        assert_eq!(device.lost(), Some(&first));
        stand_in.clear_calls();
        let later = call.call(&given, &mut [&mut result]).unwrap_err();
        assert_eq!(later.code(), StatusCode::Unavailable);
        assert!(later.message().contains(first.message()), "{later}");
        assert_eq!(stand_in.calls(), Vec::<String>::new());
        assert_eq!(result, [7; 16]);
        // The other device still works.
        let registry = rig::registry(&GraphLaunch::default());
        let executable = compile(TWICE, &registry, &other).unwrap();
        let found = execute(&executable, &[floats(&[1.0, -2.0, 0.25])]).unwrap();
        assert_eq!(found.to_vec::<f32>().unwrap(), [5.5, -3.5, 1.5625]);
    }
}

#[test]
fn eight_threads_load_a_module_once() {
    let (_guard, stand_in) = rig::alone();
    let device = CudaDevice::open(0).unwrap();
    let executable = compile(TWICE, &rig::registry(&GraphLaunch::default()), &device).unwrap();
    stand_in.clear_calls();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let found = execute(&executable, &[floats(&[1.0, -2.0, 0.25])]).unwrap();
                assert_eq!(found.to_vec::<f32>().unwrap(), [5.5, -3.5, 1.5625]);
            });
        }
    });
    let calls = stand_in.calls();
    let loads = calls.iter().filter(|c| c.starts_with("cuModuleLoad"));
    assert_eq!(loads.count(), 1);
}

/// A program whose own instruction waits for a target in the queue.
const BEHIND: &str = r#"HloModule behind

ENTRY main {
  x = f32[3] parameter(0)
  y = f32[3] custom-call(x), custom_call_target="cancels", api_version=API_VERSION_TYPED_FFI
  ROOT z = f32[3] negate(y)
}
"#;

#[test]
fn a_programs_instructions_that_wait_in_a_queue_are_cancelled() {
    let (_guard, stand_in) = rig::alone();
    for mode in MODES {
        stand_in.set_mode(mode);
        let token = CancelToken::new();
        let cancelled = token.clone();
        let cancels = CudaTarget::new("cancels", move |call| {
            let from = vec![Arc::clone(call.operands()[0].memory())];
            let to = vec![Arc::clone(call.results()[0].memory())];
            let token = cancelled.clone();
            let work = Arc::new(move |_: Option<&_>, _: &[&[u8]], _: &mut [&mut [u8]]| {
                token.cancel();
                Ok(())
            });
            call.queue().compute(work, &from, &to)
        });
        let mut registry = Registry::new();
        let module = CudaModule::from_targets([cancels]).unwrap();
        registry.register_module(module).unwrap();
        let executable = compile(BEHIND, &registry, &CudaDevice::open(0).unwrap()).unwrap();
        let mut options = ExecuteOptions::default();
        options.call.cancel = Some(token);
        let status = executable
            .execute(0, &[floats(&[1.0; 3])], &options)
            .unwrap_err();
        assert_eq!(
            (status.code(), status.blame()),
            (StatusCode::Cancelled, Blame::Caller),
            "{mode:?}: {status}"
        );
    }
}
