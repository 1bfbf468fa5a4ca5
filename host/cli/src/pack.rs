//! `callbox pack`: makes a package of a folder.

mod embed;
pub(super) mod hub;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use callbox::{CallOptions, Platform};
use callbox_package::Limits;

use super::case::{Case, Ending};
use super::failure::Outcome;
use super::modules::{Loader, OpenedFile};
use super::package::report::Report;
use super::package::{self, folder};
use super::policy::PolicyArguments;
use super::{output, progress, signing, test, write_file};

const EXAMPLES: &str = "\
The folder has:
  callbox-package.json  {\"format\":1,\"name\":\"softmax\",\"version\":\"1.0.0\",\"license\":\"MIT\"}
                        and optionally \"description\", \"source\" and
                        \"derivatives\": {\"softmax\": \"softmax_vjp\"}
  NAME.wasm             the module, one
  cases/                cases NAME.json, at least one, and the arrays that they name
  callbox.json          optionally the manifest of the native twin, and the images that it names
  README.md, docs/, LICENSE*, NOTICE*, CHANGELOG.md
  Other files are left out, and named in the report. docs/shipping.md describes cases.

Examples:
  callbox pack softmax/
  callbox pack softmax/ -o kernels/softmax.wasm
  callbox pack softmax/ --hub repository/
  callbox pack softmax/ --into model.safetensors

The same folder gives the same bytes on every machine. Nothing is written if a case fails under
the default policy, also on CUDA where there is a device and the twin needs no grant.

With --json, standard output is one object, of failures too (package is null if the folder is
wrong):
  {\"status\":{...},\"package\":{\"file\":...,\"name\":...,\"version\":...,\"sha256\":...,\"size\":...,
    \"files\":[{\"path\":...,\"size\":...}],\"left_out\":[...],\"twin\":...,
    \"cases\":[{\"case\":...,\"platform\":...,\"ending\":\"passed\",\"reason\":\"\"}]}}
  ending is \"passed\", \"failed\" or \"not run\". With --into, the package also has \"tensor\"; with
  --hub, \"hub_digest\".";

/// Make a package of a folder: a .wasm file that carries its cases, native twin, documentation and
/// licence
///
/// Checks the folder and runs its cases on Host before the package is written.
#[derive(Debug, clap::Args)]
#[command(after_long_help = format!("{EXAMPLES}\n\n{}", super::EXIT_CODES))]
pub(super) struct Arguments {
    /// The folder
    #[arg(value_name = "DIR")]
    folder: PathBuf,

    /// The package to write. If left out, NAME-VERSION.wasm in the current folder
    #[arg(short, long, value_name = "FILE.wasm")]
    output: Option<PathBuf>,

    /// Write the package to build/callbox-wasm32 in this folder, a repository of kernels for the
    /// Hugging Face Hub, with its native twin and the digests of all files
    #[arg(long, value_name = "DIR", conflicts_with_all = ["output", "into"])]
    hub: Option<PathBuf>,

    /// Add the package to this file, as the tensor callbox.NAME
    #[arg(long, value_name = "FILE.safetensors", conflicts_with = "output")]
    into: Option<PathBuf>,

    /// Sign the package with this key, as `callbox sign` does
    #[arg(long, value_name = "FILE.pem")]
    sign: Option<PathBuf>,

    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

pub(super) fn pack(arguments: &Arguments) -> ExitCode {
    let mut report = None;
    let outcome = write(arguments, &mut report);
    output::report(arguments.json, "package", report.as_ref(), outcome)
}

fn write(arguments: &Arguments, report: &mut Option<Report>) -> Outcome<()> {
    let contents = folder::read(&arguments.folder)?;
    let in_folder = |status: callbox::Status| status.context(arguments.folder.display());
    let limits = Limits::default();
    let (module, header, files) = (&contents.module, &contents.header, &contents.files);
    let mut packed = callbox_package::pack(module, header, files, &limits).map_err(in_folder)?;
    if let Some(key) = &arguments.sign {
        packed = callbox_package::sign(&packed, &signing::secret_key(key)?).map_err(in_folder)?;
    }
    let path = arguments.output.clone();
    let path = path.unwrap_or_else(|| format!("{}-{}.wasm", header.name, header.version).into());
    if let Some(key) = &arguments.sign {
        signing::check_output(arguments.into.as_ref().unwrap_or(&path), key)?;
    }

    let policy = PolicyArguments::default();
    let mut loader = Loader::new(&policy)?;
    let file = loader.describe(&path, packed)?;
    let package = callbox_package::read(file.contents.bytes(), &limits).map_err(in_folder)?;
    let checked = package::check(&package, &file.contents.info().targets).map_err(in_folder)?;
    let report = report.insert(Report::new(&package));
    report.set_left_out(contents.left_out);
    report.set_twin(checked.twin.map(|twin| twin.grade()));
    run_on_host(
        &mut loader,
        &file,
        &checked.cases,
        &policy.call_options(),
        report,
    );
    test::run_twin(&path, &package, &checked.cases, &policy, report)?;
    report.check().map_err(in_folder)?;
    if let Some(repository) = &arguments.hub {
        let written = hub::write(repository, &package)?;
        report.set_hub_digest(written.digest);
        report.set_file(&written.module);
    } else if let Some(model) = &arguments.into {
        report.set_tensor(embed::write(model, &package)?);
        report.set_file(model);
    } else {
        write_file::write(&path, &[package.bytes()])?;
        report.set_file(&path);
    }
    Ok(())
}

/// Runs the cases on Host.
pub(super) fn run_on_host(
    loader: &mut Loader,
    file: &Arc<OpenedFile>,
    cases: &[Case],
    options: &CallOptions,
    report: &mut Report,
) {
    for case in cases {
        let ending = if !case.is_for(Platform::Host) {
            Ending::NotRun("the case is for other platforms".to_owned())
        } else {
            match loader.load(file, case.target()) {
                Ok(module) => {
                    let text = || format!("running {}", case.path);
                    progress::show(text, || case.run(&module, options))
                }
                Err(failure) => Ending::Failed(failure.status().to_string()),
            }
        };
        report.add(&case.path, Platform::Host, ending);
    }
}
