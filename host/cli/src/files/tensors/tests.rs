#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::io::Write;

use super::*;

fn open(bytes: &[u8]) -> std::fs::File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file.rewind().unwrap();
    file
}

fn message(bytes: &[u8], name: &str, expected: Option<ElementType>) -> String {
    match read(open(bytes), name, expected).unwrap_err() {
        ReadError::Status(status) => status.message().to_owned(),
        ReadError::Io(error) => panic!("{error}"),
    }
}

/// A file with this header.
fn with_header(header: &str, elements: &[u8]) -> Vec<u8> {
    [
        &(header.len() as u64).to_le_bytes(),
        header.as_bytes(),
        elements,
    ]
    .concat()
}

/// Every element type that has bytes reads back from a file, whether or not a parameter declares
/// the type.
#[test]
fn every_element_type_survives() {
    let types = ElementType::ALL
        .iter()
        .filter(|&&t| t != ElementType::Token);
    for &element_type in types.filter(|&&t| t != ElementType::C128) {
        let shape = ArrayShape::new(element_type, &[2, 1]).unwrap();
        let bytes = vec![0; shape.byte_size()];
        let file = file(&[("0".to_owned(), &shape, &bytes)]).unwrap();
        for expected in [None, Some(element_type)] {
            let read = read(open(&file), "0", expected).unwrap();
            assert_eq!(
                read,
                Literal::from_bytes(shape.clone(), bytes.clone()).unwrap()
            );
        }
    }
}

/// The crate of the format's authors reads what is written.
#[test]
fn files_are_the_formats() {
    let bf16: ArrayShape = "bf16[2]".parse().unwrap();
    let s4: ArrayShape = "s4[3]".parse().unwrap();
    let arrays = [
        ("0".to_owned(), &bf16, &[0x80, 0x3f, 0, 0x40][..]),
        ("3".to_owned(), &s4, &[0xf8, 7, 0][..]),
    ];
    let bytes = file(&arrays).unwrap();
    assert_eq!(bytes, file(&arrays).unwrap());
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let tensor = tensors.tensor("0").unwrap();
    assert_eq!((tensor.dtype(), tensor.shape()), (Dtype::BF16, &[2][..]));
    assert_eq!(tensor.data(), [0x80, 0x3f, 0, 0x40]);
    let tensor = tensors.tensor("3").unwrap();
    assert_eq!(
        (tensor.dtype(), tensor.data()),
        (Dtype::I8, &[0xf8, 7, 0][..])
    );
    let (_, metadata) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
    let metadata = metadata.metadata().as_ref().unwrap();
    assert_eq!(metadata.get(SHAPES).unwrap(), r#"{"3":"s4[3]"}"#);
}

#[test]
fn one_tensor_of_several_is_read() {
    let header = r#"{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b.weight":{"dtype":"I16","shape":[],"data_offsets":[2,4]},"z":{"dtype":"F32","shape":[0,3],"data_offsets":[4,4]}}"#;
    let bytes = with_header(header, &[1, 2, 3, 0]);
    assert_eq!(
        read(open(&bytes), "b.weight", None).unwrap(),
        Literal::scalar(3_i16)
    );
    assert_eq!(
        read(open(&bytes), "z", None).unwrap().shape().to_string(),
        "f32[0,3]"
    );
    assert_eq!(
        message(&bytes, "b.weigth", None),
        "expected a tensor \"b.weigth\", found \"b.weight\", \"a\", \"z\""
    );
    // An integer is an element of a narrower type if it has one of that type's values.
    assert_eq!(
        message(&bytes, "a", Some(ElementType::U1)),
        "expected elements of u1, found the byte 0x02"
    );
    let narrow = read(open(&bytes), "a", Some(ElementType::U2)).unwrap();
    assert_eq!(narrow.shape().to_string(), "u2[2]");
    // The caller reports any other mismatch.
    let as_is = read(open(&bytes), "a", Some(ElementType::F32)).unwrap();
    assert_eq!(as_is.shape().to_string(), "u8[2]");
}

#[test]
fn what_is_no_file_of_tensors_is_refused() {
    let tensor = |dtype: &str, shape: &str, offsets: &str| {
        format!(r#"{{"x":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}}}"#)
    };
    for (bytes, expected) in [
        (
            vec![0; 7],
            "expected a .safetensors file, which has at least 8 bytes, found 7",
        ),
        (
            vec![255; 9],
            "expected a .safetensors file, whose header of 18446744073709551615 bytes is in it, \
             found 9 bytes",
        ),
        (
            with_header("{", &[]),
            "header of the .safetensors file: EOF while parsing",
        ),
        (
            with_header(&tensor("F32", "[2]", "[0,8]"), &[0; 7]),
            "expected 8 bytes of elements, as the header says, found 7",
        ),
        (
            with_header(&tensor("F32", "[2]", "[0,7]"), &[0; 7]),
            "header of the .safetensors file: invalid shape",
        ),
        (
            with_header(&tensor("F4", "[2]", "[0,1]"), &[0]),
            "expected elements that are not packed, found the dtype F4",
        ),
        (
            with_header(
                &tensor("F32", "[4611686018427387904,4611686018427387904]", "[0,8]"),
                &[],
            ),
            "header of the .safetensors file: arithmetic overflow",
        ),
        (
            with_header(
                &tensor("U8", "[18446744073709551615]", "[0,18446744073709551615]"),
                &[],
            ),
            "header of the .safetensors file:",
        ),
    ] {
        let found = message(&bytes, "x", None);
        assert!(
            found.starts_with(expected) || found.contains("overflow"),
            "expected {expected}, found {found}"
        );
    }
    let deep = with_header(&"[".repeat(100_000), &[]);
    assert!(message(&deep, "x", None).starts_with("header of the .safetensors file"));
}
