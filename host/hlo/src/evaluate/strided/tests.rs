#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;
use callbox_core::values::StatusCode;

/// The position of the element at an index, computed naively.
fn place(strides: &Strides, index: &[usize]) -> usize {
    let steps = zip(&strides.steps, index).map(|(&step, &i)| step * i as isize);
    strides.start.checked_add_signed(steps.sum()).unwrap()
}

fn check(dimensions: &[usize], width: usize, from: &Strides, to: &Strides) {
    let bytes = (0..=u8::MAX).cycle().take(4096).collect::<Vec<_>>();
    let mut found = vec![0; 4096];
    let (from_bytes, to_bytes) = (from.clone().of(&bytes[..]), to.clone().of(&mut found[..]));
    copy(dimensions, width, from_bytes, to_bytes).unwrap();
    let mut expected = vec![0; 4096];
    for number in 0..dimensions.iter().product() {
        let mut rest = number;
        let mut index = vec![0; dimensions.len()];
        for (i, &d) in zip(&mut index, dimensions).rev() {
            (*i, rest) = (rest % d, rest / d);
        }
        let (from, to) = (place(from, &index), place(to, &index));
        expected[to..to + width].copy_from_slice(&bytes[from..from + width]);
    }
    assert_eq!(found, expected, "{dimensions:?} {width} {from:?} {to:?}");
}

#[test]
fn elements_come_to_lie_where_they_should() {
    let strides = |start, steps: &[isize]| Strides {
        start,
        steps: steps.to_vec(),
    };
    for width in [1, 2, 3, 4, 8, 16] {
        let w = width as isize;
        let dense = |dimensions: &[usize]| Strides::dense(dimensions, width);
        check(&[], width, &strides(5, &[]), &strides(9, &[]));
        check(&[2, 3, 4], width, &dense(&[2, 3, 4]), &dense(&[2, 3, 4]));
        check(
            &[2, 3, 4],
            width,
            &strides(0, &[w, 8 * w, 2 * w]),
            &dense(&[2, 3, 4]),
        );
        check(
            &[2, 1, 5],
            width,
            &strides(w as usize, &[0, 0, 0]),
            &dense(&[2, 1, 5]),
        );
        check(
            &[3, 4],
            width,
            &strides(11 * width, &[-4 * w, -w]),
            &dense(&[3, 4]),
        );
        check(
            &[3, 4],
            width,
            &dense(&[3, 4]),
            &strides(7, &[12 * w, 3 * w]),
        );
        check(
            &[2, 2, 2, 2],
            width,
            &strides(0, &[0, w, 0, 2 * w]),
            &dense(&[2, 2, 2, 2]),
        );
        check(&[0, 4], width, &strides(9999, &[1, 1]), &dense(&[0, 4]));
    }
}

#[test]
fn nothing_outside_of_the_bytes_is_touched() {
    let dense = Strides::dense(&[4], 2);
    let before = Strides {
        start: 0,
        steps: vec![-2],
    };
    let cases = [
        (8, &dense, 7, &dense),
        (7, &dense, 8, &dense),
        (8, &before, 8, &dense),
        (8, &dense, 8, &before),
    ];
    for (from, from_strides, to, to_strides) in cases {
        let mut out = vec![0; to];
        let status = copy(
            &[4],
            2,
            from_strides.clone().of(&vec![0; from][..]),
            to_strides.clone().of(&mut out[..]),
        );
        assert_eq!(status.unwrap_err().code(), StatusCode::Internal);
    }
}
