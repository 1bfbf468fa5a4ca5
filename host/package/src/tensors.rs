//! Arrays as tensors of a .safetensors file.
//!
//! The format lacks names for some element types, whose elements are stored as another type:
//! integers narrower than a byte as 8-bit ones of the same value, the rest of the F8 family as U8
//! of the same bits. The file's metadata tells the true shapes under `callbox.shapes`.

use std::collections::{BTreeMap, HashMap};

use callbox_core::{ArrayShape, ElementType, Result, Status};
use safetensors::tensor::{Dtype, TensorView};

/// The metadata key of shapes that dtypes do not tell: a JSON object of shapes by tensor name.
pub const SHAPES: &str = "callbox.shapes";

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

/// The element type of a dtype. `None` if XLA has none.
#[must_use]
pub fn natural(dtype: Dtype) -> Option<ElementType> {
    let known = TYPES.iter().find(|(_, known)| *known == dtype);
    known.map(|(element_type, _)| *element_type)
}

/// The dtype that stores an element type.
#[must_use]
pub fn holder(element_type: ElementType) -> Dtype {
    let known = TYPES.iter().find(|(known, _)| *known == element_type);
    match known {
        Some((_, dtype)) => *dtype,
        None if element_type.is_signed_integral() => Dtype::I8,
        None => Dtype::U8,
    }
}
