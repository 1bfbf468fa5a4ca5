//! `callbox.graph.launch`: when a graph is captured, launched, updated and captured anew, and what is never captured.

use std::sync::Arc;

use callbox::call::{CallOptions, CancelToken, DeviceQueue, Platform};
use callbox::cuda::{
    CudaDevice, CudaModule, CudaTarget, GraphCounts, GraphLaunch, GraphOptions, Uncapturable,
};
use callbox::program::{Executable, ExecuteOptions, Program};
use callbox::{Blame, Literal, Registry, Status, StatusCode};
use callbox_cuda_stand_in::{Leaks, Mode};
use cudarc::driver::sys::CUresult;

use super::rig::{self, MODES, compile, execute, floats};

/// A function with a kernel, an instruction of the program's own and a constant.
const PROGRAM: &str = r#"HloModule graph

capture {
  p0 = f32[4] parameter(0)
  p1 = f32[4] parameter(1)
  a = f32[4] custom-call(p0), custom_call_target="add_n", api_version=API_VERSION_TYPED_FFI, backend_config={n = 4.0 : f32}
  c = f32[4] constant({1, 2, 3, 4})
  b = f32[4] multiply(a, p1)
  ROOT r = f32[4] add(b, c)
}

ENTRY main {
  x = f32[4] parameter(0)
  y = f32[4] parameter(1)
  ROOT z = f32[4] custom-call(x, y), custom_call_target="callbox.graph.launch", api_version=API_VERSION_TYPED_FFI, backend_config={capture = @capture}
}
"#;

/// One that decides where control goes by a value.
const BRANCHES: &str = r#"HloModule branches

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

fn arguments(k: f32) -> [Literal; 2] {
    [
        floats(&[k, k + 1.0, k + 2.0, k + 3.0]),
        floats(&[2.0, -1.0, 0.5, k]),
    ]
}

/// (x + 4) * y + (1, 2, 3, 4)
fn expected(k: f32) -> Vec<f32> {
    vec![
        (k + 4.0) * 2.0 + 1.0,
        2.0 - (k + 5.0),
        (k + 6.0) * 0.5 + 3.0,
        (k + 7.0) * k + 4.0,
    ]
}

#[test]
fn a_function_is_captured_once_and_launched_from_then_on() {
    let (_guard, stand_in) = rig::alone();
    for mode in MODES {
        stand_in.set_mode(mode);
        let device = CudaDevice::open(0).unwrap();
        let graphs = GraphLaunch::default();
        let executable = compile(PROGRAM, &rig::registry(&graphs), &device).unwrap();
        for k in 0..6 {
            let k = k as f32;
            let found = execute(&executable, &arguments(k)).unwrap();
            assert_eq!(found.to_vec::<f32>().unwrap(), expected(k), "{mode:?} {k}");
        }
        let counts = graphs.counts();
        assert_eq!((counts.eager, counts.captured), (1, 1), "{counts:?}");
        assert_eq!(counts.unchanged + counts.updated, 4, "{counts:?}");
        assert_eq!((counts.recaptured, counts.evicted), (0, 0));
        drop((executable, graphs, device));
        assert_eq!(stand_in.leaks(), Leaks::NONE, "{mode:?}");
    }
}

#[test]
fn arrays_in_the_same_places_launch_the_graph_as_it_is() {
    let (_guard, stand_in) = rig::alone();
    for mode in MODES {
        rig::renew(stand_in);
        stand_in.set_mode(mode);
        stand_in.set_reuse(true);
        let device = CudaDevice::open(0).unwrap();
        let graphs = GraphLaunch::default();
        let executable = compile(PROGRAM, &rig::registry(&graphs), &device).unwrap();
        for k in 0..8 {
            let k = k as f32;
            let found = execute(&executable, &arguments(k)).unwrap();
            assert_eq!(found.to_vec::<f32>().unwrap(), expected(k), "{mode:?} {k}");
        }
        // In the lazy mode memory comes back only when the next execution waits, and so two places alternate.
        if mode == Mode::Eager {
            assert!(graphs.counts().unchanged > 0, "{:?}", graphs.counts());
        }
    }
}

#[test]
fn a_program_finds_no_graph_of_one_that_is_gone() {
    let (_guard, stand_in) = rig::alone();
    stand_in.set_reuse(true);
    let device = CudaDevice::open(0).unwrap();
    let graphs = GraphLaunch::default();
    let registry = rig::registry(&graphs);
    for n in 0..12 {
        let program = PROGRAM.replace("n = 4.0", &format!("n = {n}.0"));
        let executable = compile(&program, &registry, &device).unwrap();
        for _ in 0..3 {
            let found = execute(&executable, &arguments(1.0)).unwrap();
            // (x + n) * y + (1, 2, 3, 4) with x = (1, 2, 3, 4) and y = (2, -1, 0.5, 1)
            let n = n as f32;
            let expected = [
                (1.0 + n) * 2.0 + 1.0,
                -(2.0 + n) + 2.0,
                (3.0 + n) * 0.5 + 3.0,
                4.0 + n + 4.0,
            ];
            assert_eq!(found.to_vec::<f32>().unwrap(), expected, "{n}");
        }
    }
    drop((registry, device));
    // The graphs of programs that are gone go with the next one's first call; those of the last are there.
    assert!(stand_in.leaks().graph_execs <= 1, "{:?}", stand_in.leaks());
    drop(graphs);
    assert_eq!(stand_in.leaks(), Leaks::NONE);
}

/// One whose reduction is computed element by element, and looks at the time meanwhile.
const REDUCES: &str = r#"HloModule reduces

pick {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  p = pred[] compare(a, b), direction=GT
  t = (f32[], f32[]) tuple(a, b)
  x = f32[] get-tuple-element(t), index=0
  y = f32[] get-tuple-element(t), index=1
  ROOT r = f32[] conditional(p, x, y), true_computation=same, false_computation=same
}

same {
  ROOT v = f32[] parameter(0)
}

capture {
  x = f32[4] parameter(0)
  z = f32[] constant(0)
  r = f32[] reduce(x, z), dimensions={0}, to_apply=pick
  ROOT b = f32[4] broadcast(r), dimensions={}
}

ENTRY main {
  x = f32[4] parameter(0)
  ROOT z = f32[4] custom-call(x), custom_call_target="callbox.graph.launch", api_version=API_VERSION_TYPED_FFI, backend_config={capture = @capture}
}
"#;

#[test]
fn a_graph_knows_nothing_of_the_execution_that_captured_it() {
    let (_guard, stand_in) = rig::alone();
    stand_in.set_reuse(true);
    let device = CudaDevice::open(0).unwrap();
    let graphs = GraphLaunch::default();
    let executable = compile(REDUCES, &rig::registry(&graphs), &device).unwrap();
    let token = CancelToken::new();
    let with_token = ExecuteOptions {
        call: CallOptions {
            cancel: Some(token.clone()),
            ..CallOptions::default()
        },
        ..ExecuteOptions::default()
    };
    let run = |options: &ExecuteOptions| {
        let found = executable.execute(0, &[floats(&[1.0, 7.0, 3.0, 5.0])], options);
        assert_eq!(found.unwrap().to_vec::<f32>().unwrap(), [7.0; 4]);
    };
    (0..2).for_each(|_| run(&with_token));
    assert_eq!(graphs.counts().captured, 1);
    token.cancel();
    (0..3).for_each(|_| run(&ExecuteOptions::default()));
}

#[test]
fn a_failure_in_a_graph_is_told_to_who_launched_it_and_to_nobody_else() {
    let (_guard, stand_in) = rig::alone();
    for mode in MODES {
        rig::renew(stand_in);
        stand_in.set_mode(mode);
        stand_in.set_reuse(true);
        let device = CudaDevice::open(0).unwrap();
        let graphs = GraphLaunch::default();
        let mut registry = Registry::new();
        registry.register_module(graphs.module().unwrap()).unwrap();
        // Fails where the first element is negative.
        let picky = CudaTarget::new("add_n", |call| {
            let from = vec![Arc::clone(call.operands()[0].memory())];
            let to = vec![Arc::clone(call.results()[0].memory())];
            let work = Arc::new(|from: &[&[u8]], to: &mut [&mut [u8]]| {
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

#[test]
fn what_a_function_hands_on_may_lie_where_another_result_goes() {
    let (_guard, _) = rig::alone();
    let device = CudaDevice::open(0).unwrap();
    let registry = rig::registry(&GraphLaunch::default());
    let program = r#"HloModule swap

capture {
  x = f32[2] parameter(0)
  y = f32[2] parameter(1)
  ROOT t = (f32[2], f32[2]) tuple(y, x)
}

ENTRY main {
  x = f32[2] parameter(0)
  y = f32[2] parameter(1)
  ROOT z = (f32[2], f32[2]) custom-call(x, y), custom_call_target="callbox.graph.launch", api_version=API_VERSION_TYPED_FFI, output_to_operand_aliasing={{0}: (0, {}), {1}: (1, {})}, backend_config={capture = @capture}
}
"#;
    let executable = compile(program, &registry, &device).unwrap();
    for _ in 0..3 {
        let found = execute(&executable, &[floats(&[1.0, 2.0]), floats(&[3.0, 4.0])]).unwrap();
        let leaves: Vec<Vec<f32>> = found
            .into_elements()
            .iter()
            .map(|leaf| leaf.to_vec().unwrap())
            .collect();
        assert_eq!(leaves, [[3.0, 4.0], [1.0, 2.0]]);
    }
}

#[test]
fn arrays_in_other_places_update_the_graph() {
    let (_guard, stand_in) = rig::alone();
    for mode in MODES {
        stand_in.set_mode(mode);
        let device = CudaDevice::open(0).unwrap();
        let graphs = GraphLaunch::default();
        let executable = compile(PROGRAM, &rig::registry(&graphs), &device).unwrap();
        // Several at one time lie in several places.
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let executable = &executable;
                scope.spawn(move || {
                    for k in 0..8 {
                        let k = (thread * 10 + k) as f32;
                        let found = execute(executable, &arguments(k)).unwrap();
                        assert_eq!(found.to_vec::<f32>().unwrap(), expected(k));
                    }
                });
            }
        });
        let counts = graphs.counts();
        assert!(counts.updated > 0, "{counts:?}");
        assert!(counts.captured <= 1, "{counts:?}");
        assert_eq!(counts.recaptured, 0, "{counts:?}");
        drop((executable, graphs, device));
        assert_eq!(stand_in.leaks(), Leaks::NONE, "{mode:?}");
    }
}

#[test]
fn what_waits_for_a_value_is_run_eagerly_or_refused() {
    let (_guard, _) = rig::alone();
    for uncapturable in [Uncapturable::RunEagerly, Uncapturable::Refuse] {
        let device = CudaDevice::open(0).unwrap();
        let graphs = GraphLaunch::new(GraphOptions {
            uncapturable,
            ..GraphOptions::default()
        });
        let executable = compile(BRANCHES, &rig::registry(&graphs), &device).unwrap();
        let run = |k: f32| execute(&executable, &[floats(&[k, 1.0, 2.0, 3.0])]);
        // The first call runs eagerly: nobody knows yet.
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
fn a_target_that_does_not_say_that_it_can_be_captured_is_not() {
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
        // x * y + c, for the target adds nothing.
        let found = execute(&executable, &arguments(1.0)).unwrap();
        assert_eq!(found.to_vec::<f32>().unwrap(), [3.0, 0.0, 4.5, 8.0]);
    }
    let counts = graphs.counts();
    assert_eq!((counts.eager, counts.captured), (3, 0));
}

#[test]
fn graphs_make_way_for_others() {
    let (_guard, stand_in) = rig::alone();
    let device = CudaDevice::open(0).unwrap();
    let graphs = GraphLaunch::new(GraphOptions {
        most: 2,
        ..GraphOptions::default()
    });
    let registry = rig::registry(&graphs);
    let executables: Vec<Executable> = (0..3)
        .map(|_| compile(PROGRAM, &registry, &device).unwrap())
        .collect();
    for _ in 0..3 {
        for executable in &executables {
            let found = execute(executable, &arguments(2.0)).unwrap();
            assert_eq!(found.to_vec::<f32>().unwrap(), expected(2.0));
        }
    }
    assert!(graphs.counts().evicted >= 6, "{:?}", graphs.counts());
    drop((executables, registry, graphs, device));
    assert_eq!(stand_in.leaks(), Leaks::NONE);
}

#[test]
fn a_graph_that_cannot_be_updated_is_captured_anew() {
    let (_guard, stand_in) = rig::alone();
    let device = CudaDevice::open(0).unwrap();
    let graphs = GraphLaunch::default();
    let executable = compile(PROGRAM, &rig::registry(&graphs), &device).unwrap();
    let run = |k: f32| {
        let found = execute(&executable, &arguments(k)).unwrap();
        assert_eq!(found.to_vec::<f32>().unwrap(), expected(k));
    };
    (0..4).for_each(|k| run(k as f32));
    // The device says that the new work is of another form.
    stand_in.fail_next(
        "cuGraphExecUpdate_v2",
        CUresult::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
    );
    run(4.0);
    run(5.0);
    run(6.0);
    let counts = graphs.counts();
    assert_eq!((counts.captured, counts.recaptured), (1, 1), "{counts:?}");
    drop((executable, graphs, device));
    assert_eq!(stand_in.leaks(), Leaks::NONE);
}

#[test]
fn without_memory_for_a_graph_others_make_way_and_it_is_tried_once_more() {
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
fn the_host_calls_the_function() {
    let mut registry = Registry::new();
    let launch = callbox::graph_launch::GraphLaunch::on_host();
    registry.register_module(launch).unwrap();
    let program = Program::from_hlo_text(BRANCHES).unwrap();
    let executable = Executable::compile(&program, &registry, Platform::Host).unwrap();
    let found = executable
        .execute(
            0,
            &[floats(&[-1.0, 2.0, 3.0, 4.0])],
            &ExecuteOptions::default(),
        )
        .unwrap();
    assert_eq!(found.to_vec::<f32>().unwrap(), [1.0, -2.0, -3.0, -4.0]);
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
