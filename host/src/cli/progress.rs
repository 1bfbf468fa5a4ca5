//! What a person at a terminal sees of work that takes long.

use std::io::{self, IsTerminal};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget};

/// Work that is done sooner shows nothing.
const PATIENCE: Duration = Duration::from_millis(500);

const REDRAW: Duration = Duration::from_millis(100);

/// Does the work. If standard error is a terminal, and once it has taken half a second, `text` of the moment is shown there with a
/// spinner until it is done.
pub(super) fn show<T>(text: impl Fn() -> String + Sync, work: impl FnOnce() -> T) -> T {
    if !io::stderr().is_terminal() {
        return work();
    }
    let text = &text;
    let (working, ended) = mpsc::channel();
    // The sender goes with the work, so that the display ends however the work does.
    thread::scope(move |scope| {
        let display = thread::Builder::new();
        // A display for which there is no thread is left out.
        let _ = display.spawn_scoped(scope, move || draw(&ended, text));
        let result = work();
        drop(working);
        result
    })
}

fn draw(ended: &mpsc::Receiver<()>, text: &dyn Fn() -> String) {
    let still_working = |wait| ended.recv_timeout(wait) == Err(RecvTimeoutError::Timeout);
    if !still_working(PATIENCE) {
        return;
    }
    let spinner = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    loop {
        spinner.set_message(text());
        spinner.tick();
        if !still_working(REDRAW) {
            break;
        }
    }
    spinner.finish_and_clear();
}
