//! What a test program does when it is started as another: a worker of the second wall, a worker that misbehaves, or one that tries what
//! its filter lets through.
#![allow(
    clippy::print_stdout,
    reason = "a program says on standard output what came of what it tried"
)]

use std::fs;
use std::io::{self, Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// The first argument of a worker.
pub const WORKER: &str = "worker";

/// The first argument of a program that tries something, which the second one names, confined if there is no third.
pub const PROBE: &str = "probe";

/// The first argument of a worker that misbehaves as the second one says.
pub const HOSTILE: &str = "hostile";

/// What [`PROBE`] can try, each of which works in a program that is not confined.
pub const PROBES: [&str; 16] = [
    "open",
    "create",
    "folder",
    "remove",
    "socket",
    "listen",
    "udp",
    "fork",
    "exec",
    "kill",
    "cwd",
    "duplicate",
    "grow",
    "far",
    "thread",
    "memory",
];

/// Serves as what the arguments say, if they say anything of the kind.
#[must_use]
pub fn as_told() -> Option<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    match arguments.next()?.as_str() {
        WORKER => Some(callbox::process::worker_main()),
        PROBE => Some(probe(&arguments.next()?, arguments.next().is_none())),
        HOSTILE => Some(hostile(&arguments.next()?)),
        _ => None,
    }
}

/// Tries something and says what came of it: `done`, or the error's number.
fn probe(what: &str, confined: bool) -> ExitCode {
    if confined && let Err(status) = callbox::process::confine() {
        println!("not confined: {status}");
        return ExitCode::FAILURE;
    }
    match attempt(what) {
        Ok(()) => println!("done"),
        Err(error) => println!("{}", error.raw_os_error().unwrap_or(0)),
    }
    ExitCode::SUCCESS
}

fn attempt(what: &str) -> io::Result<()> {
    let own = std::env::temp_dir().join(format!("callbox-probe-{}", std::process::id()));
    match what {
        "open" => fs::File::open("/proc/self/status").map(drop),
        "create" => fs::write(&own, "").and_then(|()| fs::remove_file(&own)),
        "folder" => fs::create_dir(&own).and_then(|()| fs::remove_dir(&own)),
        // There is nothing to remove: what matters is whether it is looked for.
        "remove" => match fs::remove_file(&own) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        },
        "socket" => UnixStream::pair().map(drop),
        "listen" => TcpListener::bind("127.0.0.1:0").map(drop),
        "udp" => UdpSocket::bind("127.0.0.1:0").map(drop),
        "fork" => Command::new("/bin/true").status().map(drop),
        "exec" => Err(Command::new("/bin/echo").arg("done").exec()),
        "kill" => Ok(rustix::process::test_kill_process(
            rustix::process::getpid(),
        )?),
        "cwd" => std::env::set_current_dir("/"),
        "duplicate" => io::stdin().as_fd().try_clone_to_owned().map(drop),
        // Memory that is a file, which no limit on memory counts.
        "grow" => {
            let memory = rustix::fs::memfd_create("probe", rustix::fs::MemfdFlags::CLOEXEC)?;
            Ok(rustix::fs::ftruncate(&memory, 1 << 40)?)
        }
        "far" => {
            let memory = rustix::fs::memfd_create("probe", rustix::fs::MemfdFlags::CLOEXEC)?;
            fs::File::from(memory).write_all_at(b"x", 1 << 40)
        }
        // What a worker needs.
        "thread" => std::thread::Builder::new()
            .spawn(|| ())?
            .join()
            .map_err(|_| io::Error::other("it panicked")),
        "memory" => {
            let bytes = vec![1_u8; 64 << 20];
            io::sink().write_all(&bytes)
        }
        other => Err(io::Error::other(other.to_owned())),
    }
}

/// The answer that something is done.
const DONE: [u8; 6] = [2, 0, 0, 0, 0, 0];

/// Answers as a worker does as far as the call, and then as no worker would. `early` misbehaves at once.
fn hostile(how: &str) -> ExitCode {
    match answer_badly(how) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn answer_badly(how: &str) -> io::Result<()> {
    let mut socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    // It is told to start, to load and to prepare, and says that it did.
    for _ in 0..3 {
        take(&mut socket)?;
        socket.write_all(&DONE)?;
    }
    take(&mut socket)?;
    let u64 = |n: u64| n.to_le_bytes().to_vec();
    match how {
        "tag" => say(&mut socket, &[77]),
        "empty" => say(&mut socket, &[]),
        "trailing" => say(&mut socket, &[0, 0, 0]),
        "ok_as_failure" => say(&mut socket, &[&[1, 0, 0, 0][..], &u64(0), &[0, 0]].concat()),
        "text_length" => say(&mut socket, &[&[1, 3, 0, 0][..], &u64(u64::MAX)].concat()),
        "not_utf8" => say(&mut socket, &[&[2, 0][..], &u64(1), &[0xff]].concat()),
        "function" => say(&mut socket, &[&[3][..], &u64(0), &u64(0), &[0, 0]].concat()),
        "list_length" => say(&mut socket, &[&[3][..], &u64(0), &u64(u64::MAX)].concat()),
        "length" => socket.write_all(&u32::MAX.to_le_bytes()),
        "half" => socket.write_all(&[200, 0, 0, 0, 0]),
        "silence" => Ok(()),
        "bye" => return Ok(()),
        "exit" => std::process::exit(3),
        "abort" => std::process::abort(),
        "flood" => flood(&mut socket, 1000),
        "empty_flood" => flood(&mut socket, 0),
        "endless" => endless(&mut socket),
        // What is done leaves the results as they are in the shared memory: zeros.
        "nothing" => socket.write_all(&DONE),
        "control" => {
            let text = b"\x1b[31mred\x00";
            let length = u64(text.len() as u64);
            say(
                &mut socket,
                &[&[1, 3, 0, 0][..], &length, text, &[0, 0]].concat(),
            )
        }
        other => Err(io::Error::other(other.to_owned())),
    }?;
    // It stays until it is killed.
    loop {
        std::thread::park();
    }
}

/// Log messages of this length without end.
fn flood(socket: &mut UnixStream, length: usize) -> io::Result<()> {
    let text = vec![b'x'; length];
    let record = [&[2, 0][..], &(length as u64).to_le_bytes(), &text].concat();
    loop {
        say(socket, &record)?;
    }
}

/// A message of which there is always more.
fn endless(socket: &mut UnixStream) -> io::Result<()> {
    socket.write_all(&1_000_000_u32.to_le_bytes())?;
    for _ in 0..999_999 {
        socket.write_all(&[2])?;
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    Ok(())
}

fn say(socket: &mut UnixStream, bytes: &[u8]) -> io::Result<()> {
    socket.write_all(&(bytes.len() as u32).to_le_bytes())?;
    socket.write_all(bytes)
}

fn take(socket: &mut UnixStream) -> io::Result<()> {
    let mut length = [0; 4];
    socket.read_exact(&mut length)?;
    let mut bytes = vec![0; u32::from_le_bytes(length) as usize];
    socket.read_exact(&mut bytes)
}
