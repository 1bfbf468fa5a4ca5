//! Arithmetic of integers: exact, or an error.

use super::ast::{Function, Operator};

/// `a` and `b` combined. Quotients are rounded down and remainders have the divisor's sign.
pub(super) fn combine(operator: Operator, a: i128, b: i128) -> Result<i128, String> {
    let value = match operator {
        Operator::Add => a.checked_add(b),
        Operator::Subtract => a.checked_sub(b),
        Operator::Multiply => a.checked_mul(b),
        Operator::Divide => return floor_div(a, b),
        Operator::Remainder => return remainder(a, b),
        Operator::Or | Operator::And => None,
    };
    value.ok_or_else(|| overflow(&format!("{a} {} {b}", operator.symbol())))
}

/// A function's value. There are as many arguments as it takes.
pub(super) fn call(function: Function, arguments: &[i128]) -> Result<i128, String> {
    match (function, arguments) {
        (Function::Min, [first, rest @ ..]) => Ok(rest.iter().fold(*first, |a, &b| a.min(b))),
        (Function::Max, [first, rest @ ..]) => Ok(rest.iter().fold(*first, |a, &b| a.max(b))),
        (Function::CeilDiv, &[a, b]) => ceil_div(a, b),
        (Function::RoundUp, &[a, b]) => round_up(a, b),
        (Function::Pow2AtLeast, &[a]) => pow2_at_least(a),
        (Function::Clamp, &[a, least, most]) => match least <= most {
            true => Ok(a.clamp(least, most)),
            false => Err(format!(
                "expected clamp's least value not to be above its most, found {least} and {most}"
            )),
        },
        _ => Err(format!(
            "expected the arguments of {}, found {}",
            function.name(),
            arguments.len()
        )),
    }
}

/// What an overflow is called.
pub(super) fn overflow(what: &str) -> String {
    format!("expected a value from -2^127 to 2^127-1, found {what}")
}

fn check_divisor(b: i128) -> Result<(), String> {
    match b {
        0 => Err("expected a divisor other than 0, found 0".to_owned()),
        _ => Ok(()),
    }
}

fn floor_div(a: i128, b: i128) -> Result<i128, String> {
    check_divisor(b)?;
    let (Some(quotient), Some(rest)) = (a.checked_div(b), a.checked_rem(b)) else {
        return Err(overflow(&format!("{a} / {b}")));
    };
    // Rust rounds towards zero.
    let is_above = rest != 0 && (rest < 0) != (b < 0);
    Ok(quotient - i128::from(is_above))
}

fn remainder(a: i128, b: i128) -> Result<i128, String> {
    check_divisor(b)?;
    // Where this overflows, the divisor is -1 and nothing is left.
    let rest = a.checked_rem(b).unwrap_or(0);
    match rest != 0 && (rest < 0) != (b < 0) {
        true => Ok(rest + b),
        false => Ok(rest),
    }
}

fn ceil_div(a: i128, b: i128) -> Result<i128, String> {
    let quotient = floor_div(a, b)?;
    let is_exact = remainder(a, b)? == 0;
    match is_exact {
        true => Ok(quotient),
        false => Ok(quotient + 1),
    }
}

fn round_up(a: i128, multiple: i128) -> Result<i128, String> {
    if multiple < 1 {
        return Err(format!(
            "expected round_up to a multiple of 1 or more, found {multiple}"
        ));
    }
    ceil_div(a, multiple)?
        .checked_mul(multiple)
        .ok_or_else(|| overflow(&format!("round_up({a}, {multiple})")))
}

fn pow2_at_least(a: i128) -> Result<i128, String> {
    let power = u128::try_from(a).unwrap_or(0).checked_next_power_of_two();
    power
        .and_then(|power| i128::try_from(power).ok())
        .ok_or_else(|| overflow(&format!("pow2_at_least({a})")))
}
