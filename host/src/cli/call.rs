//! `callbox call`: one target of a module or of native code, without a program.

use std::path::PathBuf;

use callbox::arrays::to_row_major;
use callbox::call::{ApiVersion, Signature};
use callbox::{
    Attribute, CallOptions, CallSite, Dictionary, Literal, Platform, Result, Shape, StaticInfo,
    Status,
};

use super::arguments;
use super::arrays::ArrayFile;
use super::attribute;
use super::backend::Loaded;
use super::failure::{Failure, Outcome};
use super::output::{Finished, OutputFolder};
use super::platform::PlatformArguments;
use super::policy::PolicyArguments;
use super::user_data::UserDataArguments;
use super::{modules, native, progress};

const EXAMPLES: &str = "\
Attributes:
  VALUE is JSON and TYPE an element type, as XLA or MLIR names it: f32, s32 or i32,
  u8 or ui8, pred or i1, ... Without TYPE a whole number is an s64, another number an
  f64, true and false are a pred, as in JAX. A list is an array; an object is a
  dictionary; a string needs its quotes. With a floating-point TYPE, \"nan\", \"inf\" and
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
    /// The module; on CUDA a manifest callbox.json, the folder of one, or a shared library
    #[arg(value_name = "FILE.wasm|FILE.json|DIR|FILE.so")]
    module: PathBuf,

    /// The name of its target. A function of a shared library is NAME[@original|@status][@leaves|@preorder], as for `callbox run --native`
    target: String,

    /// The operands, in order: FILE.npy or FILE.safetensors#TENSOR
    #[arg(long = "operand", value_name = "FILE", num_args = 1.., value_parser = arguments::array_file)]
    operands: Vec<ArrayFile>,

    /// The results' shapes, in order, as XLA prints them: f32[2,3], or f32[2,3]{0,1} for a layout
    #[arg(long = "result", value_name = "SHAPE", num_args = 1.., value_parser = arguments::shape)]
    results: Vec<Shape>,

    /// An attribute
    #[arg(long = "attr", value_name = "NAME=VALUE[:TYPE]", value_parser = attribute::parse)]
    attributes: Vec<(String, Attribute)>,

    /// The convention that the target is called by. If left out, the first that the module has the target in
    #[arg(long, value_name = "API_VERSION")]
    api_version: Option<ApiVersion>,

    /// The opaque bytes, or the static information of the JAX FFI proposal by value
    #[arg(long, value_name = "TEXT")]
    opaque: Option<String>,

    /// The same, from a file
    #[arg(long, value_name = "FILE", conflicts_with = "opaque")]
    opaque_file: Option<PathBuf>,

    /// Write the results to this folder, as `callbox run` does
    #[arg(long, value_name = "DIR")]
    output_dir: Option<PathBuf>,

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

pub(super) fn call(arguments: &Arguments) -> Outcome<Finished> {
    arguments.platform.check(&arguments.policy)?;
    let attributes = dictionary(&arguments.attributes)?;
    let folder = arguments.output_dir.as_deref();
    let folder = folder.map(OutputFolder::open).transpose()?;
    let operands = arguments.operands.iter().enumerate().map(|(i, file)| {
        let read = file.read(None);
        read.map_err(|failure| failure.context(format_args!("operand {i}")))
    });
    let operands = operands.collect::<Outcome<Vec<_>>>()?;
    let result = match arguments.results.as_slice() {
        [one] => one.clone(),
        several => Shape::tuple(several.to_vec())?,
    };
    let (module, target) = load(arguments)?;
    let shapes = operands
        .iter()
        .map(|operand| operand.shape().clone())
        .collect();
    let site = CallSite::new(&target, shapes, result.clone()).with_attributes(attributes);
    let call = module.prepare_call(with_convention(site, arguments, module.targets())?)?;

    let operands: Vec<_> = operands.iter().filter_map(Literal::bytes).collect();
    let leaves = result.leaves();
    let mut results: Vec<_> = leaves
        .iter()
        .map(|leaf| vec![0; leaf.byte_size()])
        .collect();
    let mut buffers: Vec<_> = results.iter_mut().map(Vec::as_mut_slice).collect();
    let options = CallOptions {
        user_data: arguments.user_data.read()?,
        ..arguments.policy.call_options()
    };
    let text = || format!("calling {target}");
    progress::show(text, || call.call_with(&options, &operands, &mut buffers))?;
    let finished = Finished::new(in_row_major_order(result, results)?, folder)?;
    Ok(finished.on(module.device()))
}

/// Loads the module, and gives its name of the target. Native code that is not granted is refused before a device is looked for.
fn load(arguments: &Arguments) -> Outcome<(Loaded, String)> {
    let (file, target, platform) = (&arguments.module, &arguments.target, &arguments.platform);
    Ok(match platform.platform {
        Platform::Host => {
            let module = modules::load(file, target, &arguments.policy)?;
            (module, target.clone())
        }
        Platform::Cuda => {
            let (module, target) = native::load(file, target, &platform.grants()?)?;
            (Loaded::Cuda(module, platform.open_device()?), target)
        }
    })
}

/// How many opaque bytes are read from a file: no more than an arena can have by default.
const MOST_OPAQUE: usize = 1 << 30;

/// The call site by the convention that is asked for, or that the target has.
fn with_convention(
    mut site: CallSite,
    arguments: &Arguments,
    targets: &[Signature],
) -> Outcome<CallSite> {
    let opaque = match (&arguments.opaque, &arguments.opaque_file) {
        (Some(text), _) => Some(text.clone().into_bytes()),
        (None, Some(file)) => Some(modules::read(file, MOST_OPAQUE)?),
        (None, None) => None,
    };
    let target = targets.iter().find(|target| target.name == site.target);
    let first = target.and_then(|target| target.api_versions.first());
    let api_version = arguments.api_version.or(first.copied());
    site.api_version = api_version.unwrap_or(ApiVersion::TypedFfi);
    match site.api_version {
        ApiVersion::JaxFfi => site.static_info = opaque.map(StaticInfo::Value),
        _ => site.opaque = opaque.unwrap_or_default(),
    }
    Ok(site)
}

fn dictionary(attributes: &[(String, Attribute)]) -> Outcome<Dictionary> {
    let mut dictionary = Dictionary::new();
    for (name, value) in attributes {
        if dictionary.insert(name.clone(), value.clone()).is_some() {
            let message = format!("expected --attr {name} once, found it again");
            return Err(Failure::usage(Status::invalid_argument(message)));
        }
    }
    Ok(dictionary)
}

/// The value of this shape whose arrays lie in their layouts.
fn in_row_major_order(shape: Shape, mut arrays: Vec<Vec<u8>>) -> Result<Literal> {
    for (leaf, bytes) in std::iter::zip(shape.leaves(), &mut arrays) {
        if !leaf.is_row_major() {
            let width = leaf.element_type().byte_width();
            let layout = leaf.layout_or_default();
            *bytes = to_row_major(bytes, width, leaf.dimensions(), layout.minor_to_major());
        }
    }
    Literal::from_leaves(shape, arrays)
}
