//! Stages and their state.

use core::sync::atomic::{AtomicI32, Ordering};

use callbox_guest::{AnyOperand, Context, Failure, LogLevel, Operand, ResultBuffer, Stage, target};

/// Counts how often this instance created and dropped something.
struct Counter {
    made: AtomicI32,
    dropped: AtomicI32,
}

impl Counter {
    const fn new() -> Self {
        Self {
            made: AtomicI32::new(0),
            dropped: AtomicI32::new(0),
        }
    }

    fn values(&self) -> [i32; 2] {
        [&self.made, &self.dropped].map(|count| count.load(Ordering::Relaxed))
    }
}

/// The state of a stage of `counts`, whose counter counts its drop.
struct Counted(&'static Counter);

impl Counted {
    fn new(counter: &'static Counter) -> Self {
        counter.made.fetch_add(1, Ordering::Relaxed);
        Self(counter)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

static INSTANTIATE: Counter = Counter::new();
static PREPARE: Counter = Counter::new();
static INITIALIZE: Counter = Counter::new();
static EXECUTE: AtomicI32 = AtomicI32::new(0);

#[target(name = "counts", stage = instantiate)]
fn counts_instantiate() -> Result<Counted, Failure> {
    Ok(Counted::new(&INSTANTIATE))
}

#[target(name = "counts", stage = prepare)]
fn counts_prepare(#[state] _state: &Counted) -> Result<Counted, Failure> {
    Ok(Counted::new(&PREPARE))
}

#[target(name = "counts", stage = initialize)]
fn counts_initialize(
    #[state] _state: &Counted,
    #[state(prepare)] _prepared: &Counted,
) -> Result<Counted, Failure> {
    Ok(Counted::new(&INITIALIZE))
}

/// Returns how often this instance has run each stage (instantiate, prepare, initialize, execute),
/// and how often it has dropped the state of each (instantiate, prepare, initialize).
#[target]
fn counts(
    #[state] _instantiated: &Counted,
    #[state(prepare)] _prepared: &Counted,
    #[state(initialize)] _initialized: &Counted,
    y: &mut ResultBuffer<i32, 1>,
) -> Result<(), Failure> {
    y.expect_dimensions(&[7])?;
    let executed = EXECUTE.fetch_add(1, Ordering::Relaxed) + 1;
    let [a, b, c] = [&INSTANTIATE, &PREPARE, &INITIALIZE].map(Counter::values);
    y.copy_from_slice(&[a[0], b[0], c[0], executed, a[1], b[1], c[1]]);
    Ok(())
}

/// The state of stage `instantiate` of `states`: the attribute.
struct Instantiated(i32);
/// The state of stage `prepare`: the attribute and the operand's dimensions.
struct Prepared(i32, Vec<i64>);
/// The state of stage `initialize`.
struct Initialized(i32);

#[target(name = "states", stage = instantiate)]
fn states_instantiate(#[attr] value: i32) -> Result<Instantiated, Failure> {
    Ok(Instantiated(value))
}

#[target(name = "states", stage = prepare)]
fn states_prepare(#[state] state: &Instantiated, x: &AnyOperand) -> Result<Prepared, Failure> {
    Ok(Prepared(state.0, x.dimensions().to_vec()))
}

#[target(name = "states", stage = initialize)]
fn states_initialize(#[state(prepare)] state: &Prepared) -> Result<Initialized, Failure> {
    Ok(Initialized(state.0))
}

/// Returns the attribute `value` from the state of each of three stages, and the number of the
/// operand's dimensions that `prepare` saw.
#[target]
fn states(
    #[state] instantiated: &Instantiated,
    #[state(prepare)] prepared: &Prepared,
    #[state(initialize)] initialized: &Initialized,
    x: &AnyOperand,
    y: &mut ResultBuffer<i32, 1>,
) -> Result<(), Failure> {
    y.expect_dimensions(&[4])?;
    if x.dimensions() != prepared.1 {
        return Err(Failure::internal(
            "expected the dimensions that prepare saw",
        ));
    }
    let rank = prepared.1.len() as i32;
    y.copy_from_slice(&[instantiated.0, prepared.0, initialized.0, rank]);
    Ok(())
}

#[target(name = "state_of_another_type", stage = instantiate)]
fn another_type() -> Result<f64, Failure> {
    Ok(1.0)
}

/// Expects an S32 as the state of its stage `instantiate`, which leaves an F64.
#[target]
fn state_of_another_type(#[state] state: &i32, y: &mut ResultBuffer<i32, 0>) {
    y.set(*state);
}

/// Expects the states of stages that it does not have.
#[target]
fn state_not_set(
    #[state] _state: &i32,
    #[state(prepare)] _prepared: &i32,
    y: &mut ResultBuffer<i32, 0>,
) {
    y.set(0);
}

/// Fails in the stage that the attribute `stage` names.
fn fail_at(context: &Context) -> Result<(), Failure> {
    let stage = context.stage();
    if context.attributes().get::<&str>("stage")? == stage.name() {
        return Err(Failure::failed_precondition(format!("no luck at {stage}")).recoverable());
    }
    context.log(LogLevel::Info, stage.name());
    Ok(())
}

#[target(name = "fails_at", stage = instantiate)]
fn fails_at_instantiate(context: &Context) -> Result<(), Failure> {
    fail_at(context)
}

#[target(name = "fails_at", stage = prepare)]
fn fails_at_prepare(context: &Context) -> Result<(), Failure> {
    fail_at(context)
}

#[target(name = "fails_at", stage = initialize)]
fn fails_at_initialize(context: &Context) -> Result<(), Failure> {
    fail_at(context)
}

/// Copies its operand. Fails in the stage that the attribute `stage` names; the other stages log
/// their names.
#[target]
fn fails_at(context: &Context, x: &Operand<f32>, y: &mut ResultBuffer<f32>) -> Result<(), Failure> {
    fail_at(context)?;
    y.expect_dimensions(x.dimensions())?;
    y.copy_from_slice(x);
    Ok(())
}

/// Returns the number of the stage: 3, which is execute.
#[target]
fn stage(context: &Context, y: &mut ResultBuffer<i32, 0>) {
    y.set(match context.stage() {
        Stage::Instantiate => 0,
        Stage::Prepare => 1,
        Stage::Initialize => 2,
        Stage::Execute => 3,
    });
}
