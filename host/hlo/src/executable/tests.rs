//! Executables, with a test module in place of a backend: which calls are bound, and their order.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod float_modes;
mod functions;
mod passes;
mod schedule;
mod sites;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::super::Program;
use super::{Executable, ExecuteOptions};
use callbox_core::Registry;
use callbox_core::call::{
    ApiVersion, Bounds, CallOptions, CallSite, CancelToken, Deadline, Execution, Functions,
    Platform, PreparedCalls, Signature, Stage, TargetModule,
};
use callbox_core::values::{Blame, Literal, Result, Status, StatusCode};

type Log = Arc<Mutex<Vec<String>>>;

/// The nesting of a [`Recorder`]'s calls back.
const MAX_DEPTH: usize = 2;

/// A module with a target of the same name.
///
/// The target calls the first of its functions with its operands. Without functions, it copies its
/// first operand to all results of the same size.
#[derive(Debug)]
struct Recorder {
    name: &'static str,
    targets: Vec<Signature>,
    log: Log,
    sites: Arc<Mutex<Vec<CallSite>>>,
}

#[derive(Debug)]
struct RecordedCalls {
    sites: Vec<CallSite>,
    module: Arc<Recorder>,
}

struct RecordedExecution<'a> {
    calls: &'a RecordedCalls,
    functions: Option<Arc<dyn Functions>>,
}

impl TargetModule for Recorder {
    fn identity(&self) -> &str {
        self.name
    }

    fn platform(&self) -> Platform {
        Platform::Host
    }

    fn targets(&self) -> &[Signature] {
        &self.targets
    }

    fn prepare(
        self: Arc<Self>,
        sites: Vec<CallSite>,
        _: &CallOptions,
    ) -> Result<Box<dyn PreparedCalls>> {
        self.sites.lock().unwrap().extend(sites.iter().cloned());
        Ok(Box::new(RecordedCalls {
            sites,
            module: self,
        }))
    }
}

impl RecordedCalls {
    fn note(&self, text: impl Into<String>) {
        self.module.log.lock().unwrap().push(text.into());
    }
}

impl PreparedCalls for RecordedCalls {
    fn begin(
        &self,
        options: &CallOptions,
        functions: Option<&Arc<dyn Functions>>,
        _: &[usize],
    ) -> Result<Box<dyn Execution + '_>> {
        let user_data = options.user_data.iter().flat_map(|data| data.keys());
        let user_data: String = user_data.map(|name| format!(" with {name}")).collect();
        self.note(format!("begin {}{user_data}", self.module.name));
        Ok(Box::new(RecordedExecution {
            calls: self,
            functions: functions.cloned(),
        }))
    }
}

impl Execution for RecordedExecution<'_> {
    fn initialize(&mut self) -> Result<()> {
        let calls = self.calls;
        calls.note(format!("initialize {}", calls.module.name));
        Ok(())
    }

    fn call(&mut self, site: usize, operands: &[&[u8]], results: &mut [&mut [u8]]) -> Result<()> {
        let site = &self.calls.sites[site];
        self.calls.note(site.name.clone());
        if !site.functions.is_empty() {
            return self.call_back(site, operands, results);
        }
        let Some(x) = operands.first() else {
            return Err(Status::invalid_argument("nothing to copy"));
        };
        for y in results.iter_mut().filter(|y| y.len() == x.len()) {
            y.copy_from_slice(x);
        }
        Ok(())
    }
}

impl RecordedExecution<'_> {
    fn call_back(
        &self,
        site: &CallSite,
        operands: &[&[u8]],
        results: &mut [&mut [u8]],
    ) -> Result<()> {
        let functions = self.functions.as_ref().unwrap();
        if functions.depth() == MAX_DEPTH {
            return Err(Status::new(
                StatusCode::ResourceExhausted,
                Blame::Guest,
                "called back too deep",
            ));
        }
        let operands = std::iter::zip(&site.operands, operands)
            .map(|(shape, bytes)| Literal::from_leaves(shape.clone(), vec![bytes.to_vec()]));
        let operands = operands.collect::<Result<Vec<_>>>()?;
        let result = functions.call(site.functions[0].id, &operands, &Bounds::default())?;
        for (to, (_, from)) in std::iter::zip(results, result.leaves()) {
            if !to.is_empty() {
                to.copy_from_slice(from);
            }
        }
        Ok(())
    }
}

fn registry(names: &[&'static str]) -> (Registry, Log) {
    let (registry, log, _) = recording(names);
    (registry, log)
}

/// The call sites that the modules with these names get.
fn sites(text: &str, names: &[&'static str]) -> Vec<CallSite> {
    let (registry, _, sites) = recording(names);
    compile(text, &registry).unwrap();
    std::mem::take(&mut *sites.lock().unwrap())
}

fn recording(names: &[&'static str]) -> (Registry, Log, Arc<Mutex<Vec<CallSite>>>) {
    let (log, sites) = (Log::default(), Arc::default());
    let mut registry = Registry::new();
    for &name in names {
        let target = Signature {
            name: name.to_owned(),
            api_versions: ApiVersion::ALL.to_vec(),
            stages: vec![Stage::Execute],
            ..Signature::default()
        };
        let module = Recorder {
            name,
            targets: vec![target],
            log: Arc::clone(&log),
            sites: Arc::clone(&sites),
        };
        registry.register_module(Arc::new(module)).unwrap();
    }
    (registry, log, sites)
}

fn compile(text: &str, registry: &Registry) -> Result<Executable> {
    Executable::compile(&Program::from_hlo_text(text)?, registry, Platform::Host)
}

fn run(
    text: &str,
    names: &[&'static str],
    arguments: &[Literal],
) -> (Result<Literal>, Vec<String>) {
    let (registry, log) = registry(names);
    let executable = compile(text, &registry).unwrap();
    let result = executable.execute(0, arguments, &ExecuteOptions::default());
    let log = std::mem::take(&mut *log.lock().unwrap());
    (result, log)
}

const TWO_MODULES: &str = r#"HloModule m
ENTRY main {
  x = f32[2] parameter(0)
  unused = f32[2] custom-call(x), custom_call_target="f", api_version=API_VERSION_TYPED_FFI
  effect = f32[2] custom-call(x), custom_call_target="f", api_version=API_VERSION_TYPED_FFI, custom_call_has_side_effect=true
  a = f32[2] custom-call(x), custom_call_target="g", api_version=API_VERSION_TYPED_FFI
  ROOT b = f32[2] add(a, x)
}"#;

#[test]
fn modules_begin_then_initialize_and_unused_calls_are_dropped_but_for_effects() {
    let x = Literal::array(&[2], &[1.0_f32, 2.0]).unwrap();
    let (result, log) = run(TWO_MODULES, &["f", "g", "unrelated"], &[x]);
    assert_eq!(result.unwrap().to_vec::<f32>().unwrap(), [2.0, 4.0]);
    assert_eq!(
        log,
        [
            "begin f",
            "begin g",
            "initialize f",
            "initialize g",
            "custom call %effect of \"f\"",
            "custom call %a of \"g\"",
        ]
    );
}

#[test]
fn a_target_that_is_not_registered_is_named() {
    let (registry, _) = registry(&["f"]);
    let err = compile(TWO_MODULES, &registry).unwrap_err();
    assert_eq!(err.code(), StatusCode::NotFound);
    assert_eq!(
        err.message(),
        "custom call %a of \"g\": No FFI handler registered for \"g\" on platform Host; there are \"f\""
    );
}

#[test]
fn effects_in_unused_computations_count() {
    let text = r#"HloModule m
work {
  x = s32[] parameter(0)
  ROOT y = s32[] custom-call(x), custom_call_target="f", api_version=API_VERSION_TYPED_FFI, custom_call_has_side_effect=true
}
idle {
  x = s32[] parameter(0)
  ROOT y = s32[] custom-call(x), custom_call_target="f", api_version=API_VERSION_TYPED_FFI
}
ENTRY main {
  x = s32[] parameter(0)
  a = s32[] call(x), to_apply=work
  b = s32[] call(x), to_apply=idle
  ROOT r = s32[] copy(x)
}"#;
    let (_, log) = run(text, &["f"], &[Literal::scalar(7_i32)]);
    assert_eq!(log.len(), 3, "{log:?}");
}

#[test]
fn constrained_layouts_are_handed_over_and_taken_back() {
    let call = |constraint: &str| {
        format!(
            r#"HloModule m
ENTRY main {{
  x = f32[2,2]{{1,0}} parameter(0)
  ROOT y = f32[2,2]{{0,1}} custom-call(x), custom_call_target="f", api_version=API_VERSION_TYPED_FFI{constraint}
}}"#
        )
    };
    let x = Literal::array(&[2, 2], &[1.0_f32, 2.0, 3.0, 4.0]).unwrap();
    // XLA's test of layouts: the operand's layout is {1,0} and the result's {0,1}, so that a copy
    // transposes.
    let constrained = call(", operand_layout_constraints={f32[2,2]{1,0}}");
    let (result, _) = run(&constrained, &["f"], std::slice::from_ref(&x));
    assert_eq!(
        result.unwrap().to_vec::<f32>().unwrap(),
        [1.0, 3.0, 2.0, 4.0]
    );
    // Without constraints both are in the default layout.
    let (result, _) = run(&call(""), &["f"], &[x]);
    assert_eq!(
        result.unwrap().to_vec::<f32>().unwrap(),
        [1.0, 2.0, 3.0, 4.0]
    );
}

#[test]
fn modules_that_a_function_has_no_part_for_do_not_begin() {
    let text = r#"HloModule m, frontend_attributes={callbox.exports="main,other"}
other {
  x = f32[] parameter(0)
  ROOT y = f32[] custom-call(x), custom_call_target="g", api_version=API_VERSION_TYPED_FFI
}
ENTRY main {
  x = f32[] parameter(0)
  ROOT y = f32[] custom-call(x), custom_call_target="f", api_version=API_VERSION_TYPED_FFI
}"#;
    let (_, log) = run(text, &["f", "g"], &[Literal::scalar(1.0_f32)]);
    assert_eq!(log, ["begin f", "initialize f", "custom call %y of \"f\""]);
}

#[test]
fn arguments_are_checked() {
    let (registry, _) = registry(&["f", "g"]);
    let executable = compile(TWO_MODULES, &registry).unwrap();
    let execute = |arguments: &[Literal]| {
        executable
            .execute(0, arguments, &ExecuteOptions::default())
            .unwrap_err()
    };
    let x = Literal::scalar(1.0_f32);
    assert_eq!(
        execute(&[]).message(),
        "function main takes 1 arguments, found 0"
    );
    assert_eq!(
        execute(std::slice::from_ref(&x)).message(),
        "argument 0 of function main: expected f32[2], found f32[]"
    );
    let err = executable
        .execute(1, &[x], &ExecuteOptions::default())
        .unwrap_err();
    assert_eq!(
        err.message(),
        "expected an exported function below 1, found ordinal 1"
    );
    let err = executable
        .execute_named("mian", &[], &ExecuteOptions::default())
        .unwrap_err();
    assert_eq!(
        err.message(),
        "expected an exported function (\"main\"), found \"mian\""
    );
}

#[test]
fn a_bitcast_reads_the_layout_of_its_operand_and_not_of_what_a_callee_gave() {
    let text = r#"HloModule m
f { ROOT x = f32[2,2]{0,1} parameter(0) }
ENTRY main {
  x = f32[2,2]{1,0} parameter(0)
  y = f32[2,2]{1,0} call(x), to_apply=f
  ROOT z = f32[4]{0} bitcast(y)
}"#;
    let x = Literal::array(&[2, 2], &[1.0_f32, 2.0, 3.0, 4.0]).unwrap();
    let (result, _) = run(text, &[], &[x]);
    assert_eq!(
        result.unwrap().to_vec::<f32>().unwrap(),
        [1.0, 2.0, 3.0, 4.0]
    );
}

const ENDLESS: &str = r#"HloModule m
condition {
  s = s32[] parameter(0)
  ROOT p = pred[] constant(true)
}
body {
  s = s32[] parameter(0)
  one = s32[] constant(1)
  ROOT n = s32[] add(s, one)
}
ENTRY main {
  x = s32[] parameter(0)
  ROOT w = s32[] while(x), condition=condition, body=body
}"#;

#[test]
fn loops_of_the_program_end_at_the_deadline_and_when_cancelled() {
    let (registry, _) = registry(&[]);
    let executable = compile(ENDLESS, &registry).unwrap();
    let execute = |call: CallOptions| {
        let options = ExecuteOptions {
            call,
            ..ExecuteOptions::default()
        };
        executable
            .execute(0, &[Literal::scalar(0_i32)], &options)
            .unwrap_err()
    };
    let err = execute(CallOptions {
        deadline: Some(Deadline::After(Duration::from_millis(20))),
        ..CallOptions::default()
    });
    assert_eq!(err.code(), StatusCode::DeadlineExceeded);
    let cancel = CancelToken::new();
    cancel.cancel();
    let err = execute(CallOptions {
        cancel: Some(cancel),
        ..CallOptions::default()
    });
    assert_eq!(err.code(), StatusCode::Cancelled);
}

#[test]
fn conditionals_take_the_last_branch_for_an_index_out_of_range() {
    let text = r#"HloModule m
zero { x = f32[] parameter(0)
  ROOT r = f32[] negate(x) }
one { x = f32[] parameter(0)
  ROOT r = f32[] copy(x) }
ENTRY main {
  i = s32[] parameter(0)
  x = f32[] parameter(1)
  ROOT r = f32[] conditional(i, x, x), branch_computations={zero, one}
}"#;
    for (index, expected) in [(0, -3.0), (1, 3.0), (2, 3.0), (-1, 3.0), (i32::MIN, 3.0)] {
        let arguments = [Literal::scalar(index), Literal::scalar(3.0_f32)];
        let (result, _) = run(text, &[], &arguments);
        assert_eq!(
            result.unwrap().to_vec::<f32>().unwrap(),
            [expected],
            "index {index}"
        );
    }
}

#[test]
fn the_depth_of_calls_is_bounded() {
    let mut text = "HloModule m\nf0 {\n  ROOT x = s32[] parameter(0)\n}\n".to_owned();
    for i in 1..200 {
        let callee = i - 1;
        text.push_str(&format!(
            "f{i} {{\n  x = s32[] parameter(0)\n  ROOT y = s32[] call(x), to_apply=f{callee}\n}}\n"
        ));
    }
    text.push_str(
        "ENTRY main {\n  x = s32[] parameter(0)\n  ROOT y = s32[] call(x), to_apply=f199\n}",
    );
    let (registry, _) = registry(&[]);
    let err = compile(&text, &registry).unwrap_err();
    assert_eq!(err.code(), StatusCode::ResourceExhausted);
}
