//! Attributes in MLIR's notation.

use super::literals::{element, nested};
use super::names::Names;
use super::numbers::{mlir_element, mlir_scalar};
use crate::program::hlo::elements::component_type;
use crate::program::hlo::escapes::escape_mlir;
use crate::values::{ArrayShape, Attribute, Dictionary, ElementType};

/// Arrays of more elements than this are printed as bytes, as MLIR does.
const MOST_ELEMENTS: usize = 100;

/// A dictionary that is no program's.
pub(in crate::program::hlo) fn attributes(attributes: &Dictionary) -> String {
    let mut text = String::new();
    dictionary(None, attributes, &mut text);
    text
}

/// Appends a dictionary. Those in it nest as deep as whoever made them had them.
///
/// Functions have the names that a program's text has for them, if the dictionary is one of a program's.
pub(super) fn dictionary(names: Option<&Names<'_>>, dictionary: &Dictionary, text: &mut String) {
    text.push('{');
    for (index, (name, value)) in dictionary.iter().enumerate() {
        *text += if index == 0 { "" } else { ", " };
        *text += &self::name(name);
        *text += " = ";
        attribute(names, value, text);
    }
    text.push('}');
}

fn attribute(names: Option<&Names<'_>>, value: &Attribute, text: &mut String) {
    match value {
        Attribute::Scalar(literal) | Attribute::Array(literal) => {
            let is_scalar = matches!(value, Attribute::Scalar(_));
            for (shape, bytes) in literal.leaves() {
                match is_scalar && shape.rank() == 0 {
                    true => scalar(shape.element_type(), bytes, text),
                    false => dense(shape, bytes, text),
                }
            }
        }
        Attribute::String(bytes) => *text += &format!("\"{}\"", escape_mlir(bytes)),
        Attribute::Dictionary(inner) => dictionary(names, inner, text),
        Attribute::Function(function) => {
            let function = names.map_or(function.as_str(), |names| names.function(function));
            *text += &format!("@{}", name(function));
        }
    }
}

/// A word as it is, anything else as a string.
fn name(name: &str) -> String {
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let belongs = |c: char| c.is_ascii_alphanumeric() || "_$.".contains(c);
    match starts && name.chars().all(belongs) {
        true => name.to_owned(),
        false => format!("\"{}\"", escape_mlir(name.as_bytes())),
    }
}

fn scalar(element_type: ElementType, bytes: &[u8], text: &mut String) {
    if element_type.is_complex() {
        let part = if element_type == ElementType::C64 {
            "f32"
        } else {
            "f64"
        };
        let (real, imaginary) = bytes.split_at(bytes.len() / 2);
        let part_type = component_type(element_type);
        let [real, imaginary] = [real, imaginary].map(|bytes| mlir_scalar(part_type, bytes));
        *text += &format!("#complex.number<:{part} {real}, {imaginary}>");
        return;
    }
    *text += &mlir_scalar(element_type, bytes);
    if !element_type.is_pred() {
        *text += &format!(" : {}", type_name(element_type));
    }
}

/// `dense<[1, 2]> : tensor<2xi32>`.
fn dense(shape: &ArrayShape, bytes: &[u8], text: &mut String) {
    *text += "dense<";
    let element_type = shape.element_type();
    let width = element_type.byte_width();
    let count = shape.element_count();
    let one =
        |bytes: &[u8], text: &mut String| element(element_type, bytes, ",", mlir_element, text);
    let mut each = bytes.chunks_exact(width.max(1));
    let is_splat = each
        .next()
        .is_some_and(|first| each.all(|other| other == first));
    match count {
        0 => {}
        _ if is_splat => one(&bytes[..width], text),
        _ if count > MOST_ELEMENTS => hexadecimal(element_type, bytes, text),
        _ => nested(shape.dimensions(), ["[", "]"], text, |index, text| {
            one(&bytes[index * width..][..width], text);
        }),
    }
    let dimensions = shape.dimensions().iter().map(|size| format!("{size}x"));
    let dimensions: String = dimensions.collect();
    *text += &format!("> : tensor<{dimensions}{}>", type_name(element_type));
}

/// The elements' bytes. MLIR leaves the bits 0 that a type narrower than a byte does not have.
fn hexadecimal(element_type: ElementType, bytes: &[u8], text: &mut String) {
    let mask = match element_type.bit_width() {
        bits @ 0..8 => (1_u8 << bits) - 1,
        _ => u8::MAX,
    };
    *text += "\"0x";
    for byte in bytes {
        *text += &format!("{:02X}", byte & mask);
    }
    text.push('"');
}

/// A type as MLIR has it; integers of the sign that XLA takes them for.
fn type_name(element_type: ElementType) -> String {
    let name = element_type.to_string();
    match name.split_at(1) {
        _ if element_type.is_pred() => "i1".to_owned(),
        _ if element_type == ElementType::C64 => "complex<f32>".to_owned(),
        _ if element_type == ElementType::C128 => "complex<f64>".to_owned(),
        // `i1` is a truth value.
        ("s", "1") => "si1".to_owned(),
        ("s", bits) => format!("i{bits}"),
        ("u", _) => format!("ui{}", &name[1..]),
        // `f32` and `bf16` are those of XLA, `f8e5m2` is `f8E5M2`.
        ("f", rest) => format!("f{}", rest.to_ascii_uppercase()),
        _ => name,
    }
}
