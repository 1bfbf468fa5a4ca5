//! Guests made from scripts: each step is one call of WASI preview 1, and each leaves a record of what came of it.

use std::fmt::Write;
use std::sync::Arc;

use callbox::call::ApiVersion;
use callbox::policy::Grants;
use callbox::wasm::{Engine, Module};
use callbox::{CallSite, ElementType, Result, Shape};
use serde::Deserialize;

/// What a step leaves: its error number, the number that it gave (a descriptor, a length), and its bytes.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) errno: u32,
    pub(crate) number: u32,
    pub(crate) bytes: Vec<u8>,
}

/// Bytes of a record: two numbers, and [`ROOM`].
const RECORD: usize = 8 + ROOM;

/// Bytes that a step can give.
const ROOM: usize = 120;

/// Where things lie in the guest's memory.
const BUFFERS: usize = 1024;
const RECORDS: usize = 4096;
const TEXTS: usize = 32 << 10;

/// One call.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Step {
    /// Which: see [`Script::call`].
    #[serde(rename = "do")]
    pub(crate) what: String,
    /// The descriptor that it is about.
    #[serde(default = "granted")]
    pub(crate) at: Descriptor,
    /// Another.
    #[serde(default = "granted")]
    pub(crate) to: Descriptor,
    /// A path, or what is written.
    #[serde(default)]
    pub(crate) path: Text,
    /// Another.
    #[serde(default)]
    pub(crate) target: Text,
    /// Letters: `r` and `w` for reading and writing, `c` to make it, `x` only if it is not there, `t` to make it empty, `d` for a
    /// directory, `f` to follow a symbolic link at the end, `a` to append.
    #[serde(default)]
    pub(crate) flags: String,
    /// A number.
    #[serde(default)]
    pub(crate) number: i64,
    /// The name of the error number that it must give.
    #[serde(default = "success")]
    pub(crate) errno: String,
    /// What it must read.
    #[serde(default)]
    pub(crate) text: Option<String>,
    /// The kind of file that it must find, by its number in WASI: 3 is a directory, 4 a file, 7 a symbolic link.
    #[serde(default)]
    pub(crate) kind: Option<u8>,
}

/// The first granted directory.
fn granted() -> Descriptor {
    Descriptor::Number(3)
}

fn success() -> String {
    "success".to_owned()
}

/// A descriptor: by its number, or that which a step opened, as `"$0"`.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Descriptor {
    Number(u32),
    Of(String),
}

/// A text, or what is not one.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Text {
    Plain(String),
    Hex { hex: String },
    Repeat { repeat: (String, usize) },
}

impl Default for Text {
    fn default() -> Self {
        Self::Plain(String::new())
    }
}

impl Text {
    fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Plain(text) => text.clone().into_bytes(),
            Self::Hex { hex } => {
                let digits = |i: usize| u8::from_str_radix(&hex[i..i + 2], 16).unwrap();
                (0..hex.len()).step_by(2).map(digits).collect()
            }
            Self::Repeat { repeat } => repeat.0.repeat(repeat.1).into_bytes(),
        }
    }
}

/// The numbers of WASI preview 1's errors, by their names in its specification.
pub(crate) fn errno(name: &str) -> u32 {
    let numbers = [
        ("success", 0),
        ("acces", 2),
        ("badf", 8),
        ("busy", 10),
        ("exist", 20),
        ("ilseq", 25),
        ("inval", 28),
        ("io", 29),
        ("isdir", 31),
        ("loop", 32),
        ("mfile", 33),
        ("nametoolong", 37),
        ("noent", 44),
        ("notdir", 54),
        ("notempty", 55),
        ("notsup", 58),
        ("perm", 63),
        ("spipe", 70),
        ("xdev", 75),
    ];
    let found = numbers.iter().find(|(known, _)| *known == name);
    found.unwrap_or_else(|| panic!("{name}: no error")).1
}

/// A guest being written.
#[derive(Default)]
struct Script {
    imports: Vec<(&'static str, &'static str)>,
    data: String,
    next_text: usize,
    code: String,
}

impl Script {
    /// Puts a text into memory: its place and length as arguments.
    fn text(&mut self, text: &Text) -> String {
        let bytes = text.bytes();
        let at = TEXTS + self.next_text;
        self.next_text += bytes.len();
        let escaped: String = bytes.iter().map(|b| format!("\\{b:02x}")).collect();
        writeln!(self.data, "(data (i32.const {at}) \"{escaped}\")").unwrap();
        format!("(i32.const {at}) (i32.const {})", bytes.len())
    }

    /// The arguments of a step's call, the function, and its parameters.
    fn call(&mut self, step: &Step, record: usize) -> (&'static str, &'static str, String) {
        let at = descriptor(&step.at);
        let to = descriptor(&step.to);
        let (number, bytes) = (record + 4, record + 8);
        let follow = u32::from(step.flags.contains('f'));
        let times = "(i64.const 0) (i64.const 0) (i32.const 5)";
        let n = step.number;
        const DIR_PATH: &str = "i32 i32 i32";
        match step.what.as_str() {
            "open" => {
                let (rights, opening, flags) = flags(&step.flags);
                let path = self.text(&step.path);
                (
                    "path_open",
                    "i32 i32 i32 i32 i32 i64 i64 i32 i32",
                    format!(
                        "{at} (i32.const {follow}) {path} (i32.const {opening}) (i64.const {rights}) (i64.const 0) (i32.const {flags}) (i32.const {number})"
                    ),
                )
            }
            "read" => (
                "fd_read",
                "i32 i32 i32 i32",
                format!(
                    "{at} {} (i32.const {number})",
                    self.buffer(record, bytes, ROOM)
                ),
            ),
            "pread" => (
                "fd_pread",
                "i32 i32 i32 i64 i32",
                format!(
                    "{at} {} (i64.const {n}) (i32.const {number})",
                    self.buffer(record, bytes, ROOM)
                ),
            ),
            "write" => {
                let buffer = self.bytes_to_write(&step.path, record);
                (
                    "fd_write",
                    "i32 i32 i32 i32",
                    format!("{at} {buffer} (i32.const {number})"),
                )
            }
            "pwrite" => {
                let buffer = self.bytes_to_write(&step.path, record);
                (
                    "fd_pwrite",
                    "i32 i32 i32 i64 i32",
                    format!("{at} {buffer} (i64.const {n}) (i32.const {number})"),
                )
            }
            "stat" => {
                let path = self.text(&step.path);
                (
                    "path_filestat_get",
                    "i32 i32 i32 i32 i32",
                    format!("{at} (i32.const {follow}) {path} (i32.const {bytes})"),
                )
            }
            "mkdir" => (
                "path_create_directory",
                DIR_PATH,
                format!("{at} {}", self.text(&step.path)),
            ),
            "rmdir" => (
                "path_remove_directory",
                DIR_PATH,
                format!("{at} {}", self.text(&step.path)),
            ),
            "unlink" => (
                "path_unlink_file",
                DIR_PATH,
                format!("{at} {}", self.text(&step.path)),
            ),
            "symlink" => {
                let (target, path) = (self.text(&step.target), self.text(&step.path));
                (
                    "path_symlink",
                    "i32 i32 i32 i32 i32",
                    format!("{target} {at} {path}"),
                )
            }
            "readlink" => {
                let path = self.text(&step.path);
                (
                    "path_readlink",
                    "i32 i32 i32 i32 i32 i32",
                    format!(
                        "{at} {path} (i32.const {bytes}) (i32.const {ROOM}) (i32.const {number})"
                    ),
                )
            }
            "link" => {
                let (path, target) = (self.text(&step.path), self.text(&step.target));
                (
                    "path_link",
                    "i32 i32 i32 i32 i32 i32 i32",
                    format!("{at} (i32.const {follow}) {path} {to} {target}"),
                )
            }
            "rename" => {
                let (path, target) = (self.text(&step.path), self.text(&step.target));
                (
                    "path_rename",
                    "i32 i32 i32 i32 i32 i32",
                    format!("{at} {path} {to} {target}"),
                )
            }
            "times" => {
                let path = self.text(&step.path);
                (
                    "path_filestat_set_times",
                    "i32 i32 i32 i32 i64 i64 i32",
                    format!("{at} (i32.const {follow}) {path} {times}"),
                )
            }
            "fd_times" => (
                "fd_filestat_set_times",
                "i32 i64 i64 i32",
                format!("{at} {times}"),
            ),
            "fd_size" => (
                "fd_filestat_set_size",
                "i32 i64",
                format!("{at} (i64.const {n})"),
            ),
            "allocate" => (
                "fd_allocate",
                "i32 i64 i64",
                format!("{at} (i64.const 0) (i64.const {n})"),
            ),
            "set_flags" => (
                "fd_fdstat_set_flags",
                "i32 i32",
                format!("{at} (i32.const {n})"),
            ),
            "set_rights" => (
                "fd_fdstat_set_rights",
                "i32 i64 i64",
                format!("{at} (i64.const 0) (i64.const 0)"),
            ),
            "close" => ("fd_close", "i32", at),
            "sync" => ("fd_sync", "i32", at),
            "renumber" => ("fd_renumber", "i32 i32", format!("{at} {to}")),
            "tell" => ("fd_tell", "i32 i32", format!("{at} (i32.const {bytes})")),
            "seek" => (
                "fd_seek",
                "i32 i64 i32 i32",
                format!("{at} (i64.const {n}) (i32.const 0) (i32.const {bytes})"),
            ),
            "fd_stat" => (
                "fd_filestat_get",
                "i32 i32",
                format!("{at} (i32.const {bytes})"),
            ),
            "prestat" => (
                "fd_prestat_get",
                "i32 i32",
                format!("{at} (i32.const {bytes})"),
            ),
            "prestat_name" => (
                "fd_prestat_dir_name",
                "i32 i32 i32",
                format!("{at} (i32.const {bytes}) (i32.const {n})"),
            ),
            "readdir" => (
                "fd_readdir",
                "i32 i32 i32 i64 i32",
                format!(
                    "{at} (i32.const {bytes}) (i32.const {ROOM}) (i64.const 0) (i32.const {number})"
                ),
            ),
            "exit" => ("proc_exit", "i32", format!("(i32.const {n})")),
            "random" => (
                "random_get",
                "i32 i32",
                format!("(i32.const {bytes}) (i32.const {n})"),
            ),
            "time" => (
                "clock_time_get",
                "i32 i64 i32",
                format!("(i32.const {n}) (i64.const 0) (i32.const {bytes})"),
            ),
            "args" => (
                "args_sizes_get",
                "i32 i32",
                format!("(i32.const {number}) (i32.const {bytes})"),
            ),
            "environ" => (
                "environ_sizes_get",
                "i32 i32",
                format!("(i32.const {number}) (i32.const {bytes})"),
            ),
            other => panic!("{other}: no step"),
        }
    }

    /// A list of one buffer: its place and length as arguments.
    fn buffer(&mut self, record: usize, at: usize, length: usize) -> String {
        let list = BUFFERS + (record - RECORDS) / RECORD * 8;
        write!(
            self.code,
            "(i32.store (i32.const {list}) (i32.const {at})) (i32.store offset=4 (i32.const {list}) (i32.const {length}))"
        )
        .unwrap();
        format!("(i32.const {list}) (i32.const 1)")
    }

    fn bytes_to_write(&mut self, text: &Text, record: usize) -> String {
        let at = TEXTS + self.next_text;
        let length = text.bytes().len();
        self.text(text);
        self.buffer(record, at, length)
    }

    fn step(&mut self, step: &Step, record: usize) {
        let (name, parameters, arguments) = self.call(step, record);
        if !self.imports.iter().any(|(known, _)| *known == name) {
            self.imports.push((name, parameters));
        }
        match name {
            "proc_exit" => writeln!(self.code, "(call $proc_exit {arguments})").unwrap(),
            _ => writeln!(
                self.code,
                "(i32.store (i32.const {record}) (call ${name} {arguments}))"
            )
            .unwrap(),
        }
    }

    fn finish(mut self, steps: usize) -> String {
        let mut imports = String::new();
        for (name, parameters) in std::mem::take(&mut self.imports) {
            let result = if name == "proc_exit" {
                ""
            } else {
                "(result i32)"
            };
            writeln!(
                imports,
                "(import \"wasi_snapshot_preview1\" \"{name}\" (func ${name} (param {parameters}) {result}))"
            )
            .unwrap();
        }
        let pages = (TEXTS + self.next_text).div_ceil(64 << 10);
        let (data, code) = (self.data, self.code);
        format!(
            "(module {imports} (memory (export \"memory\") {pages}) {data}
               (func (export \"f\") (param $out i32) (param i32)
                 (memory.fill (i32.const {RECORDS}) (i32.const 0) (i32.const {length}))
                 {code}
                 (memory.copy (local.get $out) (i32.const {RECORDS}) (i32.const {length}))))",
            length = steps * RECORD,
        )
    }
}

/// A descriptor as an argument.
fn descriptor(descriptor: &Descriptor) -> String {
    match descriptor {
        Descriptor::Number(number) => format!("(i32.const {})", number.cast_signed()),
        Descriptor::Of(step) => {
            let step: usize = step.strip_prefix('$').unwrap().parse().unwrap();
            format!("(i32.load (i32.const {}))", RECORDS + step * RECORD + 4)
        }
    }
}

/// Rights, how to open, and the descriptor's flags.
fn flags(letters: &str) -> (i64, i32, i32) {
    let (mut rights, mut opening, mut flags) = (0, 0, 0);
    for letter in letters.chars() {
        match letter {
            'r' => rights |= 1 << 1,
            'w' => rights |= 1 << 6,
            'c' => opening |= 1,
            'd' => opening |= 2,
            'x' => opening |= 4,
            't' => opening |= 8,
            'a' => flags |= 1,
            'f' => {}
            other => panic!("{other}: no flag"),
        }
    }
    (rights, opening, flags)
}

/// The guest of a script, as text: its target is `f`.
pub(crate) fn guest(steps: &[Step]) -> String {
    let mut script = Script::default();
    for (i, step) in steps.iter().enumerate() {
        script.step(step, RECORDS + i * RECORD);
    }
    script.finish(steps.len())
}

/// Loads the guest of a script.
pub(crate) fn load(engine: &Engine, grants: &Grants, steps: &[Step]) -> Result<Arc<Module>> {
    engine.load_with(&wat::parse_str(guest(steps)).unwrap(), grants)
}

/// Runs a script once, in an instance of its own.
pub(crate) fn run(engine: &Engine, grants: &Grants, steps: &[Step]) -> Result<Vec<Record>> {
    run_module(&load(engine, grants, steps)?, steps.len())
}

/// Runs a script's guest once, in an instance of its own.
pub(crate) fn run_module(module: &Arc<Module>, steps: usize) -> Result<Vec<Record>> {
    let mut bytes = vec![0; steps * RECORD];
    let result = Shape::array(ElementType::U8, &[bytes.len()])?;
    let mut site = CallSite::new("f", Vec::new(), result);
    site.api_version = ApiVersion::Original;
    module.prepare_call(site)?.call(&[], &mut [&mut bytes])?;
    let word = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap());
    let records = bytes.chunks(RECORD).map(|record| Record {
        errno: word(&record[..4]),
        number: word(&record[4..8]),
        bytes: record[8..].to_vec(),
    });
    Ok(records.collect())
}
