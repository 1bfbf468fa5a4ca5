//! Reads and prints HLO text, XLA's notation for programs.
//!
//! [`parse`] reads the text that JAX prints, before and after optimisation:
//!
//! ```python
//! jax.jit(f).lower(x).compiler_ir("hlo").as_hlo_text(print_large_constants=True)
//! jax.jit(f).lower(x).compile().as_text()  # leaves out large constants: see docs/programs.md
//! ```
//!
//! Without `print_large_constants`, XLA prints `{...}` instead of the elements of a large constant,
//! and [`parse`] refuses the text.
//!
//! The grammar is that of XLA's own parser (xla/hlo/parser), except for notations that XLA reads
//! and does not print: shapes that are left out, instructions inside operands, and computations
//! inside attributes.
//!
//! ```
//! # fn main() -> callbox_core::Result<()> {
//! let program = callbox_hlo::hlo::parse(
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
//! The computation marked ENTRY is the program's only exported function, with ordinal 0, unless the
//! module lists its exports. Ordinals are then the positions in the list:
//!
//! ```text
//! HloModule jit_f, frontend_attributes={callbox.exports="add,mul"}
//! ```
//!
//! # Custom calls
//!
//! `backend_config` holds what a target receives besides buffers: bytes, or for
//! `API_VERSION_TYPED_FFI` an MLIR dictionary of attributes. Besides the attributes that JAX
//! prints, a dictionary may name functions of the program, `@name` or `@"name"`, which the target
//! can call back.
//!
//! Without `operand_layout_constraints`, operands are passed to the target in row-major order,
//! whatever layouts the text has. In XLA, layout assignment would give the call the layouts around
//! it; callbox assigns no layouts.
//!
//! `API_VERSION_JAX_FFI` is callbox's own name for the convention of the JAX FFI proposal, for
//! which XLA has none. The call's static information is `backend_config`: by value, or by reference
//! if the instruction names the guest's exports that construct an object from those bytes and
//! destroy it:
//!
//! ```text
//! y = f32[] custom-call(x), custom_call_target="add_n", api_version=API_VERSION_JAX_FFI,
//!   backend_config="4", frontend_attributes={
//!     callbox.static_info.constructor="make",callbox.static_info.destructor="release"}
//! ```
//!
//! # Printing
//!
//! [`Program::to_hlo_text`] prints text that reads back as an equal program. A `backend_config` of
//! bytes is printed as it is if it is text in braces, and otherwise as a string with the escapes of
//! C, as XLA prints it.
//!
//! # Ignored attributes
//!
//! These attributes do not change a program's result, and are ignored:
//!
//! - of instructions: `algorithm` and `operand_precision` of a dot (callbox computes with all bits
//!   that the type has), `backend_config` other than a custom call's, `frontend_attributes` other
//!   than those above, `is_composite`, `metadata`, `origin`, `output_to_operand_aliasing` of a
//!   fusion, `parameter_replication`, `result_accuracy`, `sharding` and `statistics`;
//! - of a module: `alias_passthrough_params`, `allow_spmd_sharding_propagation_to_output` and
//!   `..._to_parameters`, `buffer_donor`, `input_output_alias`, `is_scheduled`,
//!   `origin_recovery_table` and the tables of source locations;
//! - of a computation: `execution_thread`.
//!
//! Custom calls that only describe how a value is split over devices (`Sharding` and the like) are
//! copies, and so are collectives of one device. XLA:CPU's `TopK` is read as `topk`. Any other
//! attribute is an error.
//!
//! # Errors
//!
//! Messages show the position in the text. Characters that a terminal could interpret are escaped:
//!
//! ```text
//! line 4, column 21: expected an operand, found ','
//!     x = f32[2] add(p0,, p1)
//!                       ^
//! ```

mod attributes;
mod collectives;
mod custom_calls;
mod instructions;
mod lower;
mod modules;
mod opcodes;
mod print;
mod resolve;
mod syntax;
#[cfg(test)]
mod tests;

use self::modules::read_module;
use self::resolve::resolve;
use super::instruction::Program;
use callbox_core::text::{Diagnostic, check_length};
use callbox_core::values::Result;

pub use callbox_core::text::MAX_TEXT_BYTES;

/// Reads a program and verifies it.
///
/// # Errors
/// INVALID_ARGUMENT if the text is not HLO or its program is not sound, UNIMPLEMENTED for
/// instructions and attributes that callbox does not support, RESOURCE_EXHAUSTED for a text longer
/// than [`MAX_TEXT_BYTES`] or nested too deep. The message shows the position.
pub fn parse(text: &str) -> Result<Program> {
    check_length(text)?;
    let resolved = read_module(text).and_then(|module| resolve(text, module));
    let resolved = resolved.map_err(|diagnostic| diagnostic.into_status(text))?;
    let offsets = resolved.offsets;
    Program::verified(resolved.name, resolved.computations, resolved.exports).map_err(|unsound| {
        match unsound.position {
            Some(at) => {
                let offset = offsets[at.computation][at.instruction];
                Diagnostic::of_status(offset, &unsound.status).into_status(text)
            }
            None => unsound.status,
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
