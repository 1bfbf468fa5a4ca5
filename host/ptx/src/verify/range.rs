//! Sets of register contents: intervals that may wrap, with known low bits.

/// The contents that a register of `bits` bits can have.
///
/// A content is in the set if it is congruent, modulo 2^bits, to a whole number between `low` and
/// `high`, and if its lowest `known` bits are those of `residue`. Addition, subtraction and
/// multiplication of whole numbers are therefore exact, whatever overflows. `low` is at least
/// -2^(bits-1) and below 2^(bits-1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) bits: u32,
    pub(crate) low: i128,
    pub(crate) high: i128,
    known: u32,
    residue: u64,
    /// The bits that can be one.
    ones: u64,
}

fn low_mask(bits: u32) -> u64 {
    if bits >= 64 {
        u64::MAX
    } else {
        (1 << bits) - 1
    }
}

/// 2 to this power, which is at most 64.
fn power(bits: u32) -> i128 {
    1 << bits.min(64)
}

impl Range {
    /// Everything.
    pub(crate) fn full(bits: u32) -> Self {
        let bits = bits.clamp(1, 64);
        Self {
            bits,
            low: 0,
            high: power(bits) - 1,
            known: 0,
            residue: 0,
            ones: low_mask(bits),
        }
    }

    pub(crate) fn constant(bits: u32, value: u64) -> Self {
        Self::new(bits, i128::from(value), i128::from(value))
    }

    /// All contents from `low` to `high`.
    pub(crate) fn new(bits: u32, low: i128, high: i128) -> Self {
        Self::with_known(bits, low, high, 0, 0)
    }

    fn with_known(bits: u32, low: i128, high: i128, known: u32, residue: u64) -> Self {
        let known = known.min(bits);
        let residue = residue & low_mask(known);
        // The nearest numbers with these low bits. Masks and shifts are division by a power of two.
        let within_step = power(known) - 1;
        let first = low + ((i128::from(residue) - low) & within_step);
        let last = high - ((high - i128::from(residue)) & within_step);
        let size = power(bits);
        if first > last || last - first >= size - 1 {
            let ones = low_mask(bits) & !low_mask(known) | residue;
            return Self {
                known,
                residue,
                ones,
                ..Self::full(bits)
            };
        }
        let shift = (first + size / 2) & -size;
        let (low, high) = (first - shift, last - shift);
        let (known, residue) = if low == high {
            (bits, low as u64 & low_mask(bits))
        } else {
            (known, residue)
        };
        let found = Self {
            bits,
            low,
            high,
            known,
            residue,
            ones: low_mask(bits),
        };
        let length = 128 - found.unsigned().1.leading_zeros();
        let ones = low_mask(length) & !low_mask(known) | residue;
        Self {
            ones: ones & low_mask(bits),
            ..found
        }
    }

    /// Returns the set without the contents that have other bits.
    fn only(self, ones: u64) -> Self {
        let ones = ones & self.ones;
        let most = i128::from(ones);
        let zeros = ones.trailing_zeros().min(self.bits);
        let limited = if self.unsigned().1 > most {
            self.meet(Self::new(self.bits, 0, most))
        } else {
            self
        };
        let limited = limited.knowing(zeros, 0);
        Self {
            ones: limited.ones & ones,
            ..limited
        }
    }

    /// Returns the set without the contents whose low bits are others.
    pub(crate) fn knowing(self, known: u32, residue: u64) -> Self {
        if known <= self.known {
            return self;
        }
        let found = Self::with_known(self.bits, self.low, self.high, known, residue);
        Self {
            ones: found.ones & self.ones,
            ..found
        }
    }

    /// The lowest bits that all contents share: their number, and the bits.
    pub(crate) fn low_bits(&self) -> (u32, u64) {
        (self.known, self.residue)
    }

    /// The number of lowest bits that are zero in all contents.
    pub(crate) fn zeros(&self) -> u32 {
        if self.residue == 0 {
            self.known
        } else {
            self.residue.trailing_zeros()
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.high - self.low >= power(self.bits) - 1
    }

    pub(crate) fn value(&self) -> Option<u64> {
        (self.low == self.high).then(|| self.low as u64 & low_mask(self.bits))
    }

    /// The least and the greatest content, read as unsigned numbers.
    pub(crate) fn unsigned(&self) -> (i128, i128) {
        let size = power(self.bits);
        let shift = if self.low < 0 { size } else { 0 };
        if self.high + shift < size {
            (self.low + shift, self.high + shift)
        } else {
            (0, size - 1)
        }
    }

    /// The least and the greatest content, read as signed numbers.
    pub(crate) fn signed(&self) -> (i128, i128) {
        let half = power(self.bits) / 2;
        if self.high < half {
            (self.low, self.high)
        } else {
            (-half, half - 1)
        }
    }

    pub(crate) fn read(&self, is_signed: bool) -> (i128, i128) {
        if is_signed {
            self.signed()
        } else {
            self.unsigned()
        }
    }

    fn common_low_bits(self, other: Self) -> (u32, u64) {
        let known = self.known.min(other.known);
        let differing = (self.residue ^ other.residue).trailing_zeros();
        (known.min(differing), self.residue)
    }

    pub(crate) fn add(self, other: Self) -> Self {
        let known = self.known.min(other.known);
        let residue = self.residue.wrapping_add(other.residue);
        let (low, high) = (self.low + other.low, self.high + other.high);
        Self::with_known(self.bits, low, high, known, residue)
    }

    pub(crate) fn negated(self) -> Self {
        let residue = self.residue.wrapping_neg();
        Self::with_known(self.bits, -self.high, -self.low, self.known, residue)
    }

    pub(crate) fn sub(self, other: Self) -> Self {
        self.add(other.negated())
    }

    /// The product, as `bits` bits of the product of numbers that are read as signed or not.
    pub(crate) fn product(self, other: Self, is_signed: bool, bits: u32) -> Self {
        // The low half of a product does not depend on how the factors are read.
        let is_wide = bits > self.bits;
        let choices = [self, other].map(|one| {
            if is_wide {
                one.read(is_signed)
            } else {
                (one.low, one.high)
            }
        });
        let [(a, b), (c, d)] = choices;
        let ends = [
            a.checked_mul(c),
            a.checked_mul(d),
            b.checked_mul(c),
            b.checked_mul(d),
        ];
        let (mut low, mut high) = (i128::MAX, i128::MIN);
        for end in ends {
            let Some(end) = end.filter(|end| end.unsigned_abs() < 1 << 120) else {
                return Self::full(bits);
            };
            (low, high) = (low.min(end), high.max(end));
        }
        // (r + 2^k x) (s + 2^l y) = r s + 2^k x s + 2^l y r + 2^(k+l) x y
        let zeros = |value: u64| {
            if value == 0 {
                64
            } else {
                value.trailing_zeros()
            }
        };
        let known = (self.known + zeros(other.residue))
            .min(other.known + zeros(self.residue))
            .min(self.known + other.known)
            .min(64);
        // Signed factors differ from their bits by multiples of 2^bits of the factors.
        let known = if is_wide { known.min(self.bits) } else { known };
        let residue = self.residue.wrapping_mul(other.residue);
        Self::with_known(bits, low, high, known, residue)
    }

    /// The smallest set of this kind that holds both.
    pub(crate) fn union(self, other: Self) -> Self {
        let (known, residue) = self.common_low_bits(other);
        let size = power(self.bits);
        let hull = |shift: i128| {
            let low = self.low.min(other.low + shift);
            (low, self.high.max(other.high + shift))
        };
        let (low, high) = [hull(0), hull(size), hull(-size)]
            .into_iter()
            .min_by_key(|(low, high)| high - low)
            .unwrap_or((0, size - 1));
        let found = Self::with_known(self.bits, low, high, known, residue);
        Self {
            ones: found.ones & (self.ones | other.ones),
            ..found
        }
    }

    /// A set that holds at least what is in both. Where that would be two intervals, or nothing,
    /// it is one of the two sets.
    pub(crate) fn meet(self, other: Self) -> Self {
        let found = self.met(other);
        let ones = self.ones & other.ones;
        // What is known of both holds, unless nothing is in both.
        if found.low == found.high {
            return found;
        }
        Self {
            ones: found.ones & ones,
            ..found
        }
    }

    fn met(self, other: Self) -> Self {
        let (finer, coarser) = if self.known >= other.known {
            (self, other)
        } else {
            (other, self)
        };
        let (known, residue) = (finer.known, finer.residue);
        if other.is_full() {
            return self.knowing(known, residue);
        }
        if self.is_full() {
            return other.knowing(known, residue);
        }
        if (finer.residue ^ coarser.residue).trailing_zeros() < coarser.known {
            return self;
        }
        let size = power(self.bits);
        let mut pieces = [0, size, -size].into_iter().filter_map(|shift| {
            let low = self.low.max(other.low + shift);
            let high = self.high.min(other.high + shift);
            (low <= high).then_some((low, high))
        });
        match (pieces.next(), pieces.next()) {
            (Some((low, high)), None) => {
                let met = Self::with_known(self.bits, low, high, known, residue);
                if met.is_full() { self } else { met }
            }
            (Some(_), Some(_)) if other.high - other.low < self.high - self.low => other,
            _ => self,
        }
    }

    /// The same numbers in another width, read as signed or not. Wider registers are extended.
    pub(crate) fn resized(self, is_signed: bool, bits: u32) -> Self {
        let (low, high) = if bits > self.bits {
            self.read(is_signed)
        } else {
            (self.low, self.high)
        };
        let found = Self::with_known(bits, low, high, self.known, self.residue);
        let sign = 1_u64 << (self.bits - 1);
        if bits > self.bits && is_signed && self.ones & sign != 0 {
            return found;
        }
        found.only(self.ones)
    }

    pub(crate) fn shifted_left(self, by: u32) -> Self {
        if by >= self.bits {
            return Self::constant(self.bits, 0);
        }
        let found = self.product(Self::constant(self.bits, 1 << by), false, self.bits);
        found.only(self.ones << by)
    }

    pub(crate) fn shifted_right(self, by: u32, is_signed: bool) -> Self {
        let by = by.min(self.bits - u32::from(is_signed));
        let (low, high) = self.read(is_signed);
        let known = self.known.saturating_sub(by);
        let residue = if by >= 64 { 0 } else { self.residue >> by };
        let found = Self::with_known(self.bits, low >> by, high >> by, known, residue);
        let sign = 1_u64 << (self.bits - 1);
        if is_signed && self.ones & sign != 0 {
            return found;
        }
        found.only(self.ones.checked_shr(by).unwrap_or(0))
    }

    pub(crate) fn and(self, other: Self) -> Self {
        let (_, most) = self.unsigned();
        let (_, other_most) = other.unsigned();
        let zeros = self.zeros().max(other.zeros());
        let known = self.known.min(other.known);
        let result = Self::new(self.bits, 0, most.min(other_most)).knowing(zeros, 0);
        let result = result.knowing(known, self.residue & other.residue);
        result.only(self.ones & other.ones)
    }

    /// `or`, and `xor` too. They are sums if one number ends where the other's zeros begin.
    pub(crate) fn or(self, other: Self, is_exclusive: bool) -> Self {
        if self.is_disjoint(other) {
            return self.add(other).only(self.ones | other.ones);
        }
        let (_, a) = self.unsigned();
        let (_, b) = other.unsigned();
        let most = a.max(b);
        let length = 128 - most.leading_zeros();
        let known = self.known.min(other.known);
        let residue = if is_exclusive {
            self.residue ^ other.residue
        } else {
            self.residue | other.residue
        };
        let found = Self::with_known(self.bits, 0, power(length) - 1, known, residue);
        found.only(self.ones | other.ones)
    }

    /// Whether no bit can be one in both: then `or` is a sum.
    pub(crate) fn is_disjoint(self, other: Self) -> bool {
        self.ones & other.ones == 0
    }

    /// Extends the set so that repeated calls end soon: ends that moved go to the next of the
    /// thresholds, which are sorted.
    pub(crate) fn widened(self, before: Self, thresholds: &[i128]) -> Self {
        let size = power(self.bits);
        let nearest = [0, size, -size]
            .into_iter()
            .min_by_key(|shift| (self.low + shift - before.low).abs())
            .unwrap_or(0);
        let (low, high) = (self.low + nearest, self.high + nearest);
        let low = if low < before.low {
            let at = thresholds.partition_point(|&one| one <= low);
            let found = at.checked_sub(1).and_then(|at| thresholds.get(at));
            found.copied().unwrap_or(-size).max(-size)
        } else {
            low
        };
        let high = if high > before.high {
            let at = thresholds.partition_point(|&one| one < high);
            let found = thresholds.get(at);
            found.copied().unwrap_or(2 * size).min(2 * size)
        } else {
            high
        };
        Self::with_known(self.bits, low, high, self.known, self.residue)
    }
}
