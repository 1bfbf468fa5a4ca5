//! The names of new kernels.

use std::path::Path;

use callbox::Status;

use crate::build::Language;
use crate::failure::{Failure, Outcome};

/// The reserved words of Rust, C and Python, and names that a crate or a Python module cannot have.
const RESERVED: &str = "\
 abstract alignas alignof alloc and as assert async auto await become bool box break callbox \
 char class compute const constexpr continue core crate def default del do double dyn elif else \
 enum except extern false final finally float fn for from gen global goto if impl import in \
 inline int is lambda let long loop macro main match mod move mut native nonlocal not nullptr \
 numpy or override pass priv proc_macro pub raise ref register restrict return self short \
 signed sizeof static std struct super switch test trait true try tuple type typedef typeof \
 union unsafe unsigned unsized use virtual void volatile where while with yield ";

/// The modules of Python's standard library, from 3.11 on, and those that a kernel's tools import.
/// A file of this name in the kernel's folder would be imported in their place.
const PYTHON_MODULES: &str = "\
 abc aifc annotationlib antigravity argparse array ast asynchat asyncio asyncore atexit audioop \
 base64 bdb binascii bisect builtins bz2 calendar cgi cgitb chunk cmath cmd code codecs codeop \
 collections colorsys compileall compression concurrent configparser contextlib contextvars \
 copy copyreg crypt csv ctypes curses dataclasses datetime dbm decimal difflib dis distutils \
 doctest email encodings ensurepip errno faulthandler fcntl filecmp fileinput fnmatch fractions \
 ftplib functools gc genericpath getopt getpass gettext glob graphlib grp gzip hashlib heapq \
 hmac html http idlelib imaplib imghdr imp importlib inspect io ipaddress itertools jax jaxlib \
 json keyword lib2to3 linecache locale logging lzma mailbox mailcap marshal math mimetypes \
 ml_dtypes mmap modulefinder msilib msvcrt multiprocessing netrc nis nntplib nt ntpath \
 nturl2path numbers opcode operator optparse os ossaudiodev pathlib pdb pickle pickletools \
 pipes pkgutil platform plistlib poplib posix posixpath pprint profile profiling pstats pty pwd \
 py_compile pyclbr pydoc pydoc_data pyexpat pytest queue quopri random re readline reprlib \
 resource rlcompleter runpy sched secrets select selectors shelve shlex shutil signal site \
 smtpd smtplib sndhdr socket socketserver spwd sqlite3 sre_compile sre_constants sre_parse ssl \
 stat statistics string stringprep subprocess sunau symtable sys sysconfig syslog tabnanny \
 tarfile telnetlib tempfile termios textwrap this threading time timeit tkinter token tokenize \
 tomllib torch trace traceback tracemalloc triton tty turtle turtledemo types typing \
 unicodedata unittest urllib uu uuid venv warnings wave weakref webbrowser winreg winsound \
 wsgiref xdrlib xml xmlrpc zipapp zipfile zipimport zlib zoneinfo ";

/// The name of the kernel, which is the name of its folder, crate or Python module, and function.
pub(super) fn checked(path: &Path, language: Language) -> Outcome<&str> {
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.unwrap_or_default();
    let is_allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    let begins = name.starts_with(|c: char| c.is_ascii_lowercase());
    let is_in = |words: &str| words.split_whitespace().any(|word| word == name);
    let wrong = if !begins || !name.bytes().all(is_allowed) || name.len() > 64 {
        format!(
            "expected a name of at most 64 lower-case letters, digits and `_` with a letter \
             first, found {name:?}"
        )
    } else if is_in(RESERVED) {
        format!("`{name}` is reserved in Rust, C or Python: choose another name")
    } else if language == Language::Python && is_in(PYTHON_MODULES) {
        format!("`{name}` is a module that Python programs import: choose another name")
    } else {
        return Ok(name);
    };
    Err(Failure::usage(Status::invalid_argument(wrong)))
}
