//! The memory of a child and of the machine, as `/proc` tells it.

use std::process::Child;

use super::times::{machine_file, proc_file};

/// The bytes of memory that a process holds. `None` if `/proc` does not tell.
pub(super) fn resident_bytes(child: &Child) -> Option<u64> {
    bytes(&proc_file(child.id(), "status")?, "VmRSS:")
}

/// The bytes of the machine's memory. `None` if `/proc` does not tell.
pub(super) fn bytes_of_machine() -> Option<u64> {
    bytes(&machine_file("meminfo")?, "MemTotal:")
}

/// The size that a line of a text begins with after a name.
fn bytes(text: &str, name: &str) -> Option<u64> {
    let size = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kilobytes: u64 = size.split_whitespace().next()?.parse().ok()?;
    Some(kilobytes.saturating_mul(1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_in_kilobytes() {
        let text = "VmHWM:\t   20 kB\nVmRSS:\t   12 kB\n";
        assert_eq!(bytes(text, "VmRSS:"), Some(12 << 10));
        assert_eq!(bytes(text, "MemTotal:"), None);
        assert!(bytes_of_machine().is_none_or(|bytes| bytes > 1 << 20));
    }
}
