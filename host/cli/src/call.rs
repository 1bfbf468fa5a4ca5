//! `callbox call`: calls one target without a program.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use callbox::call::{ApiVersion, Signature, TargetModule};
use callbox::values::untouched;
use callbox::{
    CallOptions, CallSite, Dictionary, Literal, Platform, Result, Shape, StaticInfo, Status,
};

use crate::files::to_row_major;

use super::arguments;
use super::arrays::ArrayFile;
use super::attribute::{self, AttributeArgument};
use super::capsule::{self, Capsule, StatusRecord, check_grants};
use super::failure::{Failure, Outcome};
use super::modules::OpenedFile;
use super::observe::{Observer, RecordArguments, ShadowArguments, StatsArguments};
use super::output::{DeviceName, Finished, OutputArguments};
use super::platform::PlatformArguments;
use super::policy::PolicyArguments;
use super::timing::TimingArguments;
use super::user_data::UserDataArguments;
use super::{modules, native, output, progress, regular_file};

const EXAMPLES: &str = "\
Attributes:
  VALUE is JSON and TYPE an element type, as XLA or MLIR names it: f32, s32 or i32,
  u8 or ui8, pred or i1, ... Without TYPE, a number has the type that the target declares.
  If it declares none, a whole number is an s64, another number an f64, and true and false
  are a pred, as in JAX. A list is an array; an object is a
  dictionary; a string needs its quotes. Text of MLIR gives a dictionary's members types:
  range={lo = -8.0 : f32}. @FILE.npy is the array in a file. With a floating-point TYPE, \"nan\", \"inf\" and
  \"-inf\" are numbers; with a complex one, [RE,IM] is a number.

Examples:
  callbox call kernels/add_n.wasm add_n --operand x.npy --result 'f32[128]' --attr n=4.0:f32
  callbox call k.wasm top2 --operand x.npy --result 'f32[2]' --result 's32[2]' --output-dir out
  callbox call c.wasm do_custom_call --operand b.npy c.npy --result 'f32[2048]'
  callbox call c.wasm echo --api-version API_VERSION_STATUS_RETURNING_UNIFIED \\
      --opaque 'any text' --result 'u8[8]'
  callbox call k.wasm conv --operand x.npy w.safetensors#w --result 'f32[8,8]{0,1}' \\
      --attr 'strides=[1,2]' --attr 'mode=\"same\"' --attr 'epsilon=1e-5:f32'
  callbox call --platform CUDA kernels/callbox.json add_n --allow-native SHA256 \\
      --operand x.npy --result 'f32[128]' --attr n=4.0:f32
  callbox call --platform CUDA libk.so f@original@preorder --allow-native SHA256 \\
      --operand x.npy --result 'f32[128]'

With --json, standard output is one object, as of `callbox run`.";

/// Call one target of a .wasm module, or of native code for CUDA, without a program
///
/// Shows each result's shape, first elements, least, greatest and mean.
#[derive(Debug, clap::Args)]
#[command(after_long_help = format!("{EXAMPLES}\n\n{}", super::EXIT_CODES))]
pub(super) struct Arguments {
    /// The module or package; on CUDA a package with a native twin, a manifest callbox.json, the
    /// folder of one, or a shared library
    #[arg(value_name = "FILE.wasm|FILE.json|DIR|FILE.so")]
    module: PathBuf,

    /// The name of its target. A function of a shared library is
    /// NAME[@original|@status][@leaves|@preorder], as for `callbox run --native`
    target: String,

    /// The operands, in order: FILE.npy, FILE.safetensors#TENSOR, - for standard input, a list such
    /// as [1,2,3]:f32, or a number
    #[arg(long = "operand", value_name = "FILE", num_args = 1.., value_parser = arguments::array_file)]
    operands: Vec<ArrayFile>,

    /// The results' shapes, in order, as XLA prints them: f32[2,3], or f32[2,3]{0,1} for a layout
    #[arg(long = "result", value_name = "SHAPE", num_args = 1.., value_parser = arguments::shape)]
    results: Vec<Shape>,

    /// An attribute. Without TYPE, VALUE has the type that the target declares for it, and so has
    /// each field of an object
    #[arg(long = "attr", value_name = "NAME=VALUE[:TYPE]", value_parser = attribute::parse)]
    attributes: Vec<AttributeArgument>,

    /// The convention that the target is called by. Needed if an undeclared function fits several,
    /// as API_VERSION_STATUS_RETURNING_UNIFIED and API_VERSION_JAX_FFI
    #[arg(long, value_name = "API_VERSION")]
    api_version: Option<ApiVersion>,

    /// The opaque bytes, or the static information of the JAX FFI proposal by value
    #[arg(long, value_name = "TEXT")]
    opaque: Option<String>,

    /// The same, from a file
    #[arg(long, value_name = "FILE", conflicts_with = "opaque")]
    opaque_file: Option<PathBuf>,

    #[command(flatten)]
    output: OutputArguments,

    /// Write the call to a file in this folder: the module, the operands, the attributes, the
    /// policy and how the call ended. `callbox replay` repeats it
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,

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

    #[command(flatten)]
    timing: TimingArguments,

    /// Print one JSON object instead of text
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) fn call(arguments: &Arguments) -> Outcome<Finished> {
    arguments.platform.check(&arguments.policy)?;
    check_unique(&arguments.attributes)?;
    check_recorded(arguments)?;
    let (platform, policy) = (&arguments.platform, &arguments.policy);
    // The preparation is recorded too, which an observer does not see.
    let record = RecordArguments::default();
    let (stats, shadow) = (&arguments.stats, &arguments.shadow);
    let observer = Observer::new(stats, &record, shadow, platform, policy, false)?;
    observer.finish(call_observed(arguments, &observer))
}

fn call_observed(arguments: &Arguments, observer: &Arc<Observer>) -> Outcome<Finished> {
    let destination = arguments.output.open(arguments.json)?;
    let operands = arguments.operands.iter().enumerate().map(|(i, file)| {
        let read = file.read(None);
        read.map_err(|failure| failure.context(format_args!("operand {i}")))
    });
    let operands = operands.collect::<Outcome<Vec<_>>>()?;
    let result = match arguments.results.as_slice() {
        [one] => one.clone(),
        several => Shape::tuple(several.to_vec())?,
    };
    let Loaded {
        module,
        file,
        target,
        device,
    } = load(arguments, observer)?;
    let shapes = operands
        .iter()
        .map(|operand| operand.shape().clone())
        .collect();
    let signature = module.targets().iter().find(|known| known.name == target);
    let attributes = dictionary(&arguments.attributes, signature)?;
    let site = CallSite::new(&target, shapes, result.clone()).with_attributes(attributes);
    let site = with_convention(site, arguments, signature)?;
    // The preparation is part of the call, and takes from its time.
    let policy = arguments.policy.read()?;
    let options = arguments.policy.call_options();
    let options = CallOptions {
        user_data: arguments.user_data.read()?,
        ..arguments.policy.begun(&options, &policy)
    };
    let timing = &arguments.timing;
    timing.measure(&module, &site, &operands, &options)?;
    let text = || format!("calling {target}");
    let recorded = arguments.record.as_ref().map(|_| site.clone());
    let result = progress::show(text, || execute(&module, site, &operands, &options));
    if let (Some(site), Some(file)) = (recorded, file) {
        record(arguments, &file, site, operands, &result)?;
    }
    Ok(Finished::new(result?, destination)?.on(device))
}

/// Checks that a capsule can carry what the call is given, and makes the folder.
fn check_recorded(arguments: &Arguments) -> Outcome<()> {
    let Some(folder) = &arguments.record else {
        return Ok(());
    };
    let refused = if arguments.platform.platform != Platform::Host {
        Some("calls on Host alone are recorded, expected no --platform CUDA with --record")
    } else if !arguments.user_data.is_empty() {
        Some("a capsule does not carry user data, expected no --user-data with --record")
    } else {
        None
    };
    if let Some(message) = refused {
        return Err(Failure::usage(Status::unimplemented(message)));
    }
    check_grants(&arguments.policy.read()?, &arguments.target)?;
    capsule::make_folder(folder)
}

/// Writes the capsule of a call. If that fails, the failure of the call itself is told.
fn record(
    arguments: &Arguments,
    file: &OpenedFile,
    site: CallSite,
    operands: Vec<Literal>,
    result: &Result<Literal>,
) -> Outcome<()> {
    let Some(folder) = &arguments.record else {
        return Ok(());
    };
    let leaves = |result: &Literal| result.leaves().map(|(_, bytes)| bytes.to_vec()).collect();
    let capsule = Capsule {
        file: file.name(),
        module: file.contents.bytes().to_vec(),
        policy: arguments.policy.read()?,
        deadline_ms: arguments.policy.deadline_ms(),
        site,
        operands,
        outcome: result.as_ref().map(leaves).map_err(StatusRecord::from),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    match capsule::write(&capsule, folder, output::note) {
        Err(failure) if result.is_ok() => Err(failure),
        Err(failure) => {
            output::warn(&format!("the call is not recorded: {}", failure.status()));
            Ok(())
        }
        Ok(_) => Ok(()),
    }
}

/// Prepares a call site and calls it once.
pub(super) fn execute(
    module: &Arc<dyn TargetModule>,
    site: CallSite,
    operands: &[Literal],
    options: &CallOptions,
) -> Result<Literal> {
    let shape = site.result.clone();
    Literal::from_leaves(shape, execute_leaves(module, site, operands, options)?)
}

/// The same with the leaves of the result, in row-major order. Those of [`CallSite::scratch`] are
/// empty.
pub(super) fn execute_leaves(
    module: &Arc<dyn TargetModule>,
    site: CallSite,
    operands: &[Literal],
    options: &CallOptions,
) -> Result<Vec<Vec<u8>>> {
    let shape = site.result.clone();
    let leaves = shape.leaves().into_iter().enumerate();
    let sizes = leaves.map(|(i, leaf)| match site.is_scratch(i) {
        true => 0,
        false => leaf.byte_size(),
    });
    let sizes: Vec<_> = sizes.collect();
    // A stranger's capsule or case can name any shape. The preparation compares it with the limits.
    let calls = Arc::clone(module).prepare(vec![site], options)?;
    let results = sizes.into_iter().map(untouched);
    let mut results = results.collect::<Result<Vec<_>>>()?;
    let operands: Vec<_> = operands.iter().filter_map(Literal::bytes).collect();
    let mut buffers: Vec<_> = results.iter_mut().map(Vec::as_mut_slice).collect();
    let mut execution = calls.begin(options, None, &[0])?;
    execution.initialize()?;
    execution.call(0, &operands, &mut buffers)?;
    Ok(to_row_major_order(&shape, results))
}

/// A module that is ready to be prepared.
pub(super) struct Loaded {
    pub(super) module: Arc<dyn TargetModule>,
    /// The file of a module for Host.
    pub(super) file: Option<Arc<OpenedFile>>,
    /// The target's name in the module.
    pub(super) target: String,
    /// The device that it is called on, unless that is the host.
    pub(super) device: Option<DeviceName>,
}

fn load(arguments: &Arguments, observer: &Arc<Observer>) -> Outcome<Loaded> {
    let (file, target, platform) = (&arguments.module, &arguments.target, &arguments.platform);
    match platform.platform {
        Platform::Host => {
            let (module, opened) = modules::load(file, target, &arguments.policy, observer)?;
            Ok(Loaded {
                module,
                file: Some(opened),
                target: target.clone(),
                device: None,
            })
        }
        Platform::Cuda => native::load(file, target, platform, &arguments.policy, observer),
    }
}

/// The most opaque bytes that are read from a file: the size of the largest arena by default.
const MOST_OPAQUE: usize = 1 << 30;

/// The call site with the convention of `--api-version`, or else of the target.
fn with_convention(
    mut site: CallSite,
    arguments: &Arguments,
    signature: Option<&Signature>,
) -> Outcome<CallSite> {
    let opaque = match (&arguments.opaque, &arguments.opaque_file) {
        (Some(text), _) => Some(text.clone().into_bytes()),
        (None, Some(file)) => Some(regular_file::read(file, MOST_OPAQUE)?),
        (None, None) => None,
    };
    let versions = signature.map_or(&[][..], |signature| &signature.api_versions);
    site.api_version = match (arguments.api_version, versions) {
        (Some(version), _) => version,
        (None, []) => ApiVersion::TypedFfi,
        // The conventions have the same function type, and give the arguments other meanings.
        (None, several) if several.len() > 1 && several.contains(&ApiVersion::JaxFfi) => {
            let names: Vec<_> = several.iter().map(|version| version.name()).collect();
            return Err(Failure::usage(Status::invalid_argument(format!(
                "the exported function `{}` fits several conventions: name the one that it is \
                 written for with --api-version {}",
                site.target,
                names.join(" or --api-version ")
            ))));
        }
        (None, &[first, ..]) => first,
    };
    match site.api_version {
        ApiVersion::JaxFfi => site.static_info = opaque.map(StaticInfo::Value),
        _ => site.opaque = opaque.unwrap_or_default(),
    }
    Ok(site)
}

/// Checks that no attribute is given twice.
pub(super) fn check_unique(attributes: &[AttributeArgument]) -> Outcome<()> {
    let mut names = HashSet::new();
    match attributes.iter().find(|given| !names.insert(&given.name)) {
        None => Ok(()),
        Some(AttributeArgument { name, .. }) => Err(Failure::usage(Status::invalid_argument(
            format!("expected --attr {name} once, found it again"),
        ))),
    }
}

/// The attributes, with the types that a signature declares.
pub(super) fn dictionary(
    attributes: &[AttributeArgument],
    signature: Option<&Signature>,
) -> Outcome<Dictionary> {
    let declared = signature.and_then(|signature| signature.attributes.as_deref());
    let declared = declared.unwrap_or_default();
    let typed = attributes.iter().map(|given| {
        let declared = declared.iter().find(|declared| declared.name == given.name);
        Ok((given.name.clone(), given.typed(declared)?))
    });
    typed.collect()
}

/// The leaves of a shape, which are in their layouts, in row-major order. Empty ones stay.
pub(super) fn to_row_major_order(shape: &Shape, mut arrays: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    for (leaf, bytes) in std::iter::zip(shape.leaves(), &mut arrays) {
        if !leaf.is_row_major() && bytes.len() == leaf.byte_size() {
            let width = leaf.element_type().byte_width();
            let layout = leaf.layout_or_default();
            *bytes = to_row_major(bytes, width, leaf.dimensions(), layout.minor_to_major());
        }
    }
    arrays
}
