//! Element types by their NumPy names and by the formats of Python's buffers.

use std::ffi::CStr;

use callbox::ElementType;
use pyo3::prelude::*;
use pyo3::types::PyType;

/// NumPy's name of an element type, or that of ml_dtypes. `None` for a token.
pub(crate) fn dtype_name(element_type: ElementType) -> Option<&'static str> {
    NAMES
        .iter()
        .find(|(_, known)| *known == element_type)
        .map(|(name, _)| *name)
}

/// The element type with this name in NumPy or ml_dtypes.
fn from_dtype_name(name: &str) -> Option<ElementType> {
    NAMES
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, element_type)| *element_type)
}

const NAMES: [(&str, ElementType); 30] = [
    ("bool", ElementType::Pred),
    ("int8", ElementType::S8),
    ("int16", ElementType::S16),
    ("int32", ElementType::S32),
    ("int64", ElementType::S64),
    ("uint8", ElementType::U8),
    ("uint16", ElementType::U16),
    ("uint32", ElementType::U32),
    ("uint64", ElementType::U64),
    ("float16", ElementType::F16),
    ("float32", ElementType::F32),
    ("float64", ElementType::F64),
    ("complex64", ElementType::C64),
    ("complex128", ElementType::C128),
    ("bfloat16", ElementType::Bf16),
    ("float8_e5m2", ElementType::F8e5m2),
    ("float8_e4m3fn", ElementType::F8e4m3fn),
    ("float8_e4m3b11fnuz", ElementType::F8e4m3b11fnuz),
    ("float8_e5m2fnuz", ElementType::F8e5m2fnuz),
    ("float8_e4m3fnuz", ElementType::F8e4m3fnuz),
    ("float8_e4m3", ElementType::F8e4m3),
    ("float8_e3m4", ElementType::F8e3m4),
    ("float8_e8m0fnu", ElementType::F8e8m0fnu),
    ("float4_e2m1fn", ElementType::F4e2m1fn),
    ("int4", ElementType::S4),
    ("uint4", ElementType::U4),
    ("int2", ElementType::S2),
    ("uint2", ElementType::U2),
    ("int1", ElementType::S1),
    ("uint1", ElementType::U1),
];

/// The element type of a buffer with this item size and format.
///
/// Formats are those of the module `struct`, and NumPy's `Z` for complex numbers. `None` for
/// records, pointers, another byte order and other formats without an element type.
pub(crate) fn from_format(format: &CStr, item_size: usize) -> Option<ElementType> {
    let format = format.to_bytes();
    let (is_foreign, code) = match format {
        [b'@' | b'=', code @ ..] => (false, code),
        [b'<', code @ ..] => (cfg!(target_endian = "big"), code),
        [b'>' | b'!', code @ ..] => (cfg!(target_endian = "little"), code),
        code => (false, code),
    };
    if is_foreign && item_size > 1 {
        return None;
    }
    match (code, item_size) {
        (b"?", 1) => Some(ElementType::Pred),
        (b"b", 1) => Some(ElementType::S8),
        (b"B", 1) => Some(ElementType::U8),
        (b"h" | b"i" | b"l" | b"q" | b"n", 2) => Some(ElementType::S16),
        (b"h" | b"i" | b"l" | b"q" | b"n", 4) => Some(ElementType::S32),
        (b"h" | b"i" | b"l" | b"q" | b"n", 8) => Some(ElementType::S64),
        (b"H" | b"I" | b"L" | b"Q" | b"N", 2) => Some(ElementType::U16),
        (b"H" | b"I" | b"L" | b"Q" | b"N", 4) => Some(ElementType::U32),
        (b"H" | b"I" | b"L" | b"Q" | b"N", 8) => Some(ElementType::U64),
        (b"e", 2) => Some(ElementType::F16),
        (b"f", 4) => Some(ElementType::F32),
        (b"d", 8) => Some(ElementType::F64),
        (b"Zf", 8) => Some(ElementType::C64),
        (b"Zd", 16) => Some(ElementType::C128),
        _ => None,
    }
}

/// The element type of a NumPy dtype. Python code computes `dtype.name`, which is slower.
pub(crate) fn from_dtype(dtype: &Bound<'_, PyAny>) -> PyResult<Option<ElementType>> {
    /// NumPy's own dtypes have smaller numbers (NPY_NTYPES_LEGACY).
    const OWN: i64 = 24;
    if dtype.getattr("num")?.extract::<i64>()? >= OWN {
        let class = dtype.getattr("type")?;
        let name: String = class.cast::<PyType>()?.name()?.extract()?;
        return Ok(from_dtype_name(&name));
    }
    let kind: String = dtype.getattr("kind")?.extract()?;
    let size: usize = dtype.getattr("itemsize")?.extract()?;
    let code: &CStr = match (kind.as_str(), size) {
        ("b", _) => c"?",
        ("i", 1) => c"b",
        ("i", _) => c"q",
        ("u", 1) => c"B",
        ("u", _) => c"Q",
        ("f", 2) => c"e",
        ("f", 4) => c"f",
        ("f", 8) => c"d",
        ("c", 8) => c"Zf",
        ("c", 16) => c"Zd",
        _ => return Ok(None),
    };
    Ok(from_format(code, size))
}
