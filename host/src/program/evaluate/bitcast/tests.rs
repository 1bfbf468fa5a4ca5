#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::program::evaluate::tests::{raw, row, run};
use crate::program::instruction::Opcode;

#[test]
fn bytes_stay_as_they_are() {
    let x = row(&[1f32, -0.0]);
    let found = run(Opcode::BitcastConvert, "u32[2]", std::slice::from_ref(&x));
    assert_eq!(found.to_vec::<u32>().unwrap(), [0x3f80_0000, 0x8000_0000]);
    let found = run(Opcode::BitcastConvert, "u16[2,2]", std::slice::from_ref(&x));
    assert_eq!(found.to_vec::<u16>().unwrap(), [0, 0x3f80, 0, 0x8000]);
    assert_eq!(run(Opcode::BitcastConvert, "f32[2]", &[found]), x);
}

/// XLA's operation semantics: the lowest bits come first.
#[test]
fn elements_narrower_than_a_byte_are_taken_apart_and_joined() {
    let bytes = row(&[0x2fu8, 0x81]);
    let nibbles = run(
        Opcode::BitcastConvert,
        "u4[2,2]",
        std::slice::from_ref(&bytes),
    );
    assert_eq!(nibbles.bytes().unwrap(), [15, 2, 1, 8]);
    assert_eq!(
        run(
            Opcode::BitcastConvert,
            "u8[2]",
            std::slice::from_ref(&nibbles)
        ),
        bytes
    );
    let signed = run(
        Opcode::BitcastConvert,
        "s4[2,2]",
        std::slice::from_ref(&nibbles),
    );
    assert_eq!(signed.bytes().unwrap(), [0xff, 2, 1, 0xf8]);
    assert_eq!(
        run(
            Opcode::BitcastConvert,
            "u4[2,2]",
            std::slice::from_ref(&signed)
        ),
        nibbles
    );
    let floats = run(
        Opcode::BitcastConvert,
        "f4e2m1fn[2,2]",
        std::slice::from_ref(&signed),
    );
    assert_eq!(floats.bytes().unwrap(), [15, 2, 1, 8]);
    let word = row(&[0x8421u16]);
    let nibbles = run(
        Opcode::BitcastConvert,
        "s4[1,4]",
        std::slice::from_ref(&word),
    );
    assert_eq!(nibbles.bytes().unwrap(), [1, 2, 4, 0xf8]);
    assert_eq!(run(Opcode::BitcastConvert, "u16[1]", &[nibbles]), word);
    let pairs = run(Opcode::BitcastConvert, "u2[1,2]", &[raw("u4[1]", &[0xfd])]);
    assert_eq!(pairs.bytes().unwrap(), [1, 3]);
    assert_eq!(
        run(Opcode::BitcastConvert, "u4[1]", &[pairs])
            .bytes()
            .unwrap(),
        [13]
    );
    let empty = run(Opcode::BitcastConvert, "u4[0,2]", &[row::<u8>(&[])]);
    assert!(empty.bytes().unwrap().is_empty());
}
