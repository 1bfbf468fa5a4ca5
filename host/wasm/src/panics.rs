//! Panics of the compiler, which a guest's module causes.
//!
//! wasmtime and Cranelift assert what they expect of a module, on threads of their own, too. Such a
//! panic becomes a status. The process's panic hook would also print the paths of the machine that
//! built callbox, and a backtrace: so while a module compiles, a hook in front of it leaves out
//! panics whose place is in the compiler, unless `RUST_BACKTRACE` asks for them. All other panics
//! reach the hook that was there before.

use std::any::Any;
use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::fork;

/// The crates whose panics the module causes, as they appear in paths.
const COMPILER: [&str; 4] = ["cranelift-", "regalloc2-", "wasmparser-", "wasmtime-"];

/// The compilations in progress in this process.
static COMPILATIONS: AtomicUsize = AtomicUsize::new(0);

/// Compiles a module.
///
/// # Errors
/// The message of a panic.
pub(crate) fn catch<R>(compile: impl FnOnce() -> R) -> Result<R, String> {
    static HOOK: Once = Once::new();
    // A forked child would wait for the initializer for ever.
    let forks_later = (!HOOK.is_completed()).then(fork::forks_later);
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if !is_left_out(panic) {
                before(panic);
            }
        }));
    });
    drop(forks_later);
    COMPILATIONS.fetch_add(1, Ordering::Relaxed);
    let outcome = panic::catch_unwind(AssertUnwindSafe(compile));
    COMPILATIONS.fetch_sub(1, Ordering::Relaxed);
    outcome.map_err(|panic| message(&*panic))
}

#[allow(
    clippy::disallowed_methods,
    reason = "the standard library's own switch for backtraces, whose value it does not expose"
)]
fn is_left_out(panic: &PanicHookInfo<'_>) -> bool {
    let is_of_compiler = |file: &str| COMPILER.iter().any(|name| file.contains(name));
    COMPILATIONS.load(Ordering::Relaxed) > 0
        && panic
            .location()
            .is_some_and(|place| is_of_compiler(place.file()))
        && std::env::var_os("RUST_BACKTRACE").is_none_or(|value| value == "0")
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("no message").to_owned()
}
