#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::{transposed, transposed_within};
use crate::evaluate::array::Array;
use crate::evaluate::teamwork::THREE;
use crate::evaluate::tests::{counting, raw, row, run};
use crate::instruction::{Opcode, PaddingDimension, SliceDimension};
use callbox_core::values::{ArrayShape, ElementType, Literal};

const NOTHING: [i32; 0] = [];

fn moved(opcode: Opcode, shape: &str, operands: &[Literal]) -> Vec<i32> {
    run(opcode, shape, operands).to_vec().unwrap()
}

fn one(opcode: Opcode, shape: &str, x: &str) -> Vec<i32> {
    moved(opcode, shape, &[counting(x)])
}

#[test]
fn iotas_count_along_a_dimension() {
    assert_eq!(moved(Opcode::Iota(0), "s32[2,3]", &[]), [0, 0, 0, 1, 1, 1]);
    assert_eq!(moved(Opcode::Iota(1), "s32[2,3]", &[]), [0, 1, 2, 0, 1, 2]);
    assert_eq!(moved(Opcode::Iota(1), "s32[1,1,2]", &[]), [0, 0]);
    assert_eq!(moved(Opcode::Iota(0), "s32[0]", &[]), NOTHING);
    let floats = run(Opcode::Iota(0), "f16[3]", &[])
        .to_vec::<half::f16>()
        .unwrap();
    assert_eq!(floats, [0.0, 1.0, 2.0].map(half::f16::from_f64));
    let bytes = run(Opcode::Iota(0), "u8[258]", &[]).to_vec::<u8>().unwrap();
    assert_eq!(bytes[254..], [254, 255, 0, 1]);
    let complex = run(Opcode::Iota(0), "c64[2]", &[]);
    assert_eq!(complex.bytes().unwrap()[8..], [0, 0, 128, 63, 0, 0, 0, 0]);
}

#[test]
fn broadcasts_repeat() {
    let broadcast = |dimensions: &[usize], shape: &str, x: &str| {
        one(Opcode::Broadcast(dimensions.to_vec()), shape, x)
    };
    assert_eq!(
        moved(Opcode::Broadcast(vec![]), "s32[2,2]", &[Literal::scalar(7)]),
        [7; 4]
    );
    assert_eq!(broadcast(&[1], "s32[2,3]", "s32[3]"), [0, 1, 2, 0, 1, 2]);
    assert_eq!(broadcast(&[0], "s32[2,3]", "s32[2]"), [0, 0, 0, 1, 1, 1]);
    assert_eq!(
        broadcast(&[0, 2], "s32[2,2,2]", "s32[2,2]"),
        [0, 1, 0, 1, 2, 3, 2, 3]
    );
    // Dimensions may change their order.
    assert_eq!(
        broadcast(&[1, 0], "s32[3,2]", "s32[2,3]"),
        [0, 3, 1, 4, 2, 5]
    );
    assert_eq!(broadcast(&[0], "s32[0,3]", "s32[0]"), NOTHING);
    let wide = run(
        Opcode::Broadcast(vec![]),
        "bf16[3]",
        &[raw("bf16[]", &[1, 2])],
    );
    assert_eq!(wide.bytes().unwrap(), [1, 2, 1, 2, 1, 2]);
}

#[test]
fn transposes_permute_dimensions() {
    let transpose = |permutation: &[usize], shape: &str, x: &str| {
        one(Opcode::Transpose(permutation.to_vec()), shape, x)
    };
    assert_eq!(
        transpose(&[1, 0], "s32[3,2]", "s32[2,3]"),
        [0, 3, 1, 4, 2, 5]
    );
    assert_eq!(
        transpose(&[0, 1], "s32[2,3]", "s32[2,3]"),
        [0, 1, 2, 3, 4, 5]
    );
    // result[i,j,k] = operand[j,k,i]
    assert_eq!(
        transpose(&[2, 0, 1], "s32[2,2,3]", "s32[2,3,2]"),
        [0, 2, 4, 6, 8, 10, 1, 3, 5, 7, 9, 11]
    );
    assert_eq!(transpose(&[], "s32[]", "s32[]"), [0]);
    assert_eq!(transpose(&[1, 0], "s32[0,2]", "s32[2,0]"), NOTHING);
}

#[test]
fn reversals_turn_dimensions_around() {
    let reverse = |dimensions: &[usize], x: &str| one(Opcode::Reverse(dimensions.to_vec()), x, x);
    assert_eq!(reverse(&[0], "s32[2,3]"), [3, 4, 5, 0, 1, 2]);
    assert_eq!(reverse(&[1], "s32[2,3]"), [2, 1, 0, 5, 4, 3]);
    assert_eq!(reverse(&[0, 1], "s32[2,3]"), [5, 4, 3, 2, 1, 0]);
    assert_eq!(reverse(&[], "s32[2]"), [0, 1]);
    assert_eq!(reverse(&[0, 1], "s32[0,3]"), NOTHING);
}

#[test]
fn slices_take_parts() {
    let slice = |dimensions: &[(usize, usize, usize)], shape: &str, x: &str| {
        let dimension = |&(start, limit, stride)| SliceDimension {
            start,
            limit,
            stride,
        };
        one(
            Opcode::Slice(dimensions.iter().map(dimension).collect()),
            shape,
            x,
        )
    };
    assert_eq!(
        slice(&[(1, 3, 1), (0, 2, 1)], "s32[2,2]", "s32[3,3]"),
        [3, 4, 6, 7]
    );
    assert_eq!(slice(&[(1, 10, 3)], "s32[3]", "s32[10]"), [1, 4, 7]);
    assert_eq!(
        slice(&[(0, 3, 2), (2, 3, 1)], "s32[2,1]", "s32[3,3]"),
        [2, 8]
    );
    assert_eq!(slice(&[(3, 3, 1)], "s32[0]", "s32[3]"), NOTHING);
    assert_eq!(slice(&[(0, 3, usize::MAX)], "s32[1]", "s32[3]"), [0]);
}

/// XLA's operation semantics: `clamp(start, 0, dimension - size)`.
#[test]
fn dynamic_slices_are_moved_inside() {
    let slice = |starts: &[Literal]| {
        let operands = [&[counting("s32[3,4]")], starts].concat();
        moved(Opcode::DynamicSlice(vec![2, 2]), "s32[2,2]", &operands)
    };
    let at = |i: i32, j: i32| slice(&[Literal::scalar(i), Literal::scalar(j)]);
    assert_eq!(at(0, 1), [1, 2, 5, 6]);
    assert_eq!(at(-5, 9), [2, 3, 6, 7]);
    assert_eq!(at(2, i32::MIN), [4, 5, 8, 9]);
    assert_eq!(
        slice(&[Literal::scalar(u64::MAX), Literal::scalar(u64::MAX)]),
        [6, 7, 10, 11]
    );
    assert_eq!(
        slice(&[Literal::scalar(200u8), Literal::scalar(1u8)]),
        [5, 6, 9, 10]
    );
    assert_eq!(slice(&[row(&[1i64, 2])]), [6, 7, 10, 11]);
    assert_eq!(
        moved(Opcode::DynamicSlice(vec![]), "s32[]", &[Literal::scalar(3)]),
        [3]
    );
}

#[test]
fn dynamic_updates_are_moved_inside() {
    let update = |update: &Literal, i: i32, j: i32| {
        let operands = [
            counting("s32[2,3]"),
            update.clone(),
            Literal::scalar(i),
            Literal::scalar(j),
        ];
        moved(Opcode::DynamicUpdateSlice, "s32[2,3]", &operands)
    };
    let two = raw("s32[1,2]", &[100, 0, 0, 0, 101, 0, 0, 0]);
    assert_eq!(update(&two, 0, 0), [100, 101, 2, 3, 4, 5]);
    assert_eq!(update(&two, 7, 7), [0, 1, 2, 3, 100, 101]);
    assert_eq!(update(&two, -7, 1), [0, 100, 101, 3, 4, 5]);
    assert_eq!(update(&raw("s32[0,2]", &[]), 1, 1), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn concatenations_put_one_behind_the_other() {
    let (x, y) = (
        counting("s32[2,2]"),
        raw("s32[2,1]", &[50, 0, 0, 0, 51, 0, 0, 0]),
    );
    let empty = counting("s32[2,0]");
    assert_eq!(
        moved(Opcode::Concatenate(1), "s32[2,3]", &[x.clone(), empty, y]),
        [0, 1, 50, 2, 3, 51]
    );
    assert_eq!(
        moved(Opcode::Concatenate(0), "s32[4,2]", &[x.clone(), x.clone()]),
        [0, 1, 2, 3, 0, 1, 2, 3]
    );
    assert_eq!(
        moved(Opcode::Concatenate(0), "s32[2,2]", &[x]),
        [0, 1, 2, 3]
    );
}

/// XLA's definition: the operand's element `i` moves to `low + i * (interior + 1)`, if that is in
/// bounds.
#[test]
fn paddings_put_elements_in_and_take_them_away() {
    let filling = Literal::scalar(-1);
    for (low, high, interior) in paddings() {
        let size = low + high + 4 + 3 * interior;
        let Ok(size) = usize::try_from(size) else {
            continue;
        };
        let mut expected = vec![-1; size];
        for i in 0..4 {
            let place = usize::try_from(low + i * (interior + 1)).ok();
            if let Some(place) = place.and_then(|place| expected.get_mut(place)) {
                *place = i as i32;
            }
        }
        let padding = vec![PaddingDimension {
            low,
            high,
            interior,
        }];
        let found = moved(
            Opcode::Pad(padding),
            &format!("s32[{size}]"),
            &[counting("s32[4]"), filling.clone()],
        );
        assert_eq!(found, expected, "{low} {high} {interior}");
    }
    let padding = vec![
        PaddingDimension {
            low: 1,
            high: 0,
            interior: 0,
        },
        PaddingDimension {
            low: -1,
            high: 1,
            interior: 1,
        },
    ];
    let found = moved(
        Opcode::Pad(padding),
        "s32[3,3]",
        &[counting("s32[2,2]"), filling.clone()],
    );
    assert_eq!(found, [-1, -1, -1, -1, 1, -1, -1, 3, -1]);
    let padding = vec![PaddingDimension {
        low: 2,
        high: 0,
        interior: 5,
    }];
    let found = moved(
        Opcode::Pad(padding),
        "s32[2]",
        &[counting("s32[0]"), filling],
    );
    assert_eq!(found, [-1, -1]);
}

fn paddings() -> impl Iterator<Item = (i64, i64, i64)> {
    (-6..6).flat_map(|low| {
        (-6..6).flat_map(move |high| (0..3).map(move |interior| (low, high, interior)))
    })
}

#[test]
fn elements_of_every_width_move() {
    for element_type in ["s4", "u8", "bf16", "f32", "f64", "c128"] {
        let x = counting(&format!("{element_type}[2,3]"));
        let turned = run(
            Opcode::Transpose(vec![1, 0]),
            &format!("{element_type}[3,2]"),
            std::slice::from_ref(&x),
        );
        assert_ne!(turned.bytes(), x.bytes(), "{element_type}");
        let back = run(
            Opcode::Transpose(vec![1, 0]),
            &format!("{element_type}[2,3]"),
            &[turned],
        );
        assert_eq!(back, x);
    }
}

/// Parts of one row of the result, of several, and of a part of one.
#[test]
fn a_transposition_in_parts_moves_the_same() {
    for sizes in [
        &[3, 300_000][..],
        &[700, 800],
        &[2, 2, 300_000],
        &[5, 1, 9],
        &[4, 0],
    ] {
        let shape = ArrayShape::new(ElementType::U16, sizes).unwrap();
        let bytes: Vec<u8> = (0..shape.byte_size()).map(|i| (i % 251) as u8).collect();
        let x = Array {
            shape: &shape,
            bytes: &bytes,
        };
        let reversed: Vec<usize> = (0..sizes.len()).rev().collect();
        let rotated: Vec<usize> = (0..sizes.len()).map(|i| (i + 1) % sizes.len()).collect();
        for order in [reversed, rotated] {
            let whole = transposed(&x, &order).unwrap();
            let parts = transposed_within(&x, &order, THREE.check).unwrap();
            assert!(whole == parts, "{sizes:?} {order:?}");
        }
    }
}
