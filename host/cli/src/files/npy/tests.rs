#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use callbox::NativeType;
use npyz::WriterBuilder;
use num_complex::Complex;

use super::*;

/// A file with this header text.
fn file(header: &str, elements: &[u8]) -> Vec<u8> {
    let length = u16::try_from(header.len()).unwrap();
    [
        MAGIC,
        &[1, 0],
        &length.to_le_bytes(),
        header.as_bytes(),
        elements,
    ]
    .concat()
}

fn array(descr: &str, fortran_order: bool, shape: &str, elements: &[u8]) -> Vec<u8> {
    let order = if fortran_order { "True" } else { "False" };
    let header = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}\n");
    file(&header, elements)
}

fn message(bytes: &[u8]) -> String {
    message_of(bytes, None)
}

fn message_of(bytes: &[u8], expected: Option<ElementType>) -> String {
    match read(bytes, expected).unwrap_err() {
        ReadError::Status(status) => status.message().to_owned(),
        ReadError::Io(error) => panic!("{error}"),
    }
}

#[test]
fn arrays_are_read_in_either_order() {
    let elements: Vec<u8> = [0_i16, 3, 1, 4, 2, 5]
        .iter()
        .flat_map(|x| x.to_le_bytes())
        .collect();
    let fortran = read(&*array("<i2", true, "(2, 3)", &elements), None).unwrap();
    assert_eq!(
        fortran,
        Literal::array(&[2, 3], &[0_i16, 1, 2, 3, 4, 5]).unwrap()
    );
    let c = read(&*array("<i2", false, "(3L, 2L)", &elements), None).unwrap();
    assert_eq!(c, Literal::array(&[3, 2], &[0_i16, 3, 1, 4, 2, 5]).unwrap());
}

#[test]
fn big_endian_arrays_are_read() {
    let elements = [1.5_f32.to_be_bytes(), (-2.0_f32).to_be_bytes()].concat();
    let reals = read(&*array(">f4", false, "(2,)", &elements), None).unwrap();
    assert_eq!(reals, Literal::array(&[2], &[1.5_f32, -2.0]).unwrap());
    let complex = read(&*array(">c8", false, "()", &elements), None).unwrap();
    assert_eq!(complex, Literal::scalar(Complex::new(1.5_f32, -2.0)));
    // Fortran order and big-endian elements together.
    let elements: Vec<u8> = [1_u32, 3, 2, 4]
        .iter()
        .flat_map(|x| x.to_be_bytes())
        .collect();
    let both = read(&*array(">u4", true, "(2, 2)", &elements), None).unwrap();
    assert_eq!(both, Literal::array(&[2, 2], &[1_u32, 2, 3, 4]).unwrap());
}

#[test]
fn arrays_of_few_elements_are_read() {
    let scalar = read(&*array("<f8", false, "()", &2.5_f64.to_le_bytes()), None).unwrap();
    assert_eq!(scalar, Literal::scalar(2.5_f64));
    let empty = read(&*array("<f4", true, "(3, 0, 2)", &[]), None).unwrap();
    assert_eq!(empty.shape().to_string(), "f32[3,0,2]");
    let truths = read(&*array("|b1", false, "(3,)", &[0, 1, 255]), None).unwrap();
    assert_eq!(truths.bytes(), Some(&[0, 1, 1][..]));
}

#[test]
fn all_versions_and_quotes_are_read() {
    let text = "{\"shape\":(1,),\"descr\":\"|u1\",\"fortran_order\":False}";
    let length = u32::try_from(text.len()).unwrap().to_le_bytes();
    for version in [2, 3] {
        let bytes = [MAGIC, &[version, 0], &length, text.as_bytes(), &[7]].concat();
        assert_eq!(
            read(&*bytes, None).unwrap(),
            Literal::array(&[1], &[7_u8]).unwrap()
        );
    }
}

/// Types that numpy has no name for are read as the parameter's type if that has their width.
#[test]
fn raw_bytes_are_what_is_expected() {
    let bytes = array("<V2", false, "(2,)", &[0x80, 0x3f, 0, 0x40]);
    let read = read(&*bytes, Some(ElementType::Bf16)).unwrap();
    assert_eq!(read.shape().to_string(), "bf16[2]");
    assert_eq!(read.bytes(), Some(&[0x80, 0x3f, 0, 0x40][..]));
    for expected in [None, Some(ElementType::F16), Some(ElementType::F8e5m2)] {
        assert!(message_of(&bytes, expected).contains("a .safetensors file can name them"));
    }
    let bytes = array("<f1", false, "(1,)", &[0x7e]);
    let read = super::read(&*bytes, Some(ElementType::F8e4m3fn)).unwrap();
    assert_eq!(read.shape().to_string(), "f8e4m3fn[1]");
    // A byte could hold an element of any narrower type.
    assert!(super::read(&*array("|V1", false, "(1,)", &[9]), Some(ElementType::S4)).is_err());
}

#[test]
fn what_is_no_array_is_refused() {
    let good = array("<f4", false, "(2,)", &[0; 8]);
    for (bytes, expected) in [
        (
            Vec::new(),
            "expected a .npy file, which starts with \\x93NUMPY, found an empty file",
        ),
        (
            b"PK\x03\x04".to_vec(),
            "expected a .npy file, which starts with \\x93NUMPY, found \"PK\\x03\\x04\"",
        ),
        (
            b"\x93NUMPY\x09\x01".to_vec(),
            "expected version 1.0, 2.0 or 3.0 of the .npy format, found 9.1",
        ),
        (
            good[..9].to_vec(),
            "expected a whole .npy header, found the end of the file",
        ),
        (
            good[..40].to_vec(),
            "expected a whole .npy header, found the end of the file",
        ),
        (
            good[..good.len() - 1].to_vec(),
            "expected 8 bytes of elements for f32[2], found 7",
        ),
        (
            [&*good, &[0]].concat(),
            "expected 8 bytes of elements for f32[2], found more",
        ),
        (
            b"\x93NUMPY\x02\x00\xff\xff\xff\xff".to_vec(),
            "expected a header of at most 65536 bytes, found one of 4294967295",
        ),
        (
            array("<f4", false, "(4294967296, 4294967296)", &[]),
            "expected a shape whose size in bytes is at most 9223372036854775807, \
             found f32[4294967296,4294967296]",
        ),
    ] {
        assert_eq!(message(&bytes), expected);
    }
}

#[test]
fn wrong_headers_are_refused() {
    for (header, expected) in [
        ("", "expected '{' at byte 0, found \"\""),
        (
            "{'descr' '<f4'}",
            "expected ':' at byte 9, found \"'<f4'}\"",
        ),
        (
            "{'kind': 1}",
            "expected 'descr', 'fortran_order' and 'shape', found \"kind\"",
        ),
        (
            "{'shape': (-1,)}",
            "expected a dimension's size at byte 11, found \"-1,)}\"",
        ),
        (
            "{'shape': (99999999999999999999,)}",
            "expected a dimension's size at byte 11, found \"9999999999999999\"",
        ),
        (
            "{'fortran_order': 1}",
            "expected True or False at byte 18, found \"1}\"",
        ),
        ("{'shape': ()}", "expected 'descr', found none"),
        (
            "{'descr': [('x', '<f4')]}",
            "expected elements of one type, found a structured dtype",
        ),
        (
            "{'descr': '|u1', 'fortran_order': False, 'shape': (1,)} x",
            "expected the end of the header at byte 56, found \"x\"",
        ),
    ] {
        assert_eq!(
            message(&file(header, &[0])),
            format!("header of the .npy file: {expected}")
        );
    }
    // The deepest and longest header is refused quickly.
    for token in ["(", "[", "{", "'"] {
        assert!(message(&file(&token.repeat(60_000), &[])).starts_with("header of the"));
    }
}

#[test]
fn other_types_are_refused_by_name() {
    for (descr, kind) in [
        ("|O", "Python objects"),
        ("|S5", "strings"),
        ("<U3", "strings"),
        ("<M8[ns]", "dates or times"),
        ("<f16", "what XLA has no element type for"),
        ("<c32", "what XLA has no element type for"),
        ("f4", "what XLA has no element type for"),
        ("", "what XLA has no element type for"),
        ("<é", "what XLA has no element type for"),
    ] {
        let expected =
            format!("expected numbers or truth values, found the dtype {descr:?}: {kind}");
        assert_eq!(message(&array(descr, false, "()", &[])), expected);
    }
}

/// Files are compatible with another reader and another writer of the format.
fn agree<T: NativeType + npyz::AutoSerialize + npyz::Deserialize>(elements: &[T]) {
    let dimensions = [2, elements.len() / 2];
    let literal = Literal::array(&dimensions, elements).unwrap();
    let header = header(type_name(T::ELEMENT_TYPE).unwrap(), &dimensions);
    assert_eq!(header.len() % 64, 0);
    let written = [&header, literal.bytes().unwrap()].concat();
    let file = npyz::NpyFile::new(&written[..]).unwrap();
    assert_eq!(file.shape(), dimensions.map(|d| d as u64));
    assert_eq!(file.into_vec::<T>().unwrap(), elements);
    assert_eq!(read(&*written, None).unwrap(), literal);

    let mut bytes = Vec::new();
    let options = npyz::WriteOptions::new().default_dtype();
    let shape = dimensions.map(|d| d as u64);
    let mut writer = options.shape(&shape).writer(&mut bytes).begin_nd().unwrap();
    writer.extend(elements.iter().copied()).unwrap();
    writer.finish().unwrap();
    assert_eq!(read(&*bytes, None).unwrap(), literal);
}

#[test]
fn another_implementation_agrees() {
    agree(&[true, false, false, true]);
    agree(&[1_i8, -2]);
    agree(&[1_i16, -2]);
    agree(&[1_i32, -2]);
    agree(&[1_i64, i64::MIN]);
    agree(&[1_u8, 255]);
    agree(&[1_u16, 2]);
    agree(&[1_u32, 2]);
    agree(&[1_u64, u64::MAX]);
    agree(&[1.5_f32, f32::INFINITY]);
    agree(&[1.5_f64, -0.0]);
}

#[test]
fn headers_are_numpys() {
    let header = |dimensions: &[usize]| {
        let header = header("<f4", dimensions);
        String::from_utf8_lossy(&header[10..]).trim_end().to_owned()
    };
    assert_eq!(
        header(&[]),
        "{'descr': '<f4', 'fortran_order': False, 'shape': (), }"
    );
    assert_eq!(
        header(&[3]),
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }"
    );
    assert_eq!(
        header(&[0, 2]),
        "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 2), }"
    );
    let long = super::header("<f4", &[1; 255]);
    assert_eq!((long[6], long.len() % 64), (1, 0));
    let read = read(&*[&*long, &[0; 4]].concat(), None).unwrap();
    assert_eq!(read.shape().leaves()[0].rank(), 255);
}
