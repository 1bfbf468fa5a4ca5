//! Detects panics, including those that are caught before they reach the caller.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

thread_local! {
    static SEEN: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Calls `run` and returns its result, unless this thread panicked meanwhile.
///
/// # Errors
/// The first panic, with its location, whether or not it was caught inside `run`.
pub fn watch<R>(run: impl FnOnce() -> R) -> Result<R, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            before(info);
            SEEN.with_borrow_mut(|seen| seen.get_or_insert_with(|| info.to_string()).len());
        }));
    });
    SEEN.take();
    let outcome = catch_unwind(AssertUnwindSafe(run));
    match (outcome, SEEN.take()) {
        (Ok(value), None) => Ok(value),
        (_, Some(seen)) => Err(seen),
        (Err(_), None) => Err("something unwound without a panic".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panics_are_seen_wherever_they_end() {
        assert_eq!(watch(|| 1), Ok(1));
        let caught = watch(|| catch_unwind(|| panic!("inside")).is_err());
        assert!(caught.unwrap_err().contains("inside"));
        let through = watch(|| -> u32 { panic!("through") });
        assert!(through.unwrap_err().contains("through"));
        assert_eq!(watch(|| 2), Ok(2));
    }
}
