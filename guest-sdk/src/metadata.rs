//! A target's line in the custom section `callbox.targets`.
//!
//! The section is JSON Lines: the linker concatenates the targets' contributions, one object and
//! one newline each. A target whose stages are several functions has several objects of one name.
//! The reader merges them: it unites their `stages` and, by name, their `attributes`, and takes
//! everything else from the object whose stages include `execute`.
//!
//! An object without `attributes` means any attributes: the function binds none to a parameter, and
//! has a [`Context`](crate::Context), which can read them all. An empty list means no attributes.
//! As in XLA, a call that passes some to such a function is not refused.
//!
//! The line is built in constants, because a custom section holds bytes and no pointers.

use crate::description::{AttributeDescription, Description, Dimension, ParameterDescription};
use crate::{AttributeKind, ElementType, Stage};

/// Returns the length of [`json`] for this description.
#[must_use]
pub const fn json_len(description: &Description) -> usize {
    let mut writer = Writer::<0>::new();
    writer.target(description);
    writer.len
}

/// Returns the description as one JSON object and a newline.
///
/// # Panics
/// At compile time, if `N` is not [`json_len`]. Every use is in a constant.
#[must_use]
pub const fn json<const N: usize>(description: &Description) -> [u8; N] {
    let mut writer = Writer::<N>::new();
    writer.target(description);
    assert!(writer.len == N, "N is what json_len says");
    writer.bytes
}

/// Keeps the first `N` bytes that are written, and counts all of them.
struct Writer<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Writer<N> {
    const fn new() -> Self {
        Self {
            bytes: [0; N],
            len: 0,
        }
    }

    const fn target(&mut self, description: &Description) {
        self.raw("{\"name\":");
        self.string(description.name);
        self.raw(",\"ffi_version\":");
        self.string(ffi_version(description));
        self.raw(",\"api_version\":\"API_VERSION_TYPED_FFI\",\"stages\":[");
        self.string(description.stage.name());
        self.raw("]");
        if matches!(description.stage, Stage::Execute) {
            self.raw(",\"operands\":[");
            self.buffers(description.parameters, true);
            self.raw("],\"results\":[");
            self.buffers(description.parameters, false);
            self.raw("]");
            if description.takes_remaining(true) {
                self.raw(",\"remaining_operands\":true");
            }
            if description.takes_remaining(false) {
                self.raw(",\"remaining_results\":true");
            }
        }
        if !description.takes_any_attributes() {
            self.raw(",\"attributes\":[");
            self.attributes(description.attributes);
            self.raw("]");
        }
        if matches!(description.stage, Stage::Execute) {
            self.raw(",\"doc\":");
            self.string(description.documentation);
            self.raw(",\"traits\":[");
            self.strings(description.traits);
            self.raw("]");
            if let Some((target, mode)) = description.derivative_of {
                self.raw(",\"derivative_of\":");
                self.string(target);
                self.raw(",\"derivative_mode\":");
                self.string(mode);
            }
        }
        self.raw("}\n");
    }

    /// Writes the parameters that take an operand, or those that take a result.
    const fn buffers(&mut self, parameters: &[ParameterDescription], operands: bool) {
        let (mut i, mut is_first) = (0, true);
        while i < parameters.len() {
            let role = parameters[i].roles[0];
            if operands && role.takes_operand() || !operands && role.takes_result() {
                self.comma(&mut is_first);
                self.buffer(&parameters[i]);
            }
            i += 1;
        }
    }

    const fn buffer(&mut self, parameter: &ParameterDescription) {
        self.raw("{\"name\":");
        self.string(parameter.name);
        self.raw(",\"element_types\":");
        self.element_types(parameter);
        self.raw(",\"rank\":");
        self.optional_number(parameter.rank());
        if let Some(dimensions) = parameter.dimensions {
            self.dimensions(dimensions);
        }
        if parameter.roles[0].is_optional() {
            self.raw(",\"optional\":true");
        }
        self.raw("}");
    }

    const fn dimensions(&mut self, dimensions: &[Dimension]) {
        self.raw(",\"dimensions\":[");
        let (mut i, mut is_first) = (0, true);
        while i < dimensions.len() {
            self.comma(&mut is_first);
            match dimensions[i] {
                Dimension::Any => self.raw("\"..\""),
                Dimension::Size(size) => self.optional_number(Some(size)),
                Dimension::Symbol(text) | Dimension::Expression(text) => self.string(text),
            }
            i += 1;
        }
        self.raw("]");
    }

    /// Writes the element types of the parameter in all instances of a generic target, each once.
    const fn element_types(&mut self, parameter: &ParameterDescription) {
        let (mut i, mut is_first) = (0, true);
        while i < parameter.roles.len() {
            match element_type(parameter, i) {
                None => return self.raw("null"),
                Some(found) if !is_repeated(parameter, i) => {
                    self.raw(if is_first { "[" } else { "," });
                    is_first = false;
                    self.string(found.upper_name());
                }
                Some(_) => {}
            }
            i += 1;
        }
        self.raw("]");
    }

    const fn attributes(&mut self, attributes: &[AttributeDescription]) {
        let (mut i, mut is_first) = (0, true);
        while i < attributes.len() {
            self.comma(&mut is_first);
            self.raw("{\"name\":");
            self.string(attributes[i].name);
            self.raw(",\"kind\":");
            self.string(attributes[i].kind.name());
            self.raw(",\"element_type\":");
            match attributes[i].element_type {
                Some(t) => self.string(t.upper_name()),
                None => self.raw("null"),
            }
            if let Some(fields) = attributes[i].fields {
                self.raw(",\"fields\":[");
                self.attributes(fields);
                self.raw("]");
            }
            if let Some(variants) = attributes[i].variants {
                self.variants(variants);
            }
            self.raw(",\"optional\":");
            self.raw(if attributes[i].is_optional {
                "true}"
            } else {
                "false}"
            });
            i += 1;
        }
    }

    const fn variants(&mut self, variants: &[(&str, i128)]) {
        self.raw(",\"variants\":{");
        let (mut i, mut is_first) = (0, true);
        while i < variants.len() {
            self.comma(&mut is_first);
            let (name, number) = variants[i];
            self.string(name);
            self.raw(if number < 0 { ":-" } else { ":" });
            self.number(number.unsigned_abs());
            i += 1;
        }
        self.raw("}");
    }

    const fn strings(&mut self, strings: &[&str]) {
        let (mut i, mut is_first) = (0, true);
        while i < strings.len() {
            self.comma(&mut is_first);
            self.string(strings[i]);
            i += 1;
        }
    }

    const fn comma(&mut self, is_first: &mut bool) {
        if !*is_first {
            self.raw(",");
        }
        *is_first = false;
    }

    /// Writes a JSON string: UTF-8, with the bytes escaped that JSON requires.
    const fn string(&mut self, text: &str) {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        self.raw("\"");
        let (bytes, mut i) = (text.as_bytes(), 0);
        while i < bytes.len() {
            match bytes[i] {
                b'"' => self.raw("\\\""),
                b'\\' => self.raw("\\\\"),
                b'\n' => self.raw("\\n"),
                b'\t' => self.raw("\\t"),
                control @ 0..0x20 => {
                    self.raw("\\u00");
                    self.byte(HEX[(control >> 4) as usize]);
                    self.byte(HEX[(control & 15) as usize]);
                }
                byte => self.byte(byte),
            }
            i += 1;
        }
        self.raw("\"");
    }

    const fn optional_number(&mut self, number: Option<usize>) {
        match number {
            Some(number) => self.number(number as u128),
            None => self.raw("null"),
        }
    }

    const fn number(&mut self, number: u128) {
        let mut unit = 1;
        while number / unit >= 10 {
            unit *= 10;
        }
        while unit > 0 {
            self.byte(b'0' + (number / unit % 10) as u8);
            unit /= 10;
        }
    }

    const fn raw(&mut self, text: &str) {
        let (bytes, mut i) = (text.as_bytes(), 0);
        while i < bytes.len() {
            self.byte(bytes[i]);
            i += 1;
        }
    }

    const fn byte(&mut self, byte: u8) {
        if self.len < N {
            self.bytes[self.len] = byte;
        }
        self.len += 1;
    }
}

/// Returns the oldest version of the contract with which a host can call the target. Version 1.0
/// has neither function references nor optional and remaining buffers, nor computed dimensions.
const fn ffi_version(description: &Description) -> &'static str {
    const NEWEST: &str = "1.1";
    if description.takes_remaining(true) || description.takes_remaining(false) {
        return NEWEST;
    }
    let mut i = 0;
    while i < description.parameters.len() {
        let parameter = &description.parameters[i];
        if parameter.roles[0].is_optional() || parameter.has_expressions() {
            return NEWEST;
        }
        i += 1;
    }
    i = 0;
    while i < description.attributes.len() {
        if matches!(description.attributes[i].kind, AttributeKind::Function) {
            return NEWEST;
        }
        i += 1;
    }
    "1.0"
}

const fn element_type(parameter: &ParameterDescription, role: usize) -> Option<ElementType> {
    match parameter.roles[role].signature() {
        Some(signature) => signature.element_type,
        None => None,
    }
}

/// Returns whether an earlier role has the same element type.
const fn is_repeated(parameter: &ParameterDescription, role: usize) -> bool {
    let mut i = 0;
    while i < role {
        if let (Some(a), Some(b)) = (element_type(parameter, i), element_type(parameter, role))
            && a as u8 == b as u8
        {
            return true;
        }
        i += 1;
    }
    false
}
