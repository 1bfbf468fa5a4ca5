//! Tensors in .safetensors files.
//!
//! The format lacks names for some element types, whose elements are stored as another type:
//! integers narrower than a byte as 8-bit ones of the same value, the rest of the F8 family as U8
//! of the same bits. The file's metadata tells the true shapes under `callbox.shapes`.

use std::collections::{BTreeMap, HashMap};
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;

use callbox::{ArrayShape, Blame, ElementType, Literal, Result, Status, StatusCode};
use callbox_core::text::{nearest, shortened};
use safetensors::tensor::{Dtype, Metadata, TensorInfo, TensorView};

use super::{ReadError, wrong};

/// The longest header, in bytes. Parsed, it takes many times its size in memory.
const MAX_HEADER: u64 = 16 << 20;

/// The metadata key of shapes that dtypes do not tell: a JSON object of shapes by tensor name.
const SHAPES: &str = "callbox.shapes";

/// The element types that the format has, with its names.
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

/// The bytes of a file with these named arrays.
///
/// # Errors
/// INTERNAL if the size of an array does not match its shape.
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
    let shapes: HashMap<String, String> = serde_json::from_str(shapes).ok()?;
    let shape: ArrayShape = shapes.get(name)?.parse().ok()?;
    Some(shape.element_type())
}

fn natural(dtype: Dtype) -> Option<ElementType> {
    let known = TYPES.iter().find(|(_, known)| *known == dtype);
    known.map(|(element_type, _)| *element_type)
}

/// The dtype that stores an element type.
fn holder(element_type: ElementType) -> Dtype {
    let known = TYPES.iter().find(|(known, _)| *known == element_type);
    match known {
        Some((_, dtype)) => *dtype,
        None if element_type.is_signed_integral() => Dtype::I8,
        None => Dtype::U8,
    }
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
