//! `callbox.graph.launch`: when a graph is captured, launched, updated and captured anew.

use callbox::call::{CallOptions, CancelToken, Platform};
use callbox::cuda::{CudaDevice, GraphLaunch, GraphOptions};
use callbox::program::{Executable, ExecuteOptions, Program};
use callbox::{Literal, Registry};
use callbox_cuda_stand_in::{Leaks, Mode};
use cudarc::driver::sys::CUresult;

use super::rig::{self, MODES, compile, execute, floats};

/// A function with a kernel, an instruction of the program's own and a constant.
pub(crate) const PROGRAM: &str = r#"HloModule graph

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

pub(crate) fn arguments(k: f32) -> [Literal; 2] {
    [
        floats(&[k, k + 1.0, k + 2.0, k + 3.0]),
        floats(&[2.0, -1.0, 0.5, k]),
    ]
}

/// (x + 4) * y + (1, 2, 3, 4)
pub(crate) fn expected(k: f32) -> Vec<f32> {
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
        // In the lazy mode memory is freed only when the next execution waits: two addresses
        // alternate.
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
    // The first call of a program evicts the graphs of dropped programs. Those of the last one
    // remain.
    assert!(stand_in.leaks().graph_execs <= 1, "{:?}", stand_in.leaks());
    drop(graphs);
    assert_eq!(stand_in.leaks(), Leaks::NONE);
}

/// A function whose reduction is computed element by element, and checks the deadline meanwhile.
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
        // Concurrent results have different addresses.
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
    // The driver reports that the new work has another form.
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
fn the_host_calls_the_function() {
    let mut registry = Registry::new();
    let launch = callbox::graph_launch::GraphLaunch::on_host();
    registry.register_module(launch).unwrap();
    let program = Program::from_hlo_text(crate::graph_failures::BRANCHES).unwrap();
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
