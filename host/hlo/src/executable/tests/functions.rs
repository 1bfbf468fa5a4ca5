//! Targets that call back functions of the program.

use std::sync::Arc;

use super::{ExecuteOptions, Literal, Log, compile, registry, run, sites};
use crate::executable::functions::Callbacks;
use callbox_core::call::{Bounds, CallOptions, Functions};
use callbox_core::values::StatusCode;

/// A target `f` calls back `twice`, which calls `g`.
const CALLS_BACK: &str = r#"HloModule m
twice {
  p = f32[2] parameter(0)
  c = f32[2] custom-call(p), custom_call_target="g", api_version=API_VERSION_TYPED_FFI
  ROOT s = f32[2] add(c, c)
}
ENTRY main {
  x = f32[2] parameter(0)
  ROOT y = f32[2] custom-call(x), custom_call_target="f", api_version=API_VERSION_TYPED_FFI, backend_config={function = @twice}
}"#;

fn pair() -> Literal {
    Literal::array(&[2], &[1.0_f32, 2.0]).unwrap()
}

#[test]
fn a_function_runs_in_an_execution_of_its_own() {
    let (result, log) = run(CALLS_BACK, &["f", "g"], &[pair()]);
    assert_eq!(result.unwrap().to_vec::<f32>().unwrap(), [2.0, 4.0]);
    // `main` does not use `g`, which begins with `twice`.
    assert_eq!(
        log,
        [
            "begin f",
            "initialize f",
            "custom call %y of \"f\"",
            "begin g",
            "initialize g",
            "custom call %c of \"g\"",
        ]
    );
}

#[test]
fn functions_are_those_of_attributes_then_called_computations_each_once() {
    let text = r#"HloModule m
a { ROOT p = f32[2] parameter(0) }
b { p = f32[2] parameter(0)
  ROOT t = (f32[2], f32[2]) tuple(p, p) }
c-d { ROOT p = s32[] parameter(0) }
ENTRY main {
  x = f32[2] parameter(0)
  ROOT y = f32[2] custom-call(x), custom_call_target="f", called_computations={a, b, a}, api_version=API_VERSION_TYPED_FFI, backend_config={m = {z = @"c-d"}, k = @a, n = @a}
}"#;
    let site = &sites(text, &["f"])[0];
    let names: Vec<_> = site
        .functions
        .iter()
        .map(|f| (f.name.as_str(), f.id))
        .collect();
    assert_eq!(names, [("a", 0), ("c-d", 2), ("b", 1)]);
    assert_eq!(site.called_computations, [0, 2, 0]);
    assert_eq!(site.functions[2].parameters[0].to_string(), "f32[2]");
    assert_eq!(site.functions[2].result.to_string(), "(f32[2], f32[2])");
}

#[test]
fn a_function_that_the_program_does_not_have_is_named() {
    let text = CALLS_BACK.replace("@twice", "{deep = @twic}");
    let (registry, _) = registry(&["f", "g"]);
    let error = compile(&text, &registry).unwrap_err();
    assert_eq!(error.code(), StatusCode::NotFound);
    assert_eq!(
        error.message(),
        "custom call %y of \"f\": expected a function of the program (\"main\", \"twice\"), found \"twic\""
    );
}

/// A custom call may reach itself through an attribute. The backend limits the depth.
#[test]
fn recursion_through_attributes_ends_at_the_hosts_bound() {
    let text = r#"HloModule m
ENTRY main {
  x = f32[2] parameter(0)
  ROOT y = f32[2] custom-call(x), custom_call_target="f", api_version=API_VERSION_TYPED_FFI, backend_config={function = @main}
}"#;
    let (result, log) = run(text, &["f"], &[pair()]);
    let error = result.unwrap_err();
    assert_eq!(error.code(), StatusCode::ResourceExhausted);
    assert_eq!(
        error.message(),
        "custom call %y: custom call %y: custom call %y: called back too deep"
    );
    assert_eq!(log.iter().filter(|entry| *entry == "begin f").count(), 3);
}

#[test]
fn recursion_through_called_computations_is_refused() {
    let text = r#"HloModule m
main {
  x = f32[2] parameter(0)
  ROOT y = f32[2] custom-call(x), custom_call_target="f", called_computations={main}
}
ENTRY other { ROOT x = f32[] parameter(0) }"#;
    let error = crate::Program::from_hlo_text(text).unwrap_err();
    assert_eq!(error.code(), StatusCode::InvalidArgument);
    assert!(
        error.message().contains("do not call themselves"),
        "{error}"
    );
}

#[test]
fn called_computations_may_have_any_signature() {
    let text = r#"HloModule m
callee {
  p = f32[2] parameter(0)
  q = s32[] parameter(1)
  ROOT t = (f32[2], s32[]) tuple(p, q)
}
ENTRY main {
  x = f32[2] parameter(0)
  ROOT y = f32[2] custom-call(x), custom_call_target="f", to_apply=callee, api_version=API_VERSION_TYPED_FFI
}"#;
    let (result, _) = run(text, &["f"], &[pair()]);
    let error = result.unwrap_err();
    assert_eq!(
        (error.code(), error.message()),
        (
            StatusCode::InvalidArgument,
            "custom call %y: function callee takes 2 arguments, found 1"
        )
    );
}

/// An unused custom call runs only if a function that it may call back has an effect.
#[test]
fn effects_of_functions_count() {
    let text = |config: &str| {
        format!(
            r#"HloModule m
quiet {{ ROOT p = f32[2] parameter(0) }}
loud {{
  p = f32[2] parameter(0)
  ROOT c = f32[2] custom-call(p), custom_call_target="g", api_version=API_VERSION_TYPED_FFI, custom_call_has_side_effect=true
}}
through {{
  p = f32[2] parameter(0)
  ROOT c = f32[2] custom-call(p), custom_call_target="f", api_version=API_VERSION_TYPED_FFI, backend_config={{function = @loud}}
}}
ENTRY main {{
  x = f32[2] parameter(0)
  unused = f32[2] custom-call(x), custom_call_target="f", api_version=API_VERSION_TYPED_FFI, {config}
  ROOT y = f32[2] negate(x)
}}"#
        )
    };
    for (config, is_run) in [
        ("backend_config={function = @quiet}", false),
        ("called_computations={quiet}", false),
        ("backend_config={function = @loud}", true),
        ("called_computations={loud}", true),
        ("backend_config={deep = {function = @through}}", true),
        // A cycle back to this call is not an effect.
        ("backend_config={function = @main}", false),
    ] {
        let (registry, log) = registry(&["f", "g"]);
        let executable = compile(&text(config), &registry).unwrap();
        let result = executable.execute(0, &[pair()], &ExecuteOptions::default());
        assert_eq!(result.unwrap().to_vec::<f32>().unwrap(), [-1.0, -2.0]);
        assert_eq!(!log.lock().unwrap().is_empty(), is_run, "{config}");
    }
}

#[test]
fn a_call_back_has_the_executions_options() {
    let (registry, log) = registry(&["f", "g"]);
    let executable = compile(CALLS_BACK, &registry).unwrap();
    let progress = Arc::default();
    let options = ExecuteOptions {
        call: CallOptions {
            user_data: Some(Arc::new([("seed".to_owned(), vec![1])].into())),
            ..CallOptions::default()
        },
        progress: Some(Arc::clone(&progress)),
    };
    executable.execute(0, &[pair()], &options).unwrap();
    let log: Vec<String> = std::mem::take(&mut log.lock().unwrap());
    assert_eq!(
        (log[0].as_str(), log[3].as_str()),
        ("begin f with seed", "begin g with seed")
    );
    assert_eq!(progress.load(std::sync::atomic::Ordering::Relaxed), 5);
}

#[test]
fn the_failure_of_a_function_is_the_calls() {
    let text = CALLS_BACK.replace("custom-call(p)", "custom-call()");
    let (result, _) = run(&text, &["f", "g"], &[pair()]);
    assert_eq!(
        result.unwrap_err().message(),
        "custom call %y: custom call %c: nothing to copy"
    );
}

#[test]
fn callbacks_that_outlive_what_they_call_fail() {
    let (registry, _): (_, Log) = registry(&["f", "g"]);
    let executable = compile(CALLS_BACK, &registry).unwrap();
    let execution = Arc::new(());
    let callbacks = Callbacks {
        executable: Arc::downgrade(&executable.inner),
        execution: Arc::downgrade(&execution),
        options: ExecuteOptions::default(),
        depth: 0,
    };
    let main = 1;
    let failure = |operands: &[Literal], id| {
        let error = callbacks
            .call(id, operands, &Bounds::default())
            .unwrap_err();
        (error.code(), error.message().to_owned())
    };
    assert_eq!(callbacks.call(0, &[pair()], &Bounds::default()).unwrap(), {
        Literal::array(&[2], &[2.0_f32, 4.0]).unwrap()
    });
    assert_eq!(
        failure(&[Literal::scalar(1.0_f32)], main),
        (
            StatusCode::InvalidArgument,
            "argument 0 of function main: expected f32[2], found f32[]".to_owned()
        )
    );
    assert_eq!(
        failure(&[], 2),
        (
            StatusCode::NotFound,
            "expected a function that a custom call refers to, found number 2".to_owned()
        )
    );
    drop(execution);
    let gone = |what| {
        (
            StatusCode::FailedPrecondition,
            format!("the {what} is gone"),
        )
    };
    assert_eq!(failure(&[pair()], main), gone("execution"));
    drop(executable);
    assert_eq!(failure(&[pair()], main), gone("executable"));
}
