//! The fault sweep: each driver call of a scenario fails in turn, in four ways. Each time, the run
//! must end with a correct status or result, without a panic or a leak, and a later run must
//! succeed.

use std::sync::Arc;

use callbox::cuda::{CudaDevice, CudaModule, GraphLaunch};
use callbox::{Blame, Literal, Result, Status, StatusCode};
use callbox_cuda_stand_in::{Leaks, Mode, StandIn};
use cudarc::driver::sys::CUresult;

use super::rig::{self, compile, execute, floats};

const CODES: [(CUresult, bool); 4] = [
    (CUresult::CUDA_ERROR_OUT_OF_MEMORY, false),
    (CUresult::CUDA_ERROR_ILLEGAL_ADDRESS, true),
    (CUresult::CUDA_ERROR_LAUNCH_FAILED, true),
    (CUresult::CUDA_ERROR_UNKNOWN, true),
];

/// A program with kernels, instructions on the host, tuples, and a loop whose condition is waited
/// for.
const PLAIN: &str = r#"HloModule plain

condition {
  s = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(2)
  ROOT p = pred[] compare(i, n), direction=LT
}

body {
  s = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  j = s32[] add(i, one)
  x = f32[4] get-tuple-element(s), index=1
  y = f32[4] custom-call(x), custom_call_target="add_n", api_version=API_VERSION_TYPED_FFI, backend_config={n = 1.0 : f32}
  ROOT r = (s32[], f32[4]) tuple(j, y)
}

ENTRY main {
  x = f32[4] parameter(0)
  z = s32[] constant(0)
  s = (s32[], f32[4]) tuple(z, x)
  w = (s32[], f32[4]) while(s), condition=condition, body=body
  y = f32[4] get-tuple-element(w), index=1
  b = f32[2] constant({10, 20})
  ROOT r = f32[4] custom-call(b, y), custom_call_target="broadcast_add", api_version=API_VERSION_TYPED_FFI
}
"#;

/// The same additions as a graph, which includes instructions that the host computes.
const GRAPH: &str = r#"HloModule graph

capture {
  x = f32[4] parameter(0)
  a = f32[4] custom-call(x), custom_call_target="add_n", api_version=API_VERSION_TYPED_FFI, backend_config={n = 2.0 : f32}
  n = f32[4] negate(a)
  p = f32[4] negate(n)
  b = f32[2] constant({10, 20})
  ROOT r = f32[4] custom-call(b, p), custom_call_target="broadcast_add", api_version=API_VERSION_TYPED_FFI
}

ENTRY main {
  x = f32[4] parameter(0)
  ROOT z = f32[4] custom-call(x), custom_call_target="callbox.graph.launch", api_version=API_VERSION_TYPED_FFI, backend_config={capture = @capture}
}
"#;

/// Both programs add 2, and then 10 and 20 alternately.
const EXPECTED: [f32; 4] = [13.0, 24.0, 15.0, 26.0];

fn argument() -> Literal {
    floats(&[1.0, 2.0, 3.0, 4.0])
}

/// A program, and how its kernels are loaded.
struct Swept {
    name: &'static str,
    text: &'static str,
    kernels: fn(&str) -> Arc<CudaModule>,
}

/// Opens a device, runs a program three times, and drops everything. A wrong result is an
/// unexpected status.
fn scenario(program: &Swept) -> Result<()> {
    let device = CudaDevice::open(0)?;
    let graphs = GraphLaunch::default();
    let registry = rig::registry_of(&graphs, program.kernels);
    let executable = compile(program.text, &registry, &device)?;
    for _ in 0..3 {
        let found = execute(&executable, &[argument()])?.to_vec::<f32>()?;
        if found != EXPECTED {
            let text = format!("expected {EXPECTED:?}, found {found:?}");
            return Err(Status::new(StatusCode::DataLoss, Blame::Host, text));
        }
    }
    Ok(())
}

fn allowed(code: CUresult) -> &'static [StatusCode] {
    match code {
        CUresult::CUDA_ERROR_OUT_OF_MEMORY => &[StatusCode::ResourceExhausted],
        _ => &[StatusCode::Internal, StatusCode::Unavailable],
    }
}

fn sweep(stand_in: &StandIn, mode: Mode, program: &Swept) -> u64 {
    stand_in.set_mode(mode);
    stand_in.clear_calls();
    scenario(program).unwrap();
    assert_eq!(stand_in.leaks(), Leaks::NONE);
    let count = stand_in.count_calls();
    let names = stand_in.calls();
    assert!(count > 50, "{names:?}");
    for n in 1..=count {
        for (code, is_sticky) in CODES {
            stand_in.clear_calls();
            stand_in.fail_nth(n, code);
            let outcome = scenario(program);
            // A run may make one call less than the first.
            stand_in.fail_nth(u64::MAX, code);
            let place = || format!("call {n} ({}) failed with {code:?}", names[n as usize - 1]);
            if let Err(status) = &outcome {
                assert!(
                    allowed(code).contains(&status.code()),
                    "{}: {status}",
                    place()
                );
            }
            if is_sticky {
                // Memory that a lost device may still use is leaked.
                rig::renew(stand_in);
                stand_in.set_mode(mode);
                continue;
            }
            assert_eq!(stand_in.leaks(), Leaks::NONE, "{}: {outcome:?}", place());
            scenario(program)
                .unwrap_or_else(|status| panic!("{}, and after it: {status}", place()));
        }
    }
    count
}

#[test]
fn every_call_of_the_driver_can_fail() {
    let (_guard, stand_in) = rig::alone();
    for mode in [Mode::Eager, Mode::Lazy] {
        for (name, text, kernels) in [
            ("plain", PLAIN, rig::kernels as fn(&str) -> Arc<CudaModule>),
            ("graph", GRAPH, rig::kernels),
            ("fenced", PLAIN, rig::fenced),
        ] {
            if name == "fenced" && mode == Mode::Eager {
                // The lazy mode has the later reads, and one sweep costs a minute.
                continue;
            }
            let swept = Swept {
                name,
                text,
                kernels,
            };
            let count = sweep(stand_in, mode, &swept);
            println!(
                "{}, {mode:?}: {count} calls, each failed in {} ways",
                swept.name,
                CODES.len()
            );
        }
    }
}
