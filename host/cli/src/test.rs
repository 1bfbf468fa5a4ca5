//! `callbox test`: runs a package's own cases.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use callbox::{CallOptions, Platform, Status};
use callbox_package::{Limits, MANIFEST, Package};

use super::case::{Case, Ending};
use super::failure::Outcome;
use super::modules::Loader;
use super::package::report::Report;
use super::package::{self, twin::Twin};
use super::platform::{self, PlatformArguments};
use super::policy::PolicyArguments;
use super::{build, native, output, pack, progress};

const EXAMPLES: &str = "\
Examples:
  callbox test softmax-1.0.0.wasm
  callbox test softmax-1.0.0.wasm --platform CUDA
  callbox test softmax-1.0.0.wasm --isolate process --json
  callbox test softmax/

Cases run on Host, and on CUDA if the package has a native twin and this machine a device. A case
that is not run says why. The exit code is 0 if a case ran and none failed. A folder, as of
`callbox new`, is built before, and its native tests run first: unlike a package, its build scripts
and native tests run with your rights.

With --json, standard output is one object, as of `callbox pack`.";

/// Run the cases that a package carries, on every platform that is there
#[derive(Debug, Default, clap::Args)]
#[command(after_long_help = format!("{EXAMPLES}\n\n{}", super::EXIT_CODES))]
pub(super) struct Arguments {
    /// The package, or the folder of one
    #[arg(value_name = "FILE.wasm|DIR")]
    file: PathBuf,

    /// Run the cases on this platform only, and fail if it is not there
    #[arg(long, value_name = "PLATFORM", value_parser = platform::platform)]
    platform: Option<Platform>,

    /// The number of the CUDA device. If left out, 0
    #[arg(long, value_name = "N")]
    device: Option<usize>,

    /// Trust the native twin of this digest with everything that this process can do: it is not
    /// sandboxed. PTX needs no grant if it can be fenced
    #[arg(long, value_name = "SHA256", value_parser = native::digest)]
    allow_native: Vec<String>,

    #[command(flatten)]
    policy: PolicyArguments,

    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

impl Arguments {
    /// The arguments of `callbox test FILE`.
    pub(super) fn of(file: &Path) -> Self {
        Self {
            file: file.to_owned(),
            ..Self::default()
        }
    }
}

pub(super) fn test(arguments: &Arguments) -> ExitCode {
    let mut report = None;
    let outcome = run(arguments, &mut report);
    output::report(arguments.json, "package", report.as_ref(), outcome)
}

fn run(arguments: &Arguments, report: &mut Option<Report>) -> Outcome<()> {
    let in_file = |status: Status| status.context(arguments.file.display());
    let bytes = if arguments.file.is_dir() {
        arguments.policy.check_folder()?;
        build::packed(&arguments.file, true)?
    } else {
        package::read_file(&arguments.file)?
    };
    // A file that is no package is refused before the module is validated.
    callbox_package::read(&bytes, &Limits::default()).map_err(in_file)?;
    let mut loader = Loader::new(&arguments.policy)?;
    let file = loader.describe(&arguments.file, bytes)?;
    let limits = Limits::default();
    let package = callbox_package::read(file.contents.bytes(), &limits).map_err(in_file)?;
    let checked = package::check(&package, &file.contents.info().targets).map_err(in_file)?;
    let report = report.insert(Report::new(&package));
    report.set_file(&arguments.file);
    report.set_twin(checked.twin.as_ref().map(Twin::grade));
    let options = arguments.policy.case_options()?;
    if arguments.platform != Some(Platform::Cuda) {
        pack::run_on_host(&mut loader, &file, &checked.cases, &options, report);
    }
    if arguments.platform == Some(Platform::Host) {
        return Ok(report.check().map_err(in_file)?);
    }
    let platform = PlatformArguments {
        platform: Platform::Cuda,
        device: arguments.device,
        allow_native: arguments.allow_native.clone(),
    };
    let device = Device {
        platform: &platform,
        policy: &arguments.policy,
        is_needed: arguments.platform.is_some(),
    };
    device.run(&arguments.file, &package, &checked.cases, &options, report)?;
    Ok(report.check().map_err(in_file)?)
}

/// Runs the cases of a package that is being made on CUDA, if it has a twin that needs no grant and
/// there is a device.
pub(super) fn run_twin(
    path: &Path,
    package: &Package<'_>,
    cases: &[Case],
    policy: &PolicyArguments,
    report: &mut Report,
) -> Outcome<()> {
    let platform = PlatformArguments {
        platform: Platform::Cuda,
        device: None,
        allow_native: Vec::new(),
    };
    let device = Device {
        platform: &platform,
        policy,
        is_needed: false,
    };
    device.run(path, package, cases, &policy.call_options(), report)
}

/// The device that runs cases on CUDA.
struct Device<'a> {
    platform: &'a PlatformArguments,
    policy: &'a PolicyArguments,
    /// Whether it is an error that it is not there. If not, that is why cases are not run.
    is_needed: bool,
}

impl Device<'_> {
    fn run(
        &self,
        path: &Path,
        package: &Package<'_>,
        cases: &[Case],
        options: &CallOptions,
        report: &mut Report,
    ) -> Outcome<()> {
        if package.file(MANIFEST).is_none() && !self.is_needed {
            return Ok(());
        }
        let module = match native::load_twin(path, package, self.platform, self.policy) {
            Ok((module, _)) => Ok(module),
            Err(failure) if self.is_needed => return Err(failure.context(path.display())),
            Err(failure) => Err(failure.status().to_string()),
        };
        for case in cases {
            let ending = match &module {
                Err(reason) => Ending::NotRun(reason.clone()),
                Ok(_) if !case.is_for(Platform::Cuda) => {
                    Ending::NotRun("the case is for other platforms".to_owned())
                }
                Ok(module)
                    if !module
                        .targets()
                        .iter()
                        .any(|known| known.name == case.target()) =>
                {
                    Ending::NotRun(format!("the twin has no target `{}`", case.target()))
                }
                Ok(module) => {
                    let text = || format!("running {} on CUDA", case.path);
                    progress::show(text, || case.run(module, options))
                }
            };
            report.add(&case.path, Platform::Cuda, ending);
        }
        Ok(())
    }
}
