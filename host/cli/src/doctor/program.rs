//! Running a program on `PATH` for one short answer.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

/// The time in which a program must answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// The most bytes that are read of a program's output.
const MOST_OUTPUT: u64 = 64 << 10;

/// The first program of one of these names in a folder of `PATH`. Relative folders are skipped:
/// what they hold depends on the current folder.
pub(super) fn find(names: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let folders: Vec<_> = std::env::split_paths(&path)
        .filter(|folder| folder.is_absolute())
        .collect();
    names.iter().find_map(|name| {
        let file = format!("{name}{}", std::env::consts::EXE_SUFFIX);
        let files = folders.iter().map(|folder| folder.join(&file));
        files.into_iter().find(|file| is_program(file))
    })
}

#[cfg(unix)]
fn is_program(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;

    let metadata = file.metadata();
    metadata.is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_program(file: &Path) -> bool {
    file.is_file()
}

/// The trimmed standard output of a program.
///
/// # Errors
/// Why there is no answer.
pub(super) fn ask(program: &Path, arguments: &[&str]) -> Result<String, String> {
    ask_for(PATIENCE, program, arguments)
}

fn ask_for(patience: Duration, program: &Path, arguments: &[&str]) -> Result<String, String> {
    let asked = format!("{} {}", program.display(), arguments.first().unwrap_or(&""));
    let asked = asked.trim_end();
    let mut command = Command::new(program);
    command.args(arguments);
    // Otherwise rustup may install the toolchain that the current folder asks for.
    command.env("RUSTUP_AUTO_INSTALL", "0");
    command.stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let failed = |error| format!("`{asked}` could not be run: {error}");
    let mut child = command.spawn().map_err(failed)?;
    let out = child.stdout.take().map(read);
    let err = child.stderr.take().map(read);
    let until = Instant::now() + patience;
    let Some(is_success) = wait(&mut child, until).map_err(failed)? else {
        return Err(format!(
            "`{asked}` did not answer within {} s",
            patience.as_secs_f64()
        ));
    };
    let text = |pipe: Option<Receiver<String>>| {
        // A child of the program may keep the pipe open.
        let left = until.saturating_duration_since(Instant::now());
        pipe.and_then(|pipe| pipe.recv_timeout(left).ok())
            .unwrap_or_default()
    };
    if is_success {
        let answer = text(out).trim().to_owned();
        return if answer.is_empty() {
            Err(format!("`{asked}` printed nothing"))
        } else {
            Ok(answer)
        };
    }
    let said = text(err);
    let last = said.trim().lines().last().unwrap_or("nothing");
    Err(format!("`{asked}` failed: {last}"))
}

/// Whether the program succeeded, or `None` if it was killed because it did not end in time.
fn wait(child: &mut Child, until: Instant) -> std::io::Result<Option<bool>> {
    const PAUSE: Duration = Duration::from_millis(5);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status.success()));
        }
        if Instant::now() >= until {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(PAUSE);
    }
}

/// Reads a pipe in a thread of its own, so that the program never blocks on a full pipe.
fn read(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    // If no thread can be started, the sender is dropped, and there is no answer.
    let _ = thread::Builder::new().spawn(move || {
        let mut pipe = pipe;
        let mut bytes = Vec::new();
        let _ = (&mut pipe).take(MOST_OUTPUT).read_to_end(&mut bytes);
        // The rest is discarded, so that the program can end.
        let _ = std::io::copy(&mut pipe, &mut std::io::sink());
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    receiver
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn ask_shell(patience: Duration, script: &str) -> Result<String, String> {
        ask_for(patience, Path::new("/bin/sh"), &["-c", script])
    }

    #[test]
    fn a_program_that_does_not_end_is_killed() {
        let begin = Instant::now();
        let patience = Duration::from_millis(200);
        for script in ["exec sleep 60", "while echo y; do :; done"] {
            let expected = "`/bin/sh -c` did not answer within 0.2 s";
            assert_eq!(ask_shell(patience, script), Err(expected.to_owned()));
        }
        // A background process that holds the pipe does not delay the answer either.
        let _ = ask_shell(patience, "sleep 60 & echo done");
        assert!(begin.elapsed() < PATIENCE);
    }

    #[test]
    fn answers_may_be_long_but_not_empty() {
        let script = "i=0; while [ $i -lt 20000 ]; do echo 12345678; i=$((i+1)); done; echo no >&2";
        let answer = ask_shell(PATIENCE, script);
        assert_eq!(answer.map(|text| text.len()), Ok(64 << 10));
        for (script, problem) in [
            ("true", "printed nothing"),
            ("exit 3", "failed: nothing"),
            ("echo one >&2; echo two >&2; exit 3", "failed: two"),
        ] {
            let expected = format!("`/bin/sh -c` {problem}");
            assert_eq!(ask_shell(PATIENCE, script), Err(expected));
        }
        let missing = ask_for(PATIENCE, Path::new("/none/sh"), &[]);
        assert!(missing.is_err_and(|problem| problem.starts_with("`/none/sh` could not be run: ")));
    }
}
