//! The command line `callbox`: [`cli`] is all of it.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
