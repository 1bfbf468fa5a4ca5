//! Reads the .npy files that cases name.

use std::fs;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use callbox::{ArrayShape, ElementType, Literal};

/// Reads an array of this shape.
///
/// # Errors
/// A malformed file, or an array of another shape, order or byte order.
pub fn read(path: &Path, shape: &ArrayShape) -> Result<Literal> {
    let mut file = fs::File::open(path)?;
    let header = npyz::NpyHeader::from_reader(&mut file)?;
    ensure!(
        header.order() == npyz::Order::C,
        "expected an array in C order"
    );
    let dimensions: Vec<usize> = header
        .shape()
        .iter()
        .map(|&d| usize::try_from(d))
        .collect::<Result<_, _>>()?;
    ensure!(
        dimensions == shape.dimensions(),
        "expected {shape}, found an array of {dimensions:?}"
    );
    let expected = descr(shape.element_type())
        .with_context(|| format!("expected a type that .npy has, found {shape}"))?;
    let found = header.dtype().descr();
    ensure!(
        found == format!("'{expected}'"),
        "expected the dtype {expected}, found {found}"
    );
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(Literal::from_bytes(shape.clone(), bytes)?)
}

/// Returns NumPy's little-endian name of an element type.
fn descr(element_type: ElementType) -> Option<&'static str> {
    use ElementType as E;
    Some(match element_type {
        E::Pred => "|b1",
        E::S8 => "|i1",
        E::S16 => "<i2",
        E::S32 => "<i4",
        E::S64 => "<i8",
        E::U8 => "|u1",
        E::U16 => "<u2",
        E::U32 => "<u4",
        E::U64 => "<u8",
        E::F16 => "<f2",
        E::F32 => "<f4",
        E::F64 => "<f8",
        E::C64 => "<c8",
        E::C128 => "<c16",
        _ => return None,
    })
}
