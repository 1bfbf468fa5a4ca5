//! Comparisons of integers, and what they say about their sides.

use super::range::Range;
use super::values::is_integer;
use crate::ast::Instruction;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Order {
    pub(crate) fn negated(self) -> Self {
        match self {
            Self::Equal => Self::NotEqual,
            Self::NotEqual => Self::Equal,
            Self::Less => Self::GreaterOrEqual,
            Self::LessOrEqual => Self::Greater,
            Self::Greater => Self::LessOrEqual,
            Self::GreaterOrEqual => Self::Less,
        }
    }

    /// Whether it does not depend on how numbers are read.
    pub(crate) fn is_equality(self) -> bool {
        matches!(self, Self::Equal | Self::NotEqual)
    }

    /// Returns the order of `b` and `a`.
    pub(crate) fn turned(self) -> Self {
        match self {
            Self::Less => Self::Greater,
            Self::LessOrEqual => Self::GreaterOrEqual,
            Self::Greater => Self::Less,
            Self::GreaterOrEqual => Self::LessOrEqual,
            same => same,
        }
    }
}

/// The comparison that a `setp` of integers makes: its order, whether numbers are signed, and their
/// width in bits.
pub(crate) fn comparison(instruction: &Instruction) -> Option<(Order, bool, u32)> {
    let kind = instruction.kind().filter(|kind| is_integer(*kind))?;
    let signed = kind.is_signed();
    let (order, is_signed) = instruction.names().find_map(|name| {
        Some(match name {
            "eq" => (Order::Equal, false),
            "ne" => (Order::NotEqual, false),
            "lt" => (Order::Less, signed),
            "le" => (Order::LessOrEqual, signed),
            "gt" => (Order::Greater, signed),
            "ge" => (Order::GreaterOrEqual, signed),
            "lo" => (Order::Less, false),
            "ls" => (Order::LessOrEqual, false),
            "hi" => (Order::Greater, false),
            "hs" => (Order::GreaterOrEqual, false),
            _ => return None,
        })
    })?;
    Some((order, is_signed, kind.bits()))
}

/// Whether `a order b` can hold.
pub(crate) fn can_hold(a: Range, order: Order, b: Range, is_signed: bool) -> bool {
    let ((low, high), (from, to)) = (a.read(is_signed), b.read(is_signed));
    match order {
        Order::Equal => low <= to && from <= high,
        Order::NotEqual => a.value().is_none() || a.value() != b.value(),
        Order::Less => low < to,
        Order::LessOrEqual => low <= to,
        Order::Greater => high > from,
        Order::GreaterOrEqual => high >= from,
    }
}

/// The range of `a` if `a order b` holds.
pub(crate) fn limited(a: Range, order: Order, b: Range, is_signed: bool) -> Range {
    let bits = a.bits;
    let (least, most) = Range::full(bits).read(is_signed);
    let ((low, high), (from, to)) = (a.read(is_signed), b.read(is_signed));
    let (low, high) = match order {
        Order::Equal => return a.meet(b),
        Order::NotEqual => match b.value() {
            Some(_) if low == from => (low + 1, high),
            Some(_) if high == from => (low, high - 1),
            _ => return a,
        },
        Order::Less => (low, high.min(to - 1)),
        Order::LessOrEqual => (low, high.min(to)),
        Order::Greater => (low.max(from + 1), high),
        Order::GreaterOrEqual => (low.max(from), high),
    };
    if low > high || low < least || high > most {
        return a;
    }
    Range::new(bits, low, high)
}
