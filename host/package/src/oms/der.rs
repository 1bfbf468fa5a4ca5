//! DER, as certificates have it.

use std::time::Duration;

pub(super) const BIT_STRING: u8 = 0x03;
pub(super) const OBJECT_IDENTIFIER: u8 = 0x06;
pub(super) const OCTET_STRING: u8 = 0x04;
pub(super) const SEQUENCE: u8 = 0x30;
pub(super) const UTC_TIME: u8 = 0x17;
pub(super) const GENERALIZED_TIME: u8 = 0x18;

/// The rest of some DER.
pub(super) struct Der<'a>(pub(super) &'a [u8]);

impl<'a> Der<'a> {
    /// The tag and the value of the next element.
    pub(super) fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let [tag, length, rest @ ..] = self.0 else {
            return None;
        };
        let (length, rest) = if *length < 0x80 {
            (usize::from(*length), rest)
        } else {
            let digits = usize::from(length & 0x7f);
            let (digits, rest) = rest.split_at_checked(digits)?;
            if digits.len() > 3 {
                return None;
            }
            let length = digits
                .iter()
                .fold(0, |sum, &digit| sum << 8 | usize::from(digit));
            (length, rest)
        };
        let (value, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((*tag, value))
    }

    /// The value of the next element, if it has this tag.
    pub(super) fn value(&mut self, expected: u8) -> Option<&'a [u8]> {
        let (tag, value) = self.next()?;
        (tag == expected).then_some(value)
    }

    /// The next element with its tag and length, and its tag.
    pub(super) fn whole(&mut self) -> Option<(u8, &'a [u8])> {
        let before = self.0;
        let (tag, _) = self.next()?;
        Some((tag, &before[..before.len() - self.0.len()]))
    }
}

/// An element in DER.
pub(super) fn element(tag: u8, value: &[u8]) -> Vec<u8> {
    let length = value.len().to_be_bytes();
    let digits = &length[length.iter().take_while(|&&digit| digit == 0).count()..];
    let mut element = vec![tag];
    match digits {
        [] => element.push(0),
        [short @ ..0x80] => element.push(*short),
        // At most eight digits.
        _ => element.extend([&[0x80 | digits.len() as u8], digits].concat()),
    }
    element.extend(value);
    element
}

/// A time in UTC, `YYMMDDHHMMSSZ` or with four digits of the year, since 1970.
pub(super) fn time(kind: u8, text: &[u8]) -> Option<Duration> {
    let text = str::from_utf8(text).ok()?.strip_suffix('Z')?;
    let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let years = match kind {
        UTC_TIME => 2,
        GENERALIZED_TIME => 4,
        _ => return None,
    };
    if !is_digits || text.len() != years + 10 {
        return None;
    }
    let number = |at: usize| text[at..at + 2].parse::<u64>().ok();
    let year = match (kind, text[..years].parse::<u64>().ok()?) {
        (UTC_TIME, year) if year < 50 => 2000 + year,
        (UTC_TIME, year) => 1900 + year,
        (_, year) => year,
    };
    let (month, day) = (number(years)?, number(years + 2)?);
    // Days since 1 March of the year 0, so that a leap day is the last of its year.
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year.checked_sub(1)?, month + 9)
    };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day;
    let days = days.checked_sub(719_469)?;
    let (hours, minutes, seconds) = (number(years + 4)?, number(years + 6)?, number(years + 8)?);
    Some(Duration::from_secs(
        days * 86400 + hours * 3600 + minutes * 60 + seconds,
    ))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Der, GENERALIZED_TIME, UTC_TIME, element, time};

    #[test]
    fn times_are_counted_since_1970() {
        for (kind, text, expected) in [
            (UTC_TIME, "700101000000Z", Some(0)),
            (UTC_TIME, "000229235959Z", Some(951_868_799)),
            (UTC_TIME, "261123185838Z", Some(1_795_460_318)),
            (GENERALIZED_TIME, "20261123185838Z", Some(1_795_460_318)),
            (GENERALIZED_TIME, "21000301000000Z", Some(4_107_542_400)),
            (UTC_TIME, "690101000000Z", None),
            (UTC_TIME, "20261123185838Z", None),
            (UTC_TIME, "26112318583Z", None),
            (UTC_TIME, "261123185838+", None),
            (GENERALIZED_TIME, "00000101000000Z", None),
        ] {
            let expected = expected.map(Duration::from_secs);
            assert_eq!(time(kind, text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn elements_are_read_as_they_were_written() {
        for length in [0, 1, 0x7f, 0x80, 0xff, 0x100, 0xffff, 0x1_0000] {
            let value = vec![7; length];
            let written = element(0x30, &value);
            let mut der = Der(&written);
            assert_eq!(der.next(), Some((0x30, &value[..])), "{length}");
            assert!(der.0.is_empty());
        }
    }
}
