//! The resources of this process, read from Linux's `/proc`. On other systems they are unavailable,
//! and the soak's report says so.

use std::fs;

use serde::Serialize;

/// The resources of this process at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// Resident memory in bytes.
    pub resident: u64,
    /// The number of threads.
    pub threads: u64,
    /// The number of open descriptors.
    pub descriptors: u64,
    /// The number of mappings in the address space.
    pub mappings: u64,
}

impl Usage {
    /// Reads the current usage. Returns `None` where the system does not report it.
    #[must_use]
    pub fn now() -> Option<Self> {
        let status = fs::read_to_string("/proc/self/status").ok()?;
        Some(Self {
            resident: field(&status, "VmRSS:")? << 10,
            threads: field(&status, "Threads:")?,
            descriptors: descriptors()?,
            mappings: fs::read_to_string("/proc/self/maps").ok()?.lines().count() as u64,
        })
    }
}

/// Reads a number from `/proc/self/status`.
fn field(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Counts the open descriptors, without the one that the count itself takes.
fn descriptors() -> Option<u64> {
    let entries = fs::read_dir("/proc/self/fd").ok()?;
    (entries.count() as u64).checked_sub(1)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    /// Other tests run concurrently with threads and files of their own, so this one takes many and
    /// expects fewer to show.
    #[test]
    fn what_is_taken_is_seen() {
        let before = Usage::now().unwrap();
        let files: Vec<_> = (0..300)
            .map(|_| fs::File::open("/dev/null").unwrap())
            .collect();
        let (sender, receiver) = mpsc::channel::<()>();
        let receiver = std::sync::Arc::new(std::sync::Mutex::new(receiver));
        let threads: Vec<_> = (0..100)
            .map(|_| {
                let receiver = std::sync::Arc::clone(&receiver);
                // The thread ends when the sender is dropped.
                thread::spawn(move || receiver.lock().unwrap().recv().is_err())
            })
            .collect();
        let memory = vec![1_u8; 256 << 20];
        let during = Usage::now().unwrap();
        assert!(std::hint::black_box(&memory).iter().all(|&byte| byte == 1));
        drop(sender);
        for thread in threads {
            thread.join().unwrap();
        }
        assert!(
            during.descriptors >= before.descriptors + 250,
            "{before:?} {during:?}"
        );
        assert!(
            during.threads >= before.threads + 80,
            "{before:?} {during:?}"
        );
        assert!(
            during.resident >= before.resident + (128 << 20),
            "{before:?} {during:?}"
        );
        // Each thread has a stack and a guard page, which are separate mappings.
        assert!(
            during.mappings >= before.mappings + 50,
            "{before:?} {during:?}"
        );
        drop(files);
    }

    #[test]
    fn fields_are_read() {
        let status = "Name:\tsoak\nVmRSS:\t    1234 kB\nThreads:\t7\n";
        assert_eq!(field(status, "VmRSS:"), Some(1234));
        assert_eq!(field(status, "Threads:"), Some(7));
        assert_eq!(field(status, "VmSwap:"), None);
    }
}
