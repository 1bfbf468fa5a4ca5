//! numpy's .npy files (numpy/lib/_format_impl.py).
//!
//! Existing crates multiply dimensions without a check, or take time exponential in a header's
//! brackets, so that the header is read here. Fortran order and big-endian elements are supported;
//! element types that XLA lacks are refused by name.

use std::io::Read;

use callbox::{ArrayShape, ElementType, Literal, Result};
use callbox_core::text::shortened;

use super::{ReadError, to_row_major, wrong};

/// The first bytes of every file.
pub(crate) const MAGIC: &[u8] = b"\x93NUMPY";

/// The longest header, in bytes. NumPy writes about a hundred.
const MAX_HEADER: usize = 1 << 16;

/// The element types that numpy has, with its names for little-endian ones.
const TYPES: &[(ElementType, &str)] = &[
    (ElementType::Pred, "|b1"),
    (ElementType::S8, "|i1"),
    (ElementType::S16, "<i2"),
    (ElementType::S32, "<i4"),
    (ElementType::S64, "<i8"),
    (ElementType::U8, "|u1"),
    (ElementType::U16, "<u2"),
    (ElementType::U32, "<u4"),
    (ElementType::U64, "<u8"),
    (ElementType::F16, "<f2"),
    (ElementType::F32, "<f4"),
    (ElementType::F64, "<f8"),
    (ElementType::C64, "<c8"),
    (ElementType::C128, "<c16"),
];

/// numpy's name of an element type, if it has one.
#[must_use]
pub fn type_name(element_type: ElementType) -> Option<&'static str> {
    let known = TYPES.iter().find(|(known, _)| *known == element_type);
    known.map(|(_, name)| *name)
}

/// Reads an array. numpy has no names for types such as bf16 and the F8 family, and writes their
/// elements as raw bytes: these are read as `expected`.
///
/// # Errors
/// The error of `file`; INVALID_ARGUMENT if the file is no .npy file or XLA lacks its element type.
pub fn read(mut file: impl Read, expected: Option<ElementType>) -> Result<Literal, ReadError> {
    let header = Header::read(&mut file)?;
    let (element_type, is_big_endian) = element_type(&header.descr, expected)?;
    let shape = ArrayShape::new(element_type, &header.shape)?;
    let size = shape.byte_size();
    let mut bytes = Vec::new();
    file.take(size as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() != size {
        return Err(wrong(format!(
            "expected {size} bytes of elements for {shape}, found {}",
            if bytes.len() > size {
                "more".to_owned()
            } else {
                bytes.len().to_string()
            }
        )));
    }
    if is_big_endian {
        let parts = if element_type.is_complex() { 2 } else { 1 };
        let width = element_type.byte_width() / parts;
        bytes.chunks_exact_mut(width).for_each(<[u8]>::reverse);
    }
    if element_type.is_pred() {
        bytes
            .iter_mut()
            .for_each(|byte| *byte = u8::from(*byte != 0));
    }
    if header.is_fortran_order && shape.rank() > 1 {
        let minor_to_major: Vec<_> = (0..shape.rank()).collect();
        let width = element_type.byte_width();
        bytes = to_row_major(&bytes, width, shape.dimensions(), &minor_to_major);
    }
    Ok(Literal::from_bytes(shape, bytes)?)
}

/// The header that numpy writes for an array.
#[must_use]
pub fn header(type_name: &str, dimensions: &[usize]) -> Vec<u8> {
    let list: Vec<_> = dimensions.iter().map(usize::to_string).collect();
    let shape = match list.as_slice() {
        [one] => format!("({one},)"),
        list => format!("({})", list.join(", ")),
    };
    let mut text =
        format!("{{'descr': '{type_name}', 'fortran_order': False, 'shape': {shape}, }}");
    // Elements begin at a multiple of 64 bytes. An array has at most 255 dimensions, so that the
    // length fits into the two bytes that version 1 has for it.
    let before = MAGIC.len() + 4;
    let length = (before + text.len() + 1).next_multiple_of(64) - before;
    text.push_str(&" ".repeat(length - text.len() - 1));
    text.push('\n');
    let length = (length as u16).to_le_bytes();
    [MAGIC, &[1, 0], &length, text.as_bytes()].concat()
}

/// The contents of a header.
#[derive(Debug, PartialEq)]
struct Header {
    descr: String,
    is_fortran_order: bool,
    shape: Vec<usize>,
}

impl Header {
    fn read(file: &mut impl Read) -> Result<Self, ReadError> {
        let width = length_width(&take(file, MAGIC.len() + 2)?)?;
        let cut = || wrong("expected a whole .npy header, found the end of the file");
        let mut length = [0; 4];
        let found = take(file, width)?;
        length[..found.len()].copy_from_slice(&found);
        let length = u32::from_le_bytes(length) as usize;
        if found.len() < width {
            return Err(cut());
        }
        if length > MAX_HEADER {
            return Err(wrong(format!(
                "expected a header of at most {MAX_HEADER} bytes, found one of {length}"
            )));
        }
        let text = take(file, length)?;
        if text.len() < length {
            return Err(cut());
        }
        let text = String::from_utf8_lossy(&text);
        let mut cursor = Cursor {
            text: &text,
            rest: &text,
        };
        let header = cursor.header();
        header.map_err(|message| wrong(format!("header of the .npy file: {message}")))
    }
}

/// The width of the header's length in a file that begins with `start`.
fn length_width(start: &[u8]) -> Result<usize, ReadError> {
    match start.strip_prefix(MAGIC) {
        Some([1, 0]) => Ok(2),
        Some([2 | 3, 0]) => Ok(4),
        Some([major, minor]) => Err(wrong(format!(
            "expected version 1.0, 2.0 or 3.0 of the .npy format, found {major}.{minor}"
        ))),
        _ => {
            let found = if start.is_empty() {
                "an empty file".to_owned()
            } else {
                format!("\"{}\"", start.escape_ascii())
            };
            let expected = "expected a .npy file, which starts with \\x93NUMPY";
            Err(wrong(format!("{expected}, found {found}")))
        }
    }
}

/// Reads `count` bytes, or fewer if the file ends.
fn take(file: &mut impl Read, count: usize) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(count as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A reader of the Python dictionary literal in a header.
struct Cursor<'a> {
    text: &'a str,
    rest: &'a str,
}

impl<'a> Cursor<'a> {
    fn header(&mut self) -> Result<Header, String> {
        let (mut descr, mut is_fortran_order, mut shape) = (None, None, None);
        self.expect("{")?;
        while !self.accept("}") {
            let key = self.string()?;
            self.expect(":")?;
            match key {
                "descr" => descr = Some(self.descr()?),
                "fortran_order" => is_fortran_order = Some(self.boolean()?),
                "shape" => shape = Some(self.shape()?),
                key => {
                    return Err(format!(
                        "expected 'descr', 'fortran_order' and 'shape', found {:?}",
                        shortened(key)
                    ));
                }
            }
            if !self.accept(",") {
                self.expect("}")?;
                break;
            }
        }
        self.spaces();
        if !self.rest.is_empty() {
            return Err(self.expected("the end of the header"));
        }
        Ok(Header {
            descr: descr.ok_or("expected 'descr', found none")?,
            is_fortran_order: is_fortran_order.ok_or("expected 'fortran_order', found none")?,
            shape: shape.ok_or("expected 'shape', found none")?,
        })
    }

    fn descr(&mut self) -> Result<String, String> {
        if self.sees("[") || self.sees("(") {
            return Err("expected elements of one type, found a structured dtype".to_owned());
        }
        self.string().map(str::to_owned)
    }

    fn boolean(&mut self) -> Result<bool, String> {
        if self.accept("True") {
            Ok(true)
        } else if self.accept("False") {
            Ok(false)
        } else {
            Err(self.expected("True or False"))
        }
    }

    fn shape(&mut self) -> Result<Vec<usize>, String> {
        let mut dimensions = Vec::new();
        self.expect("(")?;
        while !self.accept(")") {
            dimensions.push(self.number()?);
            if !self.accept(",") {
                self.expect(")")?;
                break;
            }
        }
        Ok(dimensions)
    }

    fn number(&mut self) -> Result<usize, String> {
        self.spaces();
        let end = self
            .rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(self.rest.len());
        let number = self.rest[..end].parse();
        let number = number.map_err(|_| self.expected("a dimension's size"))?;
        self.rest = &self.rest[end..];
        // Python 2's suffix of long integers.
        self.accept("L");
        Ok(number)
    }

    fn string(&mut self) -> Result<&'a str, String> {
        self.spaces();
        let quoted = ["'", "\""].into_iter().find_map(|quote| {
            let (text, rest) = self.rest.strip_prefix(quote)?.split_once(quote)?;
            (!text.contains('\\')).then_some((text, rest))
        });
        let (text, rest) = quoted.ok_or_else(|| self.expected("a string"))?;
        self.rest = rest;
        Ok(text)
    }

    fn expect(&mut self, token: &str) -> Result<(), String> {
        if self.accept(token) {
            Ok(())
        } else {
            Err(self.expected(&format!("'{token}'")))
        }
    }

    fn accept(&mut self, token: &str) -> bool {
        let is_next = self.sees(token);
        if is_next {
            self.rest = &self.rest[token.len()..];
        }
        is_next
    }

    fn sees(&mut self, token: &str) -> bool {
        self.spaces();
        self.rest.starts_with(token)
    }

    fn spaces(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn expected(&self, what: &str) -> String {
        let at = self.text.len() - self.rest.len();
        let found: String = self.rest.chars().take(16).collect();
        format!("expected {what} at byte {at}, found {found:?}")
    }
}

/// The element type of a numpy name, and whether elements are big-endian.
fn element_type(
    descr: &str,
    expected: Option<ElementType>,
) -> Result<(ElementType, bool), ReadError> {
    let (order, kind) = descr.split_at(descr.chars().next().map_or(0, char::len_utf8));
    let known = TYPES.iter().find(|(_, name)| name[1..] == *kind);
    match known {
        Some((element_type, _)) if matches!(order, "<" | ">" | "|" | "=") => {
            return Ok((*element_type, order == ">"));
        }
        _ => {}
    }
    let raw_width = match kind.split_at_checked(1) {
        Some(("V" | "f", width)) => width.parse().ok(),
        _ => None,
    };
    let is_raw = |t: ElementType| {
        type_name(t).is_none() && t.bit_width() >= 8 && raw_width == Some(t.byte_width())
    };
    match expected.filter(|&t| is_raw(t)) {
        Some(element_type) => Ok((element_type, order == ">")),
        None => Err(refusal(descr, kind)),
    }
}

fn refusal(descr: &str, kind: &str) -> ReadError {
    let what = match kind.chars().next() {
        Some('O') => "Python objects",
        Some('S' | 'a' | 'U') => "strings",
        Some('M' | 'm') => "dates or times",
        Some('V') => {
            "bytes, as numpy writes bf16 and others that it has no name for: a .safetensors file \
             can name them"
        }
        _ => "what XLA has no element type for",
    };
    let descr = shortened(descr);
    wrong(format!(
        "expected numbers or truth values, found the dtype {descr:?}: {what}"
    ))
}

#[cfg(test)]
mod tests;
