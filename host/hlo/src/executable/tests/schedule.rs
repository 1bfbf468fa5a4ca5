//! Custom calls with schedules.

use super::run;
use callbox_core::values::Literal;

/// The order in which the custom calls of a body run, by name.
#[track_caller]
fn check(body: &str, expected: &[&str]) {
    let text = body
        .replace("call(", "custom-call(")
        .lines()
        .map(|line| {
            if line.contains("custom-call(") {
                format!("{line}, custom_call_target=\"f\", api_version=API_VERSION_TYPED_FFI\n")
            } else {
                format!("{line}\n")
            }
        })
        .collect::<String>()
        .replace(", early", ", schedule=SCHEDULE_EARLIEST")
        .replace(", late", ", schedule=SCHEDULE_LATEST")
        .replace(", effect", ", custom_call_has_side_effect=true");
    let text = format!("HloModule m\nENTRY main {{\n  x = s32[] parameter(0)\n{text}}}");
    let (result, log) = run(&text, &["f"], &[Literal::scalar(7_i32)]);
    result.unwrap();
    let calls = log
        .iter()
        .filter_map(|entry| entry.strip_prefix("custom call %"));
    let names: Vec<_> = calls.map(|call| call.split(' ').next().unwrap()).collect();
    assert_eq!(names, expected);
}

#[test]
fn early_calls_come_first_with_what_they_need() {
    check(
        "  a = s32[] call(x)
  b = s32[] call(x)
  c = s32[] call(b), early
  d = s32[] call(a)
  ROOT e = s32[] call(d, c)",
        &["b", "c", "a", "d", "e"],
    );
    check(
        "  a = s32[] call(x), effect
  b = s32[] call(x), early
  ROOT c = s32[] call(b), early",
        &["b", "c", "a"],
    );
}

#[test]
fn late_calls_come_last_with_what_needs_them() {
    check(
        "  a = s32[] call(x), late
  b = s32[] call(a)
  c = s32[] call(x)
  d = s32[] call(c)
  ROOT e = s32[] call(b, d)",
        &["c", "d", "a", "b", "e"],
    );
}

#[test]
fn a_late_call_waits_for_its_first_reader() {
    check(
        "  a = s32[] call(x), late
  b = s32[] call(x), late
  c = s32[] call(a)
  d = s32[] call(b)
  ROOT e = s32[] call(c, d)",
        &["a", "c", "b", "d", "e"],
    );
    // Nothing reads `a`, so it comes after the readers of `b`.
    check(
        "  a = s32[] call(x), late, effect
  b = s32[] call(x), late
  ROOT c = s32[] call(b)",
        &["b", "c", "a"],
    );
    check(
        "  a = s32[] call(x), late
  b = s32[] call(a), late
  c = s32[] call(x)
  ROOT d = s32[] call(c, b)",
        &["c", "a", "b", "d"],
    );
}

#[test]
fn data_and_control_hold_whatever_calls_want() {
    // A late call that an early one depends on becomes early.
    check(
        "  a = s32[] call(x)
  b = s32[] call(x), late
  c = s32[] call(b), early
  ROOT d = s32[] call(a, c)",
        &["b", "c", "a", "d"],
    );
    check(
        "  a = s32[] call(x), effect
  b = s32[] call(x), effect
  c = s32[] call(x), early, effect, control-predecessors={b}
  ROOT d = s32[] call(a)",
        &["b", "c", "a", "d"],
    );
    check(
        "  a = s32[] call(x), late, effect
  b = s32[] call(x), effect, control-predecessors={a}
  ROOT c = s32[] call(x)",
        &["c", "a", "b"],
    );
}

#[test]
fn without_wishes_the_texts_order_stays() {
    check(
        "  a = s32[] call(x), effect
  b = s32[] call(x), schedule=SCHEDULE_NONE
  c = s32[] call(x), effect
  ROOT d = s32[] call(b)",
        &["a", "b", "c", "d"],
    );
}

/// Long chains need no stack.
#[test]
fn long_chains_are_put_in_order() {
    let mut text = String::new();
    for i in 0..5_000 {
        let previous = if i == 0 {
            "x".to_owned()
        } else {
            format!("a{}", i - 1)
        };
        let wish = ["", ", late", ""][i % 3];
        text += &format!("  a{i} = s32[] call({previous}){wish}\n");
    }
    let names: Vec<_> = (0..5_000).map(|i| format!("a{i}")).collect();
    check(
        text.trim_end(),
        &names.iter().map(String::as_str).collect::<Vec<_>>(),
    );
}
