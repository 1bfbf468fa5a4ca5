//! The library's C interface.
//!
//! The signatures are those of `nvrtc.h`, which have not changed since CUDA 11.2. Results are plain
//! numbers, because a newer library may have new codes.
#![allow(
    unsafe_code,
    reason = "NVRTC is a C library that is opened while the process runs"
)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr;

use super::Found;
use crate::places::{self, SearchPlace};

/// The library's names, newest first.
const NAMES: [&str; 3] = ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"];

type Program = *mut c_void;
type Numbers = unsafe extern "C" fn(*mut c_int) -> c_int;
type Size = unsafe extern "C" fn(Program, *mut usize) -> c_int;
type Text = unsafe extern "C" fn(Program, *mut c_char) -> c_int;

/// An opened NVRTC. It is never closed.
#[derive(Debug)]
pub(super) struct Library {
    pub(super) found: Found,
    functions: Functions,
    /// Keeps the functions loaded.
    _library: libloading::Library,
    /// NVRTC opens its builtins by their name, and finds those that are loaded.
    _builtins: Vec<libloading::Library>,
}

#[derive(Debug)]
struct Functions {
    version: unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int,
    error_string: unsafe extern "C" fn(c_int) -> *const c_char,
    arch_count: Numbers,
    archs: Numbers,
    create: unsafe extern "C" fn(
        *mut Program,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> c_int,
    destroy: unsafe extern "C" fn(*mut Program) -> c_int,
    compile: unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int,
    ptx_size: Size,
    ptx: Text,
    log_size: Size,
    log: Text,
}

/// A failed compilation.
#[derive(Debug)]
pub(super) struct Failure {
    /// The `nvrtcResult`.
    pub(super) code: c_int,
    /// Its name.
    pub(super) name: String,
    /// The compiler's log.
    pub(super) log: Vec<u8>,
}

impl Library {
    /// Opens the library at a place.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) fn open(place: &SearchPlace) -> Result<Self, String> {
        match place {
            SearchPlace::Loader => {
                let opened = NAMES
                    .into_iter()
                    .map(|name| Self::load(Path::new(name), vec![]));
                first(opened)
            }
            SearchPlace::Folder(folder) => {
                let files = NAMES.map(|name| folder.join(name));
                let mut files = files.into_iter().filter(|file| file.exists()).peekable();
                if files.peek().is_none() {
                    let names = NAMES.join(", ");
                    return Err(format!("expected one of {names}, found none"));
                }
                first(files.map(|file| Self::load(&file, builtins(folder))))
            }
            SearchPlace::File(file) => {
                let folder = file.parent().unwrap_or(Path::new(""));
                Self::load(file, builtins(folder))
            }
        }
    }

    fn load(path: &Path, builtins: Vec<PathBuf>) -> Result<Self, String> {
        let builtins = builtins.iter().filter_map(|path| open(path).ok());
        let builtins: Vec<_> = builtins.collect();
        let library = open(path)?;
        let functions = Functions::of(&library)?;
        let (mut major, mut minor) = (0, 0);
        // SAFETY: `nvrtcVersion` writes both integers.
        let code = unsafe { (functions.version)(&raw mut major, &raw mut minor) };
        match (code, u32::try_from(major), u32::try_from(minor)) {
            (0, Ok(major), Ok(minor)) => Ok(Self {
                found: Found {
                    path: path.to_owned(),
                    version: (major, minor),
                },
                functions,
                _library: library,
                _builtins: builtins,
            }),
            _ => Err(format!("expected its version, found the error {code}")),
        }
    }

    /// The architectures that it compiles for, such as `90`.
    pub(super) fn architectures(&self) -> Vec<u32> {
        let mut count = 0;
        // SAFETY: `nvrtcGetNumSupportedArchs` writes `count`.
        let code = unsafe { (self.functions.arch_count)(&raw mut count) };
        let Ok(count) = usize::try_from(count) else {
            return Vec::new();
        };
        let mut archs = vec![0; count];
        if code != 0 || count == 0 {
            return Vec::new();
        }
        // SAFETY: `nvrtcGetSupportedArchs` writes `count` integers, and `archs` has as many.
        let code = unsafe { (self.functions.archs)(archs.as_mut_ptr()) };
        match code {
            0 => archs
                .into_iter()
                .filter_map(|a| a.try_into().ok())
                .collect(),
            _ => Vec::new(),
        }
    }

    /// Compiles a source to PTX.
    pub(super) fn compile(
        &self,
        name: &CStr,
        source: &CStr,
        options: &[CString],
    ) -> Result<Vec<u8>, Failure> {
        let program = OwnedProgram::new(self, name, source)?;
        let options: Vec<_> = options.iter().map(|option| option.as_ptr()).collect();
        let count = c_int::try_from(options.len()).unwrap_or(c_int::MAX);
        // SAFETY: the program is alive, and `options` has `count` pointers to strings that end with
        // NUL.
        let code = unsafe { (self.functions.compile)(program.0, count, options.as_ptr()) };
        let text = match code {
            0 => program.text(self.functions.ptx_size, self.functions.ptx),
            _ => Err(code),
        };
        text.map_err(|code| {
            let log = program.text(self.functions.log_size, self.functions.log);
            self.failure(code, log.unwrap_or_default())
        })
    }

    fn failure(&self, code: c_int, log: Vec<u8>) -> Failure {
        // SAFETY: `nvrtcGetErrorString` accepts any number.
        let name = unsafe { (self.functions.error_string)(code) };
        let name = if name.is_null() {
            format!("the error {code}")
        } else {
            // SAFETY: the library returns a static string that ends with NUL.
            unsafe { CStr::from_ptr(name) }
                .to_string_lossy()
                .into_owned()
        };
        Failure { code, name, log }
    }
}

/// A program of NVRTC, with its library.
struct OwnedProgram<'a>(Program, &'a Library);

impl<'a> OwnedProgram<'a> {
    /// Makes a program, which copies the source.
    fn new(library: &'a Library, name: &CStr, source: &CStr) -> Result<Self, Failure> {
        let mut program = ptr::null_mut();
        // SAFETY: the library writes `program`; source and name end with NUL; no headers are
        // passed.
        let code = unsafe {
            (library.functions.create)(
                &raw mut program,
                source.as_ptr(),
                name.as_ptr(),
                0,
                ptr::null(),
                ptr::null(),
            )
        };
        match code {
            0 => Ok(Self(program, library)),
            _ => Err(library.failure(code, Vec::new())),
        }
    }

    /// A text of the program, without the NUL at its end.
    fn text(&self, size: Size, text: Text) -> Result<Vec<u8>, c_int> {
        let mut length = 0;
        // SAFETY: the program is alive, and the library writes `length`.
        let code = unsafe { size(self.0, &raw mut length) };
        if code != 0 {
            return Err(code);
        }
        let mut bytes = vec![0_u8; length];
        // SAFETY: the program is alive, and `bytes` has the size that the library asked for.
        let code = unsafe { text(self.0, bytes.as_mut_ptr().cast()) };
        if code != 0 {
            return Err(code);
        }
        bytes.truncate(bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len()));
        Ok(bytes)
    }
}

impl Drop for OwnedProgram<'_> {
    fn drop(&mut self) {
        // SAFETY: this value owns the program, which this library made.
        let _code = unsafe { (self.1.functions.destroy)(&raw mut self.0) };
    }
}

impl Functions {
    fn of(library: &libloading::Library) -> Result<Self, String> {
        // SAFETY: the types are those of these functions in nvrtc.h.
        unsafe {
            Ok(Self {
                version: symbol(library, "nvrtcVersion")?,
                error_string: symbol(library, "nvrtcGetErrorString")?,
                arch_count: symbol(library, "nvrtcGetNumSupportedArchs")?,
                archs: symbol(library, "nvrtcGetSupportedArchs")?,
                create: symbol(library, "nvrtcCreateProgram")?,
                destroy: symbol(library, "nvrtcDestroyProgram")?,
                compile: symbol(library, "nvrtcCompileProgram")?,
                ptx_size: symbol(library, "nvrtcGetPTXSize")?,
                ptx: symbol(library, "nvrtcGetPTX")?,
                log_size: symbol(library, "nvrtcGetProgramLogSize")?,
                log: symbol(library, "nvrtcGetProgramLog")?,
            })
        }
    }
}

/// A function of the library.
///
/// # Safety
/// `T` must be the type of a pointer to the function with this name. The pointer must not be called
/// after the library is closed.
unsafe fn symbol<T: Copy>(library: &libloading::Library, name: &str) -> Result<T, String> {
    // SAFETY: the caller promises the type.
    let symbol = unsafe { library.get::<T>(name) };
    symbol
        .map(|symbol| *symbol)
        .map_err(|_| format!("expected NVRTC, found no function {name}"))
}

/// Opens a library.
fn open(path: &Path) -> Result<libloading::Library, String> {
    // SAFETY: NVRTC's initialisers have no preconditions. The user who installed the library, or
    // named it in CALLBOX_NVRTC, vouches for the file, as for every library of this process.
    unsafe { libloading::Library::new(path) }.map_err(|error| {
        match std::error::Error::source(&error) {
            // The loader's message.
            Some(source) => source.to_string(),
            None => error.to_string(),
        }
    })
}

/// The builtins beside the library. Several names may link to the same file.
fn builtins(folder: &Path) -> Vec<PathBuf> {
    let is_builtins = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with("libnvrtc-builtins.so"))
    };
    let mut found = places::contents(folder);
    found.retain(is_builtins);
    found.sort_unstable();
    found
}

/// The first success, or all failures.
fn first<T>(results: impl Iterator<Item = Result<T, String>>) -> Result<T, String> {
    let mut failures = Vec::new();
    for result in results {
        match result {
            Ok(value) => return Ok(value),
            Err(failure) => failures.push(failure),
        }
    }
    Err(failures.join("; "))
}
