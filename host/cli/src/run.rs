//! `callbox run`: runs a program with its targets and inputs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use callbox::program::{Executable, ExecuteOptions, Function, Program, hlo};
use callbox::traced::{TARGET, TARGET_COMMAND_BUFFER};
use callbox::{CallOptions, Platform, Status};
use callbox_core::text::shortened;

use super::arguments::{self, InputArgument, TargetArgument};
use super::failure::Outcome;
use super::native::{self, NativeArgument};
use super::observe::{Observer, RecordArguments, ShadowArguments, StatsArguments};
use super::output::{DeviceName, Finished, OutputArguments};
use super::platform::PlatformArguments;
use super::policy::PolicyArguments;
use super::user_data::UserDataArguments;
use super::{inputs, modules, progress, regular_file};

const EXAMPLES: &str = "\
Platforms:
  On Host, targets are exported by .wasm modules; on CUDA, by manifests callbox.json and
  shared libraries. A folder can serve both platforms. Both have callbox.graph.launch, which
  runs the program's function that its attribute capture names, on CUDA as a graph.

Native code is not sandboxed. It is loaded only if --allow-native grants its SHA-256: of a
  library's file, or over a manifest and its images. `callbox inspect` shows it.
  A library does not declare its functions: NAME or NAME@status takes a status,
  NAME@original does not; NAME or NAME@leaves takes pointers to arrays,
  NAME@preorder also those to tuples.

Inputs and results:
  An input is a .npy file, FILE.safetensors#TENSOR, a .npy file from standard input (-), or a
  list such as [[1,2],[3,4]] or [1,2]:f32, of its parameter's shape. The arrays of a tuple,
  parameter 1, are --input 1.0=FILE --input 1.1=FILE ...
  Array N of the result, counting through tuples, becomes DIR/N.npy. Arrays whose element
  type .npy lacks (bf16, f8e4m3fn, ...) become tensor \"N\" of DIR/results.safetensors.
  Either all files are written, or none. --output writes a result that is one array to a
  .npy file, or to standard output (-).

Examples:
  callbox run program.hlo --targets kernels/ --input 0=b.npy --output-dir out
  callbox run program.hlo --target do_custom_call=k.wasm#broadcast_add \\
      --input 0=b.npy --input 1=weights.safetensors#c --deadline 10s --json
  callbox run program.hlo --platform CUDA --targets kernels/ --allow-native SHA256 \\
      --input 0=b.npy
  callbox run program.hlo --platform CUDA --native libk.so:f,g@original@preorder \\
      --allow-native SHA256

  A program is what JAX prints:
  jax.jit(f).lower(x).compiler_ir('hlo').as_hlo_text(print_large_constants=True)
  If it calls kernels with callbox.jax, name the folder of their modules with --module-dir.

With --json, standard output is one object, of failures too:
  {\"status\":{\"code\":\"OK\",\"number\":0,\"message\":\"\",\"recoverable\":false,\"blame\":null},
   \"results\":[{\"shape\":\"f32[2048]{0}\",\"file\":\"out/0.npy\"}]}
  blame is \"guest\", \"caller\", \"host\" or null; file is null without --output-dir. Results of a
  CUDA device are followed by \"device\":{\"ordinal\":...,\"name\":...}.";

/// The most functions that a message lists.
const LISTED: usize = 16;

/// Run a program, in HLO text, whose custom calls are targets of .wasm modules or of native code
/// for CUDA
///
/// Shows each result's shape, first elements, least, greatest and mean.
#[derive(Debug, clap::Args)]
#[command(after_long_help = format!("{EXAMPLES}\n\n{}", super::EXIT_CODES))]
pub(super) struct Arguments {
    /// The program: HLO text. `-` is standard input
    #[arg(value_name = "PROGRAM.hlo")]
    program: PathBuf,

    /// Register the target EXPORT of a module by NAME, which the program calls it by. EXPORT is
    /// NAME if left out
    #[arg(long = "target", value_name = "NAME=FILE.wasm[#EXPORT]", value_parser = arguments::target)]
    targets: Vec<TargetArgument>,

    /// Register every target of every .wasm file in a folder, by its own name; on CUDA, every
    /// target of its callbox.json
    #[arg(long = "targets", value_name = "DIR")]
    folders: Vec<PathBuf>,

    /// Find the modules of a program that callbox.jax traced in this folder, by the keys that the
    /// program names. If left out, the files of --lock are searched
    #[arg(long = "module-dir", value_name = "DIR")]
    module_dirs: Vec<PathBuf>,

    /// On CUDA, register native targets by their own names: all of a manifest callbox.json, its
    /// folder or a package, or these functions of a shared library
    #[arg(long = "native", value_name = "DIR|FILE.json|FILE.wasm|FILE.so:NAME[@CONVENTION][,...]", value_parser = native::parse)]
    natives: Vec<NativeArgument>,

    /// Read parameter N from FILE.npy, from FILE.safetensors#TENSOR or from standard input (-), or
    /// take it from a list such as [1,2,3] or a number
    #[arg(long = "input", value_name = "N=FILE", value_parser = arguments::input)]
    inputs: Vec<InputArgument>,

    #[command(flatten)]
    output: OutputArguments,

    /// The exported function to run, by name or by number. If left out, number 0: the entry
    /// computation
    #[arg(long, value_name = "NAME|ORDINAL")]
    function: Option<String>,

    #[command(flatten)]
    record: RecordArguments,

    #[command(flatten)]
    stats: StatsArguments,

    #[command(flatten)]
    shadow: ShadowArguments,

    #[command(flatten)]
    user_data: UserDataArguments,

    #[command(flatten)]
    platform: PlatformArguments,

    #[command(flatten)]
    policy: PolicyArguments,

    /// Print one JSON object instead of text
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) fn run(arguments: &Arguments) -> Outcome<Finished> {
    check_platform(arguments)?;
    inputs::check_unique(&arguments.inputs)?;
    let (stats, record, policy) = (&arguments.stats, &arguments.record, &arguments.policy);
    let has_user_data = !arguments.user_data.is_empty();
    let (shadow, platform) = (&arguments.shadow, &arguments.platform);
    let observer = Observer::new(stats, record, shadow, platform, policy, has_user_data)?;
    observer.finish(run_observed(arguments, &observer))
}

fn run_observed(arguments: &Arguments, observer: &Arc<Observer>) -> Outcome<Finished> {
    let destination = arguments.output.open(arguments.json)?;
    let program = read_program(&arguments.program)?;
    let function = select(&program, arguments.function.as_deref())?;
    let inputs = inputs::read(&function, &arguments.inputs)?;
    let user_data = arguments.user_data.read()?;
    let (executable, device, options) = compile(arguments, &program, observer)?;

    let executed = Arc::new(AtomicU64::new(0));
    let options = ExecuteOptions {
        call: CallOptions {
            user_data,
            ..options
        },
        progress: Some(Arc::clone(&executed)),
    };
    let text = || {
        let executed = executed.load(Ordering::Relaxed);
        let name = shortened(&function.name);
        format!("running {name}: {executed} instructions done")
    };
    let result = progress::show(text, || {
        executable.execute(function.ordinal, &inputs, &options)
    })?;
    Ok(Finished::new(result, destination)?.on(device))
}

/// Refuses flags that only the other platform takes.
fn check_platform(arguments: &Arguments) -> Outcome<()> {
    let platform = &arguments.platform;
    platform.check(&arguments.policy)?;
    platform.takes(Platform::Host, "--target", !arguments.targets.is_empty())?;
    platform.takes(
        Platform::Host,
        "--module-dir",
        !arguments.module_dirs.is_empty(),
    )?;
    platform.takes(Platform::Cuda, "--native", !arguments.natives.is_empty())
}

/// Binds the program to the targets of the platform. Returns the options of its execution, too,
/// whose time has begun.
fn compile(
    arguments: &Arguments,
    program: &Program,
    observer: &Arc<Observer>,
) -> Outcome<(Executable, Option<DeviceName>, CallOptions)> {
    let (platform, folders) = (&arguments.platform, &arguments.folders);
    Ok(match platform.platform {
        Platform::Host => {
            let called = program.called_targets();
            let is_traced = [TARGET, TARGET_COMMAND_BUFFER]
                .iter()
                .any(|target| called.contains(target));
            let registry = modules::registry(
                &arguments.targets,
                folders,
                &called,
                is_traced.then_some(&*arguments.module_dirs),
                &arguments.policy,
                observer,
            )?;
            let mut options = arguments.policy.call_options();
            if !is_traced {
                // All modules are loaded. Planning counts, too.
                options = options.from_now_on();
            }
            let executable = Executable::compile_within(program, &registry, None, &mut options)?;
            (executable, None, options)
        }
        Platform::Cuda => {
            let (executable, device, options) = native::compile(
                program,
                &arguments.natives,
                folders,
                platform,
                &arguments.policy,
                observer,
            )?;
            (executable, Some(device), options)
        }
    })
}

fn read_program(path: &Path) -> Outcome<Program> {
    let bytes = if path == Path::new("-") {
        regular_file::read_standard_input(hlo::MAX_TEXT_BYTES)?
    } else {
        regular_file::read(path, hlo::MAX_TEXT_BYTES)?
    };
    let text = str::from_utf8(&bytes).map_err(|error| {
        Status::invalid_argument(format!(
            "expected HLO text, which is UTF-8, found other bytes at byte {}",
            error.valid_up_to()
        ))
    });
    let program = if bytes.starts_with(modules::MAGIC) {
        Err(Status::invalid_argument(
            "expected HLO text, found a WebAssembly module: `callbox call` calls one of its targets",
        ))
    } else {
        text.and_then(hlo::parse)
    };
    Ok(program.map_err(|status| status.context(path.display()))?)
}

/// The function with this name, or else with this number.
fn select(program: &Program, wanted: Option<&str>) -> Outcome<Function> {
    let mut functions = program.functions();
    let wanted = wanted.unwrap_or("0");
    let by_name = functions
        .iter()
        .position(|function| function.name == wanted);
    let by_number = || {
        wanted
            .parse()
            .ok()
            .filter(|&number| number < functions.len())
    };
    match by_name.or_else(by_number) {
        Some(index) => Ok(functions.swap_remove(index)),
        None => {
            let known = functions.iter().take(LISTED);
            let known = known.map(|f| format!("{} ({})", shortened(&f.name), f.ordinal));
            let more = if functions.len() > LISTED {
                ", ..."
            } else {
                ""
            };
            Err(Status::not_found(format!(
                "expected an exported function: {}{more}, found {wanted:?}",
                known.collect::<Vec<_>>().join(", ")
            ))
            .into())
        }
    }
}
