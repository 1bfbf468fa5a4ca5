//! Inputs: valid and invalid .npy and .safetensors files.

use half::bf16;

use crate::guests::{ADD, identity};
use crate::support::Folder;

/// A .npy file with this header and these elements.
fn npy(descr: &str, fortran_order: bool, shape: &str, elements: &[u8]) -> Vec<u8> {
    let order = if fortran_order { "True" } else { "False" };
    let mut header =
        format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}");
    header.push_str(&" ".repeat(118 - 1 - header.len()));
    header.push('\n');
    [b"\x93NUMPY\x01\x00v\x00", header.as_bytes(), elements].concat()
}

/// A .safetensors file with one tensor, "t".
fn safetensors(dtype: &str, shape: &str, elements: &[u8]) -> Vec<u8> {
    let header = format!(
        r#"{{"t":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[0,{}]}}}}"#,
        elements.len()
    );
    [
        &(header.len() as u64).to_le_bytes(),
        header.as_bytes(),
        elements,
    ]
    .concat()
}

/// Runs a program that returns its input, and expects these elements.
fn check(file: &str, bytes: &[u8], shape: &str, values: &str) {
    let folder = Folder::new();
    folder.write("p.hlo", identity(shape)).write(file, bytes);
    let tensor = if file.ends_with(".npy") { "" } else { "#t" };
    let shown = folder
        .run(&["run", "p.hlo", "--input", &format!("0={file}{tensor}")])
        .done();
    assert_eq!(
        shown.lines().nth(1).unwrap_or_default().trim(),
        values,
        "{file} as {shape}"
    );
}

fn bytes<const N: usize, const M: usize>(elements: [[u8; N]; M]) -> Vec<u8> {
    elements.concat()
}

#[test]
fn every_order_and_byte_order_is_read_right() {
    let c = bytes([1_i32, 2, 3, 4, 5, 6].map(i32::to_le_bytes));
    check(
        "x.npy",
        &npy("<i4", false, "(2, 3)", &c),
        "s32[2,3]",
        "1, 2, 3, 4, 5, 6",
    );
    let fortran = bytes([1_i32, 4, 2, 5, 3, 6].map(i32::to_le_bytes));
    check(
        "x.npy",
        &npy("<i4", true, "(2, 3)", &fortran),
        "s32[2,3]",
        "1, 2, 3, 4, 5, 6",
    );
    let big = bytes([1_i32, 4, 2, 5, 3, 6].map(i32::to_be_bytes));
    check(
        "x.npy",
        &npy(">i4", true, "(2, 3)", &big),
        "s32[2,3]",
        "1, 2, 3, 4, 5, 6",
    );
    let big = bytes([1.5_f64, -2.0].map(f64::to_be_bytes));
    check(
        "x.npy",
        &npy(">f8", false, "(2,)", &big),
        "f64[2]",
        "1.5, -2.0",
    );
    check(
        "x.npy",
        &npy(">c16", false, "()", &big),
        "c128[]",
        "1.5-2.0i",
    );
    // A layout in the program changes how targets see an array, not its elements.
    check(
        "x.npy",
        &npy("<i4", false, "(2, 3)", &c),
        "s32[2,3]{0,1}",
        "1, 2, 3, 4, 5, 6",
    );
}

#[test]
fn arrays_of_no_and_of_one_element_are_read() {
    check(
        "x.npy",
        &npy("<f4", false, "(0,)", &[]),
        "f32[0]",
        "no elements",
    );
    check(
        "x.npy",
        &npy("<f4", true, "(3, 0)", &[]),
        "f32[3,0]",
        "no elements",
    );
    check(
        "x.npy",
        &npy("<f4", false, "()", &2.5_f32.to_le_bytes()),
        "f32[]",
        "2.5",
    );
    check("x.npy", &npy("|b1", false, "()", &[1]), "pred[]", "true");
    check(
        "x.safetensors",
        &safetensors("F32", "[2,0]", &[]),
        "f32[2,0]",
        "no elements",
    );
    check(
        "x.safetensors",
        &safetensors("I64", "[]", &7_i64.to_le_bytes()),
        "s64[]",
        "7",
    );
}

#[test]
fn every_element_type_is_read() {
    for (descr, shape, element, values) in [
        ("|i1", "s8", &[0xff][..], "-1"),
        ("<i2", "s16", &[0xfe, 0xff], "-2"),
        ("<i8", "s64", &[3, 0, 0, 0, 0, 0, 0, 0], "3"),
        ("|u1", "u8", &[255], "255"),
        ("<u2", "u16", &[255, 255], "65535"),
        ("<u4", "u32", &[0, 0, 0, 128], "2147483648"),
        ("<u8", "u64", &[255; 8], "18446744073709551615"),
        ("<f2", "f16", &[0, 0x3e], "1.5"),
        ("<c8", "c64", &[0, 0, 128, 63, 0, 0, 0, 64], "1.0+2.0i"),
        // numpy's names of the types that it lacks.
        ("<V2", "bf16", &[0xc0, 0x3f], "1.5"),
        ("|V1", "f8e5m2", &[0x3e], "1.5"),
        ("<f1", "f8e4m3fn", &[0x3c], "1.5"),
    ] {
        let shape = format!("{shape}[1]");
        check("x.npy", &npy(descr, false, "(1,)", element), &shape, values);
    }
    for (dtype, shape, element, values) in [
        ("BOOL", "pred", &[1][..], "true"),
        ("I8", "s8", &[0xff], "-1"),
        ("U16", "u16", &[1, 0], "1"),
        ("F16", "f16", &[0, 0x3e], "1.5"),
        ("BF16", "bf16", &[0xc0, 0x3f], "1.5"),
        ("F8_E4M3", "f8e4m3fn", &[0x3c], "1.5"),
        ("F8_E5M2", "f8e5m2", &[0x3e], "1.5"),
        ("F8_E8M0", "f8e8m0fnu", &[0x80], "2.0"),
        ("C64", "c64", &[0, 0, 128, 63, 0, 0, 0, 64], "1.0+2.0i"),
        // Types without a name in the format are stored as 8-bit types.
        ("I8", "s4", &[0xf8], "-8"),
        ("U8", "u4", &[15], "15"),
        ("U8", "f8e3m4", &[0x38], "1.5"),
    ] {
        let shape = format!("{shape}[1]");
        check(
            "x.safetensors",
            &safetensors(dtype, "[1]", element),
            &shape,
            values,
        );
    }
    let file = bytes([bf16::from_f32(0.5), bf16::from_f32(-1.0)].map(bf16::to_le_bytes));
    check(
        "x.safetensors",
        &safetensors("BF16", "[2]", &file),
        "bf16[2]",
        "0.5, -1.0",
    );
}

#[test]
fn wrong_arrays_are_refused() {
    let folder = Folder::new();
    folder.write("p.hlo", identity("f32[2]"));
    let two = [0; 8];
    for (file, bytes, message) in [
        (
            "type.npy",
            npy("<f8", false, "(1,)", &two),
            "expected f32[2], found f64[1]",
        ),
        (
            "shape.npy",
            npy("<f4", false, "(1, 2)", &two),
            "expected f32[2], found f32[1,2]",
        ),
        (
            "short.npy",
            npy("<f4", false, "(2,)", &two[1..]),
            "expected 8 bytes of elements for f32[2], found 7",
        ),
        (
            "long.npy",
            npy("<f4", false, "(2,)", &[0; 9]),
            "expected 8 bytes of elements for f32[2], found more",
        ),
        (
            "empty.npy",
            Vec::new(),
            "expected a .npy file, which starts with \\x93NUMPY, found an empty file",
        ),
        ("magic.npy", b"PK\x03\x04".to_vec(), "expected a .npy file"),
        (
            "header.npy",
            npy("<f4", false, "(2,)", &two)[..64].to_vec(),
            "expected a whole .npy header",
        ),
        (
            "dictionary.npy",
            npy("<f4", false, "2", &two),
            "header of the .npy file: expected '('",
        ),
        (
            "object.npy",
            npy("|O", false, "(2,)", &two),
            "expected numbers or truth values, found the dtype \"|O\": Python objects",
        ),
        (
            "string.npy",
            npy("<U2", false, "(1,)", &two),
            "expected numbers or truth values, found the dtype \"<U2\": strings",
        ),
        (
            "raw.npy",
            npy("<V4", false, "(2,)", &two),
            "expected numbers or truth values, found the dtype \"<V4\": bytes, as numpy writes bf16",
        ),
        (
            "structured.npy",
            npy("x', 'descr': [('a', '<f4')], '", false, "(2,)", &two),
            "header of the .npy file: expected elements of one type, found a structured dtype",
        ),
        (
            "huge.npy",
            npy("<f4", false, "(4294967296, 4294967296)", &[]),
            "expected a shape whose size in bytes is at most",
        ),
        (
            "text.safetensors",
            b"hi".to_vec(),
            "expected a .safetensors file",
        ),
        (
            "long.safetensors",
            [255; 16].to_vec(),
            "expected a .safetensors file, whose header of",
        ),
        (
            "type.safetensors",
            safetensors("F64", "[1]", &two),
            "expected f32[2], found f64[1]",
        ),
        (
            "short.safetensors",
            safetensors("F32", "[3]", &two),
            "header of the .safetensors file",
        ),
        (
            "packed.safetensors",
            safetensors("F4", "[16]", &two),
            "expected elements that are not packed, found the dtype F4",
        ),
    ] {
        folder.write(file, bytes);
        let tensor = if file.ends_with(".npy") { "" } else { "#t" };
        let input = format!("0={file}{tensor}");
        let message = format!("--input 0: {file}{tensor}: {message}");
        folder.refuse(
            &["run", "p.hlo", "--input", &input],
            1,
            "INVALID_ARGUMENT",
            &message,
        );
        // The same file as an operand, whose shape no parameter declares.
        if !message.contains("expected f32[2], found f") {
            let message = message.replace("--input", "operand");
            let operand = format!("{file}{tensor}");
            let call = ["call", "m.wasm", "f", "--operand", &operand];
            folder.refuse(&call, 1, "INVALID_ARGUMENT", &message);
        }
    }
    folder.write("x.safetensors", safetensors("F32", "[2]", &two));
    let unknown = ["run", "p.hlo", "--input", "0=x.safetensors#w"];
    let message = "x.safetensors#w: expected a tensor \"w\", found \"t\"";
    folder.refuse(&unknown, 1, "NOT_FOUND", message);
}

#[test]
fn each_parameter_has_one_input() {
    let folder = Folder::new();
    folder.write("p.hlo", ADD).npy("x.npy", &[3], &[1.0_f32; 3]);
    let takes = "it takes\n  0: f32[3]{0}\n  1: f32[3]{0}";
    for (inputs, message) in [
        (&[][..], "\"main\", found no --input 0, --input 1; "),
        (&["--input", "1=x.npy"], "\"main\", found no --input 0; "),
        (
            &["--input", "0=x.npy", "--input", "2=x.npy"],
            "\"main\", found --input 2; ",
        ),
        (
            &["--input", "0.0=x.npy", "--input", "1=x.npy"],
            "\"main\", found --input 0.0; ",
        ),
    ] {
        let run = [&["run", "p.hlo"], inputs].concat();
        folder.refuse(&run, 1, "INVALID_ARGUMENT", &format!("{message}{takes}"));
    }
    let nothing = "HloModule m\nENTRY main {\n  ROOT x = f32[] constant(1)\n}\n";
    folder.write("none.hlo", nothing);
    let run = ["run", "none.hlo", "--input", "0=x.npy"];
    folder.refuse(
        &run,
        1,
        "INVALID_ARGUMENT",
        "found --input 0; it takes none",
    );
    assert_eq!(
        folder.run(&["run", "none.hlo"]).done(),
        "result 0: f32[]\n  1.0\n"
    );
}
