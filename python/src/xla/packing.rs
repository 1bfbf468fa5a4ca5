//! Arrays of elements of less than a byte.
//!
//! XLA packs such elements: the first one is in the lowest bits of the first byte. Guests and NumPy
//! have one byte for each, with zeros in the other bits.

use callbox::call::CallBuffers;
use callbox::values::{untouched, with_capacity};
use callbox::{ArrayShape, CallOptions, ElementType};

use crate::buffers::RawArrays;

/// The bytes of a packed array that are unpacked between two looks at the deadline.
const PIECE: usize = 256 << 10;

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

    /// The elements of an operand, one in each byte.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if there is no memory for them; DEADLINE_EXCEEDED and CANCELLED as
    /// `options` says.
    fn unpack(
        self,
        arrays: &RawArrays<'_>,
        operand: usize,
        options: &CallOptions,
    ) -> callbox::Result<Vec<u8>> {
        let per_byte = 8 / self.bits;
        let mut elements = with_capacity(self.bytes() * per_byte)?;
        let mut piece = with_capacity(self.bytes().min(PIECE))?;
        for at in (0..self.bytes()).step_by(PIECE) {
            options.check()?;
            piece.resize((self.bytes() - at).min(PIECE), 0);
            arrays.read(operand, at, &mut piece);
            let from = elements.len();
            elements.resize(from + piece.len() * per_byte, 0);
            match self.bits {
                1 => unpack::<8>(&piece, &mut elements[from..]),
                2 => unpack::<4>(&piece, &mut elements[from..]),
                _ => unpack::<2>(&piece, &mut elements[from..]),
            }
        }
        elements.truncate(self.elements);
        Ok(elements)
    }

    /// Writes elements, of each of which the lowest bits count, to a result.
    fn pack(self, elements: &[u8], arrays: &mut RawArrays<'_>, result: usize) {
        const PACKED: usize = 4 << 10;
        let mut packed = [0; PACKED];
        let per_byte = 8 / self.bits;
        for (number, elements) in elements.chunks(PACKED * per_byte).enumerate() {
            let piece = &mut packed[..elements.len().div_ceil(per_byte)];
            match self.bits {
                1 => pack::<8>(elements, piece),
                2 => pack::<4>(elements, piece),
                _ => pack::<2>(elements, piece),
            }
            arrays.write(result, number * PACKED, piece);
        }
    }
}

/// Unpacks elements, of which `PER` make a byte.
fn unpack<const PER: usize>(packed: &[u8], elements: &mut [u8]) {
    let bits = 8 / PER;
    let (groups, _) = elements.as_chunks_mut::<PER>();
    for (group, byte) in groups.iter_mut().zip(packed) {
        *group = std::array::from_fn(|place| byte >> (place * bits) & ((1 << bits) - 1));
    }
}

/// Packs elements, of which `PER` make a byte.
fn pack<const PER: usize>(elements: &[u8], packed: &mut [u8]) {
    let bits = 8 / PER;
    let byte = |group: &[u8]| {
        let places = group.iter().enumerate();
        places.fold(0, |byte, (place, element)| {
            byte | (element & ((1 << bits) - 1)) << (place * bits)
        })
    };
    let (groups, rest) = elements.as_chunks::<PER>();
    for (packed, group) in packed.iter_mut().zip(groups) {
        *packed = byte(group);
    }
    if !rest.is_empty() {
        packed[groups.len()] = byte(rest);
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
    /// The failure of `call`, after which the results are unchanged, and those of unpacking.
    #[cold]
    pub(super) fn call(
        &self,
        arrays: &mut RawArrays<'_>,
        options: &CallOptions,
        call: impl FnOnce(&mut RawArrays<'_>) -> callbox::Result<()>,
    ) -> callbox::Result<()> {
        let operands = self.operands.iter().enumerate();
        let operands = operands.map(|(number, packed)| {
            let unpack = |packed: &Packed| packed.unpack(arrays, number, options);
            packed.as_ref().map(unpack).transpose()
        });
        let mut operands = operands.collect::<callbox::Result<Vec<_>>>()?;
        let results = self.results.iter().map(|packed| {
            let elements = |packed: &Packed| untouched(packed.elements);
            packed.as_ref().map(elements).transpose()
        });
        let mut results = results.collect::<callbox::Result<Vec<_>>>()?;
        arrays.with_others(&mut operands, &mut results, call)?;
        for (number, (packed, elements)) in self.results.iter().zip(&results).enumerate() {
            if let (Some(packed), Some(elements)) = (packed, elements) {
                packed.pack(elements, arrays, number);
            }
        }
        Ok(())
    }
}
