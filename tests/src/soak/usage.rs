//! What a process has of the machine, as Linux tells it in `/proc`. Elsewhere it is not available, and a soak says so.

use std::fs;

use serde::Serialize;

/// What this process has at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// Bytes of memory that are resident.
    pub resident: u64,
    /// Threads.
    pub threads: u64,
    /// Open descriptors.
    pub descriptors: u64,
    /// Mappings of the address space.
    pub mappings: u64,
}

impl Usage {
    /// What it has now. `None` where the system does not tell.
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

/// A number of `/proc/self/status`.
fn field(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Open descriptors, but for the one that this takes to look.
fn descriptors() -> Option<u64> {
    let entries = fs::read_dir("/proc/self/fd").ok()?;
    (entries.count() as u64).checked_sub(1)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    /// Other tests run beside this one, and have threads and files of their own: a lot is taken, and less than that is asked for.
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
                // It has an end when the sender is dropped.
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
        // Each thread has a stack, which is a mapping, and a page that guards it.
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
