#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;
use crate::evaluate::tests::{counting, raw, row, run};
use crate::instruction::Opcode;

fn shape(text: &str) -> Shape {
    text.parse().unwrap()
}

/// The layout `{0,1}` stores a matrix column by column.
#[test]
fn a_bitcast_reads_memory() {
    let columns = raw("s8[2,3]{0,1}", &[0, 1, 2, 3, 4, 5]);
    let memory = [0, 3, 1, 4, 2, 5];
    let bitcast = |x: &Literal, shape: &str| {
        run(Opcode::Bitcast, shape, std::slice::from_ref(x))
            .to_vec::<i8>()
            .unwrap()
    };
    assert_eq!(bitcast(&columns, "s8[6]{0}"), memory);
    assert_eq!(bitcast(&columns, "s8[3,2]{1,0}"), memory);
    assert_eq!(
        bitcast(&row(&memory.map(|x: i8| x)), "s8[2,3]{0,1}"),
        [0, 1, 2, 3, 4, 5]
    );
    // A bitcast can express a transpose.
    assert_eq!(bitcast(&columns, "s8[3,2]{0,1}"), [0, 4, 3, 2, 1, 5]);
}

#[test]
fn layouts_of_three_dimensions_are_followed() {
    let x = counting("s32[2,3,4]");
    for layout in [
        "{0,1,2}", "{1,2,0}", "{2,0,1}", "{2,1,0}", "{0,2,1}", "{1,0,2}",
    ] {
        let laid_out = shape(&format!("s32[2,3,4]{layout}"));
        let memory = to_layout(&x, &laid_out).unwrap();
        // Element i of the memory is the i-th in the order of the layout.
        let order = laid_out.as_array().unwrap().layout_or_default();
        let numbers = memory.to_vec::<i32>().unwrap();
        for (place, number) in numbers.into_iter().enumerate() {
            let index = [number / 12, number / 4 % 3, number % 4];
            let place_of = order
                .minor_to_major()
                .iter()
                .rev()
                .fold(0, |place, &d| place * [2, 3, 4][d] + index[d]);
            assert_eq!(place_of as usize, place, "{layout}");
        }
        assert_eq!(from_layout(memory, x.shape()).unwrap(), x);
    }
}

#[test]
fn tuples_and_empty_arrays_have_layouts_too() {
    let x = Literal::tuple(vec![
        counting("f32[2,2]"),
        counting("bf16[0,7]"),
        counting("u8[3]"),
    ])
    .unwrap();
    let laid_out = shape("(f32[2,2]{0,1}, bf16[0,7]{0,1}, u8[3]{0})");
    let memory = to_layout(&x, &laid_out).unwrap();
    assert_eq!(memory.shape(), &laid_out);
    let first = memory.clone().into_elements().swap_remove(0);
    assert_eq!(first.to_vec::<f32>().unwrap(), [0.0, 2.0, 1.0, 3.0]);
    assert_eq!(from_layout(memory, x.shape()).unwrap(), x);
}

#[test]
fn row_major_arrays_are_not_copied() {
    let x = counting("f32[2,2]");
    let memory = to_layout(&x, &shape("f32[2,2]{1,0}")).unwrap();
    assert!(std::sync::Arc::ptr_eq(
        &memory.shared_leaves()[0],
        &x.shared_leaves()[0]
    ));
    let back = from_layout(memory, &shape("f32[2,2]{0,1}")).unwrap();
    assert_eq!(back.shape(), &shape("f32[2,2]{0,1}"));
    assert!(std::sync::Arc::ptr_eq(
        &back.shared_leaves()[0],
        &x.shared_leaves()[0]
    ));
}
