//! Writes the pointer arrays of the conventions before typed FFI, with 32-bit pointers.
//!
//! The JAX FFI proposal's text and example disagree on the order of `outputs` and `inputs`. callbox
//! follows its text and its wrapper's type: outputs first. A result that is a single array is
//! `outputs[0]`, as the proposal's examples read it, although its wrapper passes the array itself.

use super::block::Block;
use super::records::BufferPlace;
use callbox_core::call::{ApiVersion, CallSite, StaticInfo};
use callbox_core::values::{ElementType, Shape};

/// The parameters of a function of an older convention, as offsets relative to the arena. `None` is
/// the null pointer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pointers {
    /// The result: an array's elements, or a tuple's array of pointers. The JAX FFI proposal always
    /// has an array of pointers.
    pub out: Option<u32>,
    /// The array of pointers to the operands.
    pub ins: Option<u32>,
    /// The opaque bytes, or the bytes of the static information.
    pub opaque: Option<u32>,
    /// The number of opaque bytes.
    pub opaque_len: u32,
    /// The pointer by which the target sets its status.
    pub status: Option<u32>,
}

/// Writes the pointers to these leaves, at offset `base` of the arena.
pub(super) fn write(
    base: usize,
    operands: &[BufferPlace],
    results: &[BufferPlace],
    site: &CallSite,
) -> (Block, Pointers) {
    let mut block = Block::new(base, 0);
    let ins = block.array(&site.operands, &mut operands.iter());
    let mut results = results.iter();
    let out = match (&site.result, site.api_version) {
        // The proposal's examples index `outputs` even for a single result.
        (Shape::Array(_), ApiVersion::JaxFfi) => {
            Some(block.array(std::slice::from_ref(&site.result), &mut results))
        }
        _ => block.element(&site.result, &mut results),
    };
    let opaque = match (site.api_version, &site.static_info) {
        (ApiVersion::JaxFfi, Some(StaticInfo::Value(bytes)))
        | (
            ApiVersion::JaxFfi,
            Some(StaticInfo::Reference {
                argument: bytes, ..
            }),
        ) => Some(bytes),
        (ApiVersion::JaxFfi, None) => None,
        _ => Some(&site.opaque),
    };
    // A word of its own, so that the status differs from every other pointer.
    let status = block.reserve(4, 4);
    let pointers = Pointers {
        out: out.map(|at| at as u32),
        ins: Some(ins as u32),
        opaque: opaque.map(|bytes| block.bytes_with_nul(bytes)),
        opaque_len: opaque.map_or(0, |bytes| bytes.len() as u32),
        status: Some((base + status) as u32),
    };
    (block, pointers)
}

impl Block {
    /// Appends an array of pointers to these shapes, along with nested arrays. Returns its offset
    /// in the arena.
    ///
    /// Recurses for nested tuples, of which a shape has at most 64.
    fn array<'a>(
        &mut self,
        shapes: &[Shape],
        leaves: &mut impl Iterator<Item = &'a BufferPlace>,
    ) -> usize {
        let at = self.reserve(4 * shapes.len(), 4);
        for (i, shape) in shapes.iter().enumerate() {
            if let Some(element) = self.element(shape, leaves) {
                self.pointer(at + 4 * i, element);
            }
        }
        self.base() + at
    }

    /// The offset in the arena of a leaf, or of a tuple's array of pointers. A token has none.
    fn element<'a>(
        &mut self,
        shape: &Shape,
        leaves: &mut impl Iterator<Item = &'a BufferPlace>,
    ) -> Option<usize> {
        match shape {
            Shape::Tuple(tuple) => Some(self.array(tuple.elements(), leaves)),
            Shape::Array(array) => {
                let place = leaves.next()?;
                (array.element_type() != ElementType::Token).then_some(place.offset)
            }
        }
    }

    fn bytes_with_nul(&mut self, bytes: &[u8]) -> u32 {
        let at = self.append(bytes, 16);
        self.reserve(1, 1);
        (self.base() + at) as u32
    }
}
