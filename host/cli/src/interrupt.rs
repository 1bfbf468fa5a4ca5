//! Ctrl-C: the first cancels the call or program, which then fails with CANCELLED; the second ends
//! the process.

use std::process;
use std::sync::OnceLock;

use callbox::CancelToken;

/// The exit code that shells give a process killed by SIGINT.
pub(super) const INTERRUPTED: u8 = 130;

/// The token that Ctrl-C cancels.
pub(super) fn token() -> CancelToken {
    static TOKEN: OnceLock<CancelToken> = OnceLock::new();
    let token = TOKEN.get_or_init(|| {
        let token = CancelToken::new();
        let cancelled = token.clone();
        // If no handler can be set, Ctrl-C ends the process at once.
        let _ = ctrlc::set_handler(move || {
            if cancelled.is_cancelled() {
                process::exit(INTERRUPTED.into());
            }
            cancelled.cancel();
        });
        token
    });
    token.clone()
}
