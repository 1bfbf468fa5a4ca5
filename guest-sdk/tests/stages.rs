//! Stages and their state.
#![allow(
    clippy::unwrap_used,
    missing_docs,
    reason = "tests fail by panicking, and targets of tests need no documentation"
)]

use std::cell::Cell;
use std::rc::Rc;

use callbox_guest::native::Call;
use callbox_guest::{Context, Failure, Operand, ResultBuffer, StatusCode, target};

struct Table(Vec<f32>);

#[target(name = "look_up", stage = instantiate)]
fn make_table(#[attr] size: i64) -> Result<Table, Failure> {
    let size = u8::try_from(size)
        .map_err(|_| Failure::invalid_argument("expected a size from 0 to 255"))?;
    Ok(Table((0..size).map(|i| f32::from(i) * 0.5).collect()))
}

#[target]
fn look_up(#[state] table: &Table, x: &Operand<u8>, y: &mut ResultBuffer<f32>) {
    for (y, x) in y.iter_mut().zip(x.iter()) {
        *y = table.0[usize::from(*x)];
    }
}

#[test]
fn what_instantiate_returns_is_there_for_every_call() {
    let mut call = Call::new();
    call.attribute("size", 8_i64);
    assert_eq!(call.run::<make_table>(), Ok(()));
    call.operand(&[2_u8, 4], &[2]).result::<f32>(&[2]);
    for _ in 0..2 {
        assert_eq!(call.run::<look_up>(), Ok(()));
        assert_eq!(call.result_elements::<f32>(0), [1.0, 2.0]);
    }
}

#[test]
fn a_stage_can_fail() {
    let mut call = Call::new();
    call.attribute("size", 256_i64);
    let failure = call.run::<make_table>().unwrap_err();
    assert_eq!(failure.message(), "expected a size from 0 to 255");
}

#[test]
fn state_that_is_not_set_or_of_another_type_is_refused() {
    #[target(name = "look_up", stage = instantiate)]
    fn make_number() -> Result<i32, Failure> {
        Ok(1)
    }
    let mut call = Call::new();
    call.operand(&[2_u8], &[1]).result::<f32>(&[1]);
    let undecoded = "[execute] Failed to decode all FFI handler operands (bad operands at: 0)\nDiagnostics:\nFailed to get state \
         from execution context: ";
    assert_eq!(
        call.run::<look_up>(),
        Err(Failure::not_found(format!(
            "{undecoded}State is not set: stage instantiate has not run"
        )))
    );
    assert_eq!(call.run::<make_number>(), Ok(()));
    let table = std::any::type_name::<Table>();
    assert_eq!(
        call.run::<look_up>(),
        Err(Failure::invalid_argument(format!(
            "{undecoded}Set state type i32 does not match the requested one {table}"
        )))
    );
}

#[test]
fn a_state_that_is_not_set_is_not_all_that_is_wrong() {
    let mut call = Call::new();
    call.operand(&[2_i32], &[1]).result::<f32>(&[1]);
    let failure = call.run::<look_up>().unwrap_err();
    assert_eq!(failure.code(), StatusCode::InvalidArgument);
    assert!(
        failure.message().contains("(bad operands at: 0, 1)"),
        "{failure}"
    );
}

thread_local! {
    static DROPPED: Rc<Cell<u32>> = Rc::default();
}

struct Counted;

impl Drop for Counted {
    fn drop(&mut self) {
        DROPPED.with(|dropped| dropped.set(dropped.get() + 1));
    }
}

#[target(name = "counted", stage = prepare)]
fn prepare(x: &Operand<f32>) -> Result<Counted, Failure> {
    assert_eq!(x.len(), 1);
    Ok(Counted)
}

#[target]
fn counted(#[state(prepare)] _state: &Counted) {}

#[test]
fn a_state_lives_until_its_stage_runs_again() {
    let mut call = Call::new();
    call.operand(&[1.0_f32], &[1]);
    let dropped = || DROPPED.with(|dropped| dropped.get());
    assert_eq!(call.run::<prepare>(), Ok(()));
    assert_eq!(call.run::<counted>(), Ok(()));
    assert_eq!(call.run::<counted>(), Ok(()));
    assert_eq!(dropped(), 0);
    assert_eq!(call.run::<prepare>(), Ok(()));
    assert_eq!(dropped(), 1);
    assert_eq!(call.run::<counted>(), Ok(()));
    drop(call);
    assert_eq!(dropped(), 2);
}

/// A host of version 1.0 never drops state: the stage does, when it runs again.
#[test]
fn an_older_host_leaves_the_state_to_the_stage() {
    let dropped = || DROPPED.with(|dropped| dropped.get());
    let mut call = Call::new();
    call.minor_version(0).operand(&[1.0_f32], &[1]);
    assert_eq!(call.run::<prepare>(), Ok(()));
    assert_eq!(call.run::<prepare>(), Ok(()));
    assert_eq!(dropped(), 1);
    assert_eq!(call.run::<counted>(), Ok(()));
    drop(call);
    assert_eq!(dropped(), 2);
}

#[target(name = "half_failed", stage = prepare)]
fn prepare_and_fail(context: &Context) -> Result<Counted, Failure> {
    context.set_failure(&Failure::internal("on second thoughts"));
    Ok(Counted)
}

#[test]
fn a_stage_that_failed_leaves_no_state() {
    let mut call = Call::new();
    assert_eq!(
        call.run::<prepare_and_fail>(),
        Err(Failure::internal("on second thoughts"))
    );
    assert_eq!(DROPPED.with(|dropped| dropped.get()), 1);
    let failure = call.run::<counted>().unwrap_err();
    assert_eq!(failure.code(), StatusCode::NotFound);
}

struct Sum(i32);

struct Seen(Vec<&'static str>);

#[target(name = "all_stages", stage = instantiate)]
fn first(#[attr] n: i32) -> Result<i32, Failure> {
    Ok(n)
}

#[target(name = "all_stages", stage = prepare)]
fn second(#[state] n: &i32, #[attr(name = "n")] again: i32) -> Result<Sum, Failure> {
    Ok(Sum(n + again))
}

#[target(name = "all_stages", stage = initialize)]
fn third(#[state] n: &i32, #[state(prepare)] sum: &Sum) -> Result<Seen, Failure> {
    assert_eq!((*n, sum.0), (4, 8));
    Ok(Seen(vec!["instantiate", "prepare"]))
}

#[target(name = "all_stages")]
fn last(
    #[state] n: &i32,
    #[state(prepare)] sum: &Sum,
    #[state(initialize)] seen: &Seen,
    y: &mut ResultBuffer<i32, 0>,
) {
    assert_eq!(seen.0, ["instantiate", "prepare"]);
    y.set(*n * sum.0);
}

#[test]
fn each_stage_sees_the_states_of_those_before_it() {
    let mut call = Call::new();
    call.attribute("n", 4_i32).result::<i32>(&[]);
    assert_eq!(call.run::<first>(), Ok(()));
    assert_eq!(call.run::<second>(), Ok(()));
    assert_eq!(call.run::<third>(), Ok(()));
    assert_eq!(call.run::<last>(), Ok(()));
    assert_eq!(call.result_elements::<i32>(0), [32]);
}
