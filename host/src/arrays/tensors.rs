//! Tensors in .safetensors files.
//!
//! The format has names for most element types. The others are held by a type of their width: integers narrower than a byte by the
//! 8-bit ones, whose values they have, and the rest of the F8 family by U8, bit for bit. Such a file says in its metadata, under
//! `callbox.shapes`, what is meant.

use std::collections::{BTreeMap, HashMap};
use std::io::{Read, Seek, SeekFrom};

use crate::{ArrayShape, ElementType, Literal, Result, Status};
use safetensors::tensor::{Dtype, Metadata, TensorInfo, TensorView};

use super::{ReadError, wrong};

/// How long a header may be: the format's own limit.
const MAX_HEADER: u64 = 100_000_000;

/// The metadata's key for the shapes of tensors that their dtypes do not tell: JSON, an object of shapes by name.
const SHAPES: &str = "callbox.shapes";

/// The format's names of the element types that it has.
const TYPES: &[(ElementType, Dtype)] = &[
    (ElementType::Pred, Dtype::BOOL),
    (ElementType::S8, Dtype::I8),
    (ElementType::S16, Dtype::I16),
    (ElementType::S32, Dtype::I32),
    (ElementType::S64, Dtype::I64),
    (ElementType::U8, Dtype::U8),
    (ElementType::U16, Dtype::U16),
    (ElementType::U32, Dtype::U32),
    (ElementType::U64, Dtype::U64),
    (ElementType::F16, Dtype::F16),
    (ElementType::Bf16, Dtype::BF16),
    (ElementType::F32, Dtype::F32),
    (ElementType::F64, Dtype::F64),
    (ElementType::C64, Dtype::C64),
    (ElementType::F8e5m2, Dtype::F8_E5M2),
    (ElementType::F8e4m3fn, Dtype::F8_E4M3),
    (ElementType::F8e8m0fnu, Dtype::F8_E8M0),
    (ElementType::F8e4m3fnuz, Dtype::F8_E4M3FNUZ),
    (ElementType::F8e5m2fnuz, Dtype::F8_E5M2FNUZ),
];

/// Reads a tensor, and of the file only that and the header. A tensor may hold elements of `expected` where the format has no
/// name for that type.
///
/// # Errors
/// What reading fails with; NOT_FOUND if there is no such tensor; INVALID_ARGUMENT for what is not a .safetensors file, or holds what is no
/// element of XLA's.
pub fn read(
    mut file: impl Read + Seek,
    name: &str,
    expected: Option<ElementType>,
) -> Result<Literal, ReadError> {
    let (metadata, data_at) = read_metadata(&mut file)?;
    let info = metadata
        .info(name)
        .ok_or_else(|| unknown(name, &metadata))?;
    let element_type = element_type(info, expected.or_else(|| declared(name, &metadata)))?;
    let shape = ArrayShape::new(element_type, &info.shape)?;
    file.seek(SeekFrom::Start(data_at + info.data_offsets.0 as u64))?;
    let mut bytes = Vec::new();
    file.take(shape.byte_size() as u64)
        .read_to_end(&mut bytes)?;
    if element_type.is_pred() {
        bytes
            .iter_mut()
            .for_each(|byte| *byte = u8::from(*byte != 0));
    }
    check_range(element_type, &bytes)?;
    Ok(Literal::from_bytes(shape, bytes)?)
}

/// The bytes of a file that holds these arrays by name.
///
/// # Errors
/// INTERNAL if an array has other bytes than its shape says.
pub fn file(arrays: &[(String, &ArrayShape, &[u8])]) -> Result<Vec<u8>> {
    let cannot = |error| Status::internal(format!("tensors that do not fit their shapes: {error}"));
    let mut views = Vec::with_capacity(arrays.len());
    let mut shapes = BTreeMap::new();
    for (name, shape, bytes) in arrays {
        let dtype = holder(shape.element_type());
        let view = TensorView::new(dtype, shape.dimensions().to_vec(), bytes).map_err(cannot)?;
        views.push((name, view));
        if natural(dtype) != Some(shape.element_type()) {
            shapes.insert(name, shape.to_string());
        }
    }
    let shapes = serde_json::to_string(&shapes)
        .ok()
        .filter(|_| !shapes.is_empty());
    let metadata = shapes.map(|shapes| HashMap::from([(SHAPES.to_owned(), shapes)]));
    safetensors::serialize(views, metadata).map_err(cannot)
}

/// The header, and where the elements begin. Its own check of the file's size can overflow, so that this does without it.
fn read_metadata(file: &mut (impl Read + Seek)) -> Result<(Metadata, u64), ReadError> {
    let mut length = [0; 8];
    let size = file.seek(SeekFrom::End(0))?;
    file.rewind()?;
    if size < 8 {
        return Err(wrong(format!(
            "expected a .safetensors file, which has at least 8 bytes, found {size}"
        )));
    }
    file.read_exact(&mut length)?;
    let length = u64::from_le_bytes(length);
    if length > MAX_HEADER.min(size - 8) {
        return Err(wrong(format!(
            "expected a .safetensors file, whose header of {length} bytes is in it, found {size} \
             bytes"
        )));
    }
    let mut header = Vec::new();
    file.take(length).read_to_end(&mut header)?;
    let metadata: Metadata = serde_json::from_slice(&header)
        .map_err(|error| wrong(format!("header of the .safetensors file: {error}")))?;
    let (expected, found) = (metadata.data_len() as u64, size - 8 - length);
    match expected == found {
        true => Ok((metadata, 8 + length)),
        false => Err(wrong(format!(
            "expected {expected} bytes of elements, as the header says, found {found}"
        ))),
    }
}

/// The element type of a tensor, where `meant` says what a dtype that holds several stands for.
fn element_type(info: &TensorInfo, meant: Option<ElementType>) -> Result<ElementType, ReadError> {
    match meant.filter(|&t| t != ElementType::Token && holder(t) == info.dtype) {
        Some(element_type) => Ok(element_type),
        None => natural(info.dtype).ok_or_else(|| {
            wrong(format!(
                "expected elements that are not packed, found the dtype {}",
                info.dtype
            ))
        }),
    }
}

/// What the file's metadata say of a tensor.
fn declared(name: &str, metadata: &Metadata) -> Option<ElementType> {
    let shapes = metadata.metadata().as_ref()?.get(SHAPES)?;
    let shapes: HashMap<String, String> = serde_json::from_str(shapes).ok()?;
    let shape: ArrayShape = shapes.get(name)?.parse().ok()?;
    Some(shape.element_type())
}

fn natural(dtype: Dtype) -> Option<ElementType> {
    let known = TYPES.iter().find(|(_, known)| *known == dtype);
    known.map(|(element_type, _)| *element_type)
}

/// The dtype that holds elements of a type.
fn holder(element_type: ElementType) -> Dtype {
    let known = TYPES.iter().find(|(known, _)| *known == element_type);
    match known {
        Some((_, dtype)) => *dtype,
        None if element_type.is_signed_integral() => Dtype::I8,
        None => Dtype::U8,
    }
}

/// Checks that bytes that hold elements narrower than them hold nothing else.
fn check_range(element_type: ElementType, bytes: &[u8]) -> Result<(), ReadError> {
    let bits = element_type.bit_width();
    if bits >= 8 || bits == 0 {
        return Ok(());
    }
    let is_element = |byte: u8| match element_type.is_signed_integral() {
        true => {
            let half = 1 << (bits - 1);
            (-half..half).contains(&i32::from(byte.cast_signed()))
        }
        false => byte >> bits == 0,
    };
    match bytes.iter().find(|&&byte| !is_element(byte)) {
        Some(byte) => Err(wrong(format!(
            "expected elements of {element_type}, found the byte {byte:#04x}"
        ))),
        None => Ok(()),
    }
}

fn unknown(name: &str, metadata: &Metadata) -> ReadError {
    const MOST: usize = 5;
    let mut names = metadata.offset_keys();
    names.sort_by_cached_key(|known| (strsim::damerau_levenshtein(name, known), known.clone()));
    let shown: Vec<_> = names
        .iter()
        .take(MOST)
        .map(|name| format!("{name:?}"))
        .collect();
    let more = if names.len() > MOST { ", ..." } else { "" };
    let message = match shown.is_empty() {
        true => format!("expected a tensor {name:?}, found none at all"),
        false => format!(
            "expected a tensor {name:?}, found {}{more}",
            shown.join(", ")
        ),
    };
    ReadError::Status(Status::not_found(message))
}

#[cfg(test)]
mod tests;
