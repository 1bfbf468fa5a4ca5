//! Functions that cannot be captured, and failures of graphs.

use std::sync::Arc;
use std::time::Duration;

use callbox::call::{CallOptions, Deadline, DeviceQueue};
use callbox::cuda::{
    CudaDevice, CudaModule, CudaTarget, GraphCounts, GraphLaunch, GraphOptions, Uncapturable,
};
use callbox::program::{Executable, ExecuteOptions};
use callbox::{Blame, Registry, Status, StatusCode};
use cudarc::driver::sys::CUresult;

use super::graphs::{PROGRAM, arguments, expected};
use super::rig::{self, MODES, compile, execute, floats};

/// A function that branches on a value.
pub(crate) const BRANCHES: &str = r#"HloModule branches

yes {
  ROOT x = f32[4] parameter(0)
}

no {
  x = f32[4] parameter(0)
  ROOT y = f32[4] negate(x)
}

capture {
  x = f32[4] parameter(0)
  s = f32[1] slice(x), slice={[0:1]}
  t = f32[] reshape(s)
  z = f32[] constant(0)
  p = pred[] compare(t, z), direction=GT
  ROOT r = f32[4] conditional(p, x, x), true_computation=yes, false_computation=no
}

ENTRY main {
  x = f32[4] parameter(0)
  ROOT z = f32[4] custom-call(x), custom_call_target="callbox.graph.launch", api_version=API_VERSION_TYPED_FFI, backend_config={capture = @capture}
}
"#;

#[test]
fn a_failure_in_a_graph_is_reported_to_its_launch_alone() {
    let (_guard, stand_in) = rig::alone();
    for mode in MODES {
        let (device, graphs, mut registry) = rig::graphs_alone(stand_in, mode);
        // Fails where the first element is negative.
        let picky = CudaTarget::new("add_n", |call| {
            let from = vec![Arc::clone(call.operands()[0].memory())];
            let to = vec![Arc::clone(call.results()[0].memory())];
            let work = Arc::new(|_: Option<&_>, from: &[&[u8]], to: &mut [&mut [u8]]| {
                if from[0][3] & 0x80 != 0 {
                    return Err(Status::new(StatusCode::DataLoss, Blame::Guest, "negative"));
                }
                to[0].copy_from_slice(from[0]);
                Ok(())
            });
            call.queue().compute(work, &from, &to)
        });
        let picky = picky.declaring(|s| s.traits = vec!["command_buffer_compatible".to_owned()]);
        let module = CudaModule::from_targets([picky]).unwrap();
        registry.register_module(module).unwrap();
        let executable = compile(PROGRAM, &registry, &device).unwrap();
        let run = |k: f32| {
            execute(
                &executable,
                &[floats(&[k, 0.0, 0.0, 0.0]), floats(&[1.0; 4])],
            )
        };
        (0..3).for_each(|_| drop(run(1.0).unwrap()));
        assert_eq!(graphs.counts().captured, 1);
        for _ in 0..2 {
            let status = run(-1.0).unwrap_err();
            assert_eq!(status.code(), StatusCode::DataLoss, "{mode:?}: {status}");
            let found = run(2.0).unwrap();
            assert_eq!(found.to_vec::<f32>().unwrap(), [3.0, 2.0, 3.0, 4.0]);
        }
    }
}

/// A function with a loop that ends for numbers of 5 and more.
const LOOPS: &str = r#"HloModule loops

goes_on {
  x = f32[] parameter(0)
  limit = f32[] constant(5)
  ROOT p = pred[] compare(x, limit), direction=LT
}

same {
  ROOT x = f32[] parameter(0)
}

endless {
  x = f32[] parameter(0)
  ROOT w = f32[] while(x), condition=goes_on, body=same
}

capture {
  x = f32[4] parameter(0)
  ROOT m = f32[4] map(x), dimensions={0}, to_apply=endless
}

ENTRY main {
  x = f32[4] parameter(0)
  ROOT z = f32[4] custom-call(x), custom_call_target="callbox.graph.launch", api_version=API_VERSION_TYPED_FFI, backend_config={capture = @capture}
}
"#;

#[test]
fn a_deadline_reaches_a_programs_instructions_in_a_graph() {
    let (_guard, stand_in) = rig::alone();
    for mode in MODES {
        let (device, graphs, registry) = rig::graphs_alone(stand_in, mode);
        let executable = compile(LOOPS, &registry, &device).unwrap();
        let run = |x: f32, options: &ExecuteOptions| {
            let found = executable.execute(0, &[floats(&[x; 4])], options);
            found.map(|found| found.to_vec::<f32>().unwrap())
        };
        let endless = ExecuteOptions::default();
        (0..3).for_each(|_| assert_eq!(run(5.0, &endless), Ok(vec![5.0; 4])));
        assert_eq!(graphs.counts().captured, 1);
        let short = ExecuteOptions {
            call: CallOptions {
                deadline: Some(Deadline::After(Duration::from_millis(100))),
                ..CallOptions::default()
            },
            ..ExecuteOptions::default()
        };
        let status = run(1.0, &short).unwrap_err();
        assert_eq!(
            (status.code(), status.blame()),
            (StatusCode::DeadlineExceeded, Blame::Caller),
            "{mode:?}: {status}"
        );
        // The deadline was that launch's.
        assert_eq!(run(6.0, &endless), Ok(vec![6.0; 4]), "{mode:?}");
        assert_eq!(graphs.counts().captured, 1);
    }
}

#[test]
fn a_data_dependent_branch_runs_eagerly_or_is_refused() {
    let (_guard, _) = rig::alone();
    for uncapturable in [Uncapturable::RunEagerly, Uncapturable::Refuse] {
        let device = CudaDevice::open(0).unwrap();
        let graphs = GraphLaunch::new(GraphOptions {
            uncapturable,
            ..GraphOptions::default()
        });
        let executable = compile(BRANCHES, &rig::registry(&graphs), &device).unwrap();
        let run = |k: f32| execute(&executable, &[floats(&[k, 1.0, 2.0, 3.0])]);
        // The first call runs eagerly: that the function cannot be captured is not known yet.
        assert_eq!(
            run(5.0).unwrap().to_vec::<f32>().unwrap(),
            [5.0, 1.0, 2.0, 3.0]
        );
        match uncapturable {
            Uncapturable::RunEagerly => {
                let found = run(-5.0).unwrap().to_vec::<f32>().unwrap();
                assert_eq!(found, [5.0, -1.0, -2.0, -3.0]);
                run(1.0).unwrap();
                assert_eq!(graphs.counts().captured, 0);
                assert_eq!(graphs.counts().eager, 3);
            }
            Uncapturable::Refuse => {
                for _ in 0..3 {
                    let status = run(-5.0).unwrap_err();
                    assert_eq!(status.code(), StatusCode::FailedPrecondition, "{status}");
                }
            }
        }
    }
}

#[test]
fn a_target_without_the_trait_is_not_captured() {
    let (_guard, _) = rig::alone();
    let device = CudaDevice::open(0).unwrap();
    let graphs = GraphLaunch::default();
    let mut registry = Registry::new();
    registry.register_module(graphs.module().unwrap()).unwrap();
    callbox::cuda::register_cuda(&mut registry, "add_n", |call| {
        assert!(!call.is_capturing(), "it was captured");
        let (from, to) = (call.operands()[0], call.results()[0]);
        let (from, to) = (Arc::clone(from.memory()), Arc::clone(to.memory()));
        call.queue().copy(&from, &to)
    })
    .unwrap();
    let executable = compile(PROGRAM, &registry, &device).unwrap();
    for _ in 0..3 {
        // x * y + c, because the target adds 0.
        let found = execute(&executable, &arguments(1.0)).unwrap();
        assert_eq!(found.to_vec::<f32>().unwrap(), [3.0, 0.0, 4.5, 8.0]);
    }
    let counts = graphs.counts();
    assert_eq!((counts.eager, counts.captured), (3, 0));
}

#[test]
fn without_memory_idle_graphs_are_evicted() {
    let (_guard, stand_in) = rig::alone();
    let device = CudaDevice::open(0).unwrap();
    let graphs = GraphLaunch::default();
    let registry = rig::registry(&graphs);
    let first = compile(PROGRAM, &registry, &device).unwrap();
    let second = compile(PROGRAM, &registry, &device).unwrap();
    let run = |executable: &Executable| {
        let found = execute(executable, &arguments(3.0)).unwrap();
        assert_eq!(found.to_vec::<f32>().unwrap(), expected(3.0));
    };
    (0..3).for_each(|_| run(&first));
    run(&second);
    assert_eq!(graphs.counts().evicted, 0);
    stand_in.fail_next(
        "cuGraphInstantiateWithFlags",
        CUresult::CUDA_ERROR_OUT_OF_MEMORY,
    );
    run(&second);
    let counts = graphs.counts();
    assert!(counts.evicted >= 1, "{counts:?}");
    assert_eq!(counts.captured, 2, "the second attempt: {counts:?}");
}

#[test]
fn a_function_of_other_shapes_is_refused_when_it_is_compiled() {
    let (_guard, _) = rig::alone();
    let device = CudaDevice::open(0).unwrap();
    let registry = rig::registry(&GraphLaunch::default());
    let wrong = BRANCHES.replace("ROOT z = f32[4] custom-call", "ROOT z = f32[5] custom-call");
    let status = compile(&wrong, &registry, &device).unwrap_err();
    assert_eq!(status.code(), StatusCode::InvalidArgument);
    assert!(
        status.message().contains(
            "expected results (f32[4]) as the function \"capture\" has them, found (f32[5])"
        ),
        "{status}"
    );
    assert_eq!(GraphLaunch::default().counts(), GraphCounts::default());
}
