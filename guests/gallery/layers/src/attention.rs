//! Scaled dot-product attention and its gradient, for blocks of queries.

use callbox_guest::maths::{self, Sizes, Strides};
use callbox_guest::{Failure, Operand, ResultBuffer, target};
use gallery::{last, row_major, sum};

/// The queries whose weights are in memory at one time.
const BLOCK: usize = 64;

/// The sizes of the attention of one head.
#[derive(Clone, Copy)]
struct Head {
    queries: usize,
    keys: usize,
    depth: usize,
    width: usize,
    scale: f32,
    is_causal: bool,
}

/// Computes `softmax(scale q k^T) v` for each head.
///
/// With `causal`, query `i` of `n` sees the keys `j <= i + m - n` of `m`, so that the last query
/// sees all keys. A query that sees no key becomes 0.
#[target(rows)]
fn attention(
    #[dimensions(.., n, d)] q: &Operand<f32>,
    #[dimensions(.., m, d)] k: &Operand<f32>,
    #[dimensions(.., m, e)] v: &Operand<f32>,
    #[dimensions(.., n, e)] o: &mut ResultBuffer<f32>,
    #[attr] scale: f32,
    #[attr] causal: bool,
) -> Result<(), Failure> {
    row_major(&[
        ("q", q.shape()),
        ("k", k.shape()),
        ("v", v.shape()),
        ("o", o.shape()),
    ])?;
    let head = Head::new(q.dimensions(), v.dimensions(), scale, causal)?;
    let heads = o.len() / (head.queries * head.width).max(1);
    let mut weights = vec![0.0; BLOCK * head.keys];
    for i in 0..heads {
        let q = part(q, i, head.queries * head.depth);
        let k = part(k, i, head.keys * head.depth);
        let v = part(v, i, head.keys * head.width);
        let o = part_mut(o, i, head.queries * head.width);
        for first in (0..head.queries).step_by(BLOCK) {
            let rows = BLOCK.min(head.queries - first);
            let weights = &mut weights[..rows * head.keys];
            head.weigh(
                first,
                &q[first * head.depth..][..rows * head.depth],
                k,
                weights,
            );
            let o = &mut o[first * head.width..][..rows * head.width];
            maths::matmul(weights, v, o, [rows, head.keys, head.width]);
        }
    }
    Ok(())
}

/// Computes the cotangents of the operands of `attention` from the cotangent `dout` of its result.
#[target(rows)]
#[derivative_of(attention)]
fn attention_grad(
    #[dimensions(.., n, d)] q: &Operand<f32>,
    #[dimensions(.., m, d)] k: &Operand<f32>,
    #[dimensions(.., m, e)] v: &Operand<f32>,
    #[dimensions(.., n, e)] dout: &Operand<f32>,
    #[dimensions(.., n, d)] dq: &mut ResultBuffer<f32>,
    #[dimensions(.., m, d)] dk: &mut ResultBuffer<f32>,
    #[dimensions(.., m, e)] dv: &mut ResultBuffer<f32>,
    #[attr] scale: f32,
    #[attr] causal: bool,
) -> Result<(), Failure> {
    row_major(&[
        ("q", q.shape()),
        ("k", k.shape()),
        ("v", v.shape()),
        ("dout", dout.shape()),
        ("dq", dq.shape()),
        ("dk", dk.shape()),
        ("dv", dv.shape()),
    ])?;
    let head = Head::new(q.dimensions(), v.dimensions(), scale, causal)?;
    dq.fill(0.0);
    dk.fill(0.0);
    dv.fill(0.0);
    let heads = dout.len() / (head.queries * head.width).max(1);
    for i in 0..heads {
        head.differentiate(
            [
                part(q, i, head.queries * head.depth),
                part(k, i, head.keys * head.depth),
                part(v, i, head.keys * head.width),
                part(dout, i, head.queries * head.width),
            ],
            [
                part_mut(dq, i, head.queries * head.depth),
                part_mut(dk, i, head.keys * head.depth),
                part_mut(dv, i, head.keys * head.width),
            ],
        );
    }
    Ok(())
}

fn part(x: &[f32], i: usize, length: usize) -> &[f32] {
    &x[i * length..][..length]
}

fn part_mut(x: &mut [f32], i: usize, length: usize) -> &mut [f32] {
    &mut x[i * length..][..length]
}

impl Head {
    fn new(q: &[i64], v: &[i64], scale: f32, is_causal: bool) -> Result<Self, Failure> {
        let [queries, depth] = last("q", q)?;
        let [keys, width] = last("v", v)?;
        Ok(Self {
            queries,
            keys,
            depth,
            width,
            scale,
            is_causal,
        })
    }

    /// Writes the weights of a block of queries, which begins with number `first`.
    fn weigh(self, first: usize, q: &[f32], k: &[f32], weights: &mut [f32]) {
        let rows = weights.len() / self.keys.max(1);
        multiply(
            (q, Strides::row_major(rows, self.depth)),
            (k, Strides::row_major(self.keys, self.depth).transposed()),
            weights,
            [rows, self.depth, self.keys],
            (self.scale, 0.0),
        );
        for (i, row) in weights.chunks_exact_mut(self.keys.max(1)).enumerate() {
            row[self.seen(first + i)..].fill(f32::NEG_INFINITY);
        }
        maths::softmax_rows_in_place(self.keys, weights);
        for (i, row) in weights.chunks_exact_mut(self.keys.max(1)).enumerate() {
            if self.seen(first + i) == 0 {
                row.fill(0.0);
            }
        }
    }

    /// Returns the number of keys that a query sees.
    fn seen(self, query: usize) -> usize {
        if self.is_causal {
            (query + 1 + self.keys).saturating_sub(self.queries)
        } else {
            self.keys
        }
    }

    /// Adds the cotangents of one head.
    fn differentiate(self, [q, k, v, dout]: [&[f32]; 4], [dq, dk, dv]: [&mut [f32]; 3]) {
        let mut all_weights = vec![0.0; BLOCK * self.keys];
        let mut all_slopes = vec![0.0; BLOCK * self.keys];
        for first in (0..self.queries).step_by(BLOCK) {
            let rows = BLOCK.min(self.queries - first);
            let weights = &mut all_weights[..rows * self.keys];
            let slopes = &mut all_slopes[..rows * self.keys];
            let q = &q[first * self.depth..][..rows * self.depth];
            let dout = &dout[first * self.width..][..rows * self.width];
            let dq = &mut dq[first * self.depth..][..rows * self.depth];
            let by_key = Strides::row_major(rows, self.keys);
            let (deep, wide) = (
                Strides::row_major(rows, self.depth),
                Strides::row_major(rows, self.width),
            );
            self.weigh(first, q, k, weights);
            multiply(
                (weights, by_key.transposed()),
                (dout, wide),
                dv,
                [self.keys, rows, self.width],
                (1.0, 1.0),
            );
            multiply(
                (dout, wide),
                (v, Strides::row_major(self.keys, self.width).transposed()),
                slopes,
                [rows, self.width, self.keys],
                (1.0, 0.0),
            );
            softmax_slopes(self.keys, weights, slopes);
            multiply(
                (slopes, by_key),
                (k, Strides::row_major(self.keys, self.depth)),
                dq,
                [rows, self.keys, self.depth],
                (self.scale, 0.0),
            );
            multiply(
                (slopes, by_key.transposed()),
                (q, deep),
                dk,
                [self.keys, rows, self.depth],
                (self.scale, 1.0),
            );
        }
    }
}

/// Replaces the cotangents of rows of weights by those of the numbers whose softmax they are.
fn softmax_slopes(columns: usize, weights: &[f32], slopes: &mut [f32]) {
    let rows = weights.chunks_exact(columns.max(1));
    for (weights, slopes) in rows.zip(slopes.chunks_exact_mut(columns.max(1))) {
        let mean = sum(columns, |i| f64::from(weights[i]) * f64::from(slopes[i]));
        for (slope, weight) in slopes.iter_mut().zip(weights) {
            *slope = (f64::from(*weight) * (f64::from(*slope) - mean)) as f32;
        }
    }
}

/// Computes `c = alpha a b + beta c` for `[rows, depth, columns]`, where `c` is dense.
fn multiply(
    a: (&[f32], Strides),
    b: (&[f32], Strides),
    c: &mut [f32],
    [rows, depth, columns]: [usize; 3],
    (alpha, beta): (f32, f32),
) {
    let sizes = Sizes {
        batch: 1,
        rows,
        columns,
        depth,
    };
    let strides = Strides::row_major(rows, columns);
    maths::gemm(sizes, alpha, a, b, beta, (c, strides));
}
