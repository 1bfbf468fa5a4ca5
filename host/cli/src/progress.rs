//! The progress display of long work on a terminal.

use std::io::{self, IsTerminal};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::text::name;

/// How long work runs before it is shown.
const PATIENCE: Duration = Duration::from_millis(500);

const REDRAW: Duration = Duration::from_millis(100);

/// Does the work. After half a second, a spinner shows the current `text` on standard error if that
/// is a terminal.
pub(super) fn show<T>(text: impl Fn() -> String + Sync, work: impl FnOnce() -> T) -> T {
    if !io::stderr().is_terminal() {
        return work();
    }
    let text = &text;
    let (working, ended) = mpsc::channel();
    // The sender is dropped with the work, which ends the display even after a panic.
    thread::scope(move |scope| {
        let display = thread::Builder::new();
        // If no thread can be started, there is no display.
        let _ = display.spawn_scoped(scope, move || {
            draw(&ended, text, ProgressDrawTarget::stderr())
        });
        let result = work();
        drop(working);
        result
    })
}

fn draw(ended: &mpsc::Receiver<()>, text: &dyn Fn() -> String, target: ProgressDrawTarget) {
    let still_working = |wait| ended.recv_timeout(wait) == Err(RecvTimeoutError::Timeout);
    if !still_working(PATIENCE) {
        return;
    }
    let spinner = ProgressBar::with_draw_target(None, target);
    // On one row: text that is wrapped could look like a line of its own.
    if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg}") {
        spinner.set_style(style);
    }
    loop {
        spinner.set_message(name(&text()));
        spinner.tick();
        if !still_working(REDRAW) {
            break;
        }
    }
    spinner.finish_and_clear();
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::sync::{Arc, Mutex};
    use std::time::Instant;

    use indicatif::TermLike;

    use super::*;

    /// A terminal that records its output.
    #[derive(Clone, Debug, Default)]
    struct Terminal(Arc<Mutex<String>>);

    impl Terminal {
        fn add(&self, text: &str) -> io::Result<()> {
            self.0.lock().unwrap().push_str(text);
            Ok(())
        }
    }

    impl TermLike for Terminal {
        fn width(&self) -> u16 {
            80
        }
        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn write_line(&self, text: &str) -> io::Result<()> {
            self.add(text)
        }
        fn write_str(&self, text: &str) -> io::Result<()> {
            self.add(text)
        }
        fn clear_line(&self) -> io::Result<()> {
            self.add("<cleared>")
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    /// What is shown of long work.
    fn shown(text: &'static str) -> String {
        let terminal = Terminal::default();
        let target = ProgressDrawTarget::term_like(Box::new(terminal.clone()));
        let (working, ended) = mpsc::channel();
        let display = thread::spawn(move || draw(&ended, &|| text.to_owned(), target));
        let given_up = Instant::now() + Duration::from_secs(30);
        while terminal.0.lock().unwrap().is_empty() && Instant::now() < given_up {
            thread::sleep(Duration::from_millis(10));
        }
        drop(working);
        display.join().unwrap();
        let shown = terminal.0.lock().unwrap();
        shown.clone()
    }

    #[test]
    fn long_work_is_shown_and_cleared() {
        let shown = shown("compiling a.wasm (1 of 3)");
        assert!(shown.contains(" compiling a.wasm (1 of 3)"), "{shown:?}");
        assert!(shown.trim_end().ends_with("<cleared>"), "{shown:?}");
    }

    /// Otherwise a file's name could show lines as callbox's.
    #[test]
    fn a_text_is_one_line() {
        let wrapped = shown("compiling a\nerror: b.wasm");
        assert!(
            wrapped.contains(r" compiling a\nerror: b.wasm"),
            "{wrapped:?}"
        );
        let long = format!("compiling {:70}error: b.wasm", "a");
        let cut = shown(long.leak());
        assert!(
            cut.contains(" compiling a ") && !cut.contains("error:"),
            "{cut:?}"
        );
    }

    #[test]
    fn short_work_is_not_shown() {
        let terminal = Terminal::default();
        let target = ProgressDrawTarget::term_like(Box::new(terminal.clone()));
        let (working, ended) = mpsc::channel();
        drop(working);
        draw(&ended, &String::new, target);
        assert_eq!(*terminal.0.lock().unwrap(), "");
    }
}
