//! Sums with a carry flag: `add.cc`, `addc`, `sub.cc`, `subc`, `mad.cc` and `madc`.

use super::integer::{Half, half, multiplied};
use super::{Decoded, Mnemonic, Operand, many};
use crate::ptx::body::Body;
use crate::ptx::types::low_bits;

pub(super) fn decode(body: &mut Body<'_, '_>, op: &mut Mnemonic, operands: &[Operand]) -> Decoded {
    let product = if op.name.starts_with("mad") {
        Some(half(op)?)
    } else {
        None
    };
    if matches!(product, Some(Half::Wide)) {
        return Err("`.lo` or `.hi` is missing".to_owned());
    }
    let writes_carry = op.takes("cc");
    let reads_carry = op.name.ends_with('c');
    let subtracts = op.name.starts_with("sub");
    let kind = op.kind()?;
    let bits = kind.bits();
    if !matches!(bits, 32 | 64) {
        return op.no_type(kind);
    }
    let Some((to, sources)) = operands.split_first() else {
        return Err("operands are missing".to_owned());
    };
    let wanted = if product.is_some() { 3 } else { 2 };
    if sources.len() != wanted {
        return Err(format!(
            "{} operands were expected, and {} found",
            wanted + 1,
            operands.len()
        ));
    }
    let mut from = vec![body.carry()];
    for source in sources {
        from.push(body.value(source, kind)?);
    }
    let carry_to = if writes_carry {
        body.carry()
    } else {
        body.sink()
    };
    let to = vec![body.target(to)?, carry_to];
    Ok(many(
        to,
        from,
        Box::new(move |from, to| {
            let carry = u128::from(if reads_carry { from[0] } else { 0 });
            let (a, b) = match product {
                Some(half) => (multiplied(from[1], from[2], kind, half), from[3]),
                None => (from[1], from[2]),
            };
            let (a, b) = (u128::from(low_bits(a, bits)), u128::from(low_bits(b, bits)));
            // A negative difference borrows: the flag is the bit above the result.
            let sum = if subtracts {
                a.wrapping_sub(b).wrapping_sub(carry)
            } else {
                a + b + carry
            };
            to[0] = low_bits(sum as u64, bits);
            to[1] = ((sum >> bits) & 1) as u64;
        }),
    ))
}
