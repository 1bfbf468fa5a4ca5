//! Choices of tokens.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use callbox_guest::{Failure, Operand, ResultBuffer, target};
use gallery::{invalid, last, row_major};

/// Chooses a token of each row of `logits` by a number `uniform` from 0 to 1.
///
/// The tokens are ordered by probability, and equally likely ones by number. Those after the first
/// `top_k` are left out, unless `top_k` is 0, and then those that follow others with a probability
/// of `top_p` or more together. The token is the first whose probability, with those before it,
/// exceeds `uniform` times that of all tokens that are left. A temperature of 0 chooses the first.
#[target(rows)]
fn sample_tokens(
    #[dimensions(.., n)] logits: &Operand<f32>,
    #[dimensions(..)] uniform: &Operand<f32>,
    #[dimensions(..)] tokens: &mut ResultBuffer<i32>,
    #[attr] temperature: f32,
    #[attr] top_k: i32,
    #[attr] top_p: f32,
) -> Result<(), Failure> {
    row_major(&[
        ("logits", logits.shape()),
        ("uniform", uniform.shape()),
        ("tokens", tokens.shape()),
    ])?;
    let [columns] = last("logits", logits.dimensions())?;
    if columns == 0 && !tokens.is_empty() {
        return Err(Failure::invalid_argument("expected a token, found none"));
    }
    if !(temperature.is_finite() && temperature >= 0.0) {
        return Err(invalid(format!(
            "expected temperature to be finite and not negative, found {temperature}"
        )));
    }
    let most = match usize::try_from(top_k) {
        Ok(0) => columns,
        Ok(top_k) => top_k.min(columns),
        Err(_) => {
            return Err(invalid(format!(
                "expected top_k of 0 or more, found {top_k}"
            )));
        }
    };
    if !(top_p > 0.0 && top_p <= 1.0) {
        return Err(invalid(format!(
            "expected top_p above 0 and at most 1, found {top_p}"
        )));
    }
    for (i, (token, &uniform)) in tokens.iter_mut().zip(uniform.iter()).enumerate() {
        let logits = &logits[i * columns..][..columns];
        if logits.iter().any(|logit| logit.is_nan()) {
            return Err(invalid(format!("expected logits, found NaN in row {i}")));
        }
        *token = choose(logits, uniform, temperature, most, top_p) as i32;
    }
    Ok(())
}

/// Returns the number of the chosen token.
fn choose(logits: &[f32], uniform: f32, temperature: f32, most: usize, top_p: f32) -> usize {
    let mut order: Vec<u32> = (0..logits.len() as u32).collect();
    let by_logit = |a: &u32, b: &u32| {
        let (left, right) = (logits[*a as usize], logits[*b as usize]);
        right.total_cmp(&left).then(a.cmp(b))
    };
    if temperature == 0.0 {
        return order.into_iter().min_by(by_logit).unwrap_or(0) as usize;
    }
    if most < order.len() {
        order.select_nth_unstable_by(most, by_logit);
        order.truncate(most);
    }
    order.sort_unstable_by(by_logit);
    let greatest = f64::from(logits[order[0] as usize]);
    let weights: Vec<f64> = order
        .iter()
        .map(|&i| {
            let below = f64::from(logits[i as usize]) - greatest;
            // The difference of equal infinities is NaN.
            if below.is_nan() {
                1.0
            } else {
                (below / f64::from(temperature)).exp()
            }
        })
        .collect();
    let total: f64 = weights.iter().sum();
    let mut kept = 0;
    let mut mass = 0.0;
    while kept < weights.len() && mass < f64::from(top_p) * total {
        mass += weights[kept];
        kept += 1;
    }
    let aim = f64::from(uniform) * mass;
    let mut reached = 0.0;
    let chosen = weights[..kept].iter().position(|weight| {
        reached += weight;
        reached > aim
    });
    order[chosen.unwrap_or(kept - 1)] as usize
}

/// Extends the beams of a search by one token: chooses the pairs of a beam and a token with the
/// greatest sums of `scores` and `log_probabilities`, in descending order. Of equal sums the pair
/// with the lower beam and then the lower token comes first.
#[target(pure)]
fn beam_step(
    #[dimensions(b)] scores: &Operand<f32, 1>,
    #[dimensions(b, n)] log_probabilities: &Operand<f32, 2>,
    #[dimensions(k)] best: &mut ResultBuffer<f32, 1>,
    #[dimensions(k)] beams: &mut ResultBuffer<i32, 1>,
    #[dimensions(k)] tokens: &mut ResultBuffer<i32, 1>,
) -> Result<(), Failure> {
    row_major(&[("log_probabilities", log_probabilities.shape())])?;
    let count = best.len();
    if count > log_probabilities.len() {
        return Err(Failure::invalid_argument(format!(
            "expected at most {} beams in the result, found {count}",
            log_probabilities.len()
        )));
    }
    let columns = (log_probabilities.len() / scores.len().max(1)).max(1);
    let mut kept = Kept::new(count);
    let rows = log_probabilities.chunks_exact(columns);
    for (beam, (row, score)) in rows.zip(scores.iter()).enumerate() {
        kept.offer(row, *score, beam * columns);
    }
    for (i, (sum, chosen)) in kept.in_order().enumerate() {
        best[i] = sum;
        beams[i] = (chosen / columns) as i32;
        tokens[i] = (chosen % columns) as i32;
    }
    Ok(())
}

/// The greatest sums so far, with their positions. Of equal sums the first ones are kept.
struct Kept {
    count: usize,
    /// The least is on top.
    sums: BinaryHeap<Reverse<(i32, Reverse<usize>)>>,
}

impl Kept {
    fn new(count: usize) -> Self {
        let sums = BinaryHeap::with_capacity(count);
        Self { count, sums }
    }

    /// Offers `score` plus each element of a row, whose first one has this position.
    fn offer(&mut self, row: &[f32], score: f32, first: usize) {
        // Few sums are greater than the least that is kept, and 32 are compared with it at once.
        const BLOCK: usize = 32;
        let key = |log: &f32| ordered((score + log).to_bits() as i32);
        for (block, logs) in row.chunks(BLOCK).enumerate() {
            let greatest = logs.iter().map(key).max();
            if !greatest.is_some_and(|greatest| self.takes(greatest)) {
                continue;
            }
            for (i, log) in logs.iter().enumerate() {
                let sum = key(log);
                if self.takes(sum) {
                    if self.sums.len() == self.count {
                        self.sums.pop();
                    }
                    let position = first + block * BLOCK + i;
                    self.sums.push(Reverse((sum, Reverse(position))));
                }
            }
        }
    }

    fn takes(&self, sum: i32) -> bool {
        match self.sums.peek() {
            Some(Reverse((least, _))) if self.sums.len() == self.count => sum > *least,
            _ => self.count > 0,
        }
    }

    /// The sums and their positions, the greatest first.
    fn in_order(self) -> impl Iterator<Item = (f32, usize)> {
        let sums = self.sums.into_sorted_vec().into_iter();
        sums.map(|Reverse((sum, Reverse(position)))| {
            (f32::from_bits(ordered(sum) as u32), position)
        })
    }
}

/// From the bits of an F32 to an integer in the order of `f32::total_cmp`, and back.
fn ordered(bits: i32) -> i32 {
    bits ^ ((bits >> 31) as u32 >> 1) as i32
}
