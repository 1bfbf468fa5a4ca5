//! The roles in which a test program starts itself: a worker of the second wall, a misbehaving
//! worker, or a probe of the worker's filter.
#![allow(
    clippy::print_stdout,
    reason = "a probe prints the outcome of its attempt"
)]

use std::fs;
use std::io::{self, Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

mod raw;

/// The first argument of a worker.
pub const WORKER: &str = "worker";

/// The first argument of a probe. The second names the attempt; a third, if any, disables the
/// confinement, unless it is [`COMPILER`].
pub const PROBE: &str = "probe";

/// The third argument of a probe that is confined as a compiler is.
pub const COMPILER: &str = "compiler";

/// The first argument of a misbehaving worker. The second names the misbehaviour.
pub const HOSTILE: &str = "hostile";

/// The misbehaviour of a compiler that says twice that it is ready.
pub const TALKATIVE: &str = "talkative";

/// The attempts of a [`PROBE`]. Each of them works in an unconfined process.
pub const PROBES: [&str; 22] = [
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
    "memory_file",
    "thread",
    "huge_pages",
    "stack",
    "shared",
    "read_only",
    "affinity",
    "clock",
    "resolution",
    "memory",
];

/// Runs in the role that the arguments name, if they name one.
#[must_use]
pub fn as_told() -> Option<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    match arguments.next()?.as_str() {
        WORKER => Some(callbox::process::worker_main()),
        PROBE => Some(probe(&arguments.next()?, arguments.next().as_deref())),
        HOSTILE => Some(hostile(&arguments.next()?)),
        _ => None,
    }
}

/// Attempts an operation and prints the outcome: `done`, or the error number.
fn probe(what: &str, confinement: Option<&str>) -> ExitCode {
    let confined = match confinement {
        None => callbox::process::confine(),
        Some(COMPILER) => callbox::process::confine_compiler(),
        Some(_) => Ok(()),
    };
    if let Err(status) = confined {
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
        // The file does not exist; what matters is whether the lookup is allowed.
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
        // A file in memory, which no limit on memory counts.
        "memory_file" => {
            Ok(rustix::fs::memfd_create("probe", rustix::fs::MemfdFlags::CLOEXEC).map(drop)?)
        }
        "thread" => std::thread::Builder::new()
            .spawn(|| ())?
            .join()
            .map_err(|_| io::Error::other("it panicked")),
        "huge_pages" => raw::map(2 << 20, libc::MAP_HUGETLB | libc::MAP_NORESERVE).map(drop),
        "stack" => raw::map(1 << 20, libc::MAP_GROWSDOWN).map(drop),
        "shared" => raw::map(1 << 20, libc::MAP_SHARED).map(drop),
        // Memory that was written and then made read-only, which the limit on memory does not
        // count: 64 GiB of it.
        "read_only" => {
            (0..64).try_for_each(|_| raw::make_read_only(raw::map(1 << 30, libc::MAP_NORESERVE)?))
        }
        "affinity" => raw::affinity(1),
        "clock" => raw::clock(1),
        "resolution" => raw::resolution(1),
        // An operation that a worker needs.
        "memory" => {
            let bytes = vec![1_u8; 64 << 20];
            io::sink().write_all(&bytes)
        }
        other => Err(io::Error::other(other.to_owned())),
    }
}

/// The reply that a request was carried out.
const DONE: [u8; 6] = [2, 0, 0, 0, 0, 0];

/// Answers like a worker until the call, and then misbehaves. `early` misbehaves at once.
fn hostile(how: &str) -> ExitCode {
    match answer_badly(how) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn answer_badly(how: &str) -> io::Result<()> {
    let mut socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    if how == TALKATIVE {
        take(&mut socket)?;
        // One write, so that the second message is there as soon as the first.
        let ready = [&33_u32.to_le_bytes()[..], &[4; 33]].concat();
        socket.write_all(&ready.repeat(2))?;
        std::thread::park();
    }
    // Answers the requests to start, to load and to prepare.
    for request in 0..3 {
        let message = take(&mut socket)?;
        if request == 1 {
            // The module follows the message, whose first number is the module's size.
            let mut module = vec![0; read_varint(&message[1..])];
            socket.read_exact(&mut module)?;
        }
        socket.write_all(&DONE)?;
    }
    take(&mut socket)?;
    match how {
        "tag" => say(&mut socket, &[77]),
        "empty" => say(&mut socket, &[]),
        "trailing" => say(&mut socket, &[0, 0, 0]),
        "ok_as_failure" => say(&mut socket, &[1, 0, 0, 0, 0, 0, 0]),
        "text_length" => say(
            &mut socket,
            &[&[1, 3, 0, 0][..], &varint(u64::MAX)].concat(),
        ),
        "not_utf8" => say(&mut socket, &[2, 0, 1, 0xff]),
        "function" => say(&mut socket, &[3, 0, 0, 0, 0]),
        "list_length" => say(&mut socket, &[&[3, 0][..], &varint(u64::MAX)].concat()),
        "length" => socket.write_all(&u32::MAX.to_le_bytes()),
        "half" => socket.write_all(&[200, 0, 0, 0, 0]),
        "silence" => Ok(()),
        "bye" => return Ok(()),
        "exit" => std::process::exit(3),
        "abort" => std::process::abort(),
        "flood" => flood(&mut socket, 1000),
        "empty_flood" => flood(&mut socket, 0),
        "endless" => endless(&mut socket),
        // The results in shared memory stay zero.
        "nothing" => socket.write_all(&DONE),
        "control" => {
            let text = b"\x1b[31mred\x00";
            let length = varint(text.len() as u64);
            say(
                &mut socket,
                &[&[1, 3, 0, 0][..], &length, text, &[0, 0]].concat(),
            )
        }
        other => Err(io::Error::other(other.to_owned())),
    }?;
    // Stays until it is killed.
    loop {
        std::thread::park();
    }
}

/// A number as postcard encodes it.
fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

/// The number that bytes begin with.
fn read_varint(bytes: &[u8]) -> usize {
    let last = bytes.iter().position(|byte| byte & 0x80 == 0).unwrap_or(0);
    let digits = bytes[..=last].iter().rev();
    digits.fold(0, |number, byte| number << 7 | usize::from(byte & 0x7f))
}

/// Sends log messages of this length without end.
fn flood(socket: &mut UnixStream, length: usize) -> io::Result<()> {
    let text = vec![b'x'; length];
    let record = [&[2, 0][..], &varint(length as u64), &text].concat();
    loop {
        say(socket, &record)?;
    }
}

/// Sends a message that never ends.
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

fn take(socket: &mut UnixStream) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    socket.read_exact(&mut length)?;
    let mut bytes = vec![0; u32::from_le_bytes(length) as usize];
    socket.read_exact(&mut bytes)?;
    Ok(bytes)
}
