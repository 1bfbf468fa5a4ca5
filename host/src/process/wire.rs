//! Values as bytes: little-endian numbers, and lengths before what they count. What is read is a claim: nothing is taken that is not
//! there.

use crate::values::{Blame, Result, Status, StatusCode};

/// Bytes that are written.
#[derive(Debug, Default)]
pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn bytes(self) -> Vec<u8> {
        self.0
    }

    pub(super) fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    pub(super) fn bool(&mut self, value: bool) {
        self.u8(u8::from(value));
    }

    pub(super) fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn usize(&mut self, value: usize) {
        self.u64(value as u64);
    }

    pub(super) fn blob(&mut self, bytes: &[u8]) {
        self.usize(bytes.len());
        self.0.extend_from_slice(bytes);
    }

    pub(super) fn text(&mut self, text: &str) {
        self.blob(text.as_bytes());
    }

    pub(super) fn list<T>(&mut self, values: &[T], mut write: impl FnMut(&mut Self, &T)) {
        self.usize(values.len());
        values.iter().for_each(|value| write(self, value));
    }

    pub(super) fn option<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        self.bool(value.is_some());
        if let Some(value) = value {
            write(self, value);
        }
    }
}

/// Bytes that are read.
#[derive(Debug)]
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Checks that nothing is left.
    pub(super) fn end(&self) -> Result<()> {
        match self.0.len() {
            0 => Ok(()),
            more => Err(violation(format!(
                "expected a message to end, found {more} more bytes"
            ))),
        }
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let taken = self.0.split_at_checked(count).ok_or_else(|| {
            let left = self.0.len();
            violation(format!(
                "expected a message with {count} more bytes, found {left}"
            ))
        });
        let (taken, rest) = taken?;
        self.0 = rest;
        Ok(taken)
    }

    pub(super) fn u8(&mut self) -> Result<u8> {
        Ok(self.take(1)?[0])
    }

    pub(super) fn bool(&mut self) -> Result<bool> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(violation(format!("expected 0 or 1, found {other}"))),
        }
    }

    pub(super) fn u64(&mut self) -> Result<u64> {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(self.take(8)?);
        Ok(u64::from_le_bytes(bytes))
    }

    pub(super) fn usize(&mut self) -> Result<usize> {
        let value = self.u64()?;
        usize::try_from(value).map_err(|_| violation(format!("expected a size, found {value}")))
    }

    pub(super) fn blob(&mut self) -> Result<&'a [u8]> {
        let length = self.usize()?;
        self.take(length)
    }

    pub(super) fn text(&mut self) -> Result<&'a str> {
        let bytes = self.blob()?;
        str::from_utf8(bytes).map_err(|_| violation("expected UTF-8, found other bytes"))
    }

    /// A list. Each of its values takes a byte at least, so that no length makes more room than the message has bytes.
    pub(super) fn list<T>(
        &mut self,
        mut read: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Vec<T>> {
        let count = self.usize()?;
        if count > self.0.len() {
            let left = self.0.len();
            return Err(violation(format!(
                "expected at most {left} values in a list, found {count}"
            )));
        }
        (0..count).map(|_| read(self)).collect()
    }

    pub(super) fn option<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<Option<T>> {
        match self.bool()? {
            true => read(self).map(Some),
            false => Ok(None),
        }
    }
}

/// What a process said that none would say which is as it should be.
#[cold]
pub(super) fn violation(message: impl Into<String>) -> Status {
    let status = Status::new(StatusCode::Internal, Blame::Guest, message);
    status.context("the module's process")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut writer = Writer::default();
        writer.text("é");
        writer.list(&[1_u64, u64::MAX], |writer, &value| writer.u64(value));
        writer.option(Some(7_u8), Writer::u8);
        writer.option(None::<u8>, Writer::u8);
        let bytes = writer.bytes();
        let mut reader = Reader::new(&bytes);
        assert_eq!(reader.text().unwrap(), "é");
        assert_eq!(reader.list(Reader::u64).unwrap(), [1, u64::MAX]);
        assert_eq!(reader.option(Reader::u8).unwrap(), Some(7));
        assert_eq!(reader.option(Reader::u8).unwrap(), None);
        reader.end().unwrap();
    }

    #[test]
    fn what_is_not_there_is_not_read() {
        let huge = u64::MAX.to_le_bytes();
        for bytes in [&huge[..], &huge[..7], &[], &[2]] {
            assert!(Reader::new(bytes).blob().is_err());
            assert!(Reader::new(bytes).list(Reader::u8).is_err());
            assert!(Reader::new(bytes).option(Reader::u8).is_err());
        }
        assert!(Reader::new(&[1]).end().is_err());
        let status = Reader::new(&huge).text().unwrap_err();
        assert_eq!(
            (status.code(), status.blame()),
            (StatusCode::Internal, Blame::Guest)
        );
    }
}
