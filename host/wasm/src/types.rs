//! The limits on a module's types, checked before the types are copied.

use callbox_core::policy::Limits;
use wasmparser::{BinaryReader, BinaryReaderError, ValType};

use crate::failure::{exhausted, invalid};
use crate::sections::{ReadError, at_most};

/// The first byte of a function's type.
const FUNCTION: u8 = 0x60;

/// The first bytes of types that are subtypes of others.
const SUB_FINAL: u8 = 0x4f;
const SUB: u8 = 0x50;

/// The first byte of a group of types that refer to one another.
const GROUP: u8 = 0x4e;

/// The units of work of a parameter or result of a type. wasmtime compiles a function for each type
/// that differs from the others, by which the host is called.
const VALUE: u64 = 4;

/// Checks the type section, whose number of entries is within its limit.
///
/// # Errors
/// RESOURCE_EXHAUSTED, blamed on the guest, past a limit.
pub(crate) fn check(section: &[u8], limits: &Limits) -> Result<(), ReadError> {
    match read(BinaryReader::new(section, 0), limits) {
        // The validator reports the error when it comes to it.
        Err(ReadError::Invalid(_)) => Ok(()),
        outcome => outcome,
    }
}

fn read(mut reader: BinaryReader<'_>, limits: &Limits) -> Result<(), ReadError> {
    let entries = reader.read_var_u32()?;
    let mut work = 0;
    for _ in 0..entries {
        match reader.read_u8()? {
            FUNCTION => function(&mut reader, limits, &mut work)?,
            GROUP => {
                let count = reader.read_var_u32()?;
                at_most("types", limits.types, count)?;
                for _ in 0..count {
                    if reader.read_u8()? != FUNCTION {
                        return Err(invalid(
                            "expected a valid WebAssembly module: types other than those of functions require the gc proposal",
                        )
                        .into());
                    }
                    function(&mut reader, limits, &mut work)?;
                }
                // The validator refuses the group.
                return Ok(());
            }
            // The validator takes `sub final` before a function for nothing.
            SUB_FINAL | SUB => {
                return Err(invalid("expected a valid WebAssembly module: gc proposal must be enabled to use subtypes").into());
            }
            // The validator refuses arrays, structures, continuations and what is shared.
            _ => return Ok(()),
        }
    }
    Ok(())
}

/// Checks the parameters and results of a function's type, and adds their work to `work`.
fn function(
    reader: &mut BinaryReader<'_>,
    limits: &Limits,
    work: &mut u64,
) -> Result<(), ReadError> {
    let most = limits.type_values;
    for _ in 0..2 {
        let values = reader.read_var_u32()?;
        if values as usize > most {
            return Err(exhausted(format!(
                "expected types of at most {most} parameters and {most} results (`type_values`), found one of {values}"
            ))
            .into());
        }
        skip(reader, values)?;
        *work += VALUE * u64::from(values);
    }
    if *work > limits.function_work {
        return Err(exhausted(format!(
            "expected types of at most {} units of work in all (`function_work`), found more",
            limits.function_work
        ))
        .into());
    }
    Ok(())
}

fn skip(reader: &mut BinaryReader<'_>, values: u32) -> Result<(), BinaryReaderError> {
    for _ in 0..values {
        reader.read::<ValType>()?;
    }
    Ok(())
}
