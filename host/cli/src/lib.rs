//! The command line of callbox: `callbox run`, `call`, `inspect`, `ptx`, `annotate`, `new`,
//! `build`, `bench`, `watch`, `pack`, `publish`, `fetch`, `update`, `sign`, `verify`, `test`,
//! `diff`, `lock`, `replay`, `doctor`, `policy` and `completions`.
//!
//! [`main`] runs a command in three steps. clap and `arguments` parse the words. The command then
//! opens and reads the files that they name. Only then does a guest or a program run. Every error
//! is a status with an exit code, so that `--json` prints an object for each.
//!
//! [`files`] reads and writes arrays in `.npy` and `.safetensors` files, `packages` gets packages
//! by reference, and `comparison` compares results.
//!
//! # Example
//!
//! The program `callbox` consists of:
//!
//! ```no_run
//! fn main() -> std::process::ExitCode {
//!     callbox_cli::main()
//! }
//! ```
//!
//! # Features
//!
//! All are on by default. Without any, the command line runs, calls and inspects targets on Host.
//!
//! - `cache`: compiled modules kept in a directory (`--cache-dir`).
//! - `capabilities`: directories, clocks and random bytes that a policy grants.
//! - `cuda`: native targets on NVIDIA GPUs (`--platform CUDA`).
//! - `fetch`: files from the Hugging Face Hub and https (`callbox fetch`).
//! - `maths`: mathematics on arrays that the host computes for guests.
//! - `process`: modules in processes of their own (`--isolate process`).
//!
//! # Where to go next
//!
//! `docs/programs.md` is the guide to the commands, and `callbox help` lists their options.
//! Programs that embed the host use the crate `callbox` instead.

#![allow(
    clippy::disallowed_methods,
    reason = "the command line acts on the files that its user names, with its user's authority"
)]

mod annotate;
mod arguments;
mod arrays;
#[cfg_attr(not(target_arch = "x86_64"), path = "asm_left_out.rs")]
mod asm;
mod attribute;
mod backend;
mod bench;
mod build;
mod call;
mod capsule;
mod case;
pub mod comparison;
mod completions;
mod convert;
mod diff;
mod doctor;
mod failure;
#[cfg(feature = "fetch")]
mod fetch;
pub mod files;
mod inputs;
mod inspect;
mod interrupt;
mod json;
mod lock;
mod modules;
#[cfg_attr(not(feature = "cuda"), path = "native_left_out.rs")]
mod native;
mod new;
mod observe;
mod output;
mod pack;
mod package;
#[cfg(feature = "fetch")]
pub mod packages;
mod platform;
mod policy;
mod progress;
#[cfg(feature = "cuda")]
mod ptx;
#[cfg(feature = "fetch")]
mod publish;
mod registered;
mod regular_file;
mod replay;
mod run;
#[cfg(unix)]
mod signals;
mod signing;
mod summary;
mod test;
mod text;
mod timing;
mod traced;
#[cfg(feature = "fetch")]
mod update;
mod user_data;
mod watch;
mod write_file;

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;
#[cfg(unix)]
use std::thread;

use callbox::Status;
use clap::{Parser, Subcommand};

use self::failure::Failure;
use self::output::Format;

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  the call or the program failed, or what a file holds is wrong
  2  wrong usage: an unknown flag, a malformed value, a file that cannot be read,
     an output folder that cannot be written

Ctrl-C stops a call or a program, which then fails with CANCELLED. Twice, it ends callbox.";

const EXAMPLES: &str = "\
Examples:
  callbox inspect kernels/add_n.wasm
  callbox call kernels/add_n.wasm add_n --operand x.npy --result 'f32[128]' --attr n=4.0:f32
  callbox run program.hlo --targets kernels/ --input 0=x.npy --output-dir out
  callbox inspect kernels/callbox.json
  callbox ptx kernels/softmax.ptx
  callbox run program.hlo --targets kernels/ --platform CUDA --allow-native SHA256 --input 0=x.npy
  callbox doctor

`callbox help COMMAND` says more of each.";

/// Runs XLA-style custom calls whose targets are untrusted WebAssembly modules, or for CUDA fenced
/// PTX and native code that was granted.
///
/// A target is a function on arrays: on the platform Host one that a .wasm module exports. `run`
/// runs a program, in HLO text, that calls targets by name; `call` calls one target without a
/// program; `inspect` shows what a file declares and runs nothing; `ptx` verifies the kernels of a
/// PTX file; `annotate` declares a module's targets; `new` makes the folder of a kernel, which
/// `build`, `bench` and `watch` work on; `pack` makes a package of a folder, `test` runs the cases
/// that a package carries, `diff` compares two, `sign` and `verify` say who made one, `publish`
/// puts one on the Hub or in a registry, `fetch` gets one by its name, `lock` pins the files that a
/// program uses, and `update` shows what changed since then; `replay` repeats a recorded call;
/// `doctor` shows what this machine has for kernels. A guest that traps, loops or lies ends in a
/// status, never in a crash. On CUDA, PTX without a grant runs with a fence. Other CUDA targets are
/// trusted code: nothing keeps them apart from callbox, so that each takes a grant by its digest.
#[derive(Debug, Parser)]
#[command(name = "callbox", version, after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"), max_term_width = 100)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Arguments),
    Call(call::Arguments),
    Inspect(inspect::Arguments),
    #[cfg(feature = "cuda")]
    Ptx(ptx::Arguments),
    Annotate(annotate::Arguments),
    New(new::Arguments),
    Build(build::Arguments),
    Bench(bench::Arguments),
    Watch(watch::Arguments),
    Pack(pack::Arguments),
    Test(test::Arguments),
    Diff(diff::Arguments),
    Lock(lock::Arguments),
    #[cfg(feature = "fetch")]
    Publish(publish::Arguments),
    #[cfg(feature = "fetch")]
    Fetch(fetch::Arguments),
    #[cfg(feature = "fetch")]
    Update(update::Arguments),
    Sign(signing::SignArguments),
    Verify(signing::VerifyArguments),
    Replay(replay::Arguments),
    Doctor(doctor::Arguments),
    Policy(policy::Arguments),
    Completions(completions::Arguments),
    /// Serve as the process that a module runs in, for `--isolate process`
    #[cfg(feature = "process")]
    #[command(name = backend::WORKER, hide = true)]
    Worker,
}

/// The least stack of the main thread on which commands run. `--help` alone takes 80 KiB.
#[cfg(unix)]
const LEAST_STACK: u64 = 4 << 20;

/// The stack of the thread on which they run otherwise.
#[cfg(unix)]
const OWN_STACK: usize = 8 << 20;

/// Runs the command line of this process and returns its exit code.
pub fn main() -> ExitCode {
    #[cfg(unix)]
    if rustix::process::getrlimit(rustix::process::Resource::Stack)
        .current
        .is_some_and(|bytes| bytes < LEAST_STACK)
        && let Ok(thread) = thread::Builder::new()
            .stack_size(OWN_STACK)
            .spawn(run_command)
    {
        return thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    }
    run_command()
}

fn run_command() -> ExitCode {
    #[cfg(unix)]
    signals::ignore_size_limit();
    match CommandLine::try_parse() {
        Ok(command_line) => match command_line.command {
            Command::Run(arguments) => {
                output::results(Format::of(arguments.json), run::run(&arguments))
            }
            Command::Call(arguments) => {
                output::results(Format::of(arguments.json), call::call(&arguments))
            }
            Command::Inspect(arguments) => inspect::show(&arguments),
            #[cfg(feature = "cuda")]
            Command::Ptx(arguments) => ptx::show(&arguments),
            Command::Annotate(arguments) => annotate::annotate(&arguments),
            Command::New(arguments) => new::new(&arguments),
            Command::Build(arguments) => build::build(&arguments),
            Command::Bench(arguments) => bench::bench(&arguments),
            Command::Watch(arguments) => watch::watch(&arguments),
            Command::Pack(arguments) => pack::pack(&arguments),
            Command::Test(arguments) => test::test(&arguments),
            Command::Diff(arguments) => diff::diff(&arguments),
            Command::Lock(arguments) => lock::lock(&arguments),
            #[cfg(feature = "fetch")]
            Command::Publish(arguments) => publish::publish(&arguments),
            #[cfg(feature = "fetch")]
            Command::Fetch(arguments) => fetch::fetch(&arguments),
            #[cfg(feature = "fetch")]
            Command::Update(arguments) => update::update(&arguments),
            Command::Sign(arguments) => signing::sign(&arguments),
            Command::Verify(arguments) => signing::verify(&arguments),
            Command::Replay(arguments) => replay::replay(&arguments),
            Command::Doctor(arguments) => doctor::show(&arguments),
            Command::Policy(arguments) => policy::show(&arguments),
            Command::Completions(arguments) => completions::show(&arguments),
            #[cfg(feature = "process")]
            Command::Worker => callbox::process::worker_main(),
        },
        Err(error) => refuse(&error),
    }
}

/// Why something needs a feature that this program was built without.
fn left_out(feature: &str) -> String {
    format!("this `callbox` was built without the feature `{feature}`")
}

/// What is wrong with the command line. It quotes words of that, such as names of files. If one has
/// lines, which could pass for callbox's, all is on one line.
fn usage_text(error: &clap::Error, words: &[OsString]) -> String {
    let text = text::printable(&error.render().to_string());
    if words
        .iter()
        .any(|word| word.to_string_lossy().contains('\n'))
    {
        return format!("{}\n", text.trim_end().replace('\n', "\\n"));
    }
    text
}

/// Prints clap's message: help, the version, or what is wrong with the command line. With `--json`,
/// a failure is also printed as an object.
fn refuse(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        // A closed pipe is not an error for help.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let words = Vec::from_iter(std::env::args_os().skip(1));
    let text = usage_text(error, &words);
    let _ = std::io::stderr().write_all(text.as_bytes());
    let words = Vec::from_iter(words.into_iter().take_while(|word| word != "--"));
    if words.iter().any(|word| word == "--json") {
        let reason = text.split("\n\n").next().unwrap_or_default();
        let reason = reason.strip_prefix("error: ").unwrap_or(reason).trim();
        let failure = Failure::usage(Status::invalid_argument(reason));
        let object = match words.first().and_then(|word| word.to_str()) {
            Some("inspect") => json::inspected(inspect::Kind::Module, Err(&failure)),
            Some("doctor") => json::doctor(Err(&failure)),
            #[cfg(feature = "cuda")]
            Some("ptx") => json::ptx(None, Some(&failure)),
            Some("pack" | "test") => json::command::<()>("package", Err(&failure)),
            Some("diff") => json::command::<()>("diff", Err(&failure)),
            Some("lock") => json::command::<()>("lock", Err(&failure)),
            #[cfg(feature = "fetch")]
            Some("publish") => json::command::<()>("published", Err(&failure)),
            #[cfg(feature = "fetch")]
            Some("fetch") => json::command::<()>("fetched", Err(&failure)),
            #[cfg(feature = "fetch")]
            Some("update") => json::command::<()>("update", Err(&failure)),
            Some("sign" | "verify") => json::command::<()>("signature", Err(&failure)),
            Some("replay") => json::command::<()>("replay", Err(&failure)),
            _ => json::results(Err(&failure)),
        };
        return output::emit(&object, failure.exit_code());
    }
    ExitCode::from(failure::USAGE)
}
