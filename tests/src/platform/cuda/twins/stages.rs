//! Twins of `guests/typed_ffi/src/stages.rs`: stages and their states.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use callbox::call::Stage;
use callbox::cuda::{CudaCall, CudaTarget, State};
use callbox::{Dictionary, Result, StatusCode};

use super::results::{copy, give, give_one};
use super::words::{Diagnostic, asked, bad_operands, failure, scalar, text};
use super::{log, twin};

pub(super) fn twins() -> Vec<(&'static str, CudaTarget)> {
    vec![
        counts(),
        states(),
        state_of_another_type(),
        twin("state_not_set", |call| {
            let missing = [Stage::Instantiate, Stage::Prepare];
            let missing = missing.map(|stage| state::<i32>(call, stage));
            let bad: Vec<(usize, String)> = missing
                .into_iter()
                .enumerate()
                .filter_map(|(number, found)| Some((number, found.err()?)))
                .collect();
            if bad.is_empty() {
                give_one(call, 0, 0_i32)
            } else {
                Err(not_found(&bad))
            }
        }),
        fails_at(),
        twin("stage", |call| {
            let number = call.stage() as i32;
            give_one(call, 0, number)
        }),
    ]
}

/// The state that a stage returned.
fn state<'c, T: Any>(call: &CudaCall<'c>, stage: Stage) -> Diagnostic<&'c T> {
    call.state(stage).ok_or_else(|| {
        format!(
            "Failed to get state from execution context: State is not set: stage {stage} has not run"
        )
    })
}

fn not_found(bad: &[(usize, String)]) -> callbox::Status {
    failure(StatusCode::NotFound, bad_operands(bad).message())
}

fn made<T: Any + Send + Sync>(state: T) -> Result<Option<State>> {
    Ok(Some(Arc::new(state)))
}

/// How many states the twins of one module have made and dropped.
#[derive(Debug, Default)]
struct Counter {
    made: AtomicI32,
    dropped: AtomicI32,
}

/// The state of a stage of `counts`, which counts when it is dropped.
struct Counted(Arc<Counter>);

impl Counted {
    fn new(counter: &Arc<Counter>) -> Self {
        counter.made.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(counter))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

fn counts() -> (&'static str, CudaTarget) {
    let counters: [Arc<Counter>; 3] = Default::default();
    let [a, b, c] = counters.clone();
    let executed = AtomicI32::new(0);
    let target = CudaTarget::new("counts", move |call| {
        let executed = executed.fetch_add(1, Ordering::Relaxed) + 1;
        let [a, b, c] = counters.each_ref().map(|counter| {
            [&counter.made, &counter.dropped].map(|count| count.load(Ordering::Relaxed))
        });
        give(call, 0, &[a[0], b[0], c[0], executed, a[1], b[1], c[1]])
    });
    let target = target
        .on_instantiate(move |_| made(Counted::new(&a)))
        .on_prepare(move |_| made(Counted::new(&b)))
        .on_initialize(move |_| made(Counted::new(&c)));
    ("counts", target)
}

struct Prepared(i32, Vec<usize>);

fn states() -> (&'static str, CudaTarget) {
    let missing = |text: String| not_found(&[(0, text)]);
    let target = CudaTarget::new("states", move |call| {
        let instantiated = *state::<i32>(call, Stage::Instantiate).map_err(missing)?;
        let Prepared(prepared, dimensions) = state(call, Stage::Prepare).map_err(missing)?;
        let initialized = *state::<i32>(call, Stage::Initialize).map_err(missing)?;
        if call.operands()[0].shape().dimensions() != dimensions.as_slice() {
            return Err(failure(
                StatusCode::Internal,
                "expected the dimensions that prepare saw",
            ));
        }
        let rank = dimensions.len() as i32;
        give(call, 0, &[instantiated, *prepared, initialized, rank])
    });
    let target = target
        .on_instantiate(|stage| made(asked(&stage.site().attributes, "value", scalar::<i32>)?))
        .on_prepare(|stage| {
            let value = stage.instantiated::<i32>().copied().unwrap_or(-1);
            let shape = stage.site().operands.first().and_then(|o| o.as_array());
            let dimensions = shape.map(|shape| shape.dimensions().to_vec());
            made(Prepared(value, dimensions.unwrap_or_default()))
        })
        .on_initialize(move |call| {
            let prepared: &Prepared = state(call, Stage::Prepare).map_err(missing)?;
            made(prepared.0)
        });
    ("states", target)
}

fn state_of_another_type() -> (&'static str, CudaTarget) {
    let target = CudaTarget::new("state_of_another_type", |call| {
        match call.state::<i32>(Stage::Instantiate) {
            Some(&state) => give_one(call, 0, state),
            None => Err(bad_operands(&[(
                0,
                "Failed to get state from execution context: Set state type f64 does not match the requested one i32"
                    .to_owned(),
            )])),
        }
    });
    let target = target.on_instantiate(|_| made(1.0_f64));
    ("state_of_another_type", target)
}

/// Fails if the stage that runs is the one that the attribute `stage` names.
fn fail_at(attributes: &Dictionary, stage: Stage) -> Result<()> {
    if asked(attributes, "stage", text)? == stage.name() {
        let status = failure(
            StatusCode::FailedPrecondition,
            format!("no luck at {stage}"),
        );
        return Err(status.with_recoverable(true));
    }
    log("info", stage.name());
    Ok(())
}

fn fails_at() -> (&'static str, CudaTarget) {
    let target = CudaTarget::new("fails_at", |call| {
        fail_at(call.attributes(), call.stage())?;
        copy(call, 0, 0)
    });
    let target = target
        .on_instantiate(|stage| fail_at(&stage.site().attributes, stage.stage()).map(|()| None))
        .on_prepare(|stage| fail_at(&stage.site().attributes, stage.stage()).map(|()| None))
        .on_initialize(|call| fail_at(call.attributes(), call.stage()).map(|()| None));
    ("fails_at", target)
}
