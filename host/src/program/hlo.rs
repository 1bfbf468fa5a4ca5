//! HLO text: what XLA prints of a program, read and printed.
//!
//! [`parse`] reads what JAX gives, before and after optimisation:
//!
//! ```python
//! jax.jit(f).lower(x).compiler_ir("hlo").as_hlo_text()
//! jax.jit(f).lower(x).compile().as_text()
//! ```
//!
//! The grammar is that of XLA's own parser (xla/hlo/parser), less what XLA does not print: shapes that are left out, instructions inside
//! operands, computations inside attributes.
//!
//! ```
//! # fn main() -> callbox::Result<()> {
//! let program = callbox::program::hlo::parse(
//!     r#"
//! HloModule jit_f
//!
//! ENTRY main.1 {
//!   x.1 = f32[3]{0} parameter(0)
//!   ROOT ffi_call.1 = f32[3]{0} custom-call(x.1), custom_call_target="add_n",
//!     api_version=API_VERSION_TYPED_FFI, backend_config={n = 4.000000e+00 : f32}
//! }
//! "#,
//! )?;
//! assert_eq!(program.name(), "jit_f");
//! # Ok(())
//! # }
//! ```
//!
//! # Exports
//!
//! The computation marked ENTRY is the program's only exported function, with the ordinal 0, unless the module names
//! others. Ordinals are then the places in this list:
//!
//! ```text
//! HloModule jit_f, frontend_attributes={callbox.exports="add,mul"}
//! ```
//!
//! # Custom calls
//!
//! `backend_config` is what a target gets besides buffers: bytes, or for `API_VERSION_TYPED_FFI` an MLIR dictionary of attributes. Besides what
//! JAX prints there, callbox knows functions of the program, `@name` or `@"name"`, which a target can call back.
//!
//! `API_VERSION_JAX_FFI` is callbox's name for the convention of the JAX FFI proposal. Its static information is `backend_config`, if there is one: by
//! value, or by reference if the instruction says which exports of the guest make an object of those bytes and take it back:
//!
//! ```text
//! y = f32[] custom-call(x), custom_call_target="add_n", api_version=API_VERSION_JAX_FFI, backend_config="4",
//!   frontend_attributes={callbox.static_info.constructor="make",callbox.static_info.destructor="release"}
//! ```
//!
//! # Printing
//!
//! [`Program::to_hlo_text`] gives text that reads back as an equal program. Bytes are printed as they are if they look like a JSON object, and
//! otherwise as a string with the escapes of C, as XLA prints them.
//!
//! # What is ignored
//!
//! These attributes of instructions are read and dropped, for without them the program computes the same:
//! `algorithm` and `operand_precision` of a dot (callbox computes with all bits that the type has), `backend_config` of what is not a custom-call,
//! `frontend_attributes` other than those above, `is_composite`, `metadata`, `origin`, `output_to_operand_aliasing` of a fusion, `parameter_replication`,
//! `result_accuracy`, `sharding` and `statistics`. So are, of a module, `alias_passthrough_params`,
//! `allow_spmd_sharding_propagation_to_output` and `..._to_parameters`, `buffer_donor`, `input_output_alias`, `is_scheduled`, `origin_recovery_table`
//! and the tables of source locations, and of a computation its `execution_thread`. Custom calls that only say how a value is
//! split over devices (`Sharding` and the like) are copies. An attribute that is neither meant nor ignored is an error.
//!
//! # Errors
//!
//! They show their place, and nothing of the text can make a terminal do anything but print it:
//!
//! ```text
//! line 4, column 21: expected an operand, found ','
//!     x = f32[2] add(p0,, p1)
//!                       ^
//! ```

pub(super) mod attribute_text;
mod attributes;
mod constants;
mod cursor;
mod custom_calls;
mod elements;
mod escapes;
mod graph;
mod instructions;
mod lower;
mod mlir_attributes;
mod mlir_numbers;
mod mlir_types;
mod modules;
mod opcodes;
mod print;
mod resolve;
mod source;
mod suggestion;
mod syntax;
#[cfg(test)]
mod tests;

use self::resolve::{Resolved, resolve};
use self::source::{Parsed, show};
use super::instruction::Program;
use crate::values::{Blame, Result, Status, StatusCode};

/// How long a text may be, in bytes. A program with larger constants takes them as inputs.
pub const MAX_TEXT_BYTES: usize = 1 << 28;

/// Reads a program and verifies it.
///
/// # Errors
/// INVALID_ARGUMENT if the text is not HLO or its program is not sound, UNIMPLEMENTED for instructions and attributes that callbox does
/// not have, RESOURCE_EXHAUSTED for a text longer than [`MAX_TEXT_BYTES`] or nested too deep. The message shows the place.
pub fn parse(text: &str) -> Result<Program> {
    if text.len() > MAX_TEXT_BYTES {
        let message = format!(
            "expected a text of at most {MAX_TEXT_BYTES} bytes, found {}",
            text.len()
        );
        return Err(Status::new(
            StatusCode::ResourceExhausted,
            Blame::Caller,
            message,
        ));
    }
    let resolved = read(text).map_err(|diagnostic| diagnostic.into_status(text))?;
    let Resolved {
        name,
        computations,
        exports,
        places,
    } = resolved;
    Program::verified(name, computations, exports).map_err(|status| {
        let place = place_of(status.message(), &places);
        match place {
            Some(at) => Status::new(
                status.code(),
                status.blame(),
                show(text, at, status.message()),
            ),
            None => status,
        }
    })
}

impl Program {
    /// Reads a program from HLO text: [`parse`].
    ///
    /// # Errors
    /// As for [`parse`].
    pub fn from_hlo_text(text: &str) -> Result<Self> {
        parse(text)
    }
}

fn read(text: &str) -> Parsed<Resolved<'_>> {
    resolve(text, modules::module(text)?)
}

/// Where the instruction is that the verifier found wrong: its messages begin with `instruction %NAME (OPCODE) in computation %NAME: `.
fn place_of(message: &str, places: &[(cursor::Name<'_>, Vec<cursor::Name<'_>>)]) -> Option<usize> {
    let (instruction, rest) = message.strip_prefix("instruction %")?.split_once(" (")?;
    let (_, rest) = rest.split_once(" in computation %")?;
    let (computation, _) = rest.split_once(':')?;
    let (_, names) = places.iter().find(|(name, _)| name.text == computation)?;
    let name = names.iter().find(|name| name.text == instruction)?;
    Some(name.at)
}
