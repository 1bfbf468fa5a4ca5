//! Orders of rows against a stable sort with a comparison of its own.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::cmp::Ordering;
use std::convert::Infallible;

use callbox_maths::Order;
use callbox_maths::sort::{Sortable, argsort_rows};

fn go_on() -> Result<(), Infallible> {
    Ok(())
}

/// Numbers that look random.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        self.0 ^ (self.0 >> 29)
    }
}

/// Rows of this length of several kinds.
fn rows(length: usize) -> Vec<Vec<f64>> {
    let mut numbers = Numbers(length as u64 + 1);
    let special = [
        0.0,
        -0.0,
        f64::NAN,
        -f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
    ];
    let mut row = |next: &mut dyn FnMut(usize, u64) -> f64| -> Vec<f64> {
        (0..length).map(|i| next(i, numbers.next())).collect()
    };
    vec![
        row(&mut |_, bits| f64::from_bits(bits)),
        row(&mut |_, bits| f64::from(f32::from_bits((bits >> 32) as u32))),
        row(&mut |_, bits| f64::from((bits >> 40) as i32 % 3 - 1)),
        row(&mut |_, bits| special[(bits >> 33) as usize % special.len()]),
        row(&mut |i, _| i as f64),
        row(&mut |i, _| -(i as f64)),
        row(&mut |_, _| 7.0),
    ]
}

/// The comparison of the contract: zeros are equal, and NaNs are equal and the greatest.
fn compare<T: Sortable>(a: T, b: T) -> Ordering {
    a.partial_cmp(&b)
        .unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

fn expected<T: Sortable>(order: Order, row: &[T]) -> Vec<i32> {
    let mut positions: Vec<i32> = (0..row.len() as i32).collect();
    positions.sort_by(|&a, &b| {
        let ascending = compare(row[a as usize], row[b as usize]);
        match order {
            Order::Ascending => ascending,
            Order::Descending => ascending.reverse(),
        }
    });
    positions
}

fn check<T: Sortable>(rows: &[Vec<T>], length: usize) {
    let x = rows.concat();
    for order in Order::ALL {
        let expected: Vec<_> = rows.iter().map(|row| expected(order, row)).collect();
        let mut counts = vec![length, 1, 7, length / 2, length.saturating_sub(1)];
        counts.retain(|&kept| kept <= length);
        for kept in counts {
            let mut found = vec![-1; kept * rows.len()];
            argsort_rows(order, &x, length, &mut found, kept, &mut go_on).unwrap();
            for (row, expected) in expected.iter().enumerate() {
                let found = &found[row * kept..][..kept];
                assert!(
                    found == &expected[..kept],
                    "row {row}, {kept} of {length}, {order}"
                );
            }
        }
    }
}

#[test]
fn positions_are_those_of_a_stable_sort() {
    for length in [
        0, 1, 2, 3, 9, 300, 512, 513, 4095, 4096, 4097, 20_000, 70_001,
    ] {
        let rows = rows(length);
        check(&rows, length);
        let narrow = |row: &Vec<f64>| row.iter().map(|&x| x as f32).collect();
        check::<f32>(&rows.iter().map(narrow).collect::<Vec<_>>(), length);
    }
}

/// The fuel of a row is in proportion to its elements, and so is its work: 16 elements for the row,
/// and 8 for each of its elements.
#[test]
fn the_first_of_short_rows_take_little_work() {
    const ROWS: usize = 1 << 16;
    for columns in [2, 8] {
        let x: Vec<f32> = (0..ROWS * columns).map(|i| (i % 5) as f32).collect();
        let mut positions = vec![0; ROWS];
        let mut pauses = 0;
        let mut count = || -> Result<(), Infallible> {
            pauses += 1;
            Ok(())
        };
        argsort_rows(Order::Ascending, &x, columns, &mut positions, 1, &mut count).unwrap();
        assert!(pauses <= 16 + 8 * columns, "{pauses}");
    }
}

/// Whatever the elements are, a sort pauses at least once for each 64 Ki elements, and ends when
/// the pause says so.
#[test]
fn a_pause_ends_a_sort() {
    const LENGTH: usize = 1 << 18;
    for x in rows(LENGTH) {
        for kept in [1, LENGTH / 2, LENGTH] {
            let mut positions = vec![0; kept];
            let mut pauses = 0;
            let mut count = || -> Result<(), Infallible> {
                pauses += 1;
                Ok(())
            };
            argsort_rows(
                Order::Ascending,
                &x,
                LENGTH,
                &mut positions,
                kept,
                &mut count,
            )
            .unwrap();
            assert!(pauses >= 4, "{pauses}");
            let mut left = pauses / 2;
            let mut stop = || {
                left -= 1;
                if left == 0 { Err("stopped") } else { Ok(()) }
            };
            let outcome = argsort_rows(
                Order::Ascending,
                &x,
                LENGTH,
                &mut positions,
                kept,
                &mut stop,
            );
            assert_eq!((outcome, left), (Err("stopped"), 0));
        }
    }
}
