//! Programs that are asked what they are, for a short while.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

/// A program that says nothing for this long is given up.
const PATIENCE: Duration = Duration::from_secs(30);

/// More than this of what a program says is not read, in bytes.
const MOST_OUTPUT: u64 = 64 << 10;

/// The first program of one of these names that is in a folder of `PATH`. Folders that are relative to where callbox runs are not looked at:
/// what lies there may be anybody's.
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

/// What a program says on standard output, without space around it.
///
/// # Errors
/// Why there is no answer: what was expected and what was found.
pub(super) fn ask(program: &Path, arguments: &[&str]) -> Result<String, String> {
    ask_for(PATIENCE, program, arguments)
}

fn ask_for(patience: Duration, program: &Path, arguments: &[&str]) -> Result<String, String> {
    let asked = format!("{} {}", program.display(), arguments.first().unwrap_or(&""));
    let asked = asked.trim_end();
    let mut command = Command::new(program);
    command.args(arguments);
    // rustup would install a toolchain that the folder asks for and that is not there.
    command.env("RUSTUP_AUTO_INSTALL", "0");
    command.stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let failed = |error| format!("expected `{asked}` to run: {error}");
    let mut child = command.spawn().map_err(failed)?;
    let out = child.stdout.take().map(read);
    let err = child.stderr.take().map(read);
    let until = Instant::now() + patience;
    let Some(is_success) = wait(&mut child, until).map_err(failed)? else {
        return Err(format!(
            "expected an answer of `{asked}` within {} s, found none",
            patience.as_secs_f64()
        ));
    };
    let text = |pipe: Option<Receiver<String>>| {
        // A child of the program's may hold the pipe open for longer.
        let left = until.saturating_duration_since(Instant::now());
        pipe.and_then(|pipe| pipe.recv_timeout(left).ok())
            .unwrap_or_default()
    };
    if is_success {
        let answer = text(out).trim().to_owned();
        return match answer.is_empty() {
            true => Err(format!("expected an answer of `{asked}`, found none")),
            false => Ok(answer),
        };
    }
    let said = text(err);
    let last = said.trim().lines().last().unwrap_or("nothing");
    Err(format!(
        "expected an answer of `{asked}`, found a failure: {last}"
    ))
}

/// Whether the program succeeded; none if it did not end in time and was ended.
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

/// Reads a pipe in a thread of its own: a program whose pipes nobody reads may never end.
fn read(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    // Without a thread there is no sender, and so no answer.
    let _ = thread::Builder::new().spawn(move || {
        let mut pipe = pipe;
        let mut bytes = Vec::new();
        let _ = (&mut pipe).take(MOST_OUTPUT).read_to_end(&mut bytes);
        // The rest is let go, so that the program can end.
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
    fn who_does_not_end_is_given_up() {
        let begin = Instant::now();
        let patience = Duration::from_millis(200);
        for script in ["exec sleep 60", "while echo y; do :; done"] {
            let expected = "expected an answer of `/bin/sh -c` within 0.2 s, found none";
            assert_eq!(ask_shell(patience, script), Err(expected.to_owned()));
        }
        // What a child leaves running does not keep it waiting either.
        let _ = ask_shell(patience, "sleep 60 & echo done");
        assert!(begin.elapsed() < PATIENCE);
    }

    #[test]
    fn an_answer_may_be_long_and_has_to_be_one() {
        let script = "i=0; while [ $i -lt 20000 ]; do echo 12345678; i=$((i+1)); done; echo no >&2";
        let answer = ask_shell(PATIENCE, script);
        assert_eq!(answer.map(|text| text.len()), Ok(64 << 10));
        for (script, problem) in [
            ("true", "found none"),
            ("exit 3", "found a failure: nothing"),
            ("echo one >&2; echo two >&2; exit 3", "found a failure: two"),
        ] {
            let expected = format!("expected an answer of `/bin/sh -c`, {problem}");
            assert_eq!(ask_shell(PATIENCE, script), Err(expected));
        }
        let missing = ask_for(PATIENCE, Path::new("/none/sh"), &[]);
        assert!(missing.is_err_and(|problem| problem.starts_with("expected `/none/sh` to run: ")));
    }
}
