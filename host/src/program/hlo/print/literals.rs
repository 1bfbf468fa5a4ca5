//! Literals: `{ { 1, 2 }, { 3, 4 } }`, `(1, {true})`.

use super::numbers::hlo_element;
use super::shape;
use crate::program::hlo::elements::component_type;
use crate::values::{ArrayShape, ElementType, Literal, Shape};

/// How many arrays without elements are printed, in one array of them, before the whole is printed as one.
const MOST_EMPTY: usize = 1 << 16;

/// Appends a literal whose shape stands elsewhere.
pub(super) fn literal(literal: &Literal, text: &mut String) {
    print(literal, false, text);
}

/// Appends a literal with its shape, array by array: `(s32[2]{0} {1, 2}, f32[] 0.5)`.
pub(super) fn literal_with_shape(literal: &Literal, text: &mut String) {
    print(literal, true, text);
}

fn print(literal: &Literal, with_shape: bool, text: &mut String) {
    let leaves: Vec<_> = literal.leaves().collect();
    let mut leaves = leaves.into_iter();
    let mut array = |text: &mut String| {
        if let Some((shape, bytes)) = leaves.next() {
            if with_shape {
                *text += &format!("{} ", self::shape(&shape.clone().into()));
            }
            elements(shape, bytes, text);
        }
    };
    tuple(literal.shape(), &mut array, text);
}

/// Tuples nest no deeper than [`Shape::tuple`] lets them.
fn tuple(shape: &Shape, array: &mut impl FnMut(&mut String), text: &mut String) {
    let Some(elements) = shape.as_tuple() else {
        return array(text);
    };
    text.push('(');
    for (index, element) in elements.iter().enumerate() {
        *text += if index == 0 { "" } else { ", " };
        tuple(element, array, text);
    }
    text.push(')');
}

fn elements(shape: &ArrayShape, bytes: &[u8], text: &mut String) {
    let element_type = shape.element_type();
    let dimensions = shape.dimensions();
    if let Some(empty) = dimensions.iter().position(|&size| size == 0) {
        let outer = &dimensions[..empty];
        let count = outer
            .iter()
            .try_fold(1, |count: usize, size| count.checked_mul(*size));
        return match count.filter(|&count| count <= MOST_EMPTY) {
            Some(_) => nested(outer, ["{", "}"], text, |_, text| *text += "{}"),
            None => *text += "{}",
        };
    }
    if element_type.is_pred() && dimensions.is_empty() {
        *text += if bytes == [0] { "false" } else { "true" };
        return;
    }
    let width = element_type.byte_width();
    nested(dimensions, ["{", "}"], text, |index, text| {
        let bytes = &bytes[index * width..][..width];
        element(element_type, bytes, ", ", hlo_element, text);
    });
}

/// Appends an element; a complex number as its parts, in parentheses.
pub(super) fn element(
    element_type: ElementType,
    bytes: &[u8],
    comma: &str,
    part: impl Fn(ElementType, &[u8]) -> String,
    text: &mut String,
) {
    let part_type = component_type(element_type);
    if !element_type.is_complex() {
        *text += &part(part_type, bytes);
        return;
    }
    let (real, imaginary) = bytes.split_at(bytes.len() / 2);
    let (real, imaginary) = (part(part_type, real), part(part_type, imaginary));
    *text += &format!("({real}{comma}{imaginary})");
}

/// Appends an array of these dimensions, none of which is 0, between these brackets. There may be any number of dimensions.
pub(super) fn nested(
    dimensions: &[usize],
    [open, close]: [&str; 2],
    text: &mut String,
    mut element: impl FnMut(usize, &mut String),
) {
    // How many elements an array of each level has, the innermost first.
    let sizes = dimensions
        .iter()
        .rev()
        .scan(1, |size: &mut usize, dimension| {
            *size *= dimension;
            Some(*size)
        });
    let sizes: Vec<usize> = sizes.collect();
    let levels_at = |index: usize| {
        sizes
            .iter()
            .take_while(|size| index.is_multiple_of(**size))
            .count()
    };
    let count = sizes.last().copied().unwrap_or(1);
    for index in 0..count {
        *text += if index == 0 { "" } else { ", " };
        (0..levels_at(index)).for_each(|_| *text += open);
        element(index, text);
        (0..levels_at(index + 1)).for_each(|_| *text += close);
    }
}
