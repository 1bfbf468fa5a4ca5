//! Ctrl-C: the first stops what runs, with CANCELLED, so that it ends as every failure does. The second ends the process.

use std::process;
use std::sync::OnceLock;

use callbox::CancelToken;

/// The exit code of a process that SIGINT ended, as shells have it.
const INTERRUPTED: i32 = 130;

/// What Ctrl-C cancels.
pub(super) fn token() -> CancelToken {
    static TOKEN: OnceLock<CancelToken> = OnceLock::new();
    let token = TOKEN.get_or_init(|| {
        let token = CancelToken::new();
        let cancelled = token.clone();
        // Without a handler Ctrl-C ends the process, as it would without callbox.
        let _ = ctrlc::set_handler(move || match cancelled.is_cancelled() {
            false => cancelled.cancel(),
            true => process::exit(INTERRUPTED),
        });
        token
    });
    token.clone()
}
