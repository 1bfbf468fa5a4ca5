//! Arrays of elements of less than a byte.
//!
//! XLA packs such elements: the first one is in the lowest bits of the first byte. Guests and NumPy
//! have one byte for each, with zeros in the other bits.

use callbox::values::zeroed;
use callbox::{ArrayShape, ElementType};

use crate::buffers::RawArrays;

/// The arrays of a call site some of which are packed.
#[derive(Debug)]
pub(super) struct Packing {
    operands: Vec<Option<Packed>>,
    results: Vec<Option<Packed>>,
}

/// A packed array.
#[derive(Clone, Copy, Debug)]
struct Packed {
    /// The bits of an element: 1, 2 or 4.
    bits: usize,
    elements: usize,
}

/// Whether XLA packs several elements into a byte. Tokens have no elements.
pub(super) fn is_packed(element_type: ElementType) -> bool {
    element_type.bit_width() < 8
}

/// The bytes that an array has in XLA's memory.
pub(super) fn bytes_in_xla(shape: &ArrayShape) -> usize {
    match Packed::of(shape) {
        Some(packed) => packed.bytes(),
        None => shape.byte_size(),
    }
}

impl Packed {
    fn of(shape: &ArrayShape) -> Option<Self> {
        let bits = shape.element_type().bit_width() as usize;
        (1..8).contains(&bits).then(|| Self {
            bits,
            elements: shape.element_count(),
        })
    }

    fn bytes(self) -> usize {
        self.elements.div_ceil(8 / self.bits)
    }

    /// The elements, one in each byte.
    fn unpack(self, packed: &[u8]) -> callbox::Result<Vec<u8>> {
        let mut elements = zeroed(self.elements)?;
        let mask = (1_u8 << self.bits) - 1;
        for (group, byte) in elements.chunks_mut(8 / self.bits).zip(packed) {
            for (place, element) in group.iter_mut().enumerate() {
                *element = byte >> (place * self.bits) & mask;
            }
        }
        Ok(elements)
    }

    /// The bytes with these elements, of each of which the lowest bits count.
    fn pack(self, elements: &[u8]) -> callbox::Result<Vec<u8>> {
        let mut packed = zeroed(self.bytes())?;
        let mask = (1_u8 << self.bits) - 1;
        for (byte, group) in packed.iter_mut().zip(elements.chunks(8 / self.bits)) {
            for (place, element) in group.iter().enumerate() {
                *byte |= (element & mask) << (place * self.bits);
            }
        }
        Ok(packed)
    }
}

impl Packing {
    /// `None` if no array is packed.
    pub(super) fn of(operands: &[ArrayShape], results: &[ArrayShape]) -> Option<Box<Self>> {
        let packed = |shapes: &[ArrayShape]| -> Vec<_> { shapes.iter().map(Packed::of).collect() };
        let (operands, results) = (packed(operands), packed(results));
        let mut all = operands.iter().chain(&results);
        all.any(Option::is_some)
            .then(|| Box::new(Self { operands, results }))
    }

    /// Calls `call` with unpacked arrays in place of the packed ones.
    ///
    /// # Errors
    /// The failure of `call`, after which the results are unchanged. RESOURCE_EXHAUSTED if there is
    /// no memory for the arrays.
    #[cold]
    pub(super) fn call(
        &self,
        arrays: &mut RawArrays<'_>,
        call: impl FnOnce(&mut RawArrays<'_>) -> callbox::Result<()>,
    ) -> callbox::Result<()> {
        let mut operands = Vec::new();
        for (number, packed) in self.operands.iter().enumerate() {
            let unpacked = packed.map(|packed| {
                let mut bytes = zeroed(packed.bytes())?;
                arrays.read_operand(number, &mut bytes);
                packed.unpack(&bytes)
            });
            operands.push(unpacked.transpose()?);
        }
        let results = self.results.iter();
        let results = results.map(|packed| packed.map(|packed| zeroed(packed.elements)));
        let results = results.map(Option::transpose);
        let mut results = results.collect::<callbox::Result<Vec<_>>>()?;
        arrays.with_others(&mut operands, &mut results, call)?;
        for (number, (packed, elements)) in self.results.iter().zip(&results).enumerate() {
            if let (Some(packed), Some(elements)) = (packed, elements) {
                arrays.write_result(number, &packed.pack(elements)?);
            }
        }
        Ok(())
    }
}
