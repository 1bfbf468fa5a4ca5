//! A caller's result buffers, surrounded by guard bytes that detect writes out of bounds.

/// The fill byte of buffers before a call, by which a write shows.
const UNTOUCHED: u8 = 0xa5;

/// The number of guard bytes before, between and after buffers.
const GUARD: usize = 64;

/// The result buffers of one call.
pub(in crate::platform) struct Results {
    bytes: Vec<u8>,
    sizes: Vec<usize>,
}

impl Results {
    pub(in crate::platform) fn new(sizes: Vec<usize>) -> Self {
        let total = sizes.iter().fold(GUARD, |at, size| at + size + GUARD);
        Self {
            bytes: vec![UNTOUCHED; total],
            sizes,
        }
    }

    /// Returns the buffers for writing.
    pub(in crate::platform) fn buffers(&mut self) -> Vec<&mut [u8]> {
        let mut rest = self.bytes.as_mut_slice();
        let mut buffers = Vec::with_capacity(self.sizes.len());
        for &size in &self.sizes {
            let (buffer, behind) = rest[GUARD..].split_at_mut(size);
            buffers.push(buffer);
            rest = behind;
        }
        buffers
    }

    /// Returns the contents of the buffers.
    pub(in crate::platform) fn contents(&self) -> impl Iterator<Item = &[u8]> {
        let mut at = 0;
        self.sizes.iter().map(move |size| {
            let begin = at + GUARD;
            at = begin + size;
            &self.bytes[begin..at]
        })
    }

    /// Returns whether a buffer was written to.
    pub(in crate::platform) fn are_touched(&self) -> bool {
        self.contents().flatten().any(|&byte| byte != UNTOUCHED)
    }

    /// Returns whether a guard byte was written to.
    pub(in crate::platform) fn were_left(&self) -> bool {
        let inside = self.contents().flatten();
        let inside = inside.filter(|&&byte| byte != UNTOUCHED).count();
        let all = self.bytes.iter().filter(|&&byte| byte != UNTOUCHED);
        all.count() != inside
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_to_is_seen() {
        let mut results = Results::new(vec![3, 0, 2]);
        assert!(!results.are_touched() && !results.were_left());
        for (i, buffer) in results.buffers().into_iter().enumerate() {
            buffer.fill(i as u8);
        }
        let contents: Vec<&[u8]> = results.contents().collect();
        assert_eq!(contents, [&[0, 0, 0][..], &[], &[2, 2]]);
        assert!(results.are_touched() && !results.were_left());
        for guard in [0, GUARD - 1, GUARD + 3, results.bytes.len() - 1] {
            let mut results = Results::new(vec![3, 0, 2]);
            results.bytes[guard] = 0;
            assert!(results.were_left(), "{guard}");
        }
    }
}
