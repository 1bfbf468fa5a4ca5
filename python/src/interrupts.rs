//! Ctrl-C cancels calls.
//!
//! Python runs its handler of a signal on the main thread between two instructions, so that a call
//! would delay `KeyboardInterrupt` until it ends. Therefore a thread watches the number of
//! interrupts while calls are running, and cancels the calls that began before the last one:
//! - a direct call on the main thread, which then raises `KeyboardInterrupt`,
//! - the calls of compiled programs on all threads, because the main thread may wait for any. Later
//!   calls of the same run of a program are cancelled, too, where XLA's version tells the run.
//!
//! Direct calls on other threads go on, as do all calls in a forked child and all calls if the
//! program has a handler of its own: only Python's default handler certainly raises.
//!
//! Each thread has a cancel token, which it renews after an interrupt: a token is cancelled only
//! after the thread's calls use another one.

mod runs;
mod signal;

use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;

use callbox::{CallOptions, CancelToken, Status, StatusCode};
use pyo3::prelude::*;

use self::runs::Runs;
use crate::exit;

/// The interval at which the watching thread looks at the number of interrupts.
const TICK: Duration = Duration::from_millis(2);

/// The number of ticks after which it checks that the handler is still installed.
const TICKS_TO_CHECK: u32 = 25;

/// The number of ticks without a call after which it parks.
const TICKS_TO_PARK: u32 = 500;

/// The threads that have made calls.
static CALLERS: Mutex<Vec<Arc<Caller>>> = Mutex::new(Vec::new());

/// Whether the watching thread is not parked.
static AWAKE: AtomicBool = AtomicBool::new(false);

/// The part of a thread's state that the watching thread reads.
#[derive(Default)]
pub(crate) struct Caller {
    /// The calls that have begun. A signal handler of Python's may make calls within another one.
    begun: AtomicU64,
    /// Those of them that have ended.
    ended: AtomicU64,
    token: Mutex<Token>,
    runs: Mutex<Runs>,
}

/// A token for calls that began after `seen` interrupts.
#[derive(Clone, Default)]
struct Token {
    seen: u64,
    /// Whether it is for calls of a run that an interrupt has cancelled.
    is_cancelled: bool,
    token: CancelToken,
}

/// The state of a thread that makes calls.
struct Local {
    caller: Arc<Caller>,
    token: RefCell<Token>,
    /// The run of the last call. None: a direct call, or an unknown run.
    run: Cell<Option<i64>>,
    is_main: Cell<Option<bool>>,
}

thread_local! {
    static LOCAL: Rc<Local> = Rc::new(Local::new());
}

impl Local {
    fn new() -> Self {
        let caller = Arc::<Caller>::default();
        lock(&CALLERS).push(Arc::clone(&caller));
        let token = lock(&caller.token).clone();
        Self {
            caller,
            token: RefCell::new(token),
            run: Cell::new(None),
            is_main: Cell::new(None),
        }
    }

    /// Begins a call of a run: from now on an interrupt cancels the thread's token.
    #[inline]
    fn begin<C: Deref<Target = Caller>>(&self, caller: C, run: Option<i64>) -> Running<C> {
        let seen = signal::count();
        if self.run.get() != run || self.token.borrow().seen != seen {
            self.renew_token(seen, run);
        }
        let running = Running::new(caller);
        if !AWAKE.load(Ordering::SeqCst) {
            wake();
        }
        running
    }

    #[cold]
    fn renew_token(&self, seen: u64, run: Option<i64>) {
        self.run.set(run);
        let is_cancelled = run.is_some_and(|run| {
            lock(&self.caller.runs).note(run, seen);
            runs::is_interrupted(run, seen)
        });
        let known = |token: &Token| (token.seen, token.is_cancelled) == (seen, is_cancelled);
        if known(&self.token.borrow()) {
            return;
        }
        let token = Token {
            seen,
            is_cancelled,
            token: CancelToken::new(),
        };
        if is_cancelled {
            token.token.cancel();
        }
        *lock(&self.caller.token) = token.clone();
        self.token.replace(token);
    }

    /// The token of the call that began last.
    fn token(&self) -> Token {
        self.token.borrow().clone()
    }

    /// Whether this is Python's main thread.
    fn is_main(&self, py: Python<'_>) -> PyResult<bool> {
        if let Some(known) = self.is_main.get() {
            return Ok(known);
        }
        let threading = py.import("threading")?;
        let main = threading.call_method0("main_thread")?.getattr("ident")?;
        let is_main = main.eq(threading.call_method0("get_ident")?)?;
        self.is_main.set(Some(is_main));
        Ok(is_main)
    }
}

/// Adds one to a caller's count. Only the caller's own thread does.
#[inline]
fn count(calls: &AtomicU64, order: Ordering) {
    calls.store(calls.load(Ordering::Relaxed).wrapping_add(1), order);
}

/// A call in progress.
pub(crate) struct Running<C: Deref<Target = Caller> = Arc<Caller>>(C);

impl<C: Deref<Target = Caller>> Running<C> {
    #[inline]
    fn new(caller: C) -> Self {
        // Either this thread sees that the watching thread is parked, or that one sees the call:
        // this store and the load of `AWAKE` after it are sequentially consistent.
        count(&caller.begun, Ordering::SeqCst);
        Self(caller)
    }
}

impl<C: Deref<Target = Caller>> Drop for Running<C> {
    #[inline]
    fn drop(&mut self) {
        count(&self.0.ended, Ordering::Release);
    }
}

/// The options of a call site's last call of [`cancellable`], kept for the next one.
#[derive(Default)]
pub(crate) struct LastOptions(Cell<Option<CallOptions>>);

impl LastOptions {
    /// The options of a call with the thread's token.
    #[inline]
    fn with_token(&self, options: &CallOptions, local: &Local) -> CallOptions {
        let has_token = |last: &CallOptions| {
            let token = &local.token.borrow().token;
            last.cancel.as_ref().is_some_and(|last| last.is_same(token))
        };
        self.0
            .take()
            .filter(has_token)
            .unwrap_or_else(|| CallOptions {
                cancel: Some(local.token().token),
                ..options.clone()
            })
    }
}

/// Makes a call of a compiled program, which an interrupt cancels. `run` is the number of the
/// program's run, and `last` is of calls with the same options on this thread.
#[inline]
pub(crate) fn cancellable<T>(
    run: Option<i64>,
    options: &CallOptions,
    last: &LastOptions,
    call: impl FnOnce(&CallOptions) -> T,
) -> T {
    let local = (!signal::is_child()).then(|| LOCAL.try_with(Rc::clone));
    // A thread that is ending has no state.
    let Some(Ok(local)) = local else {
        return call(options);
    };
    let _running = local.begin(&*local.caller, run);
    let options = last.with_token(options, &local);
    let outcome = call(&options);
    last.0.set(Some(options));
    outcome
}

/// Begins a direct call, which an interrupt cancels if it is on the main thread.
///
/// # Errors
/// KeyboardInterrupt, or what else a handler of a pending signal raises.
pub(crate) fn begin(py: Python<'_>, options: &mut CallOptions) -> PyResult<Option<Running>> {
    if signal::is_child() {
        return Ok(None);
    }
    let begun = LOCAL.try_with(|local| {
        let is_main = local.is_main(py)?;
        Ok::<_, PyErr>(
            is_main.then(|| (local.begin(Arc::clone(&local.caller), None), local.token())),
        )
    });
    let Some((running, mut token)) = begun.ok().transpose()?.flatten() else {
        return Ok(None);
    };
    loop {
        // From here on interrupts cancel the token. An earlier one may be pending still.
        py.check_signals()?;
        // A handler of another signal may have made a call that renewed the thread's token.
        match LOCAL.try_with(|local| local.token()) {
            Ok(current) if current.seen != token.seen => token = current,
            _ => break,
        }
    }
    options.cancel = Some(token.token);
    Ok(Some(running))
}

/// Raises KeyboardInterrupt if it is why a direct call failed.
///
/// # Errors
/// What the handler of a pending signal raises.
pub(crate) fn check<T>(
    py: Python<'_>,
    running: Option<&Running>,
    outcome: &callbox::Result<T>,
) -> PyResult<()> {
    let is_cancelled = |status: &Status| status.code() == StatusCode::Cancelled;
    match outcome {
        Err(status) if running.is_some() && is_cancelled(status) => py.check_signals(),
        _ => Ok(()),
    }
}

/// Counts interrupts from now on, if the process has Python's default handler.
pub(crate) fn install(py: Python<'_>) -> PyResult<()> {
    if signal::is_installed() {
        return Ok(());
    }
    let module = py.import("signal")?;
    let current = module.call_method1("getsignal", (libc::SIGINT,))?;
    if current.is(&module.getattr("default_int_handler")?) {
        signal::install(py);
    }
    Ok(())
}

/// Wakes the watching thread, which is started for the first call.
#[cold]
fn wake() {
    static IS_STARTED: AtomicBool = AtomicBool::new(false);
    static WATCHING: OnceLock<Thread> = OnceLock::new();
    AWAKE.store(true, Ordering::SeqCst);
    // Not in an initializer: a child that is forked meanwhile would wait for it for ever.
    if !IS_STARTED.swap(true, Ordering::SeqCst) {
        signal::note_forks();
        let builder = thread::Builder::new().name("callbox-interrupts".to_owned());
        // Without the thread, an interrupt takes effect when the call has ended.
        if let Ok(started) = builder.spawn(watch) {
            let _ = WATCHING.set(started.thread().clone());
        }
    } else if let Some(thread) = WATCHING.get() {
        thread.unpark();
    }
}

/// Cancels running calls when a signal has come, until the process ends.
fn watch() {
    let mut cancelled = 0;
    let mut seen = 0;
    let mut idle = 0;
    let mut ticks_to_check = 0;
    loop {
        if ticks_to_check == 0 {
            ticks_to_check = TICKS_TO_CHECK;
            if !signal::is_installed() {
                // A failure is of no consequence: the next check tries again.
                exit::attached(|py| install(py).is_ok());
            }
        }
        ticks_to_check -= 1;
        thread::sleep(TICK);
        let count = signal::count();
        if count != cancelled {
            cancelled = count;
            cancel_before(count);
        }
        let progress = progress();
        idle = if progress == Some(seen) { idle + 1 } else { 0 };
        seen = progress.unwrap_or(seen);
        if idle > TICKS_TO_PARK {
            AWAKE.store(false, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            while !AWAKE.load(Ordering::SeqCst) && self::progress() == Some(seen) {
                thread::park();
            }
            AWAKE.store(true, Ordering::SeqCst);
            (idle, ticks_to_check) = (0, 0);
        }
    }
}

/// Cancels the calls that began before the interrupt with this number.
fn cancel_before(count: u64) {
    runs::note_interrupt(count);
    for caller in lock(&CALLERS).iter() {
        let current = lock(&caller.token);
        if current.seen < count {
            current.token.cancel();
        }
    }
}

/// The number of calls that all threads have made. None if one is running.
fn progress() -> Option<u64> {
    let mut callers = lock(&CALLERS);
    let mut sum = Some(0_u64);
    callers.retain(|caller| {
        let ended = caller.ended.load(Ordering::Acquire);
        let begun = caller.begun.load(Ordering::Acquire);
        sum = sum
            .filter(|_| begun == ended)
            .map(|sum| sum.wrapping_add(begun));
        // A thread that has ended made its last call.
        Arc::strong_count(caller) > 1
    });
    sum
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
