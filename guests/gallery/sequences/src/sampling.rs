//! Choices of tokens.

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
    let sums: Vec<f32> = log_probabilities
        .iter()
        .enumerate()
        .map(|(i, log)| scores[i / columns] + log)
        .collect();
    let by_sum = |a: &usize, b: &usize| sums[*b].total_cmp(&sums[*a]).then(a.cmp(b));
    let mut order: Vec<usize> = (0..sums.len()).collect();
    if count > 0 && count < order.len() {
        order.select_nth_unstable_by(count, by_sum);
    }
    order.truncate(count);
    order.sort_unstable_by(by_sum);
    for (i, chosen) in order.into_iter().enumerate() {
        best[i] = sums[chosen];
        beams[i] = (chosen / columns) as i32;
        tokens[i] = (chosen % columns) as i32;
    }
    Ok(())
}
