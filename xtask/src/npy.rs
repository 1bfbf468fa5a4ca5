//! Arrays of `f32` with one dimension, in NumPy's `.npy` format, version 1.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

const MAGIC: &[u8] = b"\x93NUMPY\x01\x00";

/// The data begins at a multiple of this many bytes.
const ALIGNMENT: usize = 64;

pub(crate) fn write(path: &Path, values: &[f32]) -> Result<()> {
    let mut header = format!(
        "{{'descr': '<f4', 'fortran_order': False, 'shape': ({},), }}",
        values.len()
    );
    // The magic, two bytes for the header's length, and the header, which ends with a newline.
    let length = (MAGIC.len() + 2 + header.len() + 1).next_multiple_of(ALIGNMENT);
    let header_length = length - MAGIC.len() - 2;
    header = format!("{header:<width$}\n", width = header_length - 1);
    let mut bytes = [
        MAGIC,
        &u16::try_from(header_length)?.to_le_bytes(),
        header.as_bytes(),
    ]
    .concat();
    bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}

pub(crate) fn read(path: &Path) -> Result<Vec<f32>> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let data = parse(&bytes)
        .with_context(|| format!("{} is not a .npy file of version 1", path.display()))?;
    let (values, rest) = data.as_chunks::<4>();
    ensure!(rest.is_empty(), "{} is cut off", path.display());
    Ok(values
        .iter()
        .map(|bytes| f32::from_le_bytes(*bytes))
        .collect())
}

/// The data after the header.
fn parse(bytes: &[u8]) -> Option<&[u8]> {
    let (length, rest) = bytes.strip_prefix(MAGIC)?.split_first_chunk::<2>()?;
    rest.get(usize::from(u16::from_le_bytes(*length))..)
}
