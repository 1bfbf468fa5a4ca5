//! Products of matrices of narrow elements, beside products of the same numbers in F32 and exact
//! ones in integers.

use callbox_maths::convert::{Source, Target as Converted, convert};
use callbox_maths::gemm::{Bf16, F16, Format, Operand, Strides, Target};
use callbox_maths::{Arithmetic, Gemm, gemm_of};

use super::{go_on, numbers};

const SIZES: [[usize; 3]; 7] = [
    [1, 1, 1],
    [2, 3, 4],
    [7, 5, 600],
    [300, 1, 5],
    [33, 65, 257],
    [257, 258, 3],
    [4, 4, 0],
];

/// How the elements of a matrix lie in memory.
#[derive(Clone, Copy, Debug)]
enum Layout {
    Rows,
    Columns,
    Scattered,
}

const LAYOUTS: [Layout; 3] = [Layout::Rows, Layout::Columns, Layout::Scattered];

impl Layout {
    /// The strides of a batch, and the elements of two matrices.
    fn strides(self, rows: usize, columns: usize) -> (Strides, usize) {
        let (row, column) = match self {
            Self::Rows => (columns + 2, 1),
            Self::Columns => (1, rows + 3),
            Self::Scattered => (2 * columns + 1, 2),
        };
        let batch = row * rows + column * columns + 1;
        (Strides { batch, row, column }, 2 * batch)
    }
}

/// `c = alpha a b + beta c` for two matrices, of operands in layouts and a result in rows.
fn product<F: Format>(
    [m, n, k]: [usize; 3],
    layouts: [Layout; 2],
    arithmetic: Arithmetic,
    [a, b]: [&[F::Stored]; 2],
    [alpha, beta]: [F::Sum; 2],
    before: &[F::Sum],
) -> Vec<F::Sum> {
    let mut c = before.to_vec();
    let sizes = Gemm {
        batch: 2,
        rows: m,
        columns: n,
        depth: k,
        arithmetic,
    };
    let (of_a, of_b) = (layouts[0].strides(m, k).0, layouts[1].strides(k, n).0);
    let of_c = Layout::Rows.strides(m, n).0;
    gemm_of::<F, _>(
        sizes,
        alpha,
        Operand::new(a, of_a, [2, m, k]).unwrap(),
        Operand::new(b, of_b, [2, k, n]).unwrap(),
        beta,
        Target::new(&mut c, of_c, [2, m, n]).unwrap(),
        &mut go_on,
    )
    .unwrap();
    c
}

fn each(mut check: impl FnMut([usize; 3], [Layout; 2])) {
    for sizes in SIZES {
        for a in LAYOUTS {
            for b in LAYOUTS {
                check(sizes, [a, b]);
            }
        }
    }
}

/// A format of 16 bits.
trait Half: Format<Stored = u16, Wide = f32, Sum = f32> {
    fn narrow(y: &mut [u16]) -> Converted<'_>;
    fn wide(x: &[u16]) -> Source<'_>;
}

macro_rules! half {
    ($format:ident) => {
        impl Half for $format {
            fn narrow(y: &mut [u16]) -> Converted<'_> {
                Converted::$format(y)
            }

            fn wide(x: &[u16]) -> Source<'_> {
                Source::$format(x)
            }
        }
    };
}

half!(F16);
half!(Bf16);

/// Checks a format of 16 bits beside F32: portable products have the same bits.
fn check_halves<F: Half>() {
    let elements = |count, seed| {
        let x = numbers(count, seed);
        let (mut halves, mut floats) = (vec![0; count], vec![0.0; count]);
        convert(Source::F32(&x), F::narrow(&mut halves), &mut go_on).unwrap();
        convert(F::wide(&halves), Converted::F32(&mut floats), &mut go_on).unwrap();
        (halves, floats)
    };
    each(|[m, n, k], layouts| {
        let (a, wide_a) = elements(layouts[0].strides(m, k).1, 5);
        let (b, wide_b) = elements(layouts[1].strides(k, n).1, 6);
        let before = numbers(Layout::Rows.strides(m, n).1, 7);
        for factors in [[1.0, 0.0], [0.5, -1.5]] {
            let multiplied = |arithmetic| {
                product::<F>([m, n, k], layouts, arithmetic, [&a, &b], factors, &before)
            };
            let in_f32 = [&wide_a[..], &wide_b];
            let exact = product::<f32>(
                [m, n, k],
                layouts,
                Arithmetic::Portable,
                in_f32,
                factors,
                &before,
            );
            assert_eq!(multiplied(Arithmetic::Portable), exact, "{m} {n} {k}");
            for (found, exact) in multiplied(Arithmetic::Fastest).iter().zip(exact) {
                // The terms are at most 16, and each sum of them differs by at most k roundings.
                let bound = (16.0 * k as f32 + 8.0) * (k as f32 + 4.0) * f32::EPSILON;
                assert!((found - exact).abs() <= bound, "{m} {n} {k} {layouts:?}");
            }
        }
    });
}

#[test]
fn halves_are_multiplied_as_f32() {
    check_halves::<F16>();
    check_halves::<Bf16>();
}

#[test]
fn products_of_s8_are_exact_and_wrap() {
    let elements = |count, seed| -> Vec<i8> {
        let x = numbers(count, seed).into_iter().enumerate();
        // Among them long runs of the least number, whose squares have the largest sums.
        x.map(|(i, x)| {
            if i / 700 % 2 == 1 {
                -128
            } else {
                (x * 31.9) as i8
            }
        })
        .collect()
    };
    each(|[m, n, k], layouts| {
        let (of_a, count_a) = layouts[0].strides(m, k);
        let (of_b, count_b) = layouts[1].strides(k, n);
        let (of_c, count_c) = Layout::Rows.strides(m, n);
        let (a, b) = (elements(count_a, 5), elements(count_b, 6));
        let before: Vec<i32> = (0..count_c as i32)
            .map(|i| i.wrapping_mul(7_654_321))
            .collect();
        for [alpha, beta] in [[1, 0], [1, 1], [-300_000, i32::MIN + 5]] {
            let mut exact = before.clone();
            for l in 0..2 {
                for i in 0..m {
                    for j in 0..n {
                        let at = |s: Strides, i, j| l * s.batch + i * s.row + j * s.column;
                        let term = |p| i64::from(a[at(of_a, i, p)]) * i64::from(b[at(of_b, p, j)]);
                        let c = &mut exact[at(of_c, i, j)];
                        let sum = (0..k).map(term).sum::<i64>() as i32;
                        *c = alpha.wrapping_mul(sum).wrapping_add(beta.wrapping_mul(*c));
                    }
                }
            }
            for arithmetic in [Arithmetic::Fastest, Arithmetic::Portable] {
                let operands = [&a[..], &b];
                let factors = [alpha, beta];
                let found =
                    product::<i8>([m, n, k], layouts, arithmetic, operands, factors, &before);
                assert_eq!(found, exact, "{m} {n} {k} {layouts:?} {arithmetic:?}");
            }
        }
    });
}

#[test]
fn a_pause_can_stop_products_of_narrow_elements() {
    let sizes = Gemm {
        batch: 1,
        rows: 1000,
        columns: 1000,
        depth: 1000,
        arithmetic: Arithmetic::Fastest,
    };
    let same = Strides {
        batch: 0,
        row: 0,
        column: 0,
    };
    let apart = Strides {
        row: 1000,
        column: 1,
        ..same
    };
    let mut c = vec![0; 1_000_000];
    let mut pauses = 0;
    let stopped = gemm_of::<i8, _>(
        sizes,
        1,
        Operand::new(&[1], same, [1, 1000, 1000]).unwrap(),
        Operand::new(&[1], same, [1, 1000, 1000]).unwrap(),
        0,
        Target::new(&mut c, apart, [1, 1000, 1000]).unwrap(),
        &mut || {
            pauses += 1;
            if pauses == 3 { Err("stopped") } else { Ok(()) }
        },
    );
    assert_eq!(stopped, Err("stopped"));
    assert_eq!((c[0], c[999_999]), (768, 0));
}
