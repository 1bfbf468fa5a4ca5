//! `callbox ptx`: verifies the kernels of a PTX file, and writes the text with its fence.

mod describe;
mod fenced;
mod fields;
mod report;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use callbox::cuda::manifest::Manifest;
use callbox::policy::Gpu;
use callbox::{Shape, Status};

pub(super) use self::describe::{describe, summary};
pub(super) use self::fenced::all_launches;
use self::fenced::{Shapes, TargetLaunch};
pub(super) use self::fields::{Grade, PtxReport};
pub(super) use self::report::Verifier;
use super::attribute::{self, AttributeArgument};
use super::failure::{Failure, Outcome};
use super::output::{self, complain};
use super::text::name;
use super::{inspect, json, policy, regular_file};

const EXAMPLES: &str = "\
Examples:
  callbox ptx softmax.ptx
  callbox ptx softmax.ptx --manifest callbox.json
  callbox ptx softmax.ptx --manifest callbox.json --shapes '(f32[4,1000]) -> f32[4,1000]' \\
      --emit softmax.fenced.ptx

A kernel that passes runs without a grant. What is proved costs nothing, and the fence checks the
rest when the kernel runs. Proofs depend on the launch: its grid, block, the lengths of buffers and
the values of scalars. --manifest says what the parameters are, and with --shapes the launch is
known. Without them, everything that depends on the launch is checked at run time, and the fence
cannot be written. Without a manifest, a parameter of 8 bytes that addresses are computed from
counts as a buffer which the kernel may write.

Grades of a kernel:
  fenced   it passes for every launch that fits what is known
  depends  it may pass if its launch is known: give --manifest and --shapes
  refused  it does not pass: only a grant of the native code runs it

With --json, standard output is one object, of failures too (then ptx is null if the file could not
be read):
  {\"status\":{\"code\":...,\"number\":...,\"message\":...,\"recoverable\":...,\"blame\":...},
   \"ptx\":{\"size\":...,\"sha256\":...,\"architecture\":...,
    \"problem\":{\"line\":...,\"column\":...,\"message\":...},\"grade\":...,
    \"kernels\":[{\"name\":...,\"line\":...,\"target\":...,\"grade\":...,
      \"launch\":{\"grid\":[...],\"block\":[...],\"shared_bytes\":...},
      \"parameters\":[{\"name\":...,\"bytes\":...,\"is_buffer\":...,\"reads\":...,\"writes\":...}],
      \"accesses\":{\"proved\":...,\"checked\":...,\"never\":...},
      \"not_proved\":[{\"line\":...,\"space\":...,\"action\":...,\"bytes\":...,\"parameter\":...,
        \"verdict\":...}],
      \"loops\":[{\"line\":...,\"turns\":...,\"stop_word_every\":...}],
      \"blocks_look\":...,\"barriers\":...,\"shared_bytes\":...,
      \"calls\":[{\"line\":...,\"function\":...}],\"clocks\":[...],
      \"instructions\":...,\"fenced_instructions\":...,
      \"refusals\":[{\"line\":...,\"instruction\":...,\"rule\":...,\"reason\":...,\"cure\":...}]}]}}
  problem is null if the text can be read, and kernels is empty otherwise. The fields of launch are
  null where they are not known. A kernel has left_out, a number, if entries of its lists were left
  out: those of all launches have at most 100,000. Accesses of parameters are not counted.
  accesses to shared_bytes are null for a kernel that is not fenced, and fenced_instructions is
  null without --shapes. A loop has the most turns, or looks at the stop word now and then.
  blocks_look is true if each block looks at it as it begins, because the grid may run for long. An
  access that never fits is stopped whenever it runs.";

/// Verify the kernels of a PTX file, which run without a grant if they pass
///
/// Shows what each kernel reads and writes, which accesses are proved, what ends its loops, and why
/// it is refused. No driver is needed.
#[derive(Debug, clap::Args)]
#[command(after_long_help = format!("{EXAMPLES}\n\n{}", super::EXIT_CODES))]
pub(super) struct Arguments {
    /// The PTX file
    #[arg(value_name = "FILE.ptx")]
    file: PathBuf,

    /// The manifest callbox.json that names the file as an image, or its folder
    #[arg(long, value_name = "FILE.json|DIR")]
    manifest: Option<PathBuf>,

    /// The target of the manifest. Needed with --shapes if several launch kernels of the file
    #[arg(long, value_name = "NAME", requires = "manifest")]
    target: Option<String>,

    /// The shapes of the target's operands and results: '(f32[4,1000], s32[4]) -> f32[4,1000]'.
    /// Several results are a tuple
    #[arg(long, value_name = "OPERANDS -> RESULTS", requires = "manifest", value_parser = Shapes::parse)]
    shapes: Option<Shapes>,

    /// An attribute of the call, as for `callbox call`
    #[arg(long = "attr", value_name = "NAME=VALUE[:TYPE]", requires = "shapes", value_parser = attribute::parse)]
    attributes: Vec<AttributeArgument>,

    /// Report on this kernel alone
    #[arg(long, value_name = "NAME")]
    entry: Option<String>,

    /// Write the text with its fence to this file, if the kernel passes
    #[arg(long, value_name = "FENCED.ptx", requires = "shapes")]
    emit: Option<PathBuf>,

    /// Read the policy from a file. Its field gpu limits the kernels
    #[arg(long, value_name = "FILE.json")]
    policy: Option<PathBuf>,

    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// A manifest, and where it lies.
#[derive(Debug)]
struct Located {
    path: PathBuf,
    manifest: Manifest,
}

pub(super) fn show(arguments: &Arguments) -> ExitCode {
    let (report, failure) = match run(arguments) {
        Ok(report) => {
            let failure = report.failure(&arguments.file);
            (Some(report), failure)
        }
        Err(failure) => (None, Some(failure)),
    };
    let mut code = ExitCode::SUCCESS;
    if let Some(failure) = &failure {
        complain(failure);
        code = failure.exit_code();
    }
    let text = match (arguments.json, &report) {
        (true, _) => json::ptx(report.as_ref(), failure.as_ref()),
        (false, Some(report)) => {
            name(&arguments.file.display().to_string()) + "\n" + &describe(report)
        }
        (false, None) => return code,
    };
    output::emit(&text, code)
}

fn run(arguments: &Arguments) -> Outcome<PtxReport> {
    let policy = policy::read_file(arguments.policy.as_deref())?;
    let manifest = arguments
        .manifest
        .as_deref()
        .map(read_manifest)
        .transpose()?;
    let (mut report, module) = report::read(&arguments.file, &policy.gpu)?;
    let launches = match &manifest {
        Some(manifest) => Some(fenced::launches(arguments, manifest, &policy.gpu)?),
        None => None,
    };
    if let Some(module) = &module {
        let launches = launches.as_ref().map(|all| all.iter().collect::<Vec<_>>());
        let entry = arguments.entry.as_deref();
        let is_meant = |one: &&TargetLaunch| entry.is_none_or(|entry| one.launch.entry == entry);
        let count = launches
            .iter()
            .flatten()
            .filter(|one| is_meant(one))
            .count();
        let mut verifier = Verifier::new(&policy.gpu);
        verifier.keeps_texts = arguments.emit.is_some() && count == 1;
        report.verify(module, entry, launches.as_deref(), &verifier);
        if report.kernels.is_empty() {
            return Err(no_kernel(arguments));
        }
    }
    if let Some(path) = &arguments.emit {
        write_fenced(&report, path)?;
    }
    Ok(report)
}

fn no_kernel(arguments: &Arguments) -> Failure {
    let which = match &arguments.entry {
        Some(entry) => format!("expected a kernel `{entry}`, found none"),
        None => "expected kernels, found none".to_owned(),
    };
    let whose = if arguments.manifest.is_some() {
        " that the call launches"
    } else {
        ""
    };
    let status = Status::invalid_argument(which + whose);
    Failure::usage(status.context(arguments.file.display()))
}

/// Writes the only kernel, if it passed.
fn write_fenced(report: &PtxReport, path: &Path) -> Outcome<()> {
    let [kernel] = report.kernels.as_slice() else {
        let names: Vec<_> = report
            .kernels
            .iter()
            .map(|kernel| name(&kernel.name))
            .collect();
        return match names.as_slice() {
            // The text could not be read, which the report says.
            [] => Ok(()),
            _ => Err(Failure::usage(Status::invalid_argument(format!(
                "a fenced text has one kernel, and the call launches {}: name one with --entry",
                names.join(", ")
            )))),
        };
    };
    let Some(text) = &kernel.fenced_text else {
        return Ok(());
    };
    std::fs::write(path, text.as_bytes())
        .map_err(|error| Failure::file(format!("expected to write {}", path.display()), &error))
}

fn read_manifest(path: &Path) -> Outcome<Located> {
    let path = inspect::manifest_in(path);
    let text = regular_file::read(&path, inspect::MAX_MANIFEST)?;
    let manifest =
        inspect::parse_manifest(&text).map_err(|status| status.context(path.display()))?;
    Ok(Located { path, manifest })
}

/// Reports on the kernels of a file, for launches that are not known.
pub(super) fn of_file(path: &Path) -> Outcome<PtxReport> {
    let gpu = Gpu::default();
    let (mut report, module) = report::read(path, &gpu)?;
    if let Some(module) = module {
        report.verify(&module, None, None, &Verifier::new(&gpu));
    }
    Ok(report)
}

/// Reports on the kernels of a manifest's images, as far as their launches are known. These images
/// are files with the same contents, which are read and verified once for all of them.
pub(super) fn of_images(
    folder: &Path,
    manifest: &Manifest,
    images: &[usize],
    launches: &[TargetLaunch],
    verifier: &Verifier<'_>,
) -> Outcome<Vec<PtxReport>> {
    let Some(&first) = images.first() else {
        return Ok(Vec::new());
    };
    let (mut all, module) = report::read(&folder.join(&manifest.images[first].file), verifier.gpu)?;
    let launches = launches.iter();
    let launches: Vec<_> = launches
        .filter(|one| images.contains(&one.launch.image))
        .collect();
    if let Some(module) = module {
        all.verify(&module, None, Some(&launches), verifier);
    }
    let of = |image: &usize| all.part(|number| launches[number].launch.image == *image);
    Ok(images.iter().map(of).collect())
}

/// The shapes of a call as a call site has them.
fn operands(shape: Shape) -> Vec<Shape> {
    match shape.as_tuple() {
        Some(elements) => elements.to_vec(),
        None => vec![shape],
    }
}
