//! Custom calls: their attributes, and the ones that are no calls.

use super::attributes::{Config, alias, computation, config, flag, skip_value, utf8, word};
use super::lower::Context;
use super::syntax::Instruction;
use crate::instruction::{ComputationId, CustomCall, Opcode, Schedule};
use callbox_core::call::{ApiVersion, StaticInfo};
use callbox_core::json::{Flat, Object, object};
use callbox_core::text::{
    Cursor, Diagnostic, Parsed, Placed, read_attributes, read_literal_with_shape,
};
use callbox_core::values::{Dictionary, Shape};
use serde::Deserialize;
use serde_json::Value;

/// Custom calls by which JAX tells XLA how to split a value over devices
/// (xla/service/sharding_remover.cc and XLA's import of Shardy). On one device they are copies.
const ANNOTATIONS: &[&str] = &[
    "Sharding",
    "SPMDFullToShardShape",
    "SPMDShardToFullShape",
    "xla.sdy.FuncResultSharding",
    "xla.sdy.GlobalToLocalShape",
    "xla.sdy.LocalToGlobalShape",
    "xla.sdy.PropagationBarrier",
];

/// The function of XLA:CPU that `topk` becomes.
const TOP_K: &str = "TopK";

/// Keys in a custom call's `frontend_attributes`, for the convention of the JAX FFI proposal.
pub(super) const CONSTRUCTOR: &str = "callbox.static_info.constructor";
pub(super) const DESTRUCTOR: &str = "callbox.static_info.destructor";

/// The opcode of a custom call: the call, or a copy for an annotation of sharding.
pub(super) fn custom_call(
    instruction: &mut Instruction<'_>,
    operands: &[&Shape],
    context: &mut Context<'_>,
) -> Parsed<Opcode> {
    let shape = &instruction.shape;
    let attributes = &mut instruction.attributes;
    let target = attributes.require("custom_call_target", |c| utf8(c, "the name of a target"))?;
    let target = target.value;
    if ANNOTATIONS.contains(&target.as_str())
        && let [operand] = operands
        && operand.is_compatible(shape)
    {
        return Ok(Opcode::Copy);
    }
    if target == TOP_K
        && let Some(k) = top_k(operands, shape)
    {
        // XLA:CPU's function ignores the comparison, which is always that of the largest.
        called_computations(instruction, context)?;
        return Ok(Opcode::TopK { k, largest: true });
    }
    let mut call = CustomCall::new(target);
    // XLA's default is the oldest convention.
    let version = attributes.take("api_version", api_version)?;
    call.api_version = version.map_or(ApiVersion::Original, |version| version.value);
    if let Some(config) = attributes.take("backend_config", config)? {
        read_config(&mut call, &config, context)?;
    }
    if let Some(notes) = attributes.take("frontend_attributes", config)?
        && call.api_version == ApiVersion::JaxFfi
        && let Config::Braces(text) = notes.value
    {
        read_static_info(&mut call, text).map_err(|wrong| wrong.moved_by(notes.at))?;
    }
    let side_effect = attributes.take("custom_call_has_side_effect", flag)?;
    call.has_side_effect = side_effect.is_some_and(|flag| flag.value);
    let aliasing = attributes.take("output_to_operand_aliasing", |c| c.list(alias))?;
    call.aliasing = aliasing.map_or_else(Vec::new, |aliasing| aliasing.value);
    let literal = attributes.take("literal", read_literal_with_shape)?;
    call.literal = literal.map(|literal| literal.value);
    let expected = "a schedule such as SCHEDULE_LATEST";
    let schedule = attributes.take("schedule", |c| word(c, Schedule::from_name, expected))?;
    call.schedule = schedule.map_or(Schedule::None, |schedule| schedule.value);
    call.called_computations = called_computations(instruction, context)?;
    call.operand_layouts = operand_layouts(instruction, operands)?;
    Ok(Opcode::CustomCall(Box::new(call)))
}

/// The number of elements that XLA's `TopK` takes, if these are its operand and its result.
fn top_k(operands: &[&Shape], shape: &Shape) -> Option<usize> {
    let ([operand], [values, _]) = (operands, shape.as_tuple()?) else {
        return None;
    };
    let k = *values.as_array()?.dimensions().last()?;
    let expected = crate::shape_inference::top_k(k, operand).ok()?;
    expected.is_compatible(shape).then_some(k)
}

fn api_version(cursor: &mut Cursor<'_>) -> Parsed<ApiVersion> {
    let at = cursor.at();
    let Some(version) = cursor.word() else {
        return Err(cursor.expected("a word"));
    };
    version
        .parse()
        .map_err(|error: callbox_abi::UnknownName| Diagnostic::of_status(at, &error.into()))
}

fn called_computations(
    instruction: &mut Instruction<'_>,
    context: &Context<'_>,
) -> Parsed<Vec<ComputationId>> {
    let attributes = &mut instruction.attributes;
    let one = attributes.take("to_apply", computation)?;
    let many = attributes.take("called_computations", |c| c.list(computation))?;
    match (one, many) {
        (None, None) => Ok(Vec::new()),
        (Some(one), None) => context.computations(&[one.value]),
        (None, Some(many)) => context.computations(&many.value),
        (Some(one), Some(_)) => {
            let message = "expected to_apply or called_computations of a custom-call, found both";
            Err(Diagnostic::invalid(one.at, message))
        }
    }
}

fn operand_layouts(
    instruction: &mut Instruction<'_>,
    operands: &[&Shape],
) -> Parsed<Option<Vec<Shape>>> {
    let attribute = "operand_layout_constraints";
    let layouts = instruction
        .attributes
        .take(attribute, |c| c.list(Cursor::shape))?;
    let Some(Placed { value: shapes, at }) = layouts else {
        return Ok(None);
    };
    let (expected, found) = (operands.len(), shapes.len());
    if expected != found {
        let message = format!("expected layouts of {expected} operands, found {found}");
        return Err(Diagnostic::invalid(at, message));
    }
    for (index, (shape, operand)) in std::iter::zip(&shapes, operands).enumerate() {
        if !shape.is_compatible(operand) {
            let message =
                format!("expected a layout of {operand}, which is operand {index}, found {shape}");
            return Err(Diagnostic::invalid(at, message));
        }
    }
    Ok(Some(shapes))
}

/// Reads a `backend_config`: attributes for typed FFI, bytes for the other conventions.
fn read_config(
    call: &mut CustomCall,
    config: &Placed<Config<'_>>,
    context: &mut Context<'_>,
) -> Parsed<()> {
    let text = match &config.value {
        Config::Braces(text) => text.as_bytes(),
        Config::Text(text) => text,
    };
    let bytes = || unwrapped(text, "opaque").map_or_else(|| text.to_vec(), String::into_bytes);
    match call.api_version {
        ApiVersion::TypedFfi => call.attributes = config_attributes(config, text, context)?,
        ApiVersion::JaxFfi => call.static_info = Some(StaticInfo::Value(bytes())),
        _ => call.opaque = bytes(),
    }
    Ok(())
}

fn config_attributes(
    config: &Placed<Config<'_>>,
    text: &[u8],
    context: &mut Context<'_>,
) -> Parsed<Dictionary> {
    let inner = unwrapped(text, "attributes");
    if let (None, Config::Braces(text)) = (&inner, &config.value) {
        return read_attributes(text, &mut context.attribute_room)
            .map_err(|wrong| wrong.moved_by(config.at));
    }
    let text = inner
        .as_deref()
        .map_or_else(|| std::str::from_utf8(text), Ok);
    let text = text.map_err(|_| {
        Diagnostic::invalid(config.at, "expected attributes, found what is not UTF-8")
    })?;
    read_attributes(text, &mut context.attribute_room)
        .map_err(|wrong| wrong.quoted_at(config.at, "backend_config"))
}

/// Makes the call's static information one by reference if `frontend_attributes` names the exports
/// that construct the object from `backend_config` and destroy it.
fn read_static_info(call: &mut CustomCall, notes: &str) -> Parsed<()> {
    let [mut constructor, mut destructor] = [None, None];
    let mut cursor = Cursor::inside(notes, "the end of frontend_attributes");
    cursor.list(|cursor| {
        let export = match cursor.attribute_name()?.text {
            CONSTRUCTOR => &mut constructor,
            DESTRUCTOR => &mut destructor,
            _ => return skip_value(cursor),
        };
        *export = Some(utf8(cursor, "the name of an export")?);
        Ok(())
    })?;
    match (constructor, destructor) {
        (None, None) => Ok(()),
        (Some(constructor), Some(destructor)) => {
            let argument = match call.static_info.take() {
                Some(StaticInfo::Value(bytes)) => bytes,
                _ => Vec::new(),
            };
            call.static_info = Some(StaticInfo::Reference {
                constructor,
                destructor,
                argument,
            });
            Ok(())
        }
        _ => {
            let message =
                format!("expected both {CONSTRUCTOR} and {DESTRUCTOR}, found one of them");
            Err(Diagnostic::invalid(0, message))
        }
    }
}

/// The value of `key` in a `backend_config` that XLA:CPU or XLA:GPU has wrapped in a JSON object.
///
/// They do so under the key `custom_call_config` (`BackendConfig` and `CustomCallConfig` in
/// xla/service/cpu/backend_config.proto). `None` if the text is no such object.
pub(super) fn unwrapped(text: &[u8], key: &str) -> Option<String> {
    const CONFIG: &[u8] = b"\"custom_call_config\"";
    // Other texts may be large, and need not be JSON.
    text.windows(CONFIG.len())
        .find(|window| *window == CONFIG)?;
    let Object(Wrapped { custom_call_config }) = serde_json::from_slice(text).ok()?;
    let member = match key {
        "opaque" => custom_call_config.opaque,
        _ => custom_call_config.attributes,
    };
    match member {
        None => Some(String::new()),
        Some(Flat(Value::String(text))) => Some(text),
        Some(_) => None,
    }
}

/// What is read of XLA's object. A tree of all of it would take a hundred times as much memory as
/// the text.
#[derive(Deserialize)]
struct Wrapped {
    #[serde(deserialize_with = "object")]
    custom_call_config: Members,
}

#[derive(Deserialize)]
struct Members {
    opaque: Option<Flat>,
    attributes: Option<Flat>,
}
