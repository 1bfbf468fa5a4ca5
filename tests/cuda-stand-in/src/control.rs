//! The tests' interface: loads the stand-in where cudarc finds it, configures it, and queries it.
//!
//! The state lives in the shared library, which has its own copy of this crate; C functions connect
//! the two.
#![allow(unsafe_code, reason = "calls functions of a shared library")]

use std::ops::AddAssign;
use std::path::PathBuf;
use std::sync::OnceLock;

use cudarc::driver::sys::CUresult;
use libloading::{Library, Symbol};

/// When work in streams runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// When it is enqueued.
    Eager,
    /// When the program waits for it and not before, so that a missing wait shows.
    Lazy,
}

/// The number of objects that the program created and did not release.
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
    /// No leaks.
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

/// The name of the shared library, without the system's prefix and suffix.
const NAME: &str = "callbox_cuda_stand_in";

impl StandIn {
    /// Loads the stand-in as `libcuda.so` and keeps it loaded, so that cudarc finds it instead of
    /// NVIDIA's. Call it before any function of cudarc.
    ///
    /// # Errors
    /// The searched paths, if the shared library is not beside the test program.
    pub fn try_preload() -> Result<&'static StandIn, String> {
        static STAND_IN: OnceLock<Result<StandIn, String>> = OnceLock::new();
        STAND_IN
            .get_or_init(StandIn::load)
            .as_ref()
            .map_err(Clone::clone)
    }

    /// Does the same as [`StandIn::try_preload`], for tests.
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
        // Tests are in `deps`, other programs in its parent; cargo puts the library into both.
        let folders = program.ancestors().skip(1).take(2);
        let candidates: Vec<PathBuf> = folders
            .flat_map(|folder| [folder.join("deps").join(&file), folder.join(&file)])
            .collect();
        let Some(path) = candidates.iter().find(|path| path.is_file()) else {
            return Err(format!(
                "the stand-in driver was not built: looked for {candidates:?}; build the package callbox-cuda-stand-in"
            ));
        };
        // SAFETY: the library is this crate's, which runs no code when it is loaded.
        let library = unsafe { Library::new(path) }
            .map_err(|error| format!("{}: {error}", path.display()))?;
        // SAFETY: the library is never closed, and the symbol is only looked up.
        unsafe { library.get::<extern "C" fn()>(b"callbox_stand_in_reset") }
            .map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(StandIn { library })
    }

    /// Looks up a control function. `F` must be its type in `driver/remote.rs`.
    #[allow(
        clippy::expect_used,
        reason = "the library is built from this very crate"
    )]
    fn function<F: Copy>(&self, name: &str) -> F {
        // SAFETY: every use in this file names the function's type in `driver/remote.rs`.
        let symbol: Symbol<'_, F> =
            unsafe { self.library.get(name) }.expect("a control function of this crate's library");
        *symbol
    }

    fn text(&self, name: &str) -> String {
        let read: extern "C" fn(*mut u8, usize) -> usize = self.function(name);
        let mut bytes = vec![0; read(std::ptr::null_mut(), 0)];
        // The text may have changed length since the first call.
        let length = read(bytes.as_mut_ptr(), bytes.len()).min(bytes.len());
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    }

    /// Sets when work runs. Work that is already enqueued stays so until the program waits for it.
    pub fn set_mode(&self, mode: Mode) {
        self.function::<extern "C" fn(bool)>("callbox_stand_in_set_lazy")(mode == Mode::Lazy);
    }

    /// Sets whether freed device addresses are reused. By default they are not, so that use after
    /// free is detected.
    pub fn set_reuse(&self, reuse: bool) {
        self.function::<extern "C" fn(bool)>("callbox_stand_in_set_reuse")(reuse);
    }

    /// Sets the number of devices (0 to 8). After `cuInit` it changes nothing and returns false.
    pub fn set_devices(&self, devices: usize) -> bool {
        self.function::<extern "C" fn(usize) -> bool>("callbox_stand_in_set_devices")(devices)
    }

    /// Sets a device's memory size in bytes.
    pub fn set_memory(&self, device: usize, bytes: u64) {
        self.function::<extern "C" fn(usize, u64)>("callbox_stand_in_set_memory")(device, bytes);
    }

    /// Sets the devices' compute capability. Default: 9.0.
    pub fn set_compute_capability(&self, major: u32, minor: u32) {
        self.function::<extern "C" fn(u32, u32)>("callbox_stand_in_set_capability")(major, minor);
    }

    /// Sets the local memory that each thread of a kernel takes, as `cuFuncGetAttribute` says.
    /// Default: 0.
    pub fn set_local_bytes(&self, bytes: u32) {
        self.function::<extern "C" fn(u32)>("callbox_stand_in_set_local_bytes")(bytes);
    }

    /// Sets the version that `cuDriverGetVersion` returns. Default: 13000.
    pub fn set_driver_version(&self, version: i32) {
        self.function::<extern "C" fn(i32)>("callbox_stand_in_set_driver_version")(version);
    }

    /// Makes the n-th driver call from now on fail; 1 is the next one.
    ///
    /// A call that releases an object releases it nevertheless. A code that breaks a context (700,
    /// 719 and similar ones) breaks the current one. `CUDA_SUCCESS` withdraws an earlier request.
    pub fn fail_nth(&self, n: u64, code: CUresult) {
        self.fail(n, code, 0);
    }

    /// Makes the next call of this function fail with this code.
    pub fn fail_next(&self, name: &str, code: CUresult) {
        self.fail(1, code, crate::driver::name_number(name));
    }

    fn fail(&self, n: u64, code: CUresult, of: u64) {
        let fail: extern "C" fn(u64, u32, u64) = self.function("callbox_stand_in_fail_nth");
        fail(n, code as u32, of);
    }

    /// Returns the number of driver calls since [`StandIn::clear_calls`] or [`StandIn::reset`].
    /// Lookups of error names do not count.
    pub fn count_calls(&self) -> u64 {
        self.calls().len() as u64
    }

    /// Returns the names of the driver calls, in order.
    pub fn calls(&self) -> Vec<String> {
        self.text("callbox_stand_in_calls")
            .lines()
            .map(str::to_owned)
            .collect()
    }

    /// Clears the record of calls.
    pub fn clear_calls(&self) {
        self.function::<extern "C" fn()>("callbox_stand_in_clear_calls")();
    }

    /// Returns the objects that were not released, including those that were alive when their
    /// context was destroyed.
    pub fn leaks(&self) -> Leaks {
        let mut leaks = Leaks::NONE;
        self.function::<extern "C" fn(&mut Leaks)>("callbox_stand_in_leaks")(&mut leaks);
        leaks
    }

    /// Describes the last failure: a kernel's fault, a PTX error, or an injected failure. Empty if
    /// there was none.
    pub fn last_fault(&self) -> String {
        self.text("callbox_stand_in_last_fault")
    }

    /// Resets everything, settings included. All contexts and their objects are destroyed, so no
    /// program may hold any.
    pub fn reset(&self) {
        self.function::<extern "C" fn()>("callbox_stand_in_reset")();
    }
}
