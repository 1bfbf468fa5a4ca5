//! Operations that move elements: for each index of the result, the index that it comes from.

use std::iter::zip;

use callbox::ArrayShape;
use callbox::program::{Opcode, PaddingDimension};

use super::array::{Array, encode, indices, number};
use super::elements::{Element, convert};

pub(crate) fn moved(opcode: &Opcode, shape: &ArrayShape, x: &[&Array]) -> Array {
    let gather = |from: &dyn Fn(&[usize]) -> Vec<usize>| gathered(shape, x[0], from);
    match opcode {
        Opcode::Bitcast => bitcast(shape, x[0]),
        Opcode::BitcastConvert => bitcast_convert(shape, x[0]),
        Opcode::Copy | Opcode::Reshape => Array::new(shape.clone(), x[0].bytes.clone()),
        Opcode::Iota(dimension) => {
            let t = shape.element_type();
            let element = |index: Vec<usize>| {
                encode(t, convert(Element::Integer(index[*dimension] as i128), t))
            };
            Array::new(
                shape.clone(),
                indices(shape.dimensions())
                    .into_iter()
                    .flat_map(element)
                    .collect(),
            )
        }
        Opcode::Broadcast(mapping) => gather(&|index| {
            let sizes = x[0].shape.dimensions();
            // A dimension of size one repeats where the result's is larger.
            zip(mapping, sizes)
                .map(|(&to, &size)| if size == 1 { 0 } else { index[to] })
                .collect()
        }),
        Opcode::Transpose(permutation) => gather(&|index| {
            let mut from = vec![0; index.len()];
            zip(permutation, index).for_each(|(&dimension, &i)| from[dimension] = i);
            from
        }),
        Opcode::Reverse(dimensions) => gather(&|index| {
            let mut from = index.to_vec();
            for &dimension in dimensions {
                from[dimension] = shape.dimensions()[dimension] - 1 - index[dimension];
            }
            from
        }),
        Opcode::Slice(slices) => gather(&|index| {
            zip(slices, index)
                .map(|(s, i)| s.start + i * s.stride)
                .collect()
        }),
        Opcode::DynamicSlice(sizes) => {
            let starts = starts(&x[1..], x[0].shape.dimensions(), sizes);
            gather(&|index| zip(&starts, index).map(|(start, i)| start + i).collect())
        }
        Opcode::DynamicUpdateSlice => {
            let starts = starts(&x[2..], shape.dimensions(), x[1].shape.dimensions());
            let mut result = Array::new(shape.clone(), x[0].bytes.clone());
            for (i, index) in indices(x[1].shape.dimensions()).iter().enumerate() {
                let to: Vec<usize> = zip(&starts, index).map(|(start, i)| start + i).collect();
                put(&mut result, &to, x[1].raw(i));
            }
            result
        }
        Opcode::Concatenate(dimension) => concatenate(shape, x, *dimension),
        Opcode::Pad(padding) => pad(shape, (x[0], x[1]), padding),
        other => panic!("{other:?} is not interpreted"),
    }
}

/// Gathers an array: `from` maps each index of the result to one of the operand.
fn gathered(shape: &ArrayShape, x: &Array, from: &dyn Fn(&[usize]) -> Vec<usize>) -> Array {
    let elements = indices(shape.dimensions()).into_iter();
    let bytes = elements.flat_map(|index| x.raw(x.number(&from(&index))).to_vec());
    Array::new(shape.clone(), bytes.collect())
}

fn put(array: &mut Array, index: &[usize], element: &[u8]) {
    let at = array.number(index) * element.len();
    array.bytes[at..at + element.len()].copy_from_slice(element);
}

/// Reads the start indices of a slice, clamped so that the slice is inside.
fn starts(starts: &[&Array], dimensions: &[usize], sizes: &[usize]) -> Vec<usize> {
    let start = |(start, (&dimension, &size)): (&&Array, (&usize, &usize))| {
        let most = (dimension - size) as i128;
        start.integer(0).clamp(0, most) as usize
    };
    zip(starts, zip(dimensions, sizes)).map(start).collect()
}

fn concatenate(shape: &ArrayShape, x: &[&Array], dimension: usize) -> Array {
    let element = |mut index: Vec<usize>| {
        for operand in x {
            let size = operand.shape.dimensions()[dimension];
            if index[dimension] < size {
                return operand.raw(operand.number(&index)).to_vec();
            }
            index[dimension] -= size;
        }
        panic!("{index:?} is past all operands of {shape}")
    };
    let bytes = indices(shape.dimensions()).into_iter().flat_map(element);
    Array::new(shape.clone(), bytes.collect())
}

fn pad(shape: &ArrayShape, (x, value): (&Array, &Array), padding: &[PaddingDimension]) -> Array {
    let mut result = Array::new(shape.clone(), value.bytes.repeat(shape.element_count()));
    for (i, index) in indices(x.shape.dimensions()).iter().enumerate() {
        let to = zip(padding, index).map(|(p, &i)| p.low + i as i64 * (p.interior + 1));
        let to: Option<Vec<usize>> = to.map(|i| usize::try_from(i).ok()).collect();
        if let Some(to) = to.filter(|to| zip(to, shape.dimensions()).all(|(i, size)| i < size)) {
            put(&mut result, &to, x.raw(i));
        }
    }
    result
}

/// Returns an element's position in memory, by the layout.
fn place(shape: &ArrayShape, index: &[usize]) -> usize {
    let layout = shape.layout_or_default();
    let major_to_minor: Vec<usize> = layout.minor_to_major().iter().rev().copied().collect();
    let pick = |of: &[usize]| major_to_minor.iter().map(|&d| of[d]).collect::<Vec<_>>();
    number(&pick(shape.dimensions()), &pick(index))
}

fn bitcast(shape: &ArrayShape, x: &Array) -> Array {
    let mut memory = vec![Vec::new(); x.shape.element_count()];
    for (i, index) in indices(x.shape.dimensions()).iter().enumerate() {
        memory[place(&x.shape, index)] = x.raw(i).to_vec();
    }
    let memory = memory.concat();
    let width = shape.element_type().byte_width();
    let element = |index: &Vec<usize>| {
        let at = place(shape, index) * width;
        memory[at..at + width].to_vec()
    };
    let bytes = indices(shape.dimensions())
        .iter()
        .flat_map(element)
        .collect();
    Array::new(shape.clone(), bytes)
}

/// Reinterprets the bits of all elements, least significant bits first.
fn bitcast_convert(shape: &ArrayShape, x: &Array) -> Array {
    let (from, to) = (x.shape.element_type(), shape.element_type());
    let bits = (0..x.shape.element_count()).flat_map(|i| {
        let bytes = x.raw(i).to_vec();
        (0..from.bit_width() as usize).map(move |bit| bytes[bit / 8] >> (bit % 8) & 1)
    });
    let bits: Vec<u8> = bits.collect();
    let element = |bits: &[u8]| {
        let number = bits
            .iter()
            .rev()
            .fold(0_u128, |number, &bit| number << 1 | u128::from(bit));
        let is_negative = to.is_signed_integral() && bits[bits.len() - 1] == 1;
        // Signed types narrower than a byte are sign-extended to a byte.
        let number = if is_negative && bits.len() < 8 {
            number | (0xff << bits.len())
        } else {
            number
        };
        number.to_le_bytes()[..to.byte_width()].to_vec()
    };
    let bytes = bits.chunks(to.bit_width() as usize).flat_map(element);
    Array::new(shape.clone(), bytes.collect())
}
