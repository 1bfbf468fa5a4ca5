//! `callbox.record`: writes calls to files, which `callbox replay` of the command line repeats.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io;
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use callbox::call::CallBuffers as _;
use callbox::values::{with_capacity, zeroed};
use callbox::wasm::{ModuleFile, PerProcess, room_to_work};
use callbox::{CallOptions, CallSite, Deadline, Literal, Shape, Status};
use callbox_package::{Capsule, StatusRecord};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::buffers::RawArrays;
use crate::exit::argument;
use crate::host::HostCore;
use crate::stack::on_enough;

/// The most capsules of a recording.
const MOST: u64 = 100;

/// Whether there is a recording, which each call asks.
static IS_ON: AtomicBool = AtomicBool::new(false);

/// Held while the process forks: a child goes on with the recording.
static CURRENT: Mutex<Option<Arc<Recorder>>> = Mutex::new(None);

/// Writes capsules to a folder.
#[derive(Debug)]
pub(crate) struct Recorder {
    folder: PathBuf,
    every: Option<u64>,
    calls: AtomicU64,
    begun: AtomicU64,
    /// The paths of the files that each process wrote.
    written: PerProcess<Mutex<Vec<PathBuf>>>,
}

/// A call site of a module, as far as a capsule has it.
pub(crate) struct Recordable {
    pub(crate) file: ModuleFile,
    pub(crate) host: Arc<HostCore>,
    pub(crate) site: CallSite,
}

impl fmt::Debug for Recordable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recordable")
            .field("site", &self.site)
            .finish_non_exhaustive()
    }
}

/// A call that has begun and may be recorded.
pub(crate) struct Begun<'a> {
    recorder: Arc<Recorder>,
    call: &'a Recordable,
    operands: Vec<Vec<u8>>,
    deadline: Option<Duration>,
    is_nth: bool,
}

/// Copies the operands of a call, if calls are recorded: results may overwrite them.
#[inline]
pub(crate) fn begin<'a>(
    call: Option<&'a Recordable>,
    options: &CallOptions,
    arrays: &RawArrays<'_>,
) -> Option<Begun<'a>> {
    if !IS_ON.load(Ordering::Relaxed) {
        return None;
    }
    begin_recorded(call?, options, arrays)
}

#[cold]
fn begin_recorded<'a>(
    call: &'a Recordable,
    options: &CallOptions,
    arrays: &RawArrays<'_>,
) -> Option<Begun<'a>> {
    let recorder = current().clone()?;
    let number = recorder.calls.fetch_add(1, Ordering::Relaxed) + 1;
    let operands = (0..arrays.operands()).map(|operand| {
        let mut bytes = zeroed(arrays.operand_size(operand))?;
        arrays.read_operand(operand, &mut bytes);
        Ok(bytes)
    });
    let operands = operands
        .collect::<callbox::Result<_>>()
        .map_err(|status| say_left_out(call, &status.to_string()));
    Some(Begun {
        operands: operands.ok()?,
        deadline: options.deadline.map(|deadline| match deadline {
            Deadline::After(whole) | Deadline::Begun { whole, .. } => whole,
            Deadline::At(end) => end.saturating_duration_since(Instant::now()),
        }),
        is_nth: recorder.every.is_some_and(|every| number % every == 0),
        recorder,
        call,
    })
}

impl Begun<'_> {
    /// Records the call if it failed, or if it is an N-th one. The results are as the guest wrote
    /// them.
    pub(crate) fn end(self, failure: Option<&Status>, arrays: &RawArrays<'_>) {
        if failure.is_none() && !self.is_nth {
            return;
        }
        let results = (0..arrays.results()).map(|result| arrays.result_bytes(result));
        let outcome = match failure {
            Some(status) => Ok(Err(StatusRecord::from(status))),
            None => results.collect::<callbox::Result<_>>().map(Ok),
        };
        let (recorder, call) = (Arc::clone(&self.recorder), self.call);
        match recorder.begun.fetch_add(1, Ordering::Relaxed) {
            ..MOST => {}
            MOST => return say(&format!("only the first {MOST} calls are recorded")),
            _ => return,
        }
        let outcome = outcome.map_err(|status| status.to_string());
        // Attributes may nest.
        let written = outcome.and_then(|outcome| on_enough(|| self.write(outcome)));
        if let Err(reason) = written {
            say_left_out(call, &reason);
        }
    }

    fn write(self, outcome: Result<Vec<Vec<u8>>, StatusRecord>) -> Result<(), String> {
        let Recordable { file, host, site } = self.call;
        let results = outcome.as_ref().map_or(&[][..], Vec::as_slice);
        let arrays = self.operands.iter().chain(results).map(Vec::len);
        // What makes the file ends the process where there is no memory for the module and it. One
        // is made at a time: several would take the room of each other.
        static MAKES: PerProcess<Mutex<()>> = PerProcess::of_first(Mutex::new(()));
        let _makes = lock(MAKES.get());
        let bytes = 2 * file.bytes().len() + arrays.sum::<usize>();
        let _room = room_to_work(bytes, "a capsule").map_err(|status| status.to_string())?;
        with_capacity::<u8>(bytes).map_err(|status| status.to_string())?;
        let leaves = site.operands.iter().flat_map(Shape::leaves);
        let operands = leaves
            .zip(self.operands)
            .map(|(shape, bytes)| Literal::from_bytes(shape.clone(), bytes));
        let text = |status: Status| status.to_string();
        let milliseconds =
            |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1);
        let capsule = Capsule {
            file: file.label(),
            module: file.bytes().to_vec(),
            policy: host.policy.clone(),
            deadline_ms: self.deadline.map(milliseconds),
            site: site.clone(),
            operands: operands.collect::<callbox::Result<_>>().map_err(text)?,
            outcome,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let file = capsule.to_file().map_err(text)?;
        let path = self.recorder.folder.join(&file.name);
        say(&file.describe(&path));
        place(&path, &file.bytes).map_err(|error| format!("{}: {error}", path.display()))?;
        let mut written = lock(self.recorder.written.get());
        if !written.contains(&path) {
            written.push(path);
        }
        Ok(())
    }
}

fn say_left_out(call: &Recordable, reason: &str) {
    let target = call.site.label();
    say(&format!("a call of {target} is not recorded: {reason}"));
}

/// Writes a file. Threads that write the same capsule write the same bytes.
fn place(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    static STAGED: AtomicU64 = AtomicU64::new(0);
    let (staged, mut file) = loop {
        let number = STAGED.fetch_add(1, Ordering::Relaxed);
        let mut staged = path.as_os_str().to_owned();
        staged.push(format!(".{}.{number}.part", std::process::id()));
        // In a folder that others write, the name can be a link of theirs.
        match OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&staged)
        {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            opened => break (staged, opened?),
        }
    };
    let written = file
        .write_all(bytes)
        .and_then(|()| fs::rename(&staged, path));
    if written.is_err() {
        let _ = fs::remove_file(&staged);
    }
    written
}

/// Prints a line on standard error: no Python runs during a call. Takes no lock: a thread that has
/// that of `std::io::stderr` may not exist in a forked child.
pub(crate) fn say(message: &str) {
    let stderr = io::stderr();
    if let Ok(stderr) = stderr.as_fd().try_clone_to_owned() {
        let _ = fs::File::from(stderr).write_all(format!("callbox: {message}\n").as_bytes());
    }
}

pub(crate) fn current() -> MutexGuard<'static, Option<Arc<Recorder>>> {
    lock(&CURRENT)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Calls that are recorded until `close`, or the end of a `with` block.
#[pyclass(frozen, module = "callbox")]
pub(crate) struct Recording(Arc<Recorder>);

#[pymethods]
impl Recording {
    /// The paths of the capsules that this process wrote.
    #[getter]
    fn capsules(&self) -> Vec<PathBuf> {
        lock(self.0.written.get()).clone()
    }

    /// Ends the recording. Calls that run now may still be recorded.
    fn close(&self) {
        let mut current = current();
        if current
            .as_ref()
            .is_some_and(|known| Arc::ptr_eq(known, &self.0))
        {
            IS_ON.store(false, Ordering::Relaxed);
            *current = None;
        }
    }

    fn __enter__(slf: Py<Self>) -> PyResult<Py<Self>> {
        let is_open = current()
            .as_ref()
            .is_some_and(|known| Arc::ptr_eq(known, &slf.get().0));
        if is_open {
            return Ok(slf);
        }
        let message = "the recording is closed: callbox.record() begins another one";
        Err(PyRuntimeError::new_err(message))
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, _error: &Bound<'_, PyTuple>) {
        self.close();
    }
}

/// Writes each call of a target on Host that fails to a file in a folder.
///
/// The file, a capsule, has the module, the operands, the attributes, the policy and how the call
/// ended. `callbox replay` of the command line repeats the call. A line on standard error says what
/// a capsule holds before it is written. Calls on batches (`vmap`), on CUDA, and with directories,
/// clocks or random bytes are not recorded. A recording writes at most 100 files, and has each call
/// copy its operands.
///
/// Args:
///     folder: The folder, which is made if it does not exist.
///     every: Also records each call with a number that this divides, whether it fails or not.
///
/// Returns:
///     The recording, which `close` or the end of a `with` block ends.
///
/// Raises:
///     ValueError: `every` is less than 1.
///     OSError: The folder cannot be made.
///     RuntimeError: Calls are recorded already.
#[pyfunction]
#[pyo3(signature = (folder, *, every=None))]
pub(crate) fn record(
    #[pyo3(from_py_with = argument)] folder: PathBuf,
    #[pyo3(from_py_with = argument)] every: Option<i64>,
) -> PyResult<Recording> {
    if let Some(found) = every.filter(|every| *every < 1) {
        return Err(PyValueError::new_err(format!(
            "expected every to be at least 1, found {found}"
        )));
    }
    let mut current = current();
    if let Some(known) = &*current {
        let folder = known.folder.display();
        return Err(PyRuntimeError::new_err(format!(
            "calls are recorded already, to {folder}: close that recording first"
        )));
    }
    let made = fs::create_dir_all(&folder);
    // The current folder may change.
    let made = made.and_then(|()| fs::canonicalize(&folder));
    let made = made.map_err(|error| {
        let message = format!("cannot make the folder {:?}: {error}", folder.display());
        io::Error::new(error.kind(), message)
    });
    let recorder = Arc::new(Recorder {
        folder: made?,
        every: every.map(i64::unsigned_abs),
        calls: AtomicU64::new(0),
        begun: AtomicU64::new(0),
        written: PerProcess::new(Mutex::default()),
    });
    *current = Some(Arc::clone(&recorder));
    IS_ON.store(true, Ordering::Relaxed);
    Ok(Recording(recorder))
}
