//! Tensors in .safetensors files.
//!
//! [`callbox_package::tensors`] writes them, and says how elements are stored whose type the format
//! lacks.

use std::collections::{BTreeMap, HashMap};
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;

use callbox::{ArrayShape, Blame, ElementType, Literal, Result, Status, StatusCode};
use callbox_core::json;
use callbox_core::text::{nearest, shortened};
pub use callbox_package::tensors::file;
use callbox_package::tensors::{SHAPES, holder, natural};
use safetensors::tensor::{Dtype, Metadata, TensorInfo};

use super::{ReadError, wrong};

/// The longest header, in bytes. Parsed, it takes many times its size in memory.
const MAX_HEADER: u64 = 16 << 20;

/// The most memory of a header's values: those of some hundred thousand tensors.
const MOST_MEMORY: usize = 128 << 20;

/// A file whose header was read.
#[derive(Debug)]
pub(crate) struct Tensors<F> {
    file: F,
    metadata: Metadata,
    /// The offset of the elements in the file.
    data_at: u64,
}

impl<F: Read + Seek> Tensors<F> {
    /// Reads the header alone.
    ///
    /// # Errors
    /// The error of `file`; INVALID_ARGUMENT if it is no .safetensors file.
    pub(crate) fn open(mut file: F) -> Result<Self, ReadError> {
        let (metadata, data_at) = read_metadata(&mut file)?;
        Ok(Self {
            file,
            metadata,
            data_at,
        })
    }

    /// The tensors of a type, each with its bytes, in the order of their elements.
    pub(crate) fn names_of(&self, ty: ElementType) -> impl Iterator<Item = (String, usize)> {
        let metadata = &self.metadata;
        let names = metadata.offset_keys().into_iter();
        names.filter_map(move |name| {
            let info = metadata.info(&name)?;
            let (start, end) = info.data_offsets;
            (info.dtype == holder(ty)).then_some((name, end - start))
        })
    }

    /// Reads a tensor. If the format has no name for `expected`, the tensor may be stored as
    /// another type.
    ///
    /// # Errors
    /// The error of the file; NOT_FOUND if there is no such tensor; INVALID_ARGUMENT if XLA lacks
    /// its element type, or its elements are not there.
    pub(crate) fn read(
        &mut self,
        name: &str,
        expected: Option<ElementType>,
    ) -> Result<Literal, ReadError> {
        let metadata = &self.metadata;
        let info = metadata.info(name).ok_or_else(|| unknown(name, metadata))?;
        let element_type = element_type(info, expected.or_else(|| declared(name, metadata)))?;
        let shape = ArrayShape::new(element_type, &info.shape)?;
        let at = self.data_at + info.data_offsets.0 as u64;
        self.file.seek(SeekFrom::Start(at))?;
        let mut bytes = Vec::new();
        (&mut self.file)
            .take(shape.byte_size() as u64)
            .read_to_end(&mut bytes)?;
        if element_type.is_pred() {
            bytes
                .iter_mut()
                .for_each(|byte| *byte = u8::from(*byte != 0));
        }
        check_range(element_type, &bytes)?;
        Ok(Literal::from_bytes(shape, bytes)?)
    }
}

/// Reads a tensor: of the file, only the header and the tensor's bytes.
///
/// # Errors
/// Those of [`Tensors::open`] and [`Tensors::read`].
pub fn read(
    file: impl Read + Seek,
    name: &str,
    expected: Option<ElementType>,
) -> Result<Literal, ReadError> {
    Tensors::open(file)?.read(name, expected)
}

/// What the header of a file says, in the words of JSON.
#[derive(Debug)]
pub(crate) struct Entries {
    /// The object `__metadata__`.
    pub(crate) metadata: Option<String>,
    /// The tensors in the order of their elements, which have no gaps.
    pub(crate) tensors: Vec<Entry>,
    /// The offset of the elements in the file.
    pub(crate) data_at: u64,
}

/// A tensor as the header describes it.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) dtype: String,
    pub(crate) shape: String,
    /// Whether the elements are U8.
    pub(crate) is_bytes: bool,
    /// The bytes of its elements, from the first of the file.
    pub(crate) range: Range<usize>,
}

/// Reads the header alone.
///
/// # Errors
/// The error of `file`; INVALID_ARGUMENT if the file is no .safetensors file.
pub(crate) fn entries(file: &mut (impl Read + Seek)) -> Result<Entries, ReadError> {
    let (read, data_at) = read_metadata(file)?;
    let json = |error: serde_json::Error| ReadError::Status(Status::internal(error.to_string()));
    let metadata = read.metadata().as_ref().map(|metadata| {
        let sorted: BTreeMap<_, _> = metadata.iter().collect();
        serde_json::to_string(&sorted).map_err(json)
    });
    let tensors = read.offset_keys().into_iter().map(|name| {
        let info = read.info(&name).ok_or_else(|| unknown(&name, &read))?;
        Ok(Entry {
            dtype: serde_json::to_string(&info.dtype).map_err(json)?,
            shape: serde_json::to_string(&info.shape).map_err(json)?,
            is_bytes: info.dtype == Dtype::U8,
            range: info.data_offsets.0..info.data_offsets.1,
            name,
        })
    });
    Ok(Entries {
        tensors: tensors.collect::<Result<_, ReadError>>()?,
        metadata: metadata.transpose()?,
        data_at,
    })
}

/// Reads the header and the offset of the elements. The crate's own check of the file's size can
/// overflow, and is not used.
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
    if length > size - 8 {
        return Err(wrong(format!(
            "expected a .safetensors file, whose header of {length} bytes is in it, found {size} \
             bytes"
        )));
    }
    if length > MAX_HEADER {
        let message = format!("expected a header of at most {MAX_HEADER} bytes, found {length}");
        let status = Status::new(StatusCode::ResourceExhausted, Blame::Caller, message);
        return Err(ReadError::Status(status));
    }
    let mut header = Vec::new();
    file.take(length).read_to_end(&mut header)?;
    json::check_memory(&header, json::MAP, MOST_MEMORY).map_err(|message| {
        let message = format!("header of the .safetensors file: {message}");
        let status = Status::new(StatusCode::ResourceExhausted, Blame::Caller, message);
        ReadError::Status(status)
    })?;
    let metadata: Metadata = serde_json::from_slice(&header).map_err(|error| {
        let error = error.to_string();
        wrong(format!(
            "header of the .safetensors file: {}",
            shortened(&error)
        ))
    })?;
    let (expected, found) = (metadata.data_len() as u64, size - 8 - length);
    if expected != found {
        return Err(wrong(format!(
            "expected {expected} bytes of elements, as the header says, found {found}"
        )));
    }
    Ok((metadata, 8 + length))
}

/// The element type of a tensor. `meant` chooses among the types that share a dtype.
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

/// The element type that the file's metadata declares for a tensor.
fn declared(name: &str, metadata: &Metadata) -> Option<ElementType> {
    let shapes = metadata.metadata().as_ref()?.get(SHAPES)?;
    const ENTRY: usize = 160;
    json::check_memory(shapes.as_bytes(), ENTRY, MOST_MEMORY).ok()?;
    let shapes: HashMap<String, String> = serde_json::from_str(shapes).ok()?;
    let shape: ArrayShape = shapes.get(name)?.parse().ok()?;
    Some(shape.element_type())
}

/// Checks the bytes of elements narrower than a byte: unused bits must be 0, or the sign.
fn check_range(element_type: ElementType, bytes: &[u8]) -> Result<(), ReadError> {
    let bits = element_type.bit_width();
    if bits >= 8 || bits == 0 {
        return Ok(());
    }
    let is_element = |byte: u8| {
        if element_type.is_signed_integral() {
            let half = 1 << (bits - 1);
            (-half..half).contains(&i32::from(byte.cast_signed()))
        } else {
            byte >> bits == 0
        }
    };
    match bytes.iter().find(|&&byte| !is_element(byte)) {
        Some(byte) => Err(wrong(format!(
            "expected elements of {element_type}, found the byte {byte:#04x}"
        ))),
        None => Ok(()),
    }
}

/// The message lists the names most similar to `name`, and then others.
fn unknown(name: &str, metadata: &Metadata) -> ReadError {
    const MOST: usize = 5;
    let names = metadata.offset_keys();
    let near = nearest(name, names.iter().map(String::as_str));
    let others = names.iter().map(String::as_str);
    let others = others.filter(|other| !near.contains(other));
    let shown = near.iter().copied().chain(others).take(MOST);
    let shown = Vec::from_iter(shown.map(|name| format!("{:?}", shortened(name))));
    let name = shortened(name);
    let message = if shown.is_empty() {
        format!("expected a tensor {name:?}, found none at all")
    } else {
        let more = if names.len() > MOST { ", ..." } else { "" };
        format!(
            "expected a tensor {name:?}, found {}{more}",
            shown.join(", ")
        )
    };
    ReadError::Status(Status::not_found(message))
}

#[cfg(test)]
mod tests;
