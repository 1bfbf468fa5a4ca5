//! Integer arithmetic that is exact, or an error.

use super::ast::{Function, Operator};

/// Combines two integers. Quotients are rounded down, and remainders have the divisor's sign.
pub(super) fn combine(operator: Operator, a: i128, b: i128) -> Result<i128, String> {
    let value = match operator {
        Operator::Add => a.checked_add(b),
        Operator::Subtract => a.checked_sub(b),
        Operator::Multiply => a.checked_mul(b),
        Operator::Divide => return Ok(floor_div(a, b)?.0),
        Operator::Remainder => {
            // The quotient of the smallest integer and -1 overflows, but leaves no remainder.
            return if b == -1 {
                Ok(0)
            } else {
                Ok(floor_div(a, b)?.1)
            };
        }
        Operator::Or | Operator::And => None,
    };
    value.ok_or_else(|| overflow(&format!("{a} {} {b}", operator.symbol())))
}

/// The value of a function. The parser has checked the number of arguments.
pub(super) fn call(function: Function, arguments: &[i128]) -> Result<i128, String> {
    let value = match (function, arguments) {
        (Function::Min, all) => all.iter().min().copied(),
        (Function::Max, all) => all.iter().max().copied(),
        (Function::CeilDiv, &[a, b]) => {
            let (quotient, remainder) = floor_div(a, b)?;
            Some(quotient + i128::from(remainder != 0))
        }
        (Function::CeilDiv, _) => None,
    };
    value.ok_or_else(|| format!("{} has other arguments", function.name()))
}

/// The message for an overflow.
pub(super) fn overflow(what: &str) -> String {
    format!("expected a value from -2^127 to 2^127-1, found {what}")
}

/// The quotient, rounded down, and the remainder, with the divisor's sign.
fn floor_div(a: i128, b: i128) -> Result<(i128, i128), String> {
    if b == 0 {
        return Err("expected a divisor other than 0, found 0".to_owned());
    }
    let (Some(quotient), Some(rest)) = (a.checked_div(b), a.checked_rem(b)) else {
        return Err(overflow(&format!("{a} / {b}")));
    };
    // Rust rounds towards zero.
    if rest != 0 && (rest < 0) != (b < 0) {
        Ok((quotient - 1, rest + b))
    } else {
        Ok((quotient, rest))
    }
}
