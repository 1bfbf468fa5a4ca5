//! `callbox new`: makes the folder of a new kernel.

mod files;
mod names;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueEnum;

use super::build::Language;
use super::failure::{Failure, Outcome};
use super::output;

const EXAMPLES: &str = "\
The folder has the kernel, a native test, a case, a benchmark and a CI file. For Rust and C it also
has a copy of the SDK in callbox-sdk/, so that building needs no callbox sources: Rust takes a few
crates from crates.io, and C needs clang and nothing else. Python needs `pip install callbox[jit]`.

Examples:
  callbox new scale
  callbox new kernels/center --rows --lang c
  cd scale && callbox test . && callbox bench .";

/// Make the folder of a new kernel, which `callbox build`, `test`, `bench`, `watch` and `pack` work
/// on
#[derive(Debug, clap::Args)]
#[command(after_long_help = format!("{EXAMPLES}\n\n{}", super::EXIT_CODES))]
pub(super) struct Arguments {
    /// The folder to make. Its last part is the name of the kernel: lower-case letters, digits and
    /// `_`, a letter first
    #[arg(value_name = "NAME")]
    path: PathBuf,

    /// The language of the kernel
    #[arg(long, value_enum, default_value_t = Language::Rust)]
    lang: Language,

    /// Each element of the result depends on one element of each operand. The default
    #[arg(long, conflicts_with = "rows")]
    elementwise: bool,

    /// Each row of the result depends on one row of each operand
    #[arg(long)]
    rows: bool,
}

/// How the elements of a new kernel's result depend on its operand's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Elementwise,
    Rows,
}

pub(super) fn new(arguments: &Arguments) -> ExitCode {
    match write(arguments) {
        Ok(text) => output::emit(&text, ExitCode::SUCCESS),
        Err(failure) => output::complain(&failure),
    }
}

fn write(arguments: &Arguments) -> Outcome<String> {
    let path = &arguments.path;
    let name = names::checked(path, arguments.lang)?;
    let form = if arguments.rows {
        Form::Rows
    } else {
        Form::Elementwise
    };
    let cannot = |path: &Path, error: &std::io::Error| {
        Failure::file(format!("expected to make {}", path.display()), error)
    };
    // An existing folder is an error, so that no file of the user is replaced.
    fs::create_dir(path).map_err(|error| cannot(path, &error))?;
    for (file, text) in files::files(name, arguments.lang, form) {
        let file = path.join(file);
        let written =
            fs::create_dir_all(file.parent().unwrap_or(path)).and_then(|()| fs::write(&file, text));
        written.map_err(|error| cannot(&file, &error))?;
    }
    Ok(format!(
        "{}\n  next: cd {0} && callbox test .\n",
        path.display()
    ))
}

impl ValueEnum for Language {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self::Rust, Self::C, Self::Python]
    }

    fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
        Some(clap::builder::PossibleValue::new(self.name()))
    }
}
