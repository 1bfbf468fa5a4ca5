//! Array files (.npy and .safetensors): an array that is read matches its shape, and survives
//! writing and reading again.

use std::io::Cursor;

use callbox::{ElementType, Literal};
use callbox_cli::files::{ReadError, npy, tensors};

use crate::Target;
use crate::outcome::Outcome;

/// The target.
pub const TARGET: Target = Target {
    name: "arrays",
    run,
    max_len: 1024,
    executions: 50_000,
    words: WORDS,
};

const WORDS: &[&str] = &[
    "\u{93}NUMPY",
    "'descr': ",
    "'<f4'",
    "'>i8'",
    "'|b1'",
    "'|V2'",
    "'<c16'",
    "'fortran_order': ",
    "True",
    "False",
    "'shape': ",
    "(2, 3)",
    "()",
    "(3,)",
    "(0, 4)",
    "2L",
    "{",
    "}",
    ", ",
    "\n",
    "\"x\":",
    "{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}",
    "\"dtype\"",
    "\"F32\"",
    "\"BF16\"",
    "\"BOOL\"",
    "\"F8_E4M3\"",
    "\"F4\"",
    "\"U8\"",
    "\"shape\"",
    "\"data_offsets\"",
    "\"__metadata__\"",
    "\"callbox.shapes\"",
    "{\\\"x\\\":\\\"s4[3]\\\"}",
    "[",
    "]",
    "18446744073709551615",
    "4611686018427387904",
];

/// The name of the requested tensor.
const TENSOR: &str = "x";

/// The first byte chooses the format, the second the expected element type; the rest is the file.
fn run(input: &[u8]) -> Outcome {
    let [format, expected, file @ ..] = input else {
        return Outcome::of("too few bytes");
    };
    let expected = ElementType::ALL.get(usize::from(*expected)).copied();
    let read = |file: &[u8]| {
        if format % 2 == 0 {
            npy::read(file, expected)
        } else {
            tensors::read(Cursor::new(file), TENSOR, expected)
        }
    };
    match read(file) {
        Ok(array) => {
            check_elements(&array);
            let written = if format % 2 == 0 {
                npy_file(&array)
            } else {
                Some(tensors_file(&array))
            };
            if let Some(written) = written {
                let again = read(&written).unwrap_or_else(|error| panic!("{error:?}"));
                assert!(same(&array, &again), "{array:?} is read back as {again:?}");
            }
            let shape = array.shape().as_array().unwrap();
            Outcome::of((
                format % 2,
                shape.element_type(),
                shape.rank(),
                shape.element_count() > 0,
            ))
        }
        Err(ReadError::Status(status)) => {
            assert_ne!(status.code().name(), "INTERNAL", "{status}");
            Outcome::failure(&status)
        }
        // Reading from memory cannot fail, and a premature end is reported as a status.
        Err(ReadError::Io(error)) => panic!("{error}"),
    }
}

/// Checks that the size matches the shape and that every byte is valid for the element type.
fn check_elements(array: &Literal) {
    let shape = array.shape().as_array().unwrap();
    let bytes = array.bytes().unwrap();
    assert_eq!(bytes.len(), shape.byte_size());
    assert!(shape.is_row_major());
    let element_type = shape.element_type();
    if element_type.is_pred() {
        assert!(bytes.iter().all(|&byte| byte <= 1));
    } else if element_type.bit_width() < 8 {
        let is_element = |&byte: &u8| crate::generate::element_byte(element_type, byte) == byte;
        assert!(bytes.iter().all(is_element), "{element_type}: {bytes:?}");
    }
}

/// Writes an array as an .npy file, if NumPy has a name for its element type.
fn npy_file(array: &Literal) -> Option<Vec<u8>> {
    let shape = array.shape().as_array().unwrap();
    let name = npy::type_name(shape.element_type())?;
    let mut file = npy::header(name, shape.dimensions());
    assert_eq!(file.len() % 64, 0);
    file.extend_from_slice(array.bytes().unwrap());
    Some(file)
}

fn tensors_file(array: &Literal) -> Vec<u8> {
    let shape = array.shape().as_array().unwrap();
    let arrays = [(TENSOR.to_owned(), shape, array.bytes().unwrap())];
    tensors::file(&arrays).unwrap()
}

fn same(a: &Literal, b: &Literal) -> bool {
    a.shape() == b.shape() && a.bytes() == b.bytes()
}
