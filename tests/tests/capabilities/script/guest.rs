//! Generates the guest of a script.

use std::fmt::Write;

use super::{Descriptor, Step, Text};

/// The size of a record: two numbers and [`ROOM`] bytes.
pub(super) const RECORD: usize = 8 + ROOM;

/// The bytes that a step can return.
const ROOM: usize = 120;

/// The layout of the guest's memory.
const BUFFERS: usize = 1024;
const RECORDS: usize = 4096;
const TEXTS: usize = 32 << 10;

/// A parameter of a WASI function, by its argument.
#[derive(Clone, Copy)]
enum Parameter {
    /// The step's descriptor.
    At,
    /// The step's second descriptor.
    To,
    /// The step's path: address and length.
    Path,
    /// The step's second path: address and length.
    Target,
    /// Whether to follow a symbolic link at the end.
    Follow,
    /// The flags for opening.
    Opening,
    /// The rights of an opened descriptor.
    Rights,
    /// The flags of a descriptor.
    DescriptorFlags,
    /// A list of one buffer, the record's bytes.
    ReadBuffer,
    /// A list of one buffer, the step's data.
    WriteBuffer,
    /// The address of the record's bytes.
    Bytes,
    /// The number of the record's bytes.
    Room,
    /// The address of the record's number.
    Returned,
    /// The step's number in 32 bits.
    Number,
    /// The step's number in 64 bits.
    LongNumber,
    /// Zero in 32 bits.
    Zero,
    /// Zero in 64 bits.
    LongZero,
    /// Two times, and flags that ignore them.
    Times,
}

use Parameter as P;

impl Parameter {
    fn types(self) -> &'static str {
        match self {
            P::Path | P::Target | P::ReadBuffer | P::WriteBuffer => "i32 i32",
            P::Rights | P::LongNumber | P::LongZero => "i64",
            P::Times => "i64 i64 i32",
            _ => "i32",
        }
    }
}

/// The names of calls in scripts, the functions of WASI preview 1, and their parameters.
const CALLS: [(&str, &str, &[Parameter]); 33] = [
    (
        "allocate",
        "fd_allocate",
        &[P::At, P::LongZero, P::LongNumber],
    ),
    ("args", "args_sizes_get", &[P::Returned, P::Bytes]),
    ("close", "fd_close", &[P::At]),
    ("environ", "environ_sizes_get", &[P::Returned, P::Bytes]),
    ("exit", "proc_exit", &[P::Number]),
    ("fd_size", "fd_filestat_set_size", &[P::At, P::LongNumber]),
    ("fd_stat", "fd_filestat_get", &[P::At, P::Bytes]),
    ("fd_times", "fd_filestat_set_times", &[P::At, P::Times]),
    (
        "link",
        "path_link",
        &[P::At, P::Follow, P::Path, P::To, P::Target],
    ),
    ("mkdir", "path_create_directory", &[P::At, P::Path]),
    (
        "open",
        "path_open",
        &[
            P::At,
            P::Follow,
            P::Path,
            P::Opening,
            P::Rights,
            P::LongZero,
            P::DescriptorFlags,
            P::Returned,
        ],
    ),
    (
        "pread",
        "fd_pread",
        &[P::At, P::ReadBuffer, P::LongNumber, P::Returned],
    ),
    ("prestat", "fd_prestat_get", &[P::At, P::Bytes]),
    (
        "prestat_name",
        "fd_prestat_dir_name",
        &[P::At, P::Bytes, P::Number],
    ),
    (
        "pwrite",
        "fd_pwrite",
        &[P::At, P::WriteBuffer, P::LongNumber, P::Returned],
    ),
    ("random", "random_get", &[P::Bytes, P::Number]),
    ("read", "fd_read", &[P::At, P::ReadBuffer, P::Returned]),
    (
        "readdir",
        "fd_readdir",
        &[P::At, P::Bytes, P::Room, P::LongZero, P::Returned],
    ),
    (
        "readlink",
        "path_readlink",
        &[P::At, P::Path, P::Bytes, P::Room, P::Returned],
    ),
    ("rename", "path_rename", &[P::At, P::Path, P::To, P::Target]),
    ("renumber", "fd_renumber", &[P::At, P::To]),
    ("rmdir", "path_remove_directory", &[P::At, P::Path]),
    (
        "seek",
        "fd_seek",
        &[P::At, P::LongNumber, P::Zero, P::Bytes],
    ),
    ("set_flags", "fd_fdstat_set_flags", &[P::At, P::Number]),
    (
        "set_rights",
        "fd_fdstat_set_rights",
        &[P::At, P::LongZero, P::LongZero],
    ),
    (
        "stat",
        "path_filestat_get",
        &[P::At, P::Follow, P::Path, P::Bytes],
    ),
    ("symlink", "path_symlink", &[P::Target, P::At, P::Path]),
    ("sync", "fd_sync", &[P::At]),
    ("tell", "fd_tell", &[P::At, P::Bytes]),
    (
        "time",
        "clock_time_get",
        &[P::Number, P::LongZero, P::Bytes],
    ),
    (
        "times",
        "path_filestat_set_times",
        &[P::At, P::Follow, P::Path, P::Times],
    ),
    ("unlink", "path_unlink_file", &[P::At, P::Path]),
    ("write", "fd_write", &[P::At, P::WriteBuffer, P::Returned]),
];

/// Returns the guest of a script as WebAssembly text. Its target is `f`.
pub(crate) fn guest(steps: &[Step]) -> String {
    let mut script = Script::default();
    for (i, step) in steps.iter().enumerate() {
        script.step(step, RECORDS + i * RECORD);
    }
    script.finish(steps.len())
}

/// A guest under construction.
#[derive(Default)]
struct Script {
    imports: Vec<(&'static str, String)>,
    data: String,
    next_text: usize,
    code: String,
}

impl Script {
    /// Stores a text in memory and returns its address and length as arguments.
    fn text(&mut self, text: &Text) -> String {
        let bytes = text.bytes();
        let at = TEXTS + self.next_text;
        self.next_text += bytes.len();
        let escaped: String = bytes.iter().map(|b| format!("\\{b:02x}")).collect();
        writeln!(self.data, "(data (i32.const {at}) \"{escaped}\")").unwrap();
        format!("(i32.const {at}) (i32.const {})", bytes.len())
    }

    /// Returns the function of a step's call, its parameter types, and its arguments.
    fn call(&mut self, step: &Step, record: usize) -> (&'static str, String, String) {
        let (_, function, parameters) = CALLS
            .iter()
            .find(|(what, _, _)| *what == step.what)
            .unwrap_or_else(|| panic!("{}: no step", step.what));
        let arguments = parameters.iter().map(|parameter| {
            let values = self.argument(*parameter, step, record);
            (parameter.types(), values)
        });
        let (types, values): (Vec<&str>, Vec<String>) = arguments.collect();
        (function, types.join(" "), values.join(" "))
    }

    fn argument(&mut self, parameter: Parameter, step: &Step, record: usize) -> String {
        let (returned, bytes) = (record + 4, record + 8);
        let flags = Flags::read(&step.flags);
        match parameter {
            P::At => descriptor(&step.at),
            P::To => descriptor(&step.to),
            P::Path => self.text(&step.path),
            P::Target => self.text(&step.target),
            P::Follow => word(i64::from(flags.follow)),
            P::Opening => word(flags.opening),
            P::Rights => long(flags.rights),
            P::DescriptorFlags => word(flags.descriptor),
            P::ReadBuffer => self.buffer(record, bytes, ROOM),
            P::WriteBuffer => self.bytes_to_write(&step.path, record),
            P::Bytes => word(bytes as i64),
            P::Room => word(ROOM as i64),
            P::Returned => word(returned as i64),
            P::Number => word(step.number),
            P::LongNumber => long(step.number),
            P::Zero => word(0),
            P::LongZero => long(0),
            P::Times => [long(0), long(0), word(5)].join(" "),
        }
    }

    /// Stores a list of one buffer and returns its address and length as arguments.
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

/// Returns a descriptor as an argument.
fn descriptor(descriptor: &Descriptor) -> String {
    match descriptor {
        Descriptor::Number(number) => format!("(i32.const {})", number.cast_signed()),
        Descriptor::Of(step) => {
            let step: usize = step.strip_prefix('$').unwrap().parse().unwrap();
            format!("(i32.load (i32.const {}))", RECORDS + step * RECORD + 4)
        }
    }
}

fn word(value: i64) -> String {
    format!("(i32.const {value})")
}

fn long(value: i64) -> String {
    format!("(i64.const {value})")
}

/// The flags of a step.
#[derive(Default)]
struct Flags {
    follow: bool,
    rights: i64,
    opening: i64,
    descriptor: i64,
}

impl Flags {
    fn read(letters: &str) -> Self {
        let mut flags = Self::default();
        for letter in letters.chars() {
            match letter {
                'r' => flags.rights |= 1 << 1,
                'w' => flags.rights |= 1 << 6,
                'c' => flags.opening |= 1,
                'd' => flags.opening |= 2,
                'x' => flags.opening |= 4,
                't' => flags.opening |= 8,
                'a' => flags.descriptor |= 1,
                'f' => flags.follow = true,
                other => panic!("{other}: no flag"),
            }
        }
        flags
    }
}
