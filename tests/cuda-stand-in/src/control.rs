//! The tests' side: loads the stand-in where cudarc will find it, sets it, and asks it what happened.
//!
//! What is set and asked is in the shared library, which has its own copy of everything in this crate: hence the C functions between.
#![allow(unsafe_code, reason = "calls functions of a shared library")]

use std::ops::AddAssign;
use std::path::PathBuf;
use std::sync::OnceLock;

use cudarc::driver::sys::CUresult;
use libloading::{Library, Symbol};

/// When work on streams happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// When it is enqueued.
    Eager,
    /// When somebody waits for it and not before, so that a missing wait shows.
    Lazy,
}

/// How many things the program has made and not given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Leaks {
    /// Device memory.
    pub allocations: u64,
    /// Pinned host memory.
    pub pinned: u64,
    /// Modules.
    pub modules: u64,
    /// Events.
    pub events: u64,
    /// Streams.
    pub streams: u64,
    /// Graphs.
    pub graphs: u64,
    /// Executable graphs.
    pub graph_execs: u64,
}

impl Leaks {
    /// Nothing leaked.
    pub const NONE: Leaks = Leaks {
        allocations: 0,
        pinned: 0,
        modules: 0,
        events: 0,
        streams: 0,
        graphs: 0,
        graph_execs: 0,
    };
}

impl AddAssign for Leaks {
    fn add_assign(&mut self, more: Leaks) {
        self.allocations += more.allocations;
        self.pinned += more.pinned;
        self.modules += more.modules;
        self.events += more.events;
        self.streams += more.streams;
        self.graphs += more.graphs;
        self.graph_execs += more.graph_execs;
    }
}

/// The stand-in driver of this process.
#[derive(Debug)]
pub struct StandIn {
    library: Library,
}

/// What the shared library is called, before the system's ending.
const NAME: &str = "callbox_cuda_stand_in";

impl StandIn {
    /// Loads the stand-in under the name `libcuda.so` and keeps it, so that cudarc finds it and not NVIDIA's. Call it before anything of cudarc.
    ///
    /// # Errors
    /// Where the shared library was looked for, if it is not beside the test program.
    pub fn try_preload() -> Result<&'static StandIn, String> {
        static STAND_IN: OnceLock<Result<StandIn, String>> = OnceLock::new();
        STAND_IN
            .get_or_init(StandIn::load)
            .as_ref()
            .map_err(Clone::clone)
    }

    /// As [`StandIn::try_preload`], for tests.
    ///
    /// # Panics
    /// The shared library is not beside the test program.
    #[allow(clippy::panic, reason = "for tests, which fail by panicking")]
    pub fn preload() -> &'static StandIn {
        StandIn::try_preload().unwrap_or_else(|why| panic!("{why}"))
    }

    fn load() -> Result<StandIn, String> {
        let file = libloading::library_filename(NAME);
        let program =
            std::env::current_exe().map_err(|error| format!("where this program lies: {error}"))?;
        // Tests lie in `deps`, other programs in its parent; the library is put into both.
        let folders = program.ancestors().skip(1).take(2);
        let candidates: Vec<PathBuf> = folders
            .flat_map(|folder| [folder.join("deps").join(&file), folder.join(&file)])
            .collect();
        let Some(path) = candidates.iter().find(|path| path.is_file()) else {
            return Err(format!(
                "the stand-in driver was not built: looked for {candidates:?}; build the package callbox-cuda-stand-in"
            ));
        };
        // SAFETY: The library is this crate's, whose loading runs no code of its own.
        let library = unsafe { Library::new(path) }
            .map_err(|error| format!("{}: {error}", path.display()))?;
        // SAFETY: The library is never closed, and the symbol is only looked for.
        unsafe { library.get::<extern "C" fn()>(b"callbox_stand_in_reset") }
            .map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(StandIn { library })
    }

    /// A control function by name. `F` must be the type that `driver/remote.rs` gives it.
    #[allow(
        clippy::expect_used,
        reason = "the library is built from this very crate"
    )]
    fn function<F: Copy>(&self, name: &str) -> F {
        // SAFETY: Every use in this file names the type that the function has in `driver/remote.rs`.
        let symbol: Symbol<'_, F> =
            unsafe { self.library.get(name) }.expect("a control function of this crate's library");
        *symbol
    }

    fn text(&self, name: &str) -> String {
        let read: extern "C" fn(*mut u8, usize) -> usize = self.function(name);
        let mut bytes = vec![0; read(std::ptr::null_mut(), 0)];
        // What is read may have grown or shrunk in between.
        let length = read(bytes.as_mut_ptr(), bytes.len()).min(bytes.len());
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    }

    /// Sets when work happens. What is already enqueued stays so until somebody waits for it.
    pub fn set_mode(&self, mode: Mode) {
        self.function::<extern "C" fn(bool)>("callbox_stand_in_set_lazy")(mode == Mode::Lazy);
    }

    /// Sets whether addresses of device memory are given out again. They are not at first, so that what is used after it was given back is found.
    pub fn set_reuse(&self, reuse: bool) {
        self.function::<extern "C" fn(bool)>("callbox_stand_in_set_reuse")(reuse);
    }

    /// Sets how many devices there are (0 to 8). False, and nothing changes, after `cuInit`.
    pub fn set_devices(&self, devices: usize) -> bool {
        self.function::<extern "C" fn(usize) -> bool>("callbox_stand_in_set_devices")(devices)
    }

    /// Sets how much memory a device has, in bytes.
    pub fn set_memory(&self, device: usize, bytes: u64) {
        self.function::<extern "C" fn(usize, u64)>("callbox_stand_in_set_memory")(device, bytes);
    }

    /// Sets the devices' compute capability: 9.0 unless told otherwise.
    pub fn set_compute_capability(&self, major: u32, minor: u32) {
        self.function::<extern "C" fn(u32, u32)>("callbox_stand_in_set_capability")(major, minor);
    }

    /// Sets what `cuDriverGetVersion` says: 13000 unless told otherwise.
    pub fn set_driver_version(&self, version: i32) {
        self.function::<extern "C" fn(i32)>("callbox_stand_in_set_driver_version")(version);
    }

    /// Makes the n-th driver call from now on fail, 1 being the next one. A call that gives something back gives it back nevertheless. A
    /// code that breaks a context (700, 719 and their like) breaks the current one. `CUDA_SUCCESS` withdraws what was asked for before.
    pub fn fail_nth(&self, n: u64, code: CUresult) {
        self.fail(n, code, 0);
    }

    /// Lets the next call of this name fail, with this code.
    pub fn fail_next(&self, name: &str, code: CUresult) {
        self.fail(1, code, crate::driver::name_number(name));
    }

    fn fail(&self, n: u64, code: CUresult, of: u64) {
        let fail: extern "C" fn(u64, u32, u64) = self.function("callbox_stand_in_fail_nth");
        fail(n, code as u32, of);
    }

    /// How many driver calls there were since [`StandIn::clear_calls`] or [`StandIn::reset`]. Looking up an error's name is not one.
    pub fn count_calls(&self) -> u64 {
        self.calls().len() as u64
    }

    /// The driver calls in their order, by name.
    pub fn calls(&self) -> Vec<String> {
        self.text("callbox_stand_in_calls")
            .lines()
            .map(str::to_owned)
            .collect()
    }

    /// Forgets the calls so far.
    pub fn clear_calls(&self) {
        self.function::<extern "C" fn()>("callbox_stand_in_clear_calls")();
    }

    /// What was made and not given back, what was alive when its context went included.
    pub fn leaks(&self) -> Leaks {
        let mut leaks = Leaks::NONE;
        self.function::<extern "C" fn(&mut Leaks)>("callbox_stand_in_leaks")(&mut leaks);
        leaks
    }

    /// What went wrong last, in words: a kernel's fault, a PTX error, an injected failure. Empty if nothing did.
    pub fn last_fault(&self) -> String {
        self.text("callbox_stand_in_last_fault")
    }

    /// Everything as new, the settings too. Contexts and what is in them are gone: only for when no program holds any.
    pub fn reset(&self) {
        self.function::<extern "C" fn()>("callbox_stand_in_reset")();
    }
}
