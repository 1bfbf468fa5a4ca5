//! Products of matrices of every layout, beside sums in F64.

use callbox_maths::gemm::{Operand, Strides, Target};
use callbox_maths::{Arithmetic, Gemm, gemm};

use super::{go_on, numbers};

/// The product in F64, with the sum of the terms' magnitudes.
fn product(a: &[f64], b: &[f64], [m, n, k]: [usize; 3]) -> Vec<(f64, f64)> {
    let mut c = Vec::new();
    for i in 0..m {
        for j in 0..n {
            let terms = (0..k).map(|p| a[i * k + p] * b[p * n + j]);
            c.push(terms.fold((0.0, 0.0), |(sum, size), x| (sum + x, size + x.abs())));
        }
    }
    c
}

#[test]
fn products_of_every_shape_and_layout() {
    let sizes = [
        [1, 1, 1],
        [2, 3, 4],
        [7, 5, 9],
        [1, 300, 17],
        [300, 1, 5],
        [33, 65, 257],
        [257, 258, 3],
        [4, 4, 0],
        [0, 3, 3],
        [3, 0, 3],
    ];
    for [m, n, k] in sizes {
        for transposed in 0..8 {
            for arithmetic in [Arithmetic::Fastest, Arithmetic::Portable] {
                for apart in [1, 5] {
                    check_product([m, n, k], transposed, apart, arithmetic);
                }
            }
        }
    }
}

/// Checks two products of a batch, with the matrices whose bit is set in column-major order, and
/// gaps between rows or columns. All elements lie `apart`.
fn check_product([m, n, k]: [usize; 3], transposed: usize, apart: usize, arithmetic: Arithmetic) {
    let strides = |bit: usize, rows: usize, columns: usize| match transposed >> bit & 1 {
        0 => Strides {
            batch: rows.max(1) * (columns + 2) * apart,
            row: (columns + 2) * apart,
            column: apart,
        },
        _ => Strides {
            batch: columns.max(1) * (rows + 3) * apart,
            row: apart,
            column: (rows + 3) * apart,
        },
    };
    let place = |s: Strides, l: usize, i: usize, j: usize| l * s.batch + i * s.row + j * s.column;
    let [sa, sb, sc] = [strides(0, m, k), strides(1, k, n), strides(2, m, n)];
    let (a, b) = (numbers(2 * sa.batch + 8, 5), numbers(2 * sb.batch + 8, 6));
    let before = numbers(2 * sc.batch + 8, 8);
    let mut c = before.clone();
    let sizes = Gemm {
        batch: 2,
        rows: m,
        columns: n,
        depth: k,
        arithmetic,
    };
    gemm(
        sizes,
        0.5,
        Operand::new(&a, sa, [2, m, k]).unwrap(),
        Operand::new(&b, sb, [2, k, n]).unwrap(),
        -1.5,
        Target::new(&mut c, sc, [2, m, n]).unwrap(),
        &mut go_on,
    )
    .unwrap();
    let mut written = vec![false; c.len()];
    for l in 0..2 {
        let dense = |x: &[f32], s: Strides, rows: usize, columns: usize| -> Vec<f64> {
            let places = (0..rows).flat_map(|i| (0..columns).map(move |j| place(s, l, i, j)));
            places.map(|at| f64::from(x[at])).collect()
        };
        let exact = product(&dense(&a, sa, m, k), &dense(&b, sb, k, n), [m, n, k]);
        for i in 0..m {
            for j in 0..n {
                let at = place(sc, l, i, j);
                let (sum, size) = exact[i * n + j];
                let old = f64::from(before[at]);
                let bound = (size + 2.0 * old.abs() + 1.0) * (k + 4) as f64 * 2.0_f64.powi(-24);
                let error = f64::from(c[at]) - (0.5 * sum - 1.5 * old);
                assert!(
                    error.abs() <= bound,
                    "{m} {n} {k} {transposed} {apart} {arithmetic:?}: {error}"
                );
                written[at] = true;
            }
        }
    }
    for (at, _) in written.iter().enumerate().filter(|(_, written)| !**written) {
        assert_eq!(c[at], before[at], "a gap was written");
    }
}

/// The number of pauses in a product of 256 rows, columns and terms, with the elements of A, of B
/// and of C so far `apart`.
fn pauses(apart: [usize; 3], arithmetic: Arithmetic) -> usize {
    const SIDE: usize = 256;
    let strides = apart.map(|apart| Strides {
        batch: 0,
        row: SIDE * apart,
        column: apart,
    });
    let sizes = [1, SIDE, SIDE];
    let [a, b] = [0, 1].map(|matrix| numbers(SIDE * SIDE * apart[matrix], 1));
    let mut c = vec![0.0; SIDE * SIDE * apart[2]];
    let mut pauses = 0;
    gemm(
        Gemm {
            batch: 1,
            rows: SIDE,
            columns: SIDE,
            depth: SIDE,
            arithmetic,
        },
        1.0,
        Operand::new(&a, strides[0], sizes).unwrap(),
        Operand::new(&b, strides[1], sizes).unwrap(),
        0.0,
        Target::new(&mut c, strides[2], sizes).unwrap(),
        &mut || {
            pauses += 1;
            Ok::<_, ()>(())
        },
    )
    .unwrap();
    pauses
}

#[test]
fn products_of_sparse_matrices_pause_more_often() {
    for (apart, fastest, portable) in [
        ([1, 1, 1], 1, 16),
        ([4, 4, 4], 1, 16),
        ([5, 1, 1], 16 * 16, 64),
        ([1, 5, 1], 16 * 16, 16 * 64),
        ([1, 1, 5], 16 * 16, 64 * 64),
        ([5, 5, 5], 16 * 16 * 16, 64 * 64),
    ] {
        assert_eq!(pauses(apart, Arithmetic::Fastest), fastest, "{apart:?}");
        assert_eq!(pauses(apart, Arithmetic::Portable), portable, "{apart:?}");
    }
}

#[test]
fn beta_of_zero_does_not_read_the_result() {
    for arithmetic in [Arithmetic::Fastest, Arithmetic::Portable] {
        for depth in [0, 2] {
            let (a, b, mut c) = ([2.0_f64; 2], [3.0_f64; 2], [f64::NAN]);
            let of = |column| Strides {
                batch: 0,
                row: 0,
                column,
            };
            let sizes = Gemm {
                batch: 1,
                rows: 1,
                columns: 1,
                depth,
                arithmetic,
            };
            gemm(
                sizes,
                1.0,
                Operand::new(&a, of(1), [1, 1, depth]).unwrap(),
                Operand::new(
                    &b,
                    Strides {
                        batch: 0,
                        row: 1,
                        column: 0,
                    },
                    [1, depth, 1],
                )
                .unwrap(),
                0.0,
                Target::new(&mut c, of(0), [1, 1, 1]).unwrap(),
                &mut go_on,
            )
            .unwrap();
            assert_eq!(c, [6.0 * depth as f64]);
        }
    }
}

#[test]
fn sizes_and_strides_are_checked_without_overflow() {
    let x = [0.0_f32; 8];
    let operand =
        |batch, row, column, sizes| Operand::new(&x, Strides { batch, row, column }, sizes).is_ok();
    assert!(operand(0, 4, 1, [1, 2, 4]));
    assert!(!operand(0, 4, 1, [1, 2, 5]));
    assert!(operand(0, 0, 0, [usize::MAX; 3]));
    assert!(!operand(0, 1, 0, [1, usize::MAX, 1]));
    assert!(!operand(
        usize::MAX,
        usize::MAX,
        usize::MAX,
        [usize::MAX; 3]
    ));
    assert!(operand(usize::MAX, usize::MAX, usize::MAX, [1, 1, 1]));
    assert!(operand(1, 1, 1, [0, usize::MAX, usize::MAX]));
    let target = |batch, row, column, sizes| {
        Target::new(&mut [0.0_f32; 8], Strides { batch, row, column }, sizes).is_ok()
    };
    assert!(target(4, 2, 1, [2, 2, 2]));
    assert!(target(4, 1, 2, [2, 2, 2]));
    assert!(target(1, 2, 4, [2, 2, 2]));
    assert!(!target(0, 2, 1, [2, 2, 2]));
    assert!(!target(3, 2, 1, [2, 2, 2]));
    assert!(!target(4, 1, 1, [2, 2, 2]));
    assert!(target(0, 0, 0, [1, 1, 1]));
    assert!(target(0, 0, 0, [0, 2, 2]));
}
